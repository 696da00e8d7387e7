"""Here lives the calibration of diagnoses of excerpts: their probabilities against how often they come true.

Causes are drawn from the incident prior, each episode plays in one phase, which the excerpt tells first, and lines are
pasted by the declared law (`clusterorch.simulation.cutting`), printed, read and diagnosed.  `marks` is the filter on
the pasted kinds themselves, on the layout of the episode: exact under that law, so that what is worse from `logs` is
the work of the formats, and of not knowing the layout.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
from clusterorch.evaluation.drawing import Draws
from clusterorch.evaluation.journal import Record
from clusterorch.evaluation.remembering import RememberingModel, remembering
from clusterorch.evaluation.scores import (
    classwise_error,
    entropy,
    log_score,
    rank_of,
    ranked,
    top_label_error,
    total_variation,
)
from clusterorch.inference.excerpts import Kind, Mark
from clusterorch.inference.marks import Item, MarkFilter
from clusterorch.inference.priors import benign_mix, by_phase, incident_mix
from clusterorch.inference.restarts import DOWN
from clusterorch.models import load
from clusterorch.models.ground import HEALTHY
from clusterorch.models.layout import ENTITY_KINDS
from clusterorch.models.spec import PHASES
from clusterorch.probability.lifetimes import timer_slices
from clusterorch.simulation.cutting import Pasted, counted, cut, draw_gaps, events_of, excerpt_protocol
from clusterorch.simulation.trace import Trace, simulate
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.writing import write_logs

LAYOUT = "2x4"
MOST_ERROR, MOST_OFF = 0.03, 0.05  # aims: calibration error; mean log score against mean entropy
PLAYED = ("launch", "load", "step", "save")  # phases that programs announce


class Cause(NamedTuple):
    """What is the matter, None for nothing, the slice in which it begins, and the phase it all plays in."""

    variant: str | None
    at: int
    phase: int

    @property
    def mode(self) -> str:
        """Its mode."""
        return HEALTHY if self.variant is None else self.variant.split(".")[0]


class Excerpting:
    """Makes excerpts by number and diagnoses them."""

    def __init__(self, model: str | Path = "reference", overlays: Sequence[str | Path] = (), seed: int = 0) -> None:
        self.seed = seed
        self.reader = remembering(default_incident_model(model, overlays))
        self.formats = load_formats(self.reader.format_files)
        self.world: RememberingModel = remembering(load(model, layout=LAYOUT, overlays=[*overlays, "incident"]))
        self.protocol = excerpt_protocol(self.world)
        prior = self.world.spec.prior
        self.preroll = timer_slices(prior.preroll_seconds, self.world.spec.model.slice_seconds)

    def cause(self, number: int, span: int) -> Cause:
        """A cause by the incident prior, as the filter of excerpts has it for a number of slices."""
        network, prior = self.world.hidden_network, self.world.spec.prior
        draws, shares = Draws(self.seed, number, "causes"), prior.phase_shares
        phase = PHASES.index(
            PLAYED[draws.weighted(np.array([getattr(shares, name) if shares else 1.0 for name in PLAYED]))]
        )
        healthy = 0.12 if prior.healthy is None else prior.healthy
        share = (1.0 - healthy) * incident_mix(network, prior.uniform_share) + 0.5 * healthy * benign_mix(network)
        total, mine = float(share.sum()), by_phase(network, share)[phase]
        chosen = draws.weighted(np.array([1.0 - mine.sum(), *mine]))
        early = self.early(span)
        before = draws.uniform() < early
        slices, passed = (self.preroll, early * total) if before else (span, total - early * total)
        whole = passed if before else passed / (1.0 - early * total)
        hazard = 1.0 - (1.0 - whole) ** (1.0 / slices)
        at = int(np.log1p(-draws.uniform() * whole) / np.log1p(-hazard))
        at = min(at, slices - 1) + (0 if before else self.preroll)
        return Cause(None, 0, phase) if chosen == 0 else Cause(network.blocks[chosen - 1].variant.name, at, phase)

    def early(self, span: int) -> float:
        """Share of the faults that begin before the first line of an excerpt of so many slices."""
        told = self.protocol.before_first_line
        return self.preroll / (self.preroll + span) if told is None else told

    def restarted(self, trace: Trace, number: int, cause: Cause) -> Trace:
        """The episode with the restarts that the incident prior has in the slices of the excerpt.

        In each, a job that is down is started again by the law of `clusterorch.inference.restarts`: from then on
        all is as without a fault, or the fault begins anew.
        """
        prior, draws = self.world.spec.prior, Draws(self.seed, number, "restarts")
        chance = self.world.spec.model.slice_seconds / prior.restart_seconds if prior.restart_seconds else 0.0
        for t in range(self.preroll, trace.slices):
            if trace.published["job_class"][t] != DOWN or draws.uniform() >= chance:
                continue
            over = draws.uniform() < prior.restart_clears
            fault = trace.faults[0]
            name = f"{cause.variant}/{fault['site']}" + (f"/{fault['severity']}" if fault["severity"] else "")
            # The slice that the restart takes is that of the new beginning.
            anew = self._episode(
                trace.slices - t, None if over else name, 0, cause.phase, number, f"excerpts, again in {t}"
            )
            for kept, new in ((trace.truth, anew.truth), (trace.published, anew.published)):
                for column in kept:
                    kept[column][t:] = new[column]
            if over:
                break
        return trace

    def _episode(self, slices: int, fault: str | None, at: int, phase: int, number: int, domain: str) -> Trace:
        return simulate(
            self.world, slices, record=False, seed=self.seed, domain=domain, first_instance=number, fault=fault, at=at,
            do=(f"phase={PHASES[phase]}",), onset=np.zeros_like(self.world.network.onset),
        )  # fmt: skip

    def run(self, key: str) -> Record:
        """One excerpt: the posteriors from its lines, and from the kinds that were pasted."""
        number = int(key)
        gaps = draw_gaps(self.protocol, number + (self.seed << 32))
        span = 1 + sum(gaps)
        cause = self.cause(number, span)
        trace = self._episode(self.preroll + span, cause.variant, cause.at, cause.phase, number, "excerpts")
        trace = self.restarted(trace, number, cause)
        pasted = cut(self.world, trace, number + (self.seed << 32), self.preroll, gaps)
        published = {"phase": trace.published["phase"], "job_class": trace.published["job_class"]}
        with tempfile.TemporaryDirectory() as folder:
            said = (self.world, counted(self.world, pasted, trace.slices), published, events_of(self.world, pasted))
            write_logs(*said, folder, protocol="excerpt", seed=number, formats=self.formats, pasted=True)
            ingested = read_paths([folder], self.formats)
        logs = diagnose(self.reader, ingested, protocol="excerpt").modes
        marks = self.exact(pasted, gaps, span, cause.phase)
        signals = [self.world.spec.signal[line.signal].name for line in pasted]
        return {
            "key": key, "truth": cause.mode, "phase": PHASES[cause.phase], "variant": cause.variant,
            "at": cause.at - self.preroll,
            "pasted": signals, "read": [r.signal for r in ingested.readings], "logs": logs, "marks": marks,
            "apart": total_variation(logs, marks), "unrecognised": ingested.coverage.unrecognised,
        }  # fmt: skip

    def exact(self, pasted: Sequence[Pasted], gaps: Sequence[int], span: int, phase: int) -> dict[str, float]:
        """The posterior from what was pasted, before it was printed."""
        network = self.world.hidden_network
        present = {kind: np.ones(network.layout.count(kind), dtype=bool) for kind in ENTITY_KINDS}
        f = MarkFilter(network, self.protocol, present, span=span)
        for gap, line in zip([1, *gaps], pasted, strict=False):
            f.observe(Item(gap, Mark(Kind(line.signal, line.value), (line.entity,)), None, phase))
        return f.posterior().modes


def summary(records: Sequence[Record]) -> Record:
    """Calibration and scores, of all and by mode."""
    rows = {row: _scores(records, row) for row in ("logs", "marks")}
    modes = sorted({r["truth"] for r in records})
    by_mode = {m: {row: _first(_of(records, m), row) for row in rows} | _counts(_of(records, m)) for m in modes}
    lost = [(set(r["pasted"]) - set(r["read"]), set(r["read"]) - set(r["pasted"])) for r in records]
    return {
        "excerpts": len(records), "layout": LAYOUT, "rows": rows, "by_mode": by_mode,
        "apart": float(np.mean([r["apart"] for r in records])),
        "not_read": _tally(name for gone, _ in lost for name in gone),
        "read_besides": _tally(name for _, more in lost for name in more),
        "aims": {"calibration_error": MOST_ERROR, "score_off_entropy": MOST_OFF},
    }  # fmt: skip


def _of(records: Sequence[Record], mode: str) -> list[Record]:
    return [r for r in records if r["truth"] == mode]


def _counts(records: Sequence[Record]) -> Record:
    return {"excerpts": len(records), "apart": float(np.mean([r["apart"] for r in records]))}


def _first(records: Sequence[Record], row: str) -> Record:
    return {
        "ac1": float(np.mean([rank_of(r[row], r["truth"]) == 1 for r in records])),
        "log_score": float(np.mean([log_score(r[row], r["truth"]) for r in records])),
    }


def _scores(records: Sequence[Record], row: str) -> Record:
    posteriors, truths = [r[row] for r in records], [r["truth"] for r in records]
    score, spread = _first(records, row), float(np.mean([entropy(p) for p in posteriors]))
    # What the same posteriors would get if they were right: their own labels, drawn again.
    again = [_drawn(p, Draws(0, i, "labels").uniform()) for i, p in enumerate(posteriors)]
    return score | {
        "entropy": spread, "score_off_entropy": abs(-score["log_score"] / spread - 1.0) if spread else 0.0,
        "top_label_error": top_label_error(posteriors, truths), "classwise_error": classwise_error(posteriors, truths),
        "top_label_error_if_right": top_label_error(posteriors, again),
        "classwise_error_if_right": classwise_error(posteriors, again),
    }  # fmt: skip


def _drawn(modes: dict[str, float], u: float) -> str:
    names = ranked(modes)
    return names[min(int(np.searchsorted(np.cumsum([modes[n] for n in names]), u)), len(names) - 1)]


def _tally(names: object) -> dict[str, int]:
    counted: dict[str, int] = {}
    for name in names:  # type: ignore[attr-defined]
        counted[name] = counted.get(name, 0) + 1
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
