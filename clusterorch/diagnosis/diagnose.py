"""Here lives `diagnose`: readings in, a diagnosis out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clusterorch.diagnosis.contiguous import contiguous_streams, dated, gathered_by_hand, lay_out, wall_clock
from clusterorch.diagnosis.laid_out import run_laid, started_first
from clusterorch.diagnosis.timeline import Entry, alignments, distinct, entries, thinned, tracks
from clusterorch.diagnosis.universe import Universe, build_universe, most_telling_first
from clusterorch.errors import IngestError
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.marks import MarkFilter
from clusterorch.inference.plan import Plan, make_plan
from clusterorch.models import Model
from clusterorch.models.compile import Network
from clusterorch.models.ground import HEALTHY
from clusterorch.telemetry.readings import Finding, Ingested, Reading

_MOST_CELLS = 20_000_000  # numbers kept of one alignment: states times samples
_FEWEST_SAMPLES = 64


@dataclass(frozen=True)
class Weight:
    """What one line did to the log odds of every mode, nats."""

    reading: Reading
    change: dict[str, float]
    favours: str


@dataclass(frozen=True)
class Onset:
    """Since when: the first reading by which the fault had probably started."""

    before_first_line: float
    reading: Reading | None
    started_by: list[float] = field(repr=False, default_factory=list)


@dataclass(frozen=True)
class Diagnosis:
    """A posterior over what happened, with the evidence for it.  Written by inference alone."""

    modes: dict[str, float]
    variants: dict[str, float]
    sites: list[tuple[str, str, float]]  # kind, name, probability
    onset: Onset
    proximate: tuple[str, str, float] | None  # mechanism, title, probability
    weights: list[Weight]
    ribbon: list[tuple[Reading, dict[str, float]]]
    ingested: Ingested
    model: Model
    set_aside: list[str] = field(default_factory=list)
    limitations: list[Finding] = field(default_factory=list)
    belief: Belief | None = field(default=None, repr=False)  # after the last line, over the states of a layout
    universe: Universe | None = field(default=None, repr=False)  # of what is named in it

    @property
    def leading(self) -> str:
        """The most probable mode, or healthy."""
        return max(self.modes, key=lambda mode: self.modes[mode])

    @property
    def findings(self) -> list[Finding]:
        """What is odd about the files, what was left out, and whether they told anything at all."""
        found = [*self.ingested.findings, *self.limitations]
        if not self.weights:
            nothing = not self.ingested.coverage.recognised
            kind, what = ("nothing_recognised", "recognised") if nothing else ("nothing_telling", "telling")
            found.append(Finding("", None, kind, f"no line is {what}: the posterior is the prior"))
        return found


@dataclass(frozen=True)
class _Run:
    """One alignment: its entries, its filter after them, and its log evidence."""

    entries: list[Entry]
    filter: MarkFilter
    log_evidence: float


def diagnose(model: Model, ingested: Ingested, *, protocol: str = "auto") -> Diagnosis:
    """Diagnose readings under the model's prior.

    Contiguous streams are filtered slice by slice, with absence as evidence; everything else is an
    excerpt.  `protocol` "excerpt" takes all as excerpts, "covered" insists on contiguous logs, "complete" says that
    they hold every line and every sample of the whole job, from the first to the last.

    Raises:
        IngestError: "covered" was asked for and no stream is contiguous; "complete", and no line tells the time.

    The mixture over alignments of files without a common clock is exact; lines that weigh most and
    the onset are told from the alignment that explains the logs best.
    """
    readings = distinct(ingested.readings)
    universe = build_universe(most_telling_first(readings), ingested.places, hosts_named=ingested.hosts)
    limits = {mark.timer: mark.seconds for mark in ingested.limits if mark.seconds > 0}
    grounded = model.with_layout(universe.layout).with_limits(_known_limits(model, limits))
    network = grounded.hidden_network
    if protocol == "complete":
        streams = frozenset(signal.stream for signal in network.spec.signal)
        if not wall_clock(readings):
            raise IngestError("no line tells the time of day: complete logs are read slice by slice")
    else:
        streams = contiguous_streams(network, readings) if protocol != "excerpt" else frozenset()
    if streams:
        return _laid_out(network, universe, readings, streams, model, ingested, complete=protocol == "complete")
    if protocol == "covered":
        raise IngestError("no stream is contiguous: one must keep talking for at least 20 slices")
    kept = thinned(readings, network, most=max(_FEWEST_SAMPLES, _MOST_CELLS // network.states))
    vector, best = _mixture(_runs(kept, network, universe, model, ingested))
    belief = Belief(network, vector)
    changes, ribbon = _weights(best)
    return Diagnosis(
        belief.modes, belief.variants, _sites(belief, universe),
        _onset(best), _proximate(belief, model), changes, ribbon, ingested, model,
        limitations=_limitations(universe, len(readings) - len(kept)), belief=belief, universe=universe,
    )  # fmt: skip


def _laid_out(
    network: Network, universe: Universe, readings: list[Reading], streams: frozenset[str], model: Model,
    ingested: Ingested, *, complete: bool,
) -> Diagnosis:  # fmt: skip
    excerpt = next(p for p in model.spec.protocol if p.name == "excerpt")
    weights = universe.site_weights([b.variant.spec.site for b in network.blocks])
    asked_for = gathered_by_hand(tuple(model.format_files)) if complete else None
    dated_readings = dated(readings, ingested.files)
    laid = lay_out(network, universe, dated_readings, ingested.phases, streams, asked_for=asked_for)
    run = run_laid(network, make_plan(network), universe, weights, laid, excerpt)
    changes = []
    for reading, before, after in run.changes:
        change = {mode: log_odds(after, mode) - log_odds(before, mode) for mode in after}
        gains = {mode: after[mode] - before[mode] for mode in after}
        changes.append(Weight(reading, change, max(gains, key=lambda mode: gains[mode])))
    ribbon = [(group[0], modes) for group, modes in zip(laid.readings, run.beliefs, strict=True) if group]
    onset = Onset(run.started_by[0], started_first(laid, run.started_by), run.started_by)
    limitations = _limitations(universe, 0)
    if run.set_aside:
        text = f"{run.set_aside} slices that no state of the model explains were set aside"
        limitations.append(Finding("", None, "set_aside", text))
    if laid.undated:
        text = f"{len(laid.undated)} readings tell no time and are left out: nobody knows which slice they are of"
        limitations.append(Finding("", None, "undated", text))
    text = f"read slice by slice, absence counts: {', '.join(sorted(streams))}"
    limitations.append(Finding("", None, "contiguous", text))
    return Diagnosis(
        run.final.modes, run.final.variants, _sites(run.final, universe), onset, _proximate(run.final, model),
        changes, ribbon, ingested, model, limitations=limitations, belief=run.final, universe=universe,
    )  # fmt: skip


def _runs(
    readings: list[Reading], network: Network, universe: Universe, model: Model, ingested: Ingested
) -> Iterator[_Run]:
    plan = make_plan(network)
    weights = universe.site_weights([b.variant.spec.site for b in network.blocks])
    for order in alignments(tracks(readings) or [[]]):
        yield _run(order, network, plan, universe, weights, model, ingested)


def _mixture(runs: Iterator[_Run]) -> tuple[np.ndarray, _Run]:
    """Beliefs averaged by their evidence, and the run with most of it; the others are let go of."""
    best = next(runs)
    mixed, total = best.filter.posterior().vector, 1.0  # in units of the best evidence so far
    for run in runs:
        ratio = float(np.exp(-abs(run.log_evidence - best.log_evidence)))
        if run.log_evidence > best.log_evidence:
            best, mixed, total = run, ratio * mixed + run.filter.posterior().vector, ratio * total + 1.0
        else:
            mixed, total = mixed + ratio * run.filter.posterior().vector, total + ratio
    return mixed / total, best


def _limitations(universe: Universe, dropped: int) -> list[Finding]:
    found = []
    if universe.left_out:
        text = f"{universe.left_out} named entities are not told apart: there is room for the most telling ones only"
        found.append(Finding("", None, "too_many_entities", text))
    if dropped:
        found.append(Finding("", None, "too_many_samples", f"{dropped} samples are passed over, evenly spread"))
    return found


def _known_limits(model: Model, limits: dict[str, float]) -> dict[str, float]:
    declared = {timer.name for timer in model.spec.timer}
    return {name: seconds for name, seconds in limits.items() if name in declared}


def _run(
    order: Sequence[Reading], network: Network, plan: Plan, universe: Universe, weights: np.ndarray,
    model: Model, ingested: Ingested,
) -> _Run:  # fmt: skip
    protocol = next(p for p in model.spec.protocol if p.name == "excerpt")
    made = entries(order, network, universe, ingested.phases)
    span = sum(e.item.gap if e.item.gap is not None else round(protocol.gap_slices) for e in made)
    marks = MarkFilter(network, protocol, universe.present, weights, span=max(span, len(made), 1), plan=plan)
    if not made:
        marks.advance(1, None)  # what was observed says nothing: the prior over the whole span stands
    log_evidence = marks.run([entry.item for entry in made])
    return _Run(made, marks, log_evidence)


def _weights(run: _Run) -> tuple[list[Weight], list[tuple[Reading, dict[str, float]]]]:
    """Prequential weights of evidence: the change of each mode's log odds when its line comes in."""
    changes, ribbon = [], []
    for entry, step in zip(run.entries, run.filter.steps, strict=True):
        before, after = step.modes_before, step.modes_after
        change = {mode: log_odds(after, mode) - log_odds(before, mode) for mode in after}
        gains = {mode: after[mode] - before[mode] for mode in after}
        changes.append(Weight(entry.reading, change, max(gains, key=lambda mode: gains[mode])))
        ribbon.append((entry.reading, after))
    return changes, ribbon


def log_odds(modes: dict[str, float], mode: str) -> float:
    """Log of a mode's probability over that of all others.

    The others are added up, since 1 - p is lost where p is near 1; probabilities count as 1e-300 at least.

    >>> round(log_odds({"a": 1.0, "b": 1e-40}, "a"), 3)
    92.103
    """
    others = sum(p for name, p in modes.items() if name != mode)
    return float(np.log(max(modes[mode], 1e-300)) - np.log(max(others, 1e-300)))


def _sites(belief: Belief, universe: Universe) -> list[tuple[str, str, float]]:
    named: dict[tuple[str, str], float] = {}
    for (kind, number), p in belief.sites().items():
        key = (kind, universe.label(kind, number))
        named[key] = named.get(key, 0.0) + p
    ranked = sorted(named.items(), key=lambda item: (-item[1], item[0]))
    return [(kind, name, p) for (kind, name), p in ranked if p > 0.0]


def _onset(run: _Run) -> Onset:
    if not run.entries:
        return Onset(0.0, None)
    started = run.filter.started_by([entry.item for entry in run.entries])
    reached = np.flatnonzero(started >= 0.5)
    reading = run.entries[int(reached[0])].reading if len(reached) else None
    return Onset(float(started[0]), reading, [float(p) for p in started])


def _proximate(belief: Belief, model: Model) -> tuple[str, str, float] | None:
    """What the logs shout, as far as the most probable variants declare it."""
    shares: dict[str, float] = {}
    for block in belief.network.blocks:
        name = block.variant.spec.proximate
        if name is not None:
            shares[name] = shares.get(name, 0.0) + belief.variants[block.variant.name]
    if not shares:
        return None
    name = max(shares, key=lambda mechanism: shares[mechanism])
    return name, model.mechanisms[name].title, shares[name]


def to_json(diagnosis: Diagnosis) -> dict[str, object]:
    """The object of schema `clusterorch.diagnosis/1`."""
    coverage, onset = diagnosis.ingested.coverage, diagnosis.onset
    proximate = diagnosis.proximate
    return {
        "schema": "clusterorch.diagnosis/1",
        "modes": diagnosis.modes,
        "variants": diagnosis.variants,
        "sites": [{"kind": kind, "name": name, "probability": p} for kind, name, p in diagnosis.sites[:50]],
        "onset": {
            "before_first_line": onset.before_first_line,
            "file": onset.reading.file if onset.reading else None,
            "line": onset.reading.line if onset.reading else None,
            "time": onset.reading.time if onset.reading else None,
        },
        "proximate": None
        if proximate is None
        else {"mechanism": proximate[0], "title": proximate[1], "probability": proximate[2]},
        "evidence": [_evidence(weight) for weight in ranked_weights(diagnosis)],
        "coverage": {
            "lines": coverage.lines, "recognised": coverage.recognised, "unrecognised": coverage.unrecognised,
            "too_late": coverage.too_late, "streams": dict(coverage.streams),
        },
        "findings": [finding._asdict() for finding in diagnosis.findings],
        "model": {"name": diagnosis.model.name, "sha256": diagnosis.model.sha256},
    }  # fmt: skip


def ranked_weights(diagnosis: Diagnosis) -> list[Weight]:
    """Lines by what they did to the leading mode, strongest first."""
    leading = diagnosis.leading
    return sorted(diagnosis.weights, key=lambda w: -abs(w.change[leading]))


def _evidence(weight: Weight) -> dict[str, object]:
    reading, value = weight.reading, weight.reading.value
    if isinstance(value, float) and not np.isfinite(value):
        value = str(value)  # JSON knows no infinity
    return {
        "file": reading.file, "line": reading.line, "time": reading.time, "signal": reading.signal,
        "value": value, "entity": str(reading.entity), "weight_nats": weight.change[weight.favours],
        "favours": weight.favours, "text": reading.text,
    }  # fmt: skip


def default_incident_model(model: str | Path = "reference", overlays: Sequence[str | Path] = ()) -> Model:
    """The model as logs are diagnosed with it: its own tables, then the incident prior."""
    from clusterorch import models

    return models.load(model, layout="1x2", overlays=[*overlays, "incident"])


__all__ = [
    "HEALTHY",
    "Diagnosis",
    "Onset",
    "Weight",
    "default_incident_model",
    "diagnose",
    "ranked_weights",
    "to_json",
]
