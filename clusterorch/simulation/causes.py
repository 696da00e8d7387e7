"""Here lives one slice of the hidden state: action, phase, fault slot, mechanisms, job class.

The kernel draws what `clusterorch.causal.slices.edge_outcomes` enumerates, for one instance after
the other, from noise that depends on nothing but where it is used.  An intervention replaces the
value of a variable after its own draw; the noise of all other variables stays what it was.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.causal.slices import DOWN, FAST, HALTED, MOVING, RECURRENT, TIMER
from clusterorch.models.spec import PHASES
from clusterorch.probability.noise import causal_uniform
from clusterorch.simulation.channels import (
    CLEARS, EDGE, MECHANISM, ONSET, RECOVERY, SEVERITY, SITE, SLOT,
)  # fmt: skip
from clusterorch.simulation.plan import HALTING_PHASES, LAUNCH, SAVE, STOP
from clusterorch.simulation.state import AGAIN, CLEARED, DRAWN, ENDED, FORCED, NOTHING, REPLACED

STEP = PHASES.index("step")
GATE, ARRIVAL = range(2)  # what an intervention on an edge fixes
FREE = -1


@njit(cache=True, error_model="numpy")
def advance(plan, do, onset, state, t, action, target):
    """Advance the hidden state of every instance by slice t.

    onset: [phases, V] cumulated over variants.  action, target: [B], -1 none.
    """
    for b in range(state.variant.shape[0]):
        k0, k1 = state.key[b, 0], state.key[b, 1]
        restarted = _act(plan, state, b, t, action[b], target[b], k0, k1)
        _phase(plan, do, state, b, t, restarted)
        _slot(plan, do, onset, state, b, t, k0, k1)
        _mechanisms(plan, do, state, b, t, k0, k1)
        _job(plan, state, b)


@njit(cache=True, error_model="numpy")
def _empty(state, b, how):
    """The slot becomes none: every mechanism off, every edge idle, no copies poisoned."""
    state.variant[b], state.site[b], state.severity[b] = -1, -1, 1
    state.bits[b], state.poisoned[b] = 0, 0
    state.entered[b], state.left[b] = NOTHING, how
    state.stage[b, :] = 0


@njit(cache=True, error_model="numpy")
def _act(plan, state, b, t, action, target, k0, k1):
    """The action before the slice; returns whether the job restarts."""
    state.entered[b], state.left[b] = NOTHING, NOTHING
    state.age_before[b] = state.age[b]
    if action < 0:
        return False
    restarts = plan.restarts[action] == 1
    discarded = target if plan.discards[action] else 0
    poisoned = max(0, state.poisoned[b] - discarded)
    v = state.variant[b]
    if v >= 0:
        per_node = plan.per_node[plan.site_kind[v]]
        at_site = 0
        if plan.at_node[action] and per_node > 0 and state.site[b] // per_node == target:
            at_site = 1
        clears = 0.0 if poisoned > 0 else plan.clears[action, v, at_site]
        if clears > 0.0 and causal_uniform(t, SLOT, CLEARS, k0, k1) < clears:
            _empty(state, b, CLEARED)
        elif restarts:
            state.bits[b] = state.bits[b] & plan.poison if poisoned > 0 else 0
            state.poisoned[b] = poisoned
            state.stage[b, :] = 0
            state.entered[b] = AGAIN
    if restarts:
        _reload(state, b, discarded)
        state.age_before[b] = 0
    return restarts


@njit(cache=True, error_model="numpy")
def _reload(state, b, discarded):
    """Discard the newest copies and go on from the newest that is left, or from the beginning."""
    held = max(0, state.held[b] - discarded)
    for c in range(held):
        state.copy_progress[b, c] = state.copy_progress[b, c + discarded]
    state.held[b] = held
    state.progress[b] = state.copy_progress[b, 0] if held > 0 else 0.0


@njit(cache=True, error_model="numpy")
def _phase(plan, do, state, b, t, restarted):
    """The published schedule; an intervention sets the phase and starts its clock."""
    phase, clock = state.phase[b], state.clock[b]
    if restarted:
        phase, clock = LAUNCH, 0
    elif state.job_class[b] == DOWN:
        phase, clock = STOP, 0
    elif state.job_class[b] == MOVING:
        clock += 1
        if clock >= plan.duration[phase]:
            phase, clock = plan.following[phase], 0
    for i in range(do.phase.shape[0]):
        if do.phase[i, 1] <= t < do.phase[i, 2] and do.phase[i, 0] != phase:
            phase, clock = do.phase[i, 0], 0
    state.phase[b], state.clock[b] = phase, clock
    state.save_ends[b] = 1 if phase == SAVE and clock == plan.duration[SAVE] - 1 else 0


@njit(cache=True, error_model="numpy")
def _slot(plan, do, onset, state, b, t, k0, k1):
    forced = False
    for i in range(do.slot.shape[0]):
        if do.slot[i, 3] <= t < do.slot[i, 4]:
            forced = True
            _force(plan, state, b, t, do.slot[i, 0], do.slot[i, 1], do.slot[i, 2], k0, k1)
    if do.entry.shape[0] > 0 and do.entry[b, 3] == t:
        forced = True
        _force(plan, state, b, t, do.entry[b, 0], do.entry[b, 1], do.entry[b, 2], k0, k1)
    if forced:
        return
    v = state.variant[b]
    if v >= 0:
        lasting = plan.crash | plan.stall | plan.block_save | plan.block_start
        ends = plan.recovers[v] if state.bits[b] & lasting == 0 else 0.0
        if ends > 0.0 and causal_uniform(t, SLOT, RECOVERY, k0, k1) < ends:
            _empty(state, b, ENDED)
        return
    u = causal_uniform(t, SLOT, ONSET, k0, k1)
    cumulated = onset[state.phase[b]]
    if u < cumulated[cumulated.shape[0] - 1]:
        v = 0
        for j in range(cumulated.shape[0] - 1):
            v += 1 if u >= cumulated[j] else 0
        _enter(plan, state, b, t, v, -1, -1, DRAWN, k0, k1)


@njit(cache=True, error_model="numpy")
def _enter(plan, state, b, t, v, site, severity, how, k0, k1):
    """A variant enters the slot; what is -1 is drawn."""
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
def _force(plan, state, b, t, v, site, severity, k0, k1):
    """The slot is set; nothing happens where it is so already."""
    if state.variant[b] == v and site in (-1, state.site[b]) and severity in (-1, state.severity[b]):
        return
    if state.variant[b] >= 0:
        _empty(state, b, REPLACED)
    if v >= 0:
        _enter(plan, state, b, t, v, site, severity, FORCED, k0, k1)


@njit(cache=True, error_model="numpy")
def _mechanisms(plan, do, state, b, t, k0, k1):
    before, v, phase = state.bits[b], state.variant[b], state.phase[b]
    state.bits_before[b] = before
    if v < 0 and before == 0 and not state.busy[b] and do.mechanism.shape[0] + do.edge.shape[0] == 0:
        return
    state.arrived[b, :] = 0
    now = transient = 0
    for i in range(plan.order.shape[0]):
        m = plan.order[i]
        was = before >> m & 1 == 1
        on = False
        for k in range(plan.incoming_start[m], plan.incoming_start[m + 1]):
            e = plan.incoming[k]
            parent = plan.parent[e]
            if parent >= 0:
                parent_was, parent_now = before >> parent & 1 == 1, now >> parent & 1 == 1
            else:
                parent_now = v == -1 - parent
                parent_was = parent_now and state.entered[b] == NOTHING
            if plan.transient[m]:
                parent_was = False
            arrives = _edge(plan, do, state, b, t, e, phase, parent_was, parent_now, was, k0, k1)
            on = on or arrives
        if was:
            on = not (plan.heals[m] > 0.0 and causal_uniform(t, MECHANISM, m, k0, k1) < plan.heals[m])
        for j in range(do.mechanism.shape[0]):
            if do.mechanism[j, 0] == m and do.mechanism[j, 2] <= t < do.mechanism[j, 3]:
                on = do.mechanism[j, 1] == 1
        if on and plan.transient[m]:
            transient |= 1 << m
        elif on:
            now |= 1 << m
            for k in range(plan.incoming_start[m], plan.incoming_start[m + 1]):
                state.stage[b, plan.incoming[k]] = 0
    state.bits[b], state.transient[b] = now, transient
    state.busy[b] = 1 if v >= 0 or now | transient else 0


@njit(cache=True, error_model="numpy")
def _edge(plan, do, state, b, t, e, phase, parent_was, parent_now, child_was, k0, k1):
    """One edge in one slice: moves its stage, records and returns whether it arrives."""
    forced_gate = forced_arrival = FREE
    for i in range(do.edge.shape[0]):
        if do.edge[i, 0] == e and do.edge[i, 3] <= t < do.edge[i, 4]:
            if do.edge[i, 1] == GATE:
                forced_gate = do.edge[i, 2]
            else:
                forced_arrival = do.edge[i, 2]
    arrives, stage = False, state.stage[b, e]
    kind, is_open = plan.kind[e], plan.open_phases[e] >> phase & 1 == 1
    if child_was or not parent_now:
        stage = 0
    elif kind == RECURRENT:
        if parent_was and is_open:
            arrives = causal_uniform(t, EDGE, 2 * e + 1, k0, k1) < plan.advance[e]
    elif not parent_was:
        passes = False
        if is_open:
            passes = causal_uniform(t, EDGE, 2 * e, k0, k1) < plan.gate[e]
            passes = forced_gate == 1 if forced_gate != FREE else passes
        arrives, stage = (passes, 0) if kind == FAST else (False, 1 if passes else 0)
    elif stage > 0:
        moves = True
        if kind == TIMER:
            arrives = state.age_before[b] >= plan.limit[e]
        else:
            moves = causal_uniform(t, EDGE, 2 * e + 1, k0, k1) < plan.advance[e]
            arrives = moves and stage == plan.stages[e]
        if arrives:
            stage = 0 if forced_arrival != 0 else stage
        elif moves and kind != TIMER:
            stage += 1
    if forced_arrival != FREE:
        arrives = forced_arrival == 1
        stage = 0 if arrives else stage
    state.stage[b, e], state.arrived[b, e] = stage, arrives
    return arrives


@njit(cache=True, error_model="numpy")
def _job(plan, state, b):
    """Job class, age of the halt, progress and copies."""
    bits, phase = state.bits[b], state.phase[b]
    halting = plan.stall
    if phase == SAVE:
        halting |= plan.block_save
    if HALTING_PHASES >> phase & 1:
        halting |= plan.block_start
    kind = MOVING
    if bits & plan.crash:
        kind = DOWN
    elif bits & halting:
        kind = HALTED
    state.job_class[b] = kind
    state.age[b] = state.age_before[b] + 1 if kind == HALTED else 0
    if kind == MOVING and phase == STEP:
        slow = 1.0
        for m in range(plan.order.shape[0]):
            if (bits & plan.slow) >> m & 1:
                slow = max(slow, plan.slowdown[m, state.severity[b]])
        state.progress[b] += 1.0 / slow
    state.saved[b] = 1 if state.save_ends[b] and kind == MOVING else 0
    if state.saved[b]:
        state.saves[b] += 1
        state.held[b] = min(state.held[b] + 1, plan.copies)
        for c in range(state.held[b] - 1, 0, -1):
            state.copy_progress[b, c] = state.copy_progress[b, c - 1]
        state.copy_progress[b, 0] = state.progress[b]
        if bits & plan.poison:
            state.poisoned[b] = min(state.poisoned[b] + 1, plan.copies)
