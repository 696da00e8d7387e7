"""Here lives what happens after a fault: mechanisms and the edges between them, in causal order.

The kernel draws what `clusterorch.causal.slices.edge_outcomes` enumerates.  An intervention replaces
the value of a variable after its own draw; the noise of all other variables stays what it was.

To hand a tuple of arrays to a function counts a reference to each: calls inside loops over
instances and edges therefore pass numbers, save in what happens rarely.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.causal.slices import FAST, RECURRENT, TIMER
from clusterorch.probability.noise import causal_uniform
from clusterorch.simulation.channels import EDGE, MECHANISM
from clusterorch.simulation.interventions import GATE, Interventions
from clusterorch.simulation.plan import WORD, CausalPlan
from clusterorch.simulation.state import NOTHING, State

FREE = -1


@njit(cache=True, error_model="numpy")
def draw_mechanisms(plan: CausalPlan, do: Interventions, state: State, times: np.ndarray) -> None:
    """Mechanisms in causal order, each after the edges into it."""
    transients, heals = plan.transient, plan.heals
    incoming, start = plan.incoming, plan.incoming_start
    parents, kinds, gates, advances = plan.parent, plan.kind, plan.gate, plan.advance
    stages, limits, open_phases = plan.stages, plan.limit, plan.open_phases
    key, stage_of, arrived = state.key, state.stage, state.arrived
    intervened = do.mechanism.shape[0] + do.edge.shape[0] > 0
    for b in range(key.shape[0]):
        t = times[b]
        if t < 0:
            continue
        k0, k1 = key[b, 0], key[b, 1]
        before_0, before_1, v, phase = state.bits[b, 0], state.bits[b, 1], state.variant[b], state.phase[b]
        age, entered = state.age_before[b], state.entered[b] != NOTHING
        state.bits_before[b, 0], state.bits_before[b, 1] = before_0, before_1
        if v < 0 and before_0 == 0 and before_1 == 0 and not state.busy[b] and not intervened:
            continue
        now_0 = now_1 = sounding_0 = sounding_1 = np.int64(0)
        # Whatever another fault left behind is cleared in the slice in which this one enters.
        order, first, stop = plan.order, 0, plan.order.shape[0]
        if v >= 0 and not entered and not intervened:
            order, first, stop = plan.reach, plan.reach_start[v], plan.reach_start[v + 1]
        for i in range(first, stop):
            m = order[i]
            was, on = _lit(before_0, before_1, m), False
            for k in range(start[m], start[m + 1]):
                e = incoming[k]
                parent = parents[e]
                if parent >= 0:
                    parent_was, parent_now = _lit(before_0, before_1, parent), _lit(now_0, now_1, parent)
                else:
                    parent_now = v == -1 - parent
                    parent_was = parent_now and not entered
                parent_was = parent_was and not transients[m]
                gate, arrival = _set_edge(do.edge, e, t) if intervened else (FREE, FREE)
                arrives, stage = _edge(
                    kinds[e], gates[e], advances[e], stages[e], limits[e], open_phases[e] >> phase & 1 == 1, parent_was,
                    parent_now, was, stage_of[b, e], age, gate, arrival, t, e, k0, k1,
                )  # fmt: skip
                stage_of[b, e], arrived[b, e] = stage, arrives
                on = on or arrives
            if was:
                on = not (heals[m] > 0.0 and causal_uniform(t, MECHANISM, m, k0, k1) < heals[m])
            if intervened:
                on = _set_mechanism(do.mechanism, m, t, on)
            low, high = _bit(m) if on else (np.int64(0), np.int64(0))
            if on and transients[m]:
                sounding_0, sounding_1 = sounding_0 | low, sounding_1 | high
            elif on:
                now_0, now_1 = now_0 | low, now_1 | high
                for k in range(start[m], start[m + 1]):
                    stage_of[b, incoming[k]] = 0
        state.bits[b, 0], state.bits[b, 1] = now_0, now_1
        state.transient[b, 0], state.transient[b, 1] = sounding_0, sounding_1
        state.busy[b] = 1 if v >= 0 or now_0 | now_1 | sounding_0 | sounding_1 else 0


@njit(cache=True, error_model="numpy", inline="always")
def _lit(low, high, m):
    """Whether a mechanism is on."""
    return (low >> m & 1 if m < WORD else high >> (m - WORD) & 1) == 1


@njit(cache=True, error_model="numpy", inline="always")
def _bit(m):
    """The words of one mechanism."""
    return (np.int64(1) << m, np.int64(0)) if m < WORD else (np.int64(0), np.int64(1) << (m - WORD))


@njit(cache=True, error_model="numpy")
def _set_mechanism(rows, m, t, on):
    for j in range(rows.shape[0]):
        if rows[j, 0] == m and rows[j, 2] <= t < rows[j, 3]:
            on = rows[j, 1] == 1
    return on


@njit(cache=True, error_model="numpy")
def _set_edge(rows, e, t):
    """What is set of an edge: its gate and its arrival."""
    gate = arrival = FREE
    for j in range(rows.shape[0]):
        if rows[j, 0] == e and rows[j, 3] <= t < rows[j, 4]:
            if rows[j, 1] == GATE:
                gate = rows[j, 2]
            else:
                arrival = rows[j, 2]
    return gate, arrival


@njit(cache=True, error_model="numpy")
def _edge(
    kind, gate, advance, stages, limit, is_open, parent_was, parent_now, child_was, stage, age, forced_gate,
    forced_arrival, t, e, k0, k1,
):  # fmt: skip
    """One edge in one slice: (arrives, stage after).  Draws only what is asked for."""
    arrives = False
    if child_was or not parent_now:
        stage = 0
    elif kind == RECURRENT:
        arrives = parent_was and is_open and causal_uniform(t, EDGE, 2 * e + 1, k0, k1) < advance
    elif not parent_was:
        passes = is_open and causal_uniform(t, EDGE, 2 * e, k0, k1) < gate
        passes = is_open and forced_gate == 1 if forced_gate != FREE else passes
        arrives, stage = kind == FAST and passes, 1 if passes and kind != FAST else 0
    elif stage > 0 and kind == TIMER:
        arrives = age >= limit
        stage = 0 if arrives and forced_arrival != 0 else stage
    elif stage > 0 and causal_uniform(t, EDGE, 2 * e + 1, k0, k1) < advance:
        arrives = stage == stages
        if not arrives:
            stage += 1
        elif forced_arrival != 0:
            stage = 0
    if forced_arrival == FREE:
        return arrives, stage
    return (True, 0) if forced_arrival == 1 else (False, stage)
