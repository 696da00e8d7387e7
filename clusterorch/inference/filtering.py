"""Here lives the online filter: the exact belief over variant, severity, site and configuration.

One step is predict, then update; the caller owns time.  `Filter` filters a batch of independent
instances with one kernel, and an instance's bits do not depend on its company.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.actions import ActionKernel
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.likelihood import (
    background_evidence,
    fill_patterns,
    fill_slots,
    fill_terms,
    remember,
)
from clusterorch.inference.plan import Plan, make_plan, view_of
from clusterorch.inference.priors import STEP, OnsetPrior, stationary_prior, uniform_sites
from clusterorch.inference.transition import NO_CLASS, PHASE_COUNT, clear, predict, restart, update
from clusterorch.models.compile import Network

NO_SOFT = np.zeros(0)


@dataclass(frozen=True)
class SliceEvidence:
    """What has been seen of one slice.

    values: [width] flat vector of the network; NaN not delivered, inf delivered without a value.
    phase, save_ends: published schedule.  job_class: published class, NO_CLASS if unknown.
    age_before: published age of the halt before the slice (ignored with hidden age).
    action: the action's kernel if one was taken before the slice.
    soft: [states] further log likelihoods, nats, or empty.
    """

    values: np.ndarray
    phase: int = STEP
    save_ends: bool = False
    job_class: int = NO_CLASS
    age_before: int = 0
    action: ActionKernel | None = None
    soft: np.ndarray = field(default_factory=lambda: NO_SOFT)


@njit(cache=True, error_model="numpy")
def likelihood_ratios(
    plan: Plan, view: int, values: np.ndarray, last: np.ndarray, gap: np.ndarray, scratch: tuple
) -> float:
    """Log evidence of the empty slot; fills the patterns' log ratios, `scratch[3]`."""
    density, units, groups, patterns, terms, _, classes, inertia, spreads, totals = scratch
    total = background_evidence(plan, view, values, last, gap, density, classes, inertia, spreads)
    fill_slots(plan, view, values, last, density, classes, inertia, spreads, units, groups, totals)
    fill_terms(plan, view, values, units, groups, totals, terms)
    fill_patterns(plan, view, terms, patterns)
    remember(plan, values, last, gap)
    return total


@njit(cache=True, error_model="numpy")
def make_scratch(plan: Plan, width: int) -> tuple:
    """Working space of one instance."""
    return (
        np.empty(width), np.empty(plan.unit_size), np.empty(plan.group_size),
        np.empty(plan.pattern_size), np.empty(plan.term_size), np.empty(plan.pattern_size),
        np.empty(width, dtype=np.uint64), np.zeros(width), np.zeros(width), np.empty(plan.slot_size),
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def filter_slice(
    plan: Plan,
    values: np.ndarray,
    phase: np.ndarray,
    due: np.ndarray,
    ends: np.ndarray,
    job_class: np.ndarray,
    onset: np.ndarray,
    weights: np.ndarray,
    belief: np.ndarray,
    after: np.ndarray,
    last: np.ndarray,
    gap: np.ndarray,
    scratch: tuple,
    log_evidence: np.ndarray,
) -> None:
    """One slice of every instance of a batch: predict, weigh, normalise.

    [B, width] values, [B] phase, due, ends, job_class, [B, V] onset, [B, states] belief; `after` is scratch.
    """
    soft = np.zeros(0)
    for b in range(values.shape[0]):
        predict(plan, phase[b], due[b], ends[b], onset[b], weights, belief[b], after[b])
        base = likelihood_ratios(plan, phase[b] + PHASE_COUNT * (job_class[b] + 1), values[b], last[b], gap[b], scratch)
        ratio = update(plan, phase[b], job_class[b], scratch[3], soft, scratch[5], after[b], belief[b])
        log_evidence[b] = base + ratio


class Filter:
    """Online filtering of a batch of instances.

    Args:
        network: the compiled model.
        batch: number of independent instances.
        prior: when faults start; the declared hazards if not given.
        site_weights: [sum of sites over variants] where they start; uniform if not given.
        strict: raise on impossible evidence; else the slice's evidence is set aside and counted.
    """

    def __init__(
        self, network: Network, *, batch: int = 1, prior: OnsetPrior | None = None,
        site_weights: np.ndarray | None = None, strict: bool = True, plan: Plan | None = None,
    ) -> None:  # fmt: skip
        self.network = network
        self.plan = plan if plan is not None else make_plan(network)
        self.prior = prior if prior is not None else stationary_prior(network)
        self.weights = uniform_sites(network) if site_weights is None else site_weights
        self.strict = strict
        self.time = 0
        self.set_aside: list[tuple[int, int]] = []
        self.base = np.zeros(batch)  # log p(evidence of the last slice | empty slot)
        self.belief = np.zeros((batch, network.states))
        self.belief[:, 0] = 1.0
        self.last = np.zeros((batch, network.width))
        self.gap = np.zeros((batch, network.width), dtype=np.int64)
        self._after = np.zeros_like(self.belief)
        self._scratch = make_scratch(self.plan, network.width)

    @property
    def batch(self) -> int:
        """Number of instances."""
        return self.belief.shape[0]

    def due(self, age_before: int | np.ndarray) -> np.ndarray:
        """[B] how many limits the published age of the halt has passed."""
        if self.network.hidden_age:
            return np.zeros(self.batch, dtype=np.int64)
        age = np.broadcast_to(np.asarray(age_before), (self.batch,))
        return (age[:, None] >= np.array(self.network.limits, dtype=np.int64)[None, :]).sum(axis=1).astype(np.int64)

    def step(self, evidence: SliceEvidence | Sequence[SliceEvidence]) -> np.ndarray:
        """Advance one slice.  [B] log p(evidence of the slice | evidence before), nats.

        Raises:
            ImpossibleEvidence: no state that was believed possible explains the slice (if strict).
        """
        each = [evidence] * self.batch if isinstance(evidence, SliceEvidence) else list(evidence)
        result = np.empty(self.batch)
        for b, one in enumerate(each):
            result[b] = self._step_one(b, one)
        self.time += 1
        return result

    def _step_one(self, b: int, one: SliceEvidence) -> float:
        onset = self.prior.onset(self.time, one.phase)
        due = int(self.due(one.age_before)[b])
        before, after = self.belief[b], self._after[b]
        if one.action is not None and one.action.restarts:
            restart(
                self.plan, one.phase, one.save_ends, one.action.discards, one.action.clears,
                one.action.brought, one.action.brought_to, onset, self.weights,
                before, after,
            )  # fmt: skip
        else:
            cleared = 0.0
            if one.action is not None:
                before = before.copy()
                cleared = clear(self.plan, one.action.clears, before)
            predict(self.plan, one.phase, due, one.save_ends, onset, self.weights, before, after)
            after[0] += cleared
        base = likelihood_ratios(
            self.plan, view_of(one.phase, one.job_class), one.values, self.last[b], self.gap[b], self._scratch
        )
        self.base[b] = base
        ratio = update(
            self.plan,
            one.phase,
            one.job_class,
            self._scratch[3],
            one.soft,
            self._scratch[5],
            after,
            self.belief[b],
        )
        if not ratio > -np.inf:
            return self._impossible(b, one)
        return base + ratio

    def _impossible(self, b: int, one: SliceEvidence) -> float:
        if self.strict:
            raise ImpossibleEvidence(
                f"slice {self.time}, instance {b}: no believed state gives this evidence "
                f"(published class {one.job_class}, {int(np.isfinite(one.values).sum())} values)"
            )
        # The prediction stands; what could not be explained is on record and moves nothing.
        self.belief[b] = self._after[b] / self._after[b].sum()
        self.set_aside.append((self.time, b))
        return 0.0

    def step_batch(
        self,
        values: np.ndarray,
        phase: np.ndarray,
        job_class: np.ndarray,
        age_before: np.ndarray,
        save_ends: np.ndarray,
    ) -> np.ndarray:
        """The fast path of `step`: no actions, no soft evidence.  [B, width] values -> [B] log evidence."""
        onset = np.stack([self.prior.onset(self.time, int(p)) for p in phase])
        result = np.empty(self.batch)
        filter_slice(
            self.plan, values, phase, self.due(age_before), save_ends, job_class, onset, self.weights, self.belief,
            self._after, self.last, self.gap, self._scratch, result,
        )  # fmt: skip
        bad = np.flatnonzero(~(result > -np.inf))
        for b in bad:
            result[b] = self._impossible(int(b), SliceEvidence(values[b], int(phase[b]), job_class=int(job_class[b])))
        self.time += 1
        return result

    def posterior(self, b: int = 0) -> Belief:
        """The belief of one instance."""
        return Belief(self.network, self.belief[b].copy())
