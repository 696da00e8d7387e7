"""Here lives the scoring of a folder of incidents: the tool beside trivial rows, and how still its verdicts hold."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from clusterorch.diagnosis.diagnose import Diagnosis, default_incident_model, diagnose
from clusterorch.evaluation.baselines import Rows, keyword_modes, prior_modes
from clusterorch.evaluation.incidents import SETS, Incident, rank_of_place
from clusterorch.evaluation.journal import Record
from clusterorch.evaluation.remembering import RememberingModel, remembering
from clusterorch.evaluation.retellings import clocks_later, files_renamed, hosts_renamed, logs_of, written
from clusterorch.evaluation.scores import log_score, rank_of, ranked, total_variation
from clusterorch.models import Model
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.readings import Ingested

RETELLINGS = ("hosts renamed", "files renamed", "clocks later")
MOST_MOVED = 0.02  # total variation by which a retelling may move a diagnosis
ONE_SITE = "site_byterobust"
UNIFORM, SITE_ALONE, ALONE = "uniform prior", "one site", "two signals"
WHOLE = (UNIFORM, SITE_ALONE, ALONE)  # rows that are told for all incidents together
MOST_PLACES = 10  # reported places kept


class Bench:
    """Diagnoses incidents under the incident prior and under others.

    Args:
        model: name or path.
        overlays: applied before the incident prior.
        rows: of the trivial rows.
        stillness: whether to tell each incident in other ways too.
        priors: whether to diagnose under other priors too.
    """

    def __init__(
        self, model: str | Path = "reference", overlays: Sequence[str | Path] = (), *, rows: Rows,
        stillness: bool = True, priors: bool = True,
    ) -> None:  # fmt: skip
        self.rows, self.stillness = rows, stillness
        self.model = remembering(default_incident_model(model, overlays))
        self.formats = load_formats(self.model.format_files)
        self.others: dict[str, RememberingModel] = {}
        if priors:
            site = default_incident_model(model, [*overlays, ONE_SITE])
            self.others = {
                UNIFORM: remembering(with_uniform_share(self.model, 1.0)),
                SITE_ALONE: remembering(with_uniform_share(site, 0.0)),
            }

    @cached_property
    def prior(self) -> dict[str, float]:
        """The incident prior over modes."""
        return prior_modes(self.model.hidden_network)

    def read(self, logs: Path) -> Ingested:
        """Readings of a folder."""
        return read_paths([logs], self.formats)

    def score(self, incident: Incident) -> Record:
        """Everything that is measured about one incident."""
        ingested = self.read(incident.logs)
        said = diagnose(self.model, ingested)
        record: Record = {
            "key": incident.name, "set": incident.kind, "truth": incident.mode, "near": incident.near,
            "modes": said.modes, "variant": max(said.variants, key=lambda name: said.variants[name]),
            "place": self._place(said, incident), "rows": sorted(rows_used(ingested)),
            "lines": ingested.coverage.lines, "unrecognised": ingested.coverage.unrecognised,
            "keyword": keyword_modes(self.rows.keywords, incident.logs, self.prior),
            "alone": diagnose(self.model, only_signals(ingested, self.rows.alone)).modes,
            "other_priors": {name: diagnose(model, ingested).modes for name, model in self.others.items()},
        }  # fmt: skip
        if self.stillness:
            record["moved"] = {how: self._moved(said, incident, how) for how in RETELLINGS}
        return record

    def _place(self, said: Diagnosis, incident: Incident) -> Record | None:
        if not incident.names:
            return None
        reported = [name for _, name, p in said.sites if p > 0.0]
        return {"rank": rank_of_place(reported, incident.names), "reported": reported[:MOST_PLACES]}

    def _moved(self, said: Diagnosis, incident: Incident, how: str) -> float:
        told = logs_of(incident.logs)
        change: dict[str, Callable[[], Mapping[str, str]]] = {
            "hosts renamed": lambda: hosts_renamed(told, said.ingested.hosts),
            "files renamed": lambda: files_renamed(told),
            "clocks later": lambda: clocks_later(told),
        }
        with tempfile.TemporaryDirectory() as folder:
            other = diagnose(self.model, self.read(written(change[how](), Path(folder))))
        return total_variation(said.modes, other.modes)


def with_uniform_share(model: Model, share: float) -> Model:
    """The same model, but for how far its incident prior is uniform over modes."""
    prior = model.spec.prior.model_copy(update={"uniform_share": share})
    return replace(model, spec=model.spec.model_copy(update={"prior": prior}))


def only_signals(ingested: Ingested, names: Iterable[str]) -> Ingested:
    """The readings of some signals, and nothing else that was said."""
    kept = set(names)
    return replace(ingested, readings=[r for r in ingested.readings if r.signal in kept], phases=[], limits=[])


def rows_used(ingested: Ingested) -> set[str]:
    """Names of the pattern rows whose readings, phase marks or limits came out."""
    return {one.pattern for one in (*ingested.readings, *ingested.phases, *ingested.limits)}


def summary(records: Sequence[Record], prior: Mapping[str, float]) -> Record:
    """Scores by row of the table and by set, and what else was asked about the folder as a whole."""
    rows: dict[str, Callable[[Record], Mapping[str, float]]] = {
        "clusterorch": lambda r: r["modes"], "prior only": lambda _: prior, "keywords": lambda r: r["keyword"],
    }  # fmt: skip
    others = list(records[0]["other_priors"]) if records else []
    rows |= {name: lambda r, name=name: r["other_priors"][name] for name in others}
    rows[ALONE] = lambda r: r["alone"]
    table = {
        name: {kind: _scores([r for r in records if kind in (r["set"], "all")], modes) for kind in ("all", *SETS)}
        for name, modes in rows.items()
    }
    users: dict[str, list[str]] = {}
    for record in records:
        for row in record["rows"]:
            users.setdefault(row, []).append(record["key"])
    single = {row: keys[0] for row, keys in sorted(users.items()) if len(keys) == 1}
    moved = {f"{r['key']}: {how}": x for r in records for how, x in r.get("moved", {}).items()}
    return {
        "incidents": len(records), "table": table, "places": _places(records),
        "missed": [_missed(r) for r in records if ranked(r["modes"])[0] != r["truth"]],
        "rows_used": len(users), "rows_of_one_incident": single,
        "moved_most": max(moved.values(), default=None),
        "moved_too_far": {what: x for what, x in moved.items() if x >= MOST_MOVED},
    }  # fmt: skip


def _scores(records: Sequence[Record], modes: Callable[[Record], Mapping[str, float]]) -> Record | None:
    """AC@1, AC@1 with near misses, AC@3, mean log score."""
    if not records:
        return None
    ranks = np.array([rank_of(modes(r), r["truth"]) for r in records])
    near = [ranked(modes(r))[0] in (r["truth"], r["near"]) for r in records]
    logs = [log_score(modes(r), r["truth"]) for r in records]
    return {
        "incidents": len(records), "first": int((ranks == 1).sum()), "first_or_near": int(sum(near)),
        "first_three": int((ranks <= 3).sum()), "ac1": float((ranks == 1).mean()), "ac1_near": float(np.mean(near)),
        "ac3": float((ranks <= 3).mean()), "log_score": float(np.mean(logs)),
    }  # fmt: skip


def _places(records: Sequence[Record]) -> Record:
    ranks = [r["place"]["rank"] for r in records if r["place"] is not None]
    return {
        "scored": len(ranks), "first": sum(x == 1 for x in ranks),
        "first_three": sum(x is not None and x <= 3 for x in ranks),
        "not_named": [r["key"] for r in records if r["place"] is not None and r["place"]["rank"] is None],
    }  # fmt: skip


def _missed(record: Record) -> Record:
    leading = ranked(record["modes"])[0]
    return {
        "incident": record["key"], "truth": record["truth"], "probability": record["modes"].get(record["truth"], 0.0),
        "said": leading, "near": leading == record["near"],
    }  # fmt: skip
