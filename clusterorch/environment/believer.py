"""Here lives the belief of the environment: the exact filter over a batch, through moves and late cells.

A slice is final once nothing of it can still arrive.  The belief over final slices is kept; what is newer is filtered
again from there whenever somebody asks, with the cells that have arrived by then.  So at every moment the answer is
the batch posterior on what has arrived, as that of `clusterorch.inference.lateness.LateFilter`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.environment.moves import Moves, MoveTable
from clusterorch.inference.filtering import likelihood_ratios, make_scratch
from clusterorch.inference.plan import Plan, make_plan
from clusterorch.inference.priors import OnsetPrior, uniform_sites
from clusterorch.inference.transition import PHASE_COUNT, clear, predict, restart, update
from clusterorch.models.compile import Network
from clusterorch.models.spec import STREAMS


class Ring(NamedTuple):
    """The newest R slices of every instance.  [B, R, ...]"""

    values: np.ndarray  # [B, R, width]
    arrival: np.ndarray  # [B, R, cells]
    phase: np.ndarray
    job_class: np.ndarray
    due: np.ndarray
    ends: np.ndarray
    move: np.ndarray
    share: np.ndarray
    proneness: np.ndarray  # [B, R, N]


class Beliefs(NamedTuple):
    """A belief over every instance, with the memory of samples that goes with it."""

    vector: np.ndarray  # [B, states]
    last: np.ndarray  # [B, width]
    gap: np.ndarray  # [B, width]


class Sites(NamedTuple):
    """Where faults start."""

    onset: np.ndarray  # [phases, V]
    hosted: np.ndarray  # [V] whether its sites lie on nodes
    uniform: np.ndarray  # [sum of sites]
    node: np.ndarray  # [sum of sites] -1 none


def cells_of(network: Network) -> np.ndarray:
    """[width] the cell that carries each value: stream times (nodes + 1) plus the collector, the last the job's."""
    layout, cells = network.layout, np.empty(network.width, dtype=np.int64)
    for s, signal in enumerate(network.spec.signal):
        node = layout.node_of(signal.entity) if signal.family != "first_speaker" else np.array([-1])
        collector = np.where(node < 0, layout.nodes, node)
        cells[network.slice_of(s)] = STREAMS.index(signal.stream) * (layout.nodes + 1) + collector
    return cells


class Believer:
    """The filter of a batch of instances.

    Args:
        network: of the world.
        moves: of the same network.
        prior: when faults start, the world's own.
        batch: number of instances.
    """

    def __init__(self, network: Network, moves: Moves, prior: OnsetPrior, batch: int = 1) -> None:
        self.network, self.moves, self.plan = network, moves, make_plan(network)
        self.lag = max(stream.max_delay for stream in network.spec.stream)
        self.cells = cells_of(network)
        layout, blocks = network.layout, network.blocks
        self.sites = Sites(
            prior.stationary,
            np.array([layout.node_of(b.variant.spec.site)[0] >= 0 for b in blocks]),
            uniform_sites(network),
            np.concatenate([layout.node_of(b.variant.spec.site) for b in blocks]),
        )
        self.limits = np.array(network.limits, dtype=np.int64)
        self.time = np.zeros(batch, dtype=np.int64)
        self.set_aside = np.zeros(batch, dtype=np.int64)  # slices that nothing believed explains
        self.settled = self._fresh(batch)
        self.current = self._fresh(batch)
        self.ring = self._new_ring(batch)
        self._scratch = make_scratch(self.plan, network.width)

    def _fresh(self, batch: int) -> Beliefs:
        network = self.network
        vector = np.zeros((batch, network.states))
        vector[:, 0] = 1.0
        return Beliefs(vector, np.zeros((batch, network.width)), np.zeros((batch, network.width), dtype=np.int64))

    def _new_ring(self, batch: int) -> Ring:
        network, slots = self.network, self.lag + 1
        nodes = network.layout.nodes

        def ints(*shape: int) -> np.ndarray:
            return np.zeros((batch, slots, *shape), dtype=np.int64)

        cells = len(STREAMS) * (nodes + 1)
        return Ring(
            np.full((batch, slots, network.width), np.nan), ints(cells), ints(), ints(), ints(), ints(), ints(),
            np.ones((batch, slots)), np.ones((batch, slots, nodes)),
        )  # fmt: skip

    def begin(self, rows: np.ndarray) -> None:
        """Begin with an empty slot again.  [n] rows"""
        for beliefs in (self.settled, self.current):
            for column in beliefs:
                column[rows] = 0
            beliefs.vector[rows, 0] = 1.0
        self.time[rows], self.set_aside[rows] = 0, 0

    def record(
        self, running: np.ndarray, values: np.ndarray, arrival: np.ndarray, phase: np.ndarray, job_class: np.ndarray,
        age_before: np.ndarray, ends: np.ndarray, move: np.ndarray, proneness: np.ndarray, share: np.ndarray,
    ) -> None:  # fmt: skip
        """Take in a slice of the instances that run; what becomes final is filtered for good."""
        due = (age_before[:, None] >= self.limits[None, :]).sum(axis=1)
        rows = np.flatnonzero(running)
        take_in(
            self.plan, self.sites, self.moves.table, self.ring, self.settled, self.current, self.time, self.set_aside,
            self.lag, rows, values, arrival.reshape(len(arrival), -1), phase, job_class, due, ends, move, proneness,
            share, self.cells, self._scratch,
        )  # fmt: skip

    def believe(self, rows: np.ndarray) -> np.ndarray:
        """[B, states] the belief now, brought up to date for some instances.  [n] rows"""
        catch_up(
            self.plan, self.sites, self.moves.table, self.ring, self.settled, self.current, self.time, self.lag, rows,
            self.cells, self._scratch,
        )  # fmt: skip
        return self.current.vector


@njit(cache=True, error_model="numpy")
def take_in(
    plan: Plan, sites: Sites, table: MoveTable, ring: Ring, settled: Beliefs, spare: Beliefs, time: np.ndarray,
    set_aside: np.ndarray, lag: int, rows: np.ndarray, values: np.ndarray, arrival: np.ndarray, phase: np.ndarray,
    job_class: np.ndarray, due: np.ndarray, ends: np.ndarray, move: np.ndarray, proneness: np.ndarray,
    share: np.ndarray, cells: np.ndarray, scratch: tuple,
) -> None:  # fmt: skip
    """Write a slice into the ring of some instances and filter the one that is final with it."""
    seen = np.empty(values.shape[1])
    after = np.empty(settled.vector.shape[1])
    for i in range(rows.shape[0]):
        b = rows[i]
        t = time[b]
        at = t % (lag + 1)
        ring.values[b, at, :] = values[b]
        for c in range(arrival.shape[1]):
            ring.arrival[b, at, c] = arrival[b, c]
        ring.phase[b, at], ring.job_class[b, at], ring.due[b, at] = phase[b], job_class[b], due[b]
        ring.ends[b, at], ring.move[b, at], ring.share[b, at] = ends[b], move[b], share[b]
        ring.proneness[b, at, :] = proneness[b]
        time[b] = t + 1
        if t >= lag:
            set_aside[b] += _filter(
                plan, sites, table, ring, b, (t - lag) % (lag + 1), t, cells, seen, settled.vector[b], after,
                settled.last[b], settled.gap[b], scratch,
            )  # fmt: skip


@njit(cache=True, error_model="numpy")
def catch_up(
    plan: Plan, sites: Sites, table: MoveTable, ring: Ring, settled: Beliefs, current: Beliefs, time: np.ndarray,
    lag: int, rows: np.ndarray, cells: np.ndarray, scratch: tuple,
) -> None:  # fmt: skip
    """Filter the slices that are not final with what has arrived of them."""
    seen = np.empty(current.last.shape[1])
    after = np.empty(settled.vector.shape[1])
    for i in range(rows.shape[0]):
        b = rows[i]
        current.vector[b, :], current.last[b, :], current.gap[b, :] = settled.vector[b], settled.last[b], settled.gap[b]
        now = time[b] - 1
        for t in range(max(0, time[b] - lag), time[b]):
            _filter(
                plan, sites, table, ring, b, t % (lag + 1), now, cells, seen, current.vector[b], after,
                current.last[b], current.gap[b], scratch,
            )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _filter(plan, sites, table, ring, b, at, now, cells, seen, belief, after, last, gap, scratch):
    """One slice with the cells that have arrived by slice `now`.  Returns 1 if nothing believed explains it."""
    for w in range(seen.shape[0]):
        arrived = ring.arrival[b, at, cells[w]]
        seen[w] = ring.values[b, at, w] if 0 <= arrived <= now else np.nan
    phase, job_class, move = ring.phase[b, at], ring.job_class[b, at], ring.move[b, at]
    share, onset, weights = ring.share[b, at], sites.onset[phase], sites.uniform
    even = True
    for n in range(ring.proneness.shape[2]):
        even = even and ring.proneness[b, at, n] == 1.0
    if not even:
        onset, weights = onset.copy(), weights.copy()
        for v in range(onset.shape[0]):
            onset[v] *= share if sites.hosted[v] else 1.0
        for s in range(weights.shape[0]):
            if sites.node[s] >= 0:
                weights[s] *= ring.proneness[b, at, sites.node[s]] / share if share > 0.0 else 0.0
    if table.restarts[move]:
        restart(
            plan, phase, ring.ends[b, at] == 1, table.discards[move], table.clears[move], table.brought[move],
            table.brought_to[move], onset, weights, belief, after,
        )  # fmt: skip
    else:
        cleared = clear(plan, table.clears[move], belief) if table.action[move] >= 0 else 0.0
        predict(plan, phase, ring.due[b, at], ring.ends[b, at] == 1, onset, weights, belief, after)
        after[0] += cleared
    likelihood_ratios(plan, phase + PHASE_COUNT * (job_class + 1), seen, last, gap, scratch)
    ratio = update(plan, phase, job_class, scratch[3], _NO_SOFT, scratch[5], after, belief)
    if ratio > -np.inf:
        return 0
    total = 0.0
    for i in range(after.shape[0]):
        total += after[i]
    for i in range(after.shape[0]):
        belief[i] = after[i] / total
    return 1


_NO_SOFT = np.zeros(0)
