"""Here lives the telemetry of a slice: signals of every entity, then the cells that carry them.

First every entity is drawn as one at rest, in loops that run several lanes wide; then those near a
fault and at it are drawn again from the same noise with their own rows.  The stages are kernels of
their own: inside one large function the loops lose their vector form.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.models.rows import CHORUS, CONTINUOUS, DISCRETE
from clusterorch.probability.noise import causal_uniform, fill_uniform_block, telemetry_uniform
from clusterorch.simulation.channels import CELLS, ENSEMBLE, KIND_SHIFT
from clusterorch.simulation.draws import draw_class, draw_continuous, draw_presence, remember
from clusterorch.simulation.interventions import Interventions
from clusterorch.simulation.plan import CausalPlan
from clusterorch.simulation.signals import SignalPlan
from clusterorch.simulation.situations import SituationTable
from clusterorch.simulation.state import State

REST, NEAR, AT_SITE = range(3)
_CELLS = CELLS << KIND_SHIFT


@njit(cache=True, error_model="numpy")
def emit(
    plan: CausalPlan, signals: SignalPlan, table: SituationTable, do: Interventions, state: State, times: np.ndarray
) -> None:
    """Draw the telemetry of the slice of every instance that does not rest, lose cells, keep the samples taken."""
    _at_rest(signals, table, state, times)
    _near_faults(plan, signals, table, state, times)
    _first_speakers(plan, signals, table, state, times)
    for b in range(state.variant.shape[0]):
        for i in range(do.signal.shape[0]):
            if do.signal[i, 2] <= times[b] < do.signal[i, 3]:
                state.values[b, do.signal[i, 0] : do.signal[i, 1]] = do.signal_value[i]
    _deliver(signals, state, times)
    _keep(signals, state, times)


@njit(cache=True, error_model="numpy")
def _at_rest(signals, table, state, times):
    """Every signal of every entity, with the row of an entity at rest."""
    width, draws = signals.widest, table.draws
    flat, work, index = np.empty(4 * width), np.empty(width + 1), np.empty(width + 1, dtype=np.int64)
    for b in range(state.variant.shape[0]):
        t = times[b]
        if t < 0:
            continue
        key = (state.key[b, 0], state.key[b, 1])
        values, last, gap = state.values[b], state.last[b], state.gap[b]
        rows = table.rows[state.situation[b]]
        for q in range(signals.block_count.shape[0]):
            count = signals.block_count[q]
            u = flat[: 4 * count].reshape(4, count)
            fill_uniform_block(u, t, signals.block_entity[q], signals.block_number[q], key)
            for j in range(4):
                s = signals.block_signal[q, j]
                if s < 0:
                    continue
                lo, hi, row = signals.offset[s], signals.offset[s + 1], rows[s, REST]
                if signals.family[s] == DISCRETE:
                    draw_class(values[lo:hi], u[j], draws[row], signals.classes[s])
                elif signals.family[s] == CONTINUOUS:
                    outlier, decay, spread = signals.outlier[s], signals.decay[s], signals.spread[s]
                    draw_continuous(
                        values[lo:hi], u[j], draws[row], outlier, decay, spread, last[lo:hi], gap[lo:hi], work, index
                    )
                else:
                    told = causal_uniform(t, ENSEMBLE, s, key[0], key[1]) >= 1.0 - draws[row, 0]
                    draw_presence(values[lo:hi], u[j], draws[row, 3] if told else draws[row, 4])


@njit(cache=True, error_model="numpy")
def _near_faults(plan, signals, table, state, times):
    """Draw again what stands near a fault or at it, where another row applies there."""
    work, index = np.empty(signals.widest + 1), np.empty(signals.widest + 1, dtype=np.int64)
    u, draws, families, kinds, spans = np.empty(signals.widest), table.draws, signals.family, signals.kind, signals.span
    for b in range(state.variant.shape[0]):
        t = times[b]
        if state.variant[b] < 0 or t < 0:
            continue
        site_kind, site = plan.site_kind[state.variant[b]], state.site[b]
        k0, k1, situation = state.key[b, 0], state.key[b, 1], state.situation[b]
        for q in range(signals.block_count.shape[0]):
            for j in range(4):
                s = signals.block_signal[q, j]
                start = signals.span_start[site_kind, kinds[s]] if s >= 0 else -1
                if start < 0:
                    continue
                rest, near = table.rows[situation, s, REST], table.rows[situation, s, NEAR]
                at_site = table.rows[situation, s, AT_SITE]
                chorus = families[s] == CHORUS
                if near == rest and at_site == rest and not chorus:
                    continue
                if chorus and causal_uniform(t, ENSEMBLE, s, k0, k1) < 1.0 - draws[rest, 0]:
                    continue  # silent: everybody alike
                for group in range(2):
                    first, step = spans[start + site, 3 * group], spans[start + site, 3 * group + 2]
                    count = (spans[start + site, 3 * group + 1] - first + step - 1) // step
                    entity, channel = signals.block_entity[q] + first, 4 * signals.block_number[q] + j
                    for i in range(count):
                        u[i] = telemetry_uniform(t, entity + i * step, channel, k0, k1)
                    row, lo = (near if group == 0 else at_site), signals.offset[s] + first
                    at = slice(lo, lo + count * step, step)
                    if chorus:
                        draw_presence(state.values[b][at], u[:count], draws[rest, 2 - group])
                    elif families[s] == DISCRETE:
                        draw_class(state.values[b][at], u[:count], draws[row], signals.classes[s])
                    else:
                        draw_continuous(
                            state.values[b][at], u[:count], draws[row], signals.outlier[s], signals.decay[s],
                            signals.spread[s], state.last[b][at], state.gap[b][at], work, index,
                        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _first_speakers(plan, signals, table, state, times):
    """Member that spoke first, -1 nobody.  Row: speaks, weight at the site, near, at rest."""
    draws = table.draws
    for i in range(signals.ensemble.shape[0]):
        s = signals.ensemble[i]
        for b in range(state.variant.shape[0]):
            t = times[b]
            if t < 0:
                continue
            row = table.rows[state.situation[b], s, REST]
            u = causal_uniform(t, ENSEMBLE, s, state.key[b, 0], state.key[b, 1])
            silent = 1.0 - draws[row, 0]
            state.values[b, signals.offset[s]] = -1.0
            if u >= silent:
                weight = _weights(plan, signals, draws[row], state, b, s)
                state.values[b, signals.offset[s]] = _pick(weight, (u - silent) / draws[row, 0])


@njit(cache=True, error_model="numpy")
def _weights(plan, signals, row, state, b, s):
    """[members] weight of every member of a first speaker."""
    weight = np.full(signals.members[s], row[3])
    if state.variant[b] >= 0:
        start = signals.span_start[plan.site_kind[state.variant[b]], signals.kind[s]]
        if start >= 0:
            span = signals.span[start + state.site[b]]
            weight[span[0] : span[1] : span[2]] = row[2]
            weight[span[3] : span[4] : span[5]] = row[1]
    return weight


@njit(cache=True, error_model="numpy")
def _pick(weight, u):
    total = 0.0
    for e in range(weight.shape[0]):
        total += weight[e]
    passed, chosen = 0.0, 0
    for e in range(weight.shape[0]):
        chosen = e if passed <= u * total and weight[e] > 0.0 else chosen
        passed += weight[e]
    return chosen


@njit(cache=True, error_model="numpy")
def _deliver(signals, state, times):
    """Lose or delay the cell of every stream and collector; what is lost becomes NaN."""
    collectors = signals.nodes + 1
    u = np.empty((4, collectors))
    for b in range(state.variant.shape[0]):
        t = times[b]
        if t < 0:
            continue
        for stream in range(signals.lost.shape[0]):
            if stream % 2 == 0:
                fill_uniform_block(u, t, _CELLS, stream // 2, (state.key[b, 0], state.key[b, 1]))
            losing, delaying, losses = 2 * (stream % 2), 2 * (stream % 2) + 1, 0
            for c in range(collectors):
                delay = 0
                for k in range(signals.delay.shape[1]):
                    delay += 1 if u[delaying, c] >= signals.delay[stream, k] else 0
                lost = u[losing, c] < signals.lost[stream] or state.silent[b, stream, c] != 0
                newest = state.queue[b, stream, c]
                at = max(t + delay, newest)
                state.queue[b, stream, c] = newest if lost else at
                state.arrival[b, stream, c] = -1 if lost else at
                losses += 1 if lost else 0
            if losses:
                _lose(signals, state, b, stream)


@njit(cache=True, error_model="numpy")
def _lose(signals, state, b, stream):
    for s in range(signals.stream.shape[0]):
        if signals.stream[s] == stream:
            per_node, start = signals.on_node[s], signals.offset[s]
            if per_node == 0 and state.arrival[b, stream, signals.nodes] < 0:
                state.values[b, start : signals.offset[s + 1]] = np.nan
            for c in range(signals.nodes if per_node else 0):
                if state.arrival[b, stream, c] < 0:
                    state.values[b, start + c * per_node : start + (c + 1) * per_node] = np.nan


@njit(cache=True, error_model="numpy")
def _keep(signals, state, times):
    for b in range(state.variant.shape[0]):
        if times[b] < 0:
            continue
        values, last, gap = state.values[b], state.last[b], state.gap[b]
        for i in range(signals.continuous.shape[0]):
            s = signals.continuous[i]
            lo, hi = signals.offset[s], signals.offset[s + 1]
            remember(values[lo:hi], last[lo:hi], gap[lo:hi])
