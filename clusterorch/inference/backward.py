"""Here live the backward kernels: transition and likelihood seen from the future."""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.inference.plan import Plan
from clusterorch.inference.transition import NO_CLASS, PHASE_COUNT, _log_ratio
from clusterorch.probability.elementary import exp


@njit(cache=True, error_model="numpy")
def log_likelihoods(
    plan: Plan, phase: int, job_class: int, patterns: np.ndarray, soft: np.ndarray, out: np.ndarray
) -> None:
    """[states] log p(evidence of a slice | state) less the background's; -inf where the class differs."""
    out[0] = -np.inf if job_class > 0 else 0.0
    for v in range(plan.block_offset.shape[0]):
        sites, configurations = plan.block_sites[v], plan.block_configurations[v]
        first = plan.configuration_start[v]
        for level in range(plan.block_levels[v]):
            for c in range(configurations):
                at = plan.block_offset[v] + (level * configurations + c) * sites
                possible = job_class == NO_CLASS or plan.classes[first + c, phase] == job_class
                flat = plan.component_base[phase + PHASE_COUNT * (job_class + 1), v] + level * configurations + c
                for i in range(sites):
                    out[at + i] = _log_ratio(plan, flat, patterns, i) if possible else -np.inf
    for i in range(soft.shape[0]):
        out[i] += soft[i]


@njit(cache=True, error_model="numpy")
def weigh_future(log_likelihood: np.ndarray, future: np.ndarray, out: np.ndarray) -> None:
    """Out = likelihood x future, scaled so that its largest entry is 1."""
    peak = -np.inf
    for i in range(future.shape[0]):
        if future[i] > 0.0:
            peak = max(peak, log_likelihood[i])
    largest = 0.0
    for i in range(future.shape[0]):
        out[i] = future[i] * exp(log_likelihood[i] - peak) if future[i] > 0.0 else 0.0
        largest = max(largest, out[i])
    for i in range(future.shape[0]):
        out[i] /= largest


@njit(cache=True, error_model="numpy")
def retreat(
    plan: Plan,
    phase: int,
    due: int,
    ends: bool,
    onset: np.ndarray,
    site_weight: np.ndarray,
    future: np.ndarray,
    before: np.ndarray,
) -> None:
    """before(x) = sum over x' of p(x' | x) future(x'): `predict` transposed."""
    end = 1 if ends else 0
    starting = 0.0
    begun = 0.0
    for v in range(plan.block_offset.shape[0]):
        starting += onset[v]
        begun += _begun(plan, v, phase, due, end, 0, onset[v], site_weight, future)
        sites, configurations = plan.block_sites[v], plan.block_configurations[v]
        table, first, r = plan.table_of[v, phase, due, end], plan.configuration_start[v], plan.recovers[v]
        for level in range(plan.block_levels[v]):
            block = plan.block_offset[v] + level * configurations * sites
            for c in range(configurations):
                for i in range(sites):
                    before[block + c * sites + i] = r * plan.may_end[first + c] * future[0]
            for k in range(plan.table_range[table], plan.table_range[table + 1]):
                c = plan.table_from[k]
                p = plan.table_p[k] * (1.0 - r * plan.may_end[first + c])
                at, to = block + c * sites, block + plan.table_to[k] * sites
                for i in range(sites):
                    before[at + i] += p * future[to + i]
    before[0] = (1.0 - starting) * future[0] + begun


@njit(cache=True, error_model="numpy")
def _begun(plan, v, phase, due, end, poisoned, onset, site_weight, future):
    """Expectation of the future of a start of variant v, times its probability."""
    total = 0.0
    if onset <= 0.0:
        return total
    sites, configurations = plan.block_sites[v], plan.block_configurations[v]
    table = plan.onset_of[v, phase, due, end] + poisoned * plan.starts[v]
    for level in range(plan.block_levels[v]):
        block = plan.block_offset[v] + level * configurations * sites
        for k in range(plan.onset_range[table], plan.onset_range[table + 1]):
            p, to = onset * plan.severity[v, level] * plan.onset_p[k], block + plan.onset_to[k] * sites
            for i in range(sites):
                total += p * site_weight[plan.weight_start[v] + i] * future[to + i]
    return total


@njit(cache=True, error_model="numpy")
def retreat_clear(plan: Plan, clears: np.ndarray, emptied: np.ndarray, before: np.ndarray) -> None:
    """Transpose of `clear`, in place; `emptied`: what a slot that stays empty for the slice is worth."""
    for v in range(plan.block_offset.shape[0]):
        sites, configurations = plan.block_sites[v], plan.block_configurations[v]
        first = plan.configuration_start[v]
        for level in range(plan.block_levels[v]):
            for c in range(configurations):
                at = plan.block_offset[v] + (level * configurations + c) * sites
                for i in range(sites):
                    p = clears[plan.weight_start[v] + i] if plan.poisoned[first + c] == 0 else 0.0
                    before[at + i] = p * emptied + (1.0 - p) * before[at + i]


@njit(cache=True, error_model="numpy")
def retreat_restart(
    plan: Plan,
    phase: int,
    ends: bool,
    discards: int,
    clears: np.ndarray,
    brought: np.ndarray,
    brought_to: np.ndarray,
    onset: np.ndarray,
    site_weight: np.ndarray,
    future: np.ndarray,
    before: np.ndarray,
) -> None:
    """Transpose of `restart`."""
    end = 1 if ends else 0
    starting = coming = empty = emptied = 0.0
    for v in range(plan.block_offset.shape[0]):
        starting += onset[v]
        coming += brought[v]
        empty += _begun(plan, v, phase, 0, end, 0, onset[v], site_weight, future)
        emptied += _begun(plan, v, phase, 0, end, 0, brought[v], brought_to, future)
    empty = emptied + (1.0 - coming) * (empty + (1.0 - starting) * future[0])
    emptied += (1.0 - coming) * future[0]
    for v in range(plan.block_offset.shape[0]):
        sites, configurations = plan.block_sites[v], plan.block_configurations[v]
        first, contexts = plan.configuration_start[v], plan.starts[v]
        for level in range(plan.block_levels[v]):
            block = plan.block_offset[v] + level * configurations * sites
            for c in range(configurations):
                m = max(0, plan.poisoned[first + c] - discards)
                table = plan.onset_of[v, phase, 0, end] + m * contexts
                for i in range(sites):
                    again = 0.0
                    for k in range(plan.onset_range[table], plan.onset_range[table + 1]):
                        again += plan.onset_p[k] * future[block + plan.onset_to[k] * sites + i]
                    p = clears[plan.weight_start[v] + i] if m == 0 else 0.0
                    before[block + c * sites + i] = p * emptied + (1.0 - p) * again
    before[0] = empty
