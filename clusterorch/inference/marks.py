"""Here lives filtering of an excerpt: marks in order, with known or unknown gaps between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.backward import log_likelihoods, retreat, weigh_future
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.excerpts import Excerpts, Mark, Shown
from clusterorch.inference.filtering import NO_SOFT, likelihood_ratios, make_scratch
from clusterorch.inference.plan import MOST_GAP, Plan, make_plan
from clusterorch.inference.priors import STEP, benign_mix, by_phase, incident_mix, uniform_sites
from clusterorch.inference.restarts import Restarts, condition
from clusterorch.inference.transition import NO_CLASS, predict, update
from clusterorch.models.compile import Network
from clusterorch.models.spec import Protocol
from clusterorch.probability.lifetimes import timer_slices

MOST_KNOWN_GAP = 480


@dataclass(frozen=True)
class Item:
    """One thing that an excerpt shows: a mark or some values, after a gap in slices (None: unknown).

    Where slices begin is not known of a log, so a gap need not be whole: of 0.2 it crosses a border with
    probability 0.2.

    `phase` is that of the job as far as the logs tell; None: they do not, and the job is taken to step.
    """

    gap: float | None
    mark: Mark | None = None
    values: np.ndarray | None = None
    phase: int | None = STEP


def gap_law(protocol: Protocol, most: int | None = None) -> np.ndarray:
    """[gaps] probability of each number of slices between two items of an excerpt.

    None with `same_slice`, else geometric of mean `gap_slices`, or with `long_share` of mean `long_slices`.
    """
    most = most or int(3 * protocol.long_slices)
    slices = np.arange(1, most + 1)

    def geometric(mean: float) -> np.ndarray:
        p = min(1.0, 1.0 / mean)
        mass = p * (1.0 - p) ** (slices - 1)
        return mass / mass.sum()

    short = 1.0 - protocol.same_slice - protocol.long_share
    tail = short * geometric(protocol.gap_slices) + protocol.long_share * geometric(protocol.long_slices)
    return np.concatenate([[protocol.same_slice], tail])


@dataclass
class _Step:
    """What one item did: the modes before and after it, the belief after it, and what it said."""

    modes_before: dict[str, float]
    modes_after: dict[str, float]
    after: np.ndarray
    log_ratio: float
    patterns: np.ndarray
    phase: int
    over: np.ndarray


@dataclass
class MarkFilter:
    """Exact filtering of an excerpt under the incident prior: one fault at most, perhaps before the first line.

    Args:
        network: compiled with the age of a halt inside the state.
        protocol: the excerpt protocol's numbers.
        present: by entity kind, which entities exist.
        site_weights: where faults start.
        span: slices that the excerpt is expected to cover.
    """

    network: Network
    protocol: Protocol
    present: dict[str, np.ndarray]
    site_weights: np.ndarray | None = None
    span: int = 20
    plan: Plan | None = None
    steps: list[_Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = self.plan or make_plan(self.network)
        self.weights = uniform_sites(self.network) if self.site_weights is None else self.site_weights
        self.excerpts = Excerpts(self.network, self.plan, self.present, self.protocol.entity_contamination)
        self.gaps = gap_law(self.protocol)
        self._scratch = make_scratch(self.plan, self.network.width)
        prior = self.network.spec.prior
        healthy = 0.12 if prior.healthy is None else prior.healthy
        share = (1.0 - healthy) * incident_mix(self.network, prior.uniform_share)
        share = share + 0.5 * healthy * benign_mix(self.network)
        total = float(share.sum())
        seconds, dt = prior.preroll_seconds, self.network.spec.model.slice_seconds
        preroll = timer_slices(seconds, dt) if seconds else 0
        # A paste begins where somebody chose to; unless the protocol says otherwise, all slices are alike to the fault.
        early = self.protocol.before_first_line
        early = preroll / (preroll + max(self.span, 1)) if early is None else early
        # Row -1 is for logs that do not tell the phase.
        self._mix = np.vstack([by_phase(self.network, share), share]) / total
        self.hazard = 1.0 - ((1.0 - total) / (1.0 - early * total)) ** (1.0 / max(self.span, 1))
        self.restarts = Restarts(self.network)
        self._preroll = preroll, 1.0 - (1.0 - early * total) ** (1.0 / max(preroll, 1))
        self.reset()

    @property
    def onset(self) -> np.ndarray:
        """[variants] probability of starting in a slice whose phase is unknown, given an empty slot."""
        return self.hazard * self._mix[-1]

    def reset(self) -> None:
        """Start from an empty slot; the slices before the first line are run when its phase is known."""
        self.belief = np.zeros(self.network.states)
        self.belief[0] = 1.0
        self.over = np.zeros(self.network.states)
        self.shown = Shown()
        self.last = np.zeros(self.network.width)
        self.gap = np.zeros(self.network.width, dtype=np.int64)
        self._counted = 0  # slices by which `gap` is ahead
        self.log_evidence = 0.0
        self._begun = False
        self.steps = []

    def _run_up(self, phase: int | None) -> None:
        """The slices before the first line, in the phase that it is in."""
        slices, hazard = self._preroll
        for _ in range(slices):
            self.belief = self._predict(self.belief, phase, hazard)
        self._begun = True

    def _predict(self, belief: np.ndarray, phase: int | None, hazard: float) -> np.ndarray:
        after = np.empty_like(belief)
        onset = hazard * self._mix[-1 if phase is None else phase]
        predict(self.plan, _at(phase), 0, False, onset, self.weights, belief, after)
        return after

    def _pass(self, belief: np.ndarray, over: np.ndarray, phase: int | None) -> tuple[np.ndarray, np.ndarray]:
        """One slice between two lines, in which a job that is down may be started again."""
        mass = float(belief.sum())
        if mass <= 0.0:
            return belief, over
        # A belief is predicted whole; what is over keeps its share.
        after = mass * self._predict(belief / mass, phase, self.hazard)
        return self.restarts.pass_slice(after, over, _at(phase))

    def advance(self, gap: float | None, phase: int | None = STEP) -> None:
        """Let a known or an unknown number of slices pass, all in the phase of what comes next."""
        if not self._begun:
            self._run_up(phase)
        if gap is not None:
            whole, part = _whole(gap)
            for _ in range(whole):
                self.belief, self.over = self._pass(self.belief, self.over, phase)
            if part > 0.0:
                moved, gone = self._pass(self.belief, self.over, phase)
                self.belief = (1.0 - part) * self.belief + part * moved
                self.over = (1.0 - part) * self.over + part * gone
            passed = round(gap)
        else:
            passed = round(self.protocol.gap_slices)
            moving, over = self.belief, self.over
            total, gone = self.gaps[0] * moving, self.gaps[0] * over
            for p in self.gaps[1:]:
                moving, over = self._pass(moving, over, phase)
                total, gone = total + p * moving, gone + p * over
            whole = float(total.sum() + gone.sum())
            self.belief, self.over = total / whole, gone / whole
        # The likelihoods leave the gaps as they are a slice later; here the slices are counted by themselves.
        self.gap = np.where(self.gap > 0, np.clip(self.gap + passed - self._counted, 1, MOST_GAP - 1), 0)
        self._counted = 0

    def observe(self, item: Item) -> float:
        """Pass the gap, then condition on the item.  Returns its log evidence against the background's, nats."""
        self.advance(item.gap, item.phase)
        phase = _at(item.phase)
        patterns = np.zeros(self.plan.pattern_size)
        if item.values is not None:
            likelihood_ratios(self.plan, phase, item.values, self.last, self.gap, self._scratch)
            self._counted = 1
            patterns = self._scratch[3].copy()
        if item.mark is not None:
            patterns = patterns + self.excerpts.ratios(item.mark, phase, self.shown)
        before, belief = self.belief, np.empty_like(self.belief)
        told = Belief(self.network, before + self.over).modes
        here = 1.0 - float(self.over.sum())
        ratio = update(self.plan, phase, NO_CLASS, patterns, NO_SOFT, self._scratch[5], before / here, belief)
        if not ratio > -np.inf and here >= 1.0:
            raise ImpossibleEvidence(f"item {len(self.steps)}: no believed state shows it")
        belief = belief if ratio > -np.inf else np.zeros_like(belief)
        self.belief, self.over, ratio = condition(belief, self.over, ratio)
        self.log_evidence += ratio
        whole = self.belief + self.over
        self.steps.append(
            _Step(told, Belief(self.network, whole).modes, self.belief, ratio, patterns, phase, self.over)
        )
        return ratio

    def run(self, items: Sequence[Item]) -> float:
        """Observe a whole excerpt; the log evidence against the background's."""
        for item in items:
            self.observe(item)
        return self.log_evidence

    def posterior(self) -> Belief:
        """The belief after the last item."""
        return Belief(self.network, self.belief + self.over)

    def started_by(self, items: Sequence[Item]) -> np.ndarray:
        """[items] probability, given all items, that the fault had started when each was printed."""
        future, gone = np.ones(self.network.states), 1.0  # what is over explains all as the empty slot does
        result = np.empty(len(items))
        for i in reversed(range(len(items))):
            step = self.steps[i]
            smoothed = step.after * future
            result[i] = 1.0 - smoothed[0] / (smoothed.sum() + gone * step.over.sum())
            weighed = np.empty_like(future)
            likelihood = np.empty_like(future)
            log_likelihoods(self.plan, step.phase, NO_CLASS, step.patterns, NO_SOFT, likelihood)
            weigh_future(likelihood, future, weighed)
            # The empty slot's likelihood is the unit, so its entry tells by what all was scaled.
            gone *= weighed[0] / future[0] if future[0] > 0.0 else 0.0
            future, gone = self._retreat(items[i].gap, items[i].phase, weighed, gone)
        return result

    def _retreat(self, gap: int | None, phase: int | None, future: np.ndarray, gone: float) -> tuple[np.ndarray, float]:
        onset = self.hazard * self._mix[-1 if phase is None else phase]

        def back(values: np.ndarray) -> np.ndarray:
            values = self.restarts.retreat_slice(values, gone, _at(phase))
            before = np.empty_like(values)
            retreat(self.plan, _at(phase), 0, False, onset, self.weights, values, before)
            return before

        if gap is not None:
            whole, part = _whole(gap)
            if part > 0.0:
                future = (1.0 - part) * future + part * back(future)
            for _ in range(whole):
                future = back(future)
            return future / future.max(), gone / float(future.max())
        moving, total = future, self.gaps[0] * future
        for p in self.gaps[1:]:
            moving = back(moving)
            total = total + p * moving
        return total / total.max(), gone / float(total.max())


def _whole(gap: float) -> tuple[int, float]:
    """Whole slices of a known gap, and the chance of one more."""
    whole = min(int(gap), MOST_KNOWN_GAP)
    return whole, gap - int(gap) if whole < MOST_KNOWN_GAP else 0.0


def _at(phase: int | None) -> int:
    return STEP if phase is None else phase
