"""Here lives the round trip: an incident is simulated, its logs are written, read back, and diagnosed.

The judge is the filter on the simulated values themselves, before anything was written.  What it is given is what
perfect reading of the same files would give, so that the difference is the work of writing and reading alone:

- the same network on the same site universe (the entities that the logs name, and one elsewhere of each kind), the
  same incident prior over the same number of slices, restarts that nobody logged included, the same site weights;
- every value of every entity that the universe names, in its own slice; what the logs name nobody of has printed
  nothing, since they are complete (protocol `complete`);
- but for signals that only a dump or a listing tells, which no clock stamps: they are left out on both sides;
- the phases as they were published.

It knows of lost cells that they are lost, of samples their exact number and level, and it has one clock.
`whole` is the same filter on the layout of the episode with all values: what the logs could have told at best.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clusterorch.diagnosis.contiguous import gathered_by_hand
from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
from clusterorch.diagnosis.laid_out import Restarted
from clusterorch.diagnosis.universe import Universe
from clusterorch.evaluation.drawing import LAYOUTS, SLICES, Plan, one_limit, planned
from clusterorch.evaluation.journal import Record
from clusterorch.evaluation.remembering import RememberingModel, remembering
from clusterorch.evaluation.scores import log_score, rank_of, ranked, total_variation
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.priors import incident_prior
from clusterorch.models import Model, load
from clusterorch.models.compile import Network
from clusterorch.models.rows import CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.simulation.command import WRONG_CLOCKS
from clusterorch.simulation.trace import Trace
from clusterorch.telemetry.naming import Naming
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.readings import EntityRef
from clusterorch.telemetry.writing import write_logs

MOST_APART, MOST_WORSE = 0.02, 0.03  # aims: mean total variation, loss of AC@1
_FAR = 0.1  # total variation from which an incident is listed


@dataclass(frozen=True)
class Names:
    """Which entity of an episode's layout a name stands for."""

    naming: Naming

    def number(self, kind: str, ref: EntityRef) -> int | None:
        """Number of an entity of the layout; None if the name tells none."""
        layout = self.naming.layout
        if kind not in ("node", "gpu", "rank", "link"):
            return 0 if layout.count(kind) == 1 else None
        if kind == "rank" and ref.name is None and ref.index is not None:
            return ref.index
        node = next((n for n in range(layout.nodes) if self.naming.host(n) == ref.host), None)
        if node is None or kind == "node":
            return node
        count = layout.rails if kind == "link" else layout.gpus
        places = [i for i in range(count) if self._sits(kind, ref, i)]
        return node * count + places[0] if places else None

    def _sits(self, kind: str, ref: EntityRef, place: int) -> bool:
        name = ref.name or ""
        if kind == "link":
            return ref.index == place if not name else name in (self.naming.device(place), self.naming.card(place))
        if kind == "rank":
            pid = self.naming.fields("rank", place, 0.0, 0)["pid"]
            return ref.index == place if not name.startswith("pid ") else name == f"pid {pid}"
        return ref.index == place if not name else re.sub(r"\.0$", "", name) == self.naming.address(place)


def placed(model: Model, trace: Trace, network: Network, universe: Universe) -> np.ndarray:
    """[T, width of the universe] the values of an episode, at the entities of a universe."""
    names, own = Names(Naming(model.layout)), model.network
    values = np.full((trace.slices, network.width), np.nan)
    numbers: dict[str, dict[int, int]] = {}  # by kind: entity of the layout -> entity of the universe
    for (kind, number), ref in universe.names.items():
        if (mine := names.number(kind, ref)) is not None:
            numbers.setdefault(kind, {}).setdefault(mine, number)
    for s, signal in enumerate(network.spec.signal):
        block = trace.values[:, own.slice_of(s)]
        start = int(network.signal_offset[s])
        here = numbers.get(signal.entity, {})
        if KIND_OF_FAMILY[signal.family] == FIRST:
            values[:, start] = [here.get(int(x), np.nan) if x >= 0.0 else x for x in block[:, 0]]
            continue
        if model.layout.count(signal.entity) == 1 and signal.entity not in ("node", "gpu", "rank", "link"):
            here = {0: 0}
        if KIND_OF_FAMILY[signal.family] != CONTINUOUS and (signal.lines or signal.entity == "link"):
            values[:, start + np.flatnonzero(universe.present[signal.entity])] = 0.0
        for mine, number in here.items():
            values[:, start + number] = block[:, mine]
    return values


def filtered(network: Network, values: np.ndarray, phases: Sequence[int], weights: np.ndarray | None) -> Belief:
    """The belief after T slices of values under the incident prior.  [T, width], [T]"""
    prior, before = incident_prior(network, len(values))
    job = Restarted(Filter(network, prior=prior, site_weights=weights, strict=False))
    for _ in range(before):
        job.step(SliceEvidence(np.full(network.width, np.nan), int(phases[0])), logged=False)
    for row, phase in zip(values, phases, strict=True):
        job.step(SliceEvidence(row, int(phase)))
    return job.posterior()


class RoundTrip:
    """Simulates, writes, reads and diagnoses incidents by number."""

    def __init__(
        self, model: str | Path = "reference", overlays: Sequence[str | Path] = (), seed: int = 0, *,
        skew: float = WRONG_CLOCKS,
    ) -> None:  # fmt: skip
        self.seed, self.skew = seed, skew
        self.reader = remembering(default_incident_model(model, overlays))
        self.formats = load_formats(self.reader.format_files)
        self._worlds: dict[str, RememberingModel] = {}
        self._source = model, tuple(overlays)

    def world(self, layout: str) -> RememberingModel:
        """The model on the layout of an episode."""
        if layout not in self._worlds:
            model, overlays = self._source
            self._worlds[layout] = remembering(load(model, layout=layout, overlays=[*overlays, "incident"]))
        return self._worlds[layout]

    def plan(self, key: str) -> Plan:
        """What incident a key stands for."""
        return planned(self.reader.spec, int(key), self.seed)

    def run(self, key: str) -> Record:
        """One round trip: posteriors over modes from the logs, from the values, and from all values of the layout."""
        plan = self.plan(key)
        world = self.world(plan.layout)
        world, trace = one_limit(world, plan)
        with tempfile.TemporaryDirectory() as folder:
            write_logs(
                world, trace.values, trace.published, trace.events, folder, protocol="complete",
                seed=plan.number, formats=self.formats, skew=self.skew,
            )  # fmt: skip
            said = diagnose(self.reader, read_paths([folder], self.formats), protocol="complete")
        assert said.belief is not None
        assert said.universe is not None
        network, phases = said.belief.network, trace.published["phase"].tolist()
        weights = said.universe.site_weights([b.variant.spec.site for b in network.blocks])
        known = placed(world, trace, network, said.universe)
        for signal in gathered_by_hand(tuple(world.format_files)):
            known[:, network.slice_of(network.signal_index(signal))] = np.nan
        values = filtered(network, known, phases, weights)
        whole = filtered(world.hidden_network, trace.values, phases, None)
        coverage = said.ingested.coverage
        return {
            "key": key, "layout": plan.layout, "truth": plan.mode, "variant": plan.variant, "at": plan.at,
            "logs": said.modes, "values": values.modes, "whole": whole.modes,
            "apart": total_variation(said.modes, values.modes),
            "lines": coverage.lines, "unrecognised": coverage.unrecognised,
            "contiguous": next((f.text for f in said.limitations if f.kind == "contiguous"), None),
        }  # fmt: skip


def summary(records: Sequence[Record]) -> Record:
    """Scores of all, and by mode."""
    modes = sorted({r["truth"] for r in records})
    result = {"all": _scores(records)} | {mode: _scores([r for r in records if r["truth"] == mode]) for mode in modes}
    far = sorted((r for r in records if r["apart"] > _FAR), key=lambda r: -r["apart"])
    return {
        "incidents": len(records), "slices": SLICES, "layouts": list(LAYOUTS), "scores": result,
        "listed_from": _FAR, "aims": {"apart": MOST_APART, "ac1_lost": MOST_WORSE},
        "far": [{k: r[k] for k in ("key", "layout", "variant", "at", "apart")} for r in far],
    }  # fmt: skip


def _scores(records: Sequence[Record]) -> Record:
    def first(row: str) -> float:
        return float(np.mean([rank_of(r[row], r["truth"]) == 1 for r in records]))

    apart = np.array([r["apart"] for r in records])
    return {
        "incidents": len(records), "apart": float(apart.mean()), "apart_median": float(np.median(apart)),
        "apart_over_aim": float((apart > MOST_APART).mean()),
        "same_first": float(np.mean([ranked(r["logs"])[0] == ranked(r["values"])[0] for r in records])),
        "ac1_logs": first("logs"), "ac1_values": first("values"), "ac1_whole": first("whole"),
        "log_score_logs": float(np.mean([log_score(r["logs"], r["truth"]) for r in records])),
        "log_score_values": float(np.mean([log_score(r["values"], r["truth"]) for r in records])),
        "unrecognised": int(sum(r["unrecognised"] for r in records)),
    }  # fmt: skip


def keys(incidents: int) -> Iterable[str]:
    """Keys of the first so many incidents."""
    return [str(number) for number in range(incidents)]
