"""Here lives the world of the environment: a batch of jobs on clusters, played slice by slice under moves.

It knows the truth.  What others may know of it they read from the records that it leaves: telemetry as it arrives,
and what is published.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from clusterorch.causal.slices import DOWN, MOVING
from clusterorch.environment.books import (
    DETOUR,
    IN_JOB,
    IN_REPAIR,
    NO_DETOUR,
    REPAIRED,
    STARTING,
    TREE,
    Books,
    begin_repair,
    go_on,
    new_books,
    rejoin,
    settle,
)
from clusterorch.environment.moves import (
    AROUND,
    ISOLATE,
    NOTHING,
    SWAP,
    USE_RING,
    USE_TREE,
    Moves,
    MoveTable,
    fill_masks,
)
from clusterorch.environment.rules import Rules, rules_of
from clusterorch.inference.priors import episode_prior
from clusterorch.models import Model
from clusterorch.models.spec import PHASES
from clusterorch.probability.noise import causal_uniform
from clusterorch.simulation.simulator import Simulator
from clusterorch.simulation.state import State

DOMAIN = "environment"
_BEGINNING = 0x0B0E  # entity of the draws of the age of the newest copy
_STEP = PHASES.index("step")


class World:
    """A batch of independent jobs; instance i is number `first_instance + i`, the same in any batch.

    Args:
        model: on its layout, with the episode prior and a table `[economy]`.
        batch: number of instances.
        seed, domain, first_instance: of the noise.
        blackouts: whether collectors go silent at times.
        fault, at, start: a failure put into the slot in this slice, in place of those of the prior; in the first
            episode alone, one for all or one for each; and the phase that the job begins in.
        telemetry: whether anything is printed; the truth does not depend on it.

    Raises:
        InvalidModel: the model has no `[economy]`, or no action that does nothing.
    """

    def __init__(
        self, model: Model, batch: int = 1, *, seed: int = 0, domain: int | str = DOMAIN, first_instance: int = 0,
        blackouts: bool = True, fault: str | Sequence[str] | None = None, at: int = 0, start: str = "step",
        telemetry: bool = True,
    ) -> None:  # fmt: skip
        self.model, self.network, self.telemetry = model, model.network, telemetry
        self.rules: Rules = rules_of(model, blackouts=blackouts)
        self.moves = Moves(self.network)
        self.prior = episode_prior(self.network)
        self.episode = np.zeros(batch, dtype=np.int64)
        onset = self.prior.stationary if fault is None else np.zeros_like(self.prior.stationary)
        self.simulator = Simulator(
            model, batch, seed=seed, domain=domain, first_instance=first_instance, onset=onset, fault=fault, at=at,
            start=start,
        )  # fmt: skip
        self.benign = np.array([b.variant.benign for b in self.network.blocks], dtype=np.int64)
        self.site_start = np.concatenate([[0], np.cumsum([b.sites for b in self.network.blocks])[:-1]])
        self.taken = np.zeros(batch, dtype=np.int64)  # move of the newest slice, the scheduler's included
        self.books = self._new_books(np.arange(batch))

    @property
    def batch(self) -> int:
        """Number of instances."""
        return len(self.episode)

    @property
    def state(self) -> State:
        """The true state."""
        return self.simulator.state

    def begin(self, rows: np.ndarray, episodes: np.ndarray) -> None:
        """Begin episodes of some instances.  [n] rows, [n] numbers of the episodes"""
        self.simulator.begin(rows, episodes)
        self.episode[rows] = episodes
        for column, new in zip(self.books, self._new_books(rows), strict=True):
            column[rows] = new

    def _new_books(self, rows: np.ndarray) -> Books:
        """Books of a job somewhere between two copies, and its state set to fit."""
        layout, state, every = self.network.layout, self.state, int(self.simulator.plan.duration[_STEP])
        u = [causal_uniform(0, _BEGINNING, 0, state.key[b, 0], state.key[b, 1]) for b in rows]
        age = (np.array(u) * every).astype(np.int64)
        state.clock[rows] = np.where(state.phase[rows] == _STEP, age - 1, -1)
        older = np.arange(layout.copies - 1, -1, -1) * every
        state.copy_progress[rows] = older
        state.progress[rows] = (layout.copies - 1) * every + age
        return new_books(len(rows), layout.nodes, layout.copies, layout.spares, age, every)

    def masks(self) -> np.ndarray:
        """[B, moves] 1 where a move is legal."""
        masks = np.empty((self.batch, self.moves.count), dtype=np.int8)
        fill_masks(self.moves.table, self.rules, self.state, self.books, masks)
        return masks

    def step(self, moves: np.ndarray, running: np.ndarray) -> None:
        """One slice of the instances that run.  [B] moves, legal ones; [B] whether each runs"""
        times = np.where(running, self.books.time, -1)
        go_on(self.rules, self.state, self.books, times)
        table = self.moves.table
        prepare(
            table, self.rules, self.moves.requeue, self.benign, self.site_start, self.state, self.books, times, moves,
            self.taken,
        )  # fmt: skip
        self.simulator.step_each(times, table.action[self.taken], table.target[self.taken], telemetry=self.telemetry)
        settle(
            self.simulator.plan, self.rules, self.benign, self.state, self.books, times, table.restarts[self.taken],
            table.discards[self.taken],
        )  # fmt: skip

    def starting(self) -> np.ndarray:
        """[B] whether the job is on its way up, so that nothing is to be decided."""
        state = self.state
        return np.isin(state.phase, STARTING) & (state.job_class == MOVING)


@njit(cache=True, error_model="numpy")
def prepare(
    table: MoveTable, rules: Rules, requeue: int, benign: np.ndarray, site_start: np.ndarray, state: State,
    books: Books, times: np.ndarray, moves: np.ndarray, taken: np.ndarray,
) -> None:  # fmt: skip
    """What a move does beside the fault; `taken` is filled with what is done, the scheduler's start included."""
    for b in range(times.shape[0]):
        t = times[b]
        if t < 0:
            continue
        m = moves[b]
        due = state.job_class[b] == DOWN and t >= books.requeue_at[b] and not books.lost[b]
        if table.does[m] == NOTHING and due:
            m = requeue
        taken[b] = m
        books.false_moves[b] = 0
        if table.does[m] == NOTHING:
            continue
        if m != requeue:
            fills = _fills_a_place(table, books, b, m)
            books.false_moves[b] = 1 if not fills and _for_nothing(table, benign, site_start, state, b, m) else 0
        _arrange(table, rules, books, b, t, m)
        if table.restarts[m]:
            rejoin(rules, state, books, b)


@njit(cache=True, error_model="numpy")
def _fills_a_place(table, books, b, m):
    """Whether a move puts a node to work on a place that is empty."""
    if table.does[m] == SWAP and books.place[b, table.target[m]] != IN_JOB:
        return True
    waiting = 0
    for n in range(books.place.shape[1]):
        waiting += 1 if books.place[b, n] == REPAIRED else 0
    return table.restarts[m] == 1 and waiting > 0


@njit(cache=True, error_model="numpy")
def _for_nothing(table, benign, site_start, state, b, m):
    """Whether nothing called for a move: the job is up, and there is no failure that it could end."""
    if state.job_class[b] == DOWN:
        return False
    v = state.variant[b]
    if v < 0 or benign[v]:
        return True
    poisoned = max(0, state.poisoned[b] - table.discards[m])
    return poisoned > 0 or table.clears[m, site_start[v] + state.site[b]] <= 0.0


@njit(cache=True, error_model="numpy")
def _arrange(table, rules, books, b, t, m):
    """Nodes that leave and come, and the topology."""
    does, target = table.does[m], table.target[m]
    if does == ISOLATE:
        begin_repair(rules, books, b, target)
        books.place[b, target] = IN_REPAIR
    elif does == SWAP:
        if books.place[b, target] == IN_JOB:
            begin_repair(rules, books, b, -1)
        elif books.place[b, target] == REPAIRED:
            books.frail_spares[b] += 1
        else:
            for i in range(books.repair_place.shape[1]):
                if books.repair_stage[b, i] > 0 and books.repair_place[b, i] == target:
                    books.repair_place[b, i] = -1
        books.place[b, target] = IN_JOB
        fresh = books.spares[b] > 0
        books.tickets[b, target] = 0 if fresh else 1
        books.spares[b] -= 1 if fresh else 0
        books.frail_spares[b] -= 0 if fresh else 1
    elif does == AROUND:
        books.detour[b], books.detour_stage[b], books.turned[b] = DETOUR, rules.repair_stages, t
    elif does in (USE_TREE, USE_RING):
        books.detour[b], books.turned[b] = TREE if does == USE_TREE else NO_DETOUR, t
