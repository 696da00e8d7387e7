"""Here live prediction and update of the belief over one slice.

A belief is kept unnormalised only inside these kernels.  Weights are scaled by the largest
likelihood; if what is believed lies so far below that digits could be lost, the update is done
again in logarithms, so a belief of exactly zero never decides the scale.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.inference.likelihood import sum_of
from clusterorch.inference.plan import NO_CLASS, Plan
from clusterorch.models.spec import PHASES
from clusterorch.probability.elementary import exp, log

PHASE_COUNT = len(PHASES)
_TOO_SMALL = 1e-200  # below it the sum may rest on subnormal terms


@njit(cache=True, error_model="numpy")
def predict(
    plan: Plan,
    phase: int,
    due: int,
    ends: bool,
    onset: np.ndarray,
    site_weight: np.ndarray,
    belief: np.ndarray,
    after: np.ndarray,
) -> None:
    """Push a belief one slice forward.  [states] -> [states]; `onset` [V]: starts a slice from `none`."""
    end = 1 if ends else 0
    gone = 0.0
    starting = 0.0
    for v in range(plan.block_offset.shape[0]):
        n = np.uint64(plan.block_sites[v])
        table = plan.table_of[v, phase, due, end]
        first, r = plan.configuration_start[v], plan.recovers[v]
        size = np.uint64(plan.block_configurations[v]) * n
        for level in range(plan.block_levels[v]):
            block = np.uint64(plan.block_offset[v]) + np.uint64(level) * size
            for i in range(size):
                after[block + i] = 0.0
            for k in range(plan.table_range[table], plan.table_range[table + 1]):
                c = plan.table_from[k]
                p = plan.table_p[k] * (1.0 - r * plan.may_end[first + c])
                at, to = block + np.uint64(c) * n, block + np.uint64(plan.table_to[k]) * n
                for i in range(n):
                    after[to + i] += p * belief[at + i]
            if r > 0.0:
                for c in range(plan.block_configurations[v]):
                    if plan.may_end[first + c]:
                        gone += r * sum_of(belief, block + np.uint64(c) * n, n)
        starting += onset[v]
    _start(plan, phase, due, end, onset, site_weight, belief[0], after)
    after[0] = belief[0] * (1.0 - starting) + gone


@njit(cache=True, error_model="numpy", forceinline=True)
def _start(plan, phase, due, end, onset, site_weight, empty, after):
    for v in range(plan.block_offset.shape[0]):
        if onset[v] <= 0.0 or empty <= 0.0:
            continue
        n, weight = np.uint64(plan.block_sites[v]), np.uint64(plan.weight_start[v])
        table = plan.onset_of[v, phase, due, end]
        size = np.uint64(plan.block_configurations[v]) * n
        for level in range(plan.block_levels[v]):
            block = np.uint64(plan.block_offset[v]) + np.uint64(level) * size
            share = empty * onset[v] * plan.severity[v, level]
            for k in range(plan.onset_range[table], plan.onset_range[table + 1]):
                p, to = share * plan.onset_p[k], block + np.uint64(plan.onset_to[k]) * n
                for i in range(n):
                    after[to + i] += p * site_weight[weight + i]


@njit(cache=True, error_model="numpy")
def clear(plan: Plan, clears: np.ndarray, belief: np.ndarray) -> float:
    """An action that does not restart: with `clears[v, site]` the fault leaves.  In place.

    Returns the probability that it left: the slot then stays empty for this slice.
    """
    cleared = 0.0
    for v in range(plan.block_offset.shape[0]):
        sites, configurations = plan.block_sites[v], plan.block_configurations[v]
        first = plan.configuration_start[v]
        for level in range(plan.block_levels[v]):
            for c in range(configurations):
                at = plan.block_offset[v] + (level * configurations + c) * sites
                for i in range(sites):
                    p = clears[plan.weight_start[v] + i] if plan.poisoned[first + c] == 0 else 0.0
                    cleared += p * belief[at + i]
                    belief[at + i] *= 1.0 - p
    return cleared


@njit(cache=True, error_model="numpy")
def restart(
    plan: Plan,
    phase: int,
    ends: bool,
    discards: int,
    clears: np.ndarray,
    brought: np.ndarray,
    brought_to: np.ndarray,
    onset: np.ndarray,
    site_weight: np.ndarray,
    belief: np.ndarray,
    after: np.ndarray,
) -> None:
    """An action that restarts the job: what it does not clear starts again in this slice.

    A slot that is then empty holds, with `brought` [V], a fault that came with a replacement, at `brought_to`.
    """
    end = 1 if ends else 0
    cleared = 0.0
    for v in range(plan.block_offset.shape[0]):
        sites, configurations = plan.block_sites[v], plan.block_configurations[v]
        first = plan.configuration_start[v]
        contexts = plan.starts[v]
        clean = plan.onset_of[v, phase, 0, end]
        for level in range(plan.block_levels[v]):
            block = plan.block_offset[v] + level * configurations * sites
            for i in range(block, block + configurations * sites):
                after[i] = 0.0
            for c in range(configurations):
                m = max(0, plan.poisoned[first + c] - discards)
                table = clean + m * contexts
                for i in range(sites):
                    mass = belief[block + c * sites + i]
                    p = clears[plan.weight_start[v] + i] if m == 0 else 0.0
                    cleared += p * mass
                    kept = (1.0 - p) * mass
                    for k in range(plan.onset_range[table], plan.onset_range[table + 1]):
                        after[block + plan.onset_to[k] * sites + i] += kept * plan.onset_p[k]
    starting = coming = 0.0
    for v in range(onset.shape[0]):
        starting += onset[v]
        coming += brought[v]
    _start(plan, phase, 0, end, brought, brought_to, belief[0] + cleared, after)
    empty, cleared = belief[0] * (1.0 - coming), cleared * (1.0 - coming)
    _start(plan, phase, 0, end, onset, site_weight, empty, after)
    after[0] = empty * (1.0 - starting) + cleared


@njit(cache=True, error_model="numpy", forceinline=True)
def _largest(values, n):
    """Largest of the first n values and zero, four running maxima wide."""
    a = b = c = d = 0.0
    whole = n // 4
    for i in range(np.uint64(whole)):
        at = np.uint64(4) * i
        a = values[at] if values[at] > a else a
        b = values[at + np.uint64(1)] if values[at + np.uint64(1)] > b else b
        c = values[at + np.uint64(2)] if values[at + np.uint64(2)] > c else c
        d = values[at + np.uint64(3)] if values[at + np.uint64(3)] > d else d
    for i in range(4 * whole, n):
        a = values[i] if values[i] > a else a
    return max(max(a, b), max(c, d))


@njit(cache=True, error_model="numpy")
def update(
    plan: Plan,
    phase: int,
    job_class: int,
    patterns: np.ndarray,
    soft: np.ndarray,
    weights: np.ndarray,
    predicted: np.ndarray,
    belief: np.ndarray,
) -> float:
    """Condition a predicted belief; returns log p(evidence) less the background's, nats.

    `patterns` are log ratios by pattern and site, `soft` [states] log likelihoods or length 0,
    `weights` scratch as long as `patterns`.  -inf: impossible, `belief` is then the prediction.
    """
    view = phase + PHASE_COUNT * (job_class + 1)
    start, stop = plan.pattern_range[view], plan.pattern_range[view + 1]
    size = plan.pattern_out[stop - 1] + plan.pattern_sites[stop - 1] if stop > start else 0
    peak = _largest(patterns, size)
    for i in range(np.uint64(size)):
        weights[i] = exp(patterns[i] - peak)
    total = 0.0
    if soft.shape[0] == 0:
        total = _weigh(plan, phase, job_class, weights, peak, predicted, belief)
    if total > _TOO_SMALL:
        scale = 1.0 / total
        for i in range(belief.shape[0]):
            belief[i] *= scale
        return log(total) + peak
    for i in range(belief.shape[0]):
        belief[i] = predicted[i]
    return _update_in_logs(plan, phase, job_class, patterns, soft, belief)


@njit(cache=True, error_model="numpy", forceinline=True)
def _weigh(plan, phase, job_class, weights, peak, predicted, belief):
    """Likelihood times prediction for every state; returns their sum."""
    belief[0] = 0.0 if job_class > 0 else predicted[0] * exp(-peak)
    total = belief[0]
    for v in range(plan.block_offset.shape[0]):
        n, configurations = np.uint64(plan.block_sites[v]), plan.block_configurations[v]
        first = plan.configuration_start[v]
        for level in range(plan.block_levels[v]):
            for c in range(configurations):
                at = np.uint64(plan.block_offset[v] + (level * configurations + c) * plan.block_sites[v])
                if job_class != NO_CLASS and plan.classes[first + c, phase] != job_class:
                    for i in range(n):
                        belief[at + i] = 0.0
                    continue
                flat = plan.component_base[phase + PHASE_COUNT * (job_class + 1), v] + level * configurations + c
                lo, hi = plan.component_range[flat], plan.component_range[flat + 1]
                pattern = plan.pattern_out[plan.component_pattern[lo]]
                if hi == lo + 1:
                    _multiply(belief, predicted, at, n, weights, np.uint64(pattern), plan.component_weight[lo])
                else:
                    for i in range(n):
                        belief[at + i] = 0.0
                    for k in range(lo, hi):
                        pattern = plan.pattern_out[plan.component_pattern[k]]
                        _mix_in(belief, at, n, weights, np.uint64(pattern), plan.component_weight[k])
                    for i in range(n):
                        belief[at + i] *= predicted[at + i]
                total += sum_of(belief, at, n)
    return total


@njit(cache=True, error_model="numpy")
def _multiply(belief, predicted, at, n, weights, pattern, share):
    for i in range(n):
        belief[at + i] = share * weights[pattern + i] * predicted[at + i]


@njit(cache=True, error_model="numpy")
def _mix_in(belief, at, n, weights, pattern, share):
    for i in range(n):
        belief[at + i] += share * weights[pattern + i]


@njit(cache=True, error_model="numpy")
def _update_in_logs(plan, phase, job_class, patterns, soft, belief):
    """The same update, scaled by the best *believed* state."""
    peak = -np.inf
    for sweep in range(2):
        total = 0.0
        value = log(belief[0]) + (soft[0] if soft.shape[0] else 0.0)
        if job_class > 0:
            value = -np.inf
        if sweep == 0:
            peak = max(peak, value)
        else:
            belief[0] = exp(value - peak)
            total += belief[0]
        for v in range(plan.block_offset.shape[0]):
            sites, configurations = plan.block_sites[v], plan.block_configurations[v]
            first = plan.configuration_start[v]
            for level in range(plan.block_levels[v]):
                for c in range(configurations):
                    at = plan.block_offset[v] + (level * configurations + c) * sites
                    possible = job_class == NO_CLASS or plan.classes[first + c, phase] == job_class
                    flat = plan.component_base[phase + PHASE_COUNT * (job_class + 1), v] + level * configurations + c
                    for i in range(sites):
                        value = -np.inf
                        if possible and belief[at + i] > 0.0:
                            value = log(belief[at + i]) + _log_ratio(plan, flat, patterns, i)
                            if soft.shape[0]:
                                value += soft[at + i]
                        if sweep == 0:
                            peak = max(peak, value)
                        else:
                            belief[at + i] = exp(value - peak)
                            total += belief[at + i]
        if sweep == 0 and not peak > -np.inf:
            return -np.inf
    for i in range(belief.shape[0]):
        belief[i] /= total
    return log(total) + peak


@njit(cache=True, error_model="numpy")
def _log_ratio(plan, flat, patterns, i):
    lo, hi = plan.component_range[flat], plan.component_range[flat + 1]
    peak = -np.inf
    for k in range(lo, hi):
        peak = max(peak, patterns[plan.pattern_out[plan.component_pattern[k]] + i])
    if not peak > -np.inf:
        return peak
    total = 0.0
    for k in range(lo, hi):
        total += plan.component_weight[k] * exp(patterns[plan.pattern_out[plan.component_pattern[k]] + i] - peak)
    return log(total) + peak
