"""Here lives the fault slot: what an action does to it, how a fault leaves it, how one enters.

To hand a tuple of arrays to a function counts a reference to each: calls inside loops over
instances and edges therefore pass numbers, save in what happens rarely.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.probability.noise import causal_uniform
from clusterorch.simulation.channels import BROUGHT, BROUGHT_TO, CLEARS, ONSET, RECOVERY, SEVERITY, SITE, SLOT
from clusterorch.simulation.interventions import Interventions
from clusterorch.simulation.plan import CausalPlan
from clusterorch.simulation.state import AGAIN, CLEARED, COME, DRAWN, ENDED, FORCED, NOTHING, REPLACED, State


@njit(cache=True, error_model="numpy")
def act(plan: CausalPlan, state: State, times: np.ndarray, actions: np.ndarray, targets: np.ndarray) -> None:
    """The action before the slice, where one is taken."""
    for b in range(actions.shape[0]):
        if times[b] < 0:
            continue
        state.entered[b], state.left[b] = NOTHING, NOTHING
        state.age_before[b] = state.age[b]
        if actions[b] >= 0:
            _act_on(plan, state, b, times[b], actions[b], targets[b])


@njit(cache=True, error_model="numpy")
def _act_on(plan, state, b, t, action, target):
    restarts, k0, k1 = plan.restarts[action] == 1, state.key[b, 0], state.key[b, 1]
    discarded = target if plan.discards[action] else 0
    poisoned = max(0, state.poisoned[b] - discarded)
    v = state.variant[b]
    if v >= 0:
        at_site, kind = 0, plan.target_kind[action]
        if kind >= 0 and plan.place[plan.place_start[kind, plan.site_kind[v]] + state.site[b]] == target:
            at_site = 1
        clears = 0.0 if poisoned > 0 else plan.clears[action, v, at_site]
        if clears > 0.0 and causal_uniform(t, SLOT, CLEARS, k0, k1) < clears:
            _empty(state, b, CLEARED)
        elif restarts:
            for w in range(2):
                state.bits[b, w] = state.bits[b, w] & plan.poison[w] if poisoned > 0 else 0
            state.poisoned[b] = poisoned
            state.stage[b, :] = 0
            state.entered[b] = AGAIN
    last = plan.brought.shape[1] - 1
    if state.variant[b] < 0 and plan.brought[action, last] > 0.0:
        u = causal_uniform(t, SLOT, BROUGHT, k0, k1)
        if u < plan.brought[action, last]:
            v = 0
            for j in range(last):
                v += 1 if u >= plan.brought[action, j] else 0
            kind, site = plan.target_kind[action], causal_uniform(t, SLOT, BROUGHT_TO, k0, k1)
            _enter(plan, state, b, t, v, _site_at(plan, kind, v, target, site), -1, COME)
    if restarts:
        held = max(0, state.held[b] - discarded)
        for c in range(held):
            state.copy_progress[b, c] = state.copy_progress[b, c + discarded]
        state.held[b] = held
        state.progress[b] = state.copy_progress[b, 0] if held > 0 else 0.0
        state.age_before[b] = 0


@njit(cache=True, error_model="numpy")
def _site_at(plan, kind, v, target, u):
    """One of the sites of a variant that lie on a target, all alike."""
    start, there = plan.place_start[kind, plan.site_kind[v]], 0
    for i in range(plan.sites[v]):
        there += 1 if plan.place[start + i] == target else 0
    chosen, passed = -1, int(u * there)
    for i in range(plan.sites[v]):
        if plan.place[start + i] == target:
            chosen = i if passed == 0 else chosen
            passed -= 1
    return chosen


@njit(cache=True, error_model="numpy")
def draw_slot(plan: CausalPlan, do: Interventions, onset: np.ndarray, state: State, times: np.ndarray) -> None:
    """Faults that are put into slots, that end by themselves, and that start."""
    low, high = plan.crash | plan.stall | plan.block_save | plan.block_start
    last = onset.shape[1] - 1
    for b in range(state.variant.shape[0]):
        t = times[b]
        if t < 0:
            continue
        forced = False
        for i in range(do.slot.shape[0]):
            if do.slot[i, 3] <= t < do.slot[i, 4]:
                forced = True
                _force(plan, state, b, t, do.slot[i, 0], do.slot[i, 1], do.slot[i, 2])
        if do.entry.shape[0] > 0 and do.entry[b, 3] == t:
            forced = True
            _force(plan, state, b, t, do.entry[b, 0], do.entry[b, 1], do.entry[b, 2])
        v = state.variant[b]
        if forced or state.entered[b] != NOTHING or state.left[b] != NOTHING:
            continue  # what an action made of the slot stands for this slice
        if v >= 0:
            lasting = state.bits[b, 0] & low | state.bits[b, 1] & high
            ends = plan.recovers[v] if lasting == 0 else 0.0
            if ends > 0.0 and causal_uniform(t, SLOT, RECOVERY, state.key[b, 0], state.key[b, 1]) < ends:
                _empty(state, b, ENDED)
            continue
        u, phase = causal_uniform(t, SLOT, ONSET, state.key[b, 0], state.key[b, 1]), state.phase[b]
        if u >= onset[phase, last] * max(1.0, state.share[b]):
            continue
        if _even(state, b):
            v = 0
            for j in range(last):
                v += 1 if u >= onset[phase, j] else 0
            _enter(plan, state, b, t, v, -1, -1, DRAWN)
            continue
        passed, chosen = 0.0, -1
        for j in range(last + 1):
            share = state.share[b] if plan.per_node[plan.site_kind[j]] > 0 else 1.0
            passed += share * (onset[phase, j] - (onset[phase, j - 1] if j > 0 else 0.0))
            chosen = j if u < passed and chosen < 0 else chosen
        if chosen >= 0:
            _enter(plan, state, b, t, chosen, _any_site(plan, state, b, t, chosen), -1, DRAWN)


@njit(cache=True, error_model="numpy")
def _even(state, b):
    """Whether all nodes are in the job and as prone as any."""
    odd = 0
    for n in range(state.proneness.shape[1]):
        odd += 1 if state.proneness[b, n] != 1.0 else 0
    return odd == 0


@njit(cache=True, error_model="numpy")
def _any_site(plan, state, b, t, v):
    """A site by the proneness of its node; all alike where they lie on none."""
    u, per_node = causal_uniform(t, SLOT, SITE, state.key[b, 0], state.key[b, 1]), plan.per_node[plan.site_kind[v]]
    if per_node == 0:
        return int(u * plan.sites[v])
    total, passed, node, within = 0.0, 0.0, -1, 0.0
    for n in range(state.proneness.shape[1]):
        total += state.proneness[b, n]
    for n in range(state.proneness.shape[1]):
        weight = state.proneness[b, n] / total
        if weight > 0.0 and passed <= u:
            node, within = n, (u - passed) / weight
        passed += weight
    return node * per_node + min(int(within * per_node), per_node - 1)


@njit(cache=True, error_model="numpy")
def _empty(state, b, how):
    """The slot becomes none: every mechanism off, every edge idle, no copies poisoned."""
    state.variant[b], state.site[b], state.severity[b] = -1, -1, 1
    state.bits[b, :] = 0
    state.poisoned[b] = 0
    state.entered[b], state.left[b] = NOTHING, how
    state.stage[b, :] = 0


@njit(cache=True, error_model="numpy")
def _enter(plan, state, b, t, v, site, severity, how):
    """A variant enters the slot; what is -1 is drawn."""
    k0, k1 = state.key[b, 0], state.key[b, 1]
    if severity < 0:
        u, i = causal_uniform(t, SLOT, SEVERITY, k0, k1), 0
        for j in range(plan.severities[v] - 1):
            i += 1 if u >= plan.severity[v, j] else 0
        severity = plan.severity_level[v, i]
    if site < 0:
        site = int(causal_uniform(t, SLOT, SITE, k0, k1) * plan.sites[v])
    state.variant[b], state.severity[b], state.site[b] = v, severity, min(site, plan.sites[v] - 1)
    state.entered[b] = how


@njit(cache=True, error_model="numpy")
def _force(plan, state, b, t, v, site, severity):
    """The slot is set; nothing happens where it is so already."""
    if state.variant[b] == v and site in (-1, state.site[b]) and severity in (-1, state.severity[b]):
        return
    if state.variant[b] >= 0:
        _empty(state, b, REPLACED)
    if v >= 0:
        _enter(plan, state, b, t, v, site, severity, FORCED)
