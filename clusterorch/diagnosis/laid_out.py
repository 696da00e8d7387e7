"""Here lives the diagnosis of contiguous logs: the filter over slices, with marks of other files beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clusterorch.diagnosis.contiguous import Laid
from clusterorch.diagnosis.timeline import observation
from clusterorch.diagnosis.universe import Universe
from clusterorch.inference.backward import log_likelihoods
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.excerpts import Excerpts, Shown
from clusterorch.inference.filtering import NO_SOFT, Filter, SliceEvidence
from clusterorch.inference.plan import NO_CLASS, Plan
from clusterorch.inference.priors import incident_prior
from clusterorch.inference.restarts import Restarts, condition
from clusterorch.inference.smoothing import backward_smooth
from clusterorch.models.compile import Network
from clusterorch.models.spec import Protocol
from clusterorch.telemetry.readings import Reading

MOST_WEIGHED = 400
_GONE = 0.05  # share of the faults that are over from which on the onset is told by the filter
Marked = tuple[Reading, np.ndarray]  # a reading, and its log ratio by pattern and site
Change = tuple[Reading, dict[str, float], dict[str, float]]  # a reading, the modes before it and after it


@dataclass(frozen=True)
class LaidRun:
    """What the filter made of the slices.

    beliefs: after each slice.  changes: (reading, modes before it, modes after it).
    started_by: [slices] probability, given everything, that the fault had started.
    """

    beliefs: list[dict[str, float]]
    final: Belief
    changes: list[Change]
    started_by: list[float]
    set_aside: int


def run_laid(
    network: Network, plan: Plan, universe: Universe, weights: np.ndarray, laid: Laid, protocol: Protocol
) -> LaidRun:
    """Filter the slices under the incident prior, weigh the readings, and smooth for the onset."""
    prior, before = incident_prior(network, len(laid.values))
    silent = SliceEvidence(np.full(network.width, np.nan), laid.phases[0])
    marks = _marks(network, plan, universe, laid, protocol)
    evidence = [silent] * before + [
        SliceEvidence(values, phase, soft=_soft(network, plan, phase, marked))
        for values, phase, marked in zip(laid.values, laid.phases, marks, strict=True)
    ]
    f = Filter(network, prior=prior, site_weights=weights, strict=False, plan=plan)
    job = Restarted(f)
    beliefs, changes, filtered = [], [], []
    for t, one in enumerate(evidence):
        if t >= before and len(changes) < MOST_WEIGHED:
            changes.extend(_weigh(job, one, laid, t - before, universe, marks[t - before]))
        job.step(one, logged=t >= before)
        if t >= before:
            beliefs.append(job.posterior().modes)
            filtered.append(1.0 - job.posterior().empty)
    final = job.posterior()
    if job.over.sum() > _GONE * (1.0 - final.empty):
        # The smoother knows no restarts; where one decides, the filter's word on the beginning stands.
        return LaidRun(beliefs, final, changes, filtered, len(f.set_aside))
    started = [
        1.0 - belief.empty
        for t, belief in backward_smooth(network, _possible(evidence, f), prior=prior, site_weights=weights)
        if t >= before
    ]
    return LaidRun(beliefs, final, changes, started[::-1], len(f.set_aside))


class Restarted:
    """A filter beside which faults are kept that a restart has ended."""

    def __init__(self, f: Filter) -> None:
        self.filter, self.restarts = f, Restarts(f.network)
        self.over = np.zeros(f.network.states)

    def step(self, one: SliceEvidence, *, logged: bool = True) -> None:
        """One slice; before the logs begin nothing restarts."""
        f = self.filter
        if logged:
            here = 1.0 - float(self.over.sum())
            belief, self.over = self.restarts.pass_slice(here * f.belief[0], self.over, one.phase)
            if (mass := float(belief.sum())) > 0.0:
                f.belief[0] = belief / mass
        aside = len(f.set_aside)
        result = float(f.step(one)[0])
        if not self.over.any():
            return
        ratio = result - float(f.base[0])
        if len(f.set_aside) > aside:  # what no fault at work explains, one that is over does
            f.set_aside.pop()
            ratio = -np.inf
        _, self.over, _ = condition(f.belief[0], self.over, ratio)

    def posterior(self) -> Belief:
        """The belief, faults that are over included."""
        f = self.filter
        return Belief(f.network, (1.0 - float(self.over.sum())) * f.belief[0] + self.over)


def _possible(evidence: list[SliceEvidence], f: Filter) -> list[SliceEvidence]:
    """The evidence without the slices that no state explains."""
    impossible = {t for t, _ in f.set_aside}
    blank = np.full(f.network.width, np.nan)
    return [replace(one, values=blank, soft=NO_SOFT) if t in impossible else one for t, one in enumerate(evidence)]


def _marks(network: Network, plan: Plan, universe: Universe, laid: Laid, protocol: Protocol) -> list[list[Marked]]:
    """By slice: the readings of streams that are not contiguous, and what they say to each pattern."""
    excerpts = Excerpts(network, plan, universe.present, protocol.entity_contamination)
    shown = Shown()
    index = {signal.name: s for s, signal in enumerate(network.spec.signal)}
    result: list[list[Marked]] = []
    for phase, readings in zip(laid.phases, laid.readings, strict=True):
        result.append([])
        for reading in readings:
            signal = network.spec.signal[index[reading.signal]]
            if signal.stream in laid.streams or not signal.lines:
                continue
            made = observation(reading, index[reading.signal], network, universe)
            if made is not None and made[0] is not None:
                patterns = excerpts.ratios(made[0], phase, shown)
                if patterns.any():
                    result[-1].append((reading, patterns))
    return result


def _soft(network: Network, plan: Plan, phase: int, marked: list[Marked]) -> np.ndarray:
    """[states] what marks say beside the values; empty if there are none."""
    if not marked:
        return NO_SOFT
    soft = np.empty(network.states)
    log_likelihoods(plan, phase, NO_CLASS, np.sum([patterns for _, patterns in marked], axis=0), NO_SOFT, soft)
    return soft


def _weigh(
    job: Restarted, one: SliceEvidence, laid: Laid, t: int, universe: Universe, marked: list[Marked]
) -> list[Change]:
    """What each reading of a slice did, added one by one to the silence of the others."""
    f = job.filter
    network = f.network
    index = {signal.name: s for s, signal in enumerate(network.spec.signal)}
    news: dict[int, Reading] = {}
    for reading in laid.readings[t]:
        signal = network.spec.signal[index[reading.signal]]
        entity = max(universe.entity(reading.entity), 0) if signal.family != "first_speaker" else 0
        if signal.verbosity == "warn" and signal.lines and signal.stream in laid.streams:
            news.setdefault(int(network.signal_offset[index[reading.signal]]) + entity, reading)
    if not news and not marked:
        return []
    kept = f.belief.copy(), f.last.copy(), f.gap.copy(), f.time, list(f.set_aside), job.over

    def modes(values: np.ndarray, marks: int) -> dict[str, float]:
        restore()
        job.step(replace(one, values=values, soft=_soft(network, f.plan, one.phase, marked[:marks])))
        return job.posterior().modes

    def restore() -> None:
        f.belief[:], f.last[:], f.gap[:], f.time = kept[:4]
        f.set_aside[:], job.over = kept[4], kept[5]

    seen = one.values.copy()
    seen[list(news)] = np.nan
    now, found = modes(seen, 0), []
    for at, reading in news.items():
        seen[at] = one.values[at]
        later = modes(seen, 0)
        found.append((reading, now, later))
        now = later
    for number, (reading, _) in enumerate(marked, start=1):
        later = modes(seen, number)
        found.append((reading, now, later))
        now = later
    restore()
    return found


def started_first(laid: Laid, started_by: list[float], least: float = 0.5) -> Reading | None:
    """The first reading in or after the slice by which the fault had probably started."""
    reached = next((t for t, p in enumerate(started_by) if p >= least), None)
    if reached is None:
        return None
    return next((group[0] for group in laid.readings[reached:] if group), None)
