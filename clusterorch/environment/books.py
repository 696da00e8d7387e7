"""Here live the books of a batch of jobs: what is published of the cluster, and what the training was worth.

Every slice of every job is shared out among six heads that sum to 1 (`HEADS`).  Tokens are counted in slices of
healthy training of the whole job; only what is *good* counts, that is made while the weights are not poisoned and not
rolled back since.  What a crash or a restart throws away is billed where it happens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.causal.slices import DOWN, HALTED
from clusterorch.environment.rules import Rules
from clusterorch.models.spec import PHASES
from clusterorch.probability.noise import causal_uniform, fill_uniform_block
from clusterorch.simulation.channels import CELLS, KIND_SHIFT
from clusterorch.simulation.plan import CausalPlan
from clusterorch.simulation.schedule import slowest_of
from clusterorch.simulation.state import State

HEADS = ("useful", "slow", "stalled", "down", "shrunk", "poisoned")
USEFUL, SLOW, STALLED, IS_DOWN, SHRUNK, POISONED = range(6)
IN_JOB, IN_REPAIR, REPAIRED = range(3)  # where the node of a place is
NO_DETOUR, TREE, DETOUR = range(3)  # topology of the collectives
STARTING = tuple(PHASES.index(p) for p in ("launch", "init_comm", "load", "stop", "queued"))
_STEP = PHASES.index("step")
_LATER = 2**40
_REPAIRS, _DETOURS = 0x5EA1, 0x5EA2  # entities of the draws of repairs, apart from those of the sampler
_SILENT_BLOCKS = 8  # first block of the draws of silent collectors


class Books(NamedTuple):
    """B jobs after a slice.  N places, C copies, U nodes that can be in repair at once."""

    time: np.ndarray  # [B] slices played
    place: np.ndarray  # [B, N] IN_JOB, IN_REPAIR, REPAIRED
    tickets: np.ndarray  # [B, N] 1: the node at this place was in repair before
    spares: np.ndarray  # [B] ready, never in repair
    frail_spares: np.ndarray  # [B] ready, back from repair
    repair_stage: np.ndarray  # [B, U] stages left of each repair, 0 none
    repair_place: np.ndarray  # [B, U] place that waits for it, -1: none does
    detour: np.ndarray  # [B] NO_DETOUR, TREE, DETOUR
    detour_stage: np.ndarray  # [B] stages left of the switch's repair
    turned: np.ndarray  # [B] slice of the last change of topology
    requeue_at: np.ndarray  # [B] slice in which the scheduler starts the job again
    failures: np.ndarray  # [B] crashes since the last completed copy
    lost: np.ndarray  # [B] 1: the job is given up
    was_down: np.ndarray  # [B]
    good: np.ndarray  # [B] surviving good tokens, slices of healthy training
    copy_good: np.ndarray  # [B, C] the same in each copy held, newest first
    copy_time: np.ndarray  # [B, C] slice in which each was completed, below 0 before the beginning
    heads: np.ndarray  # [B, 6] the newest slice
    discarded: np.ndarray  # [B] good tokens thrown away in the newest slice
    false_moves: np.ndarray  # [B] in the newest slice, 0 or 1
    incident: np.ndarray  # [B] slice in which the failure in the slot entered, -1 none
    recovered: np.ndarray  # [B] slices from there until it left, in the slice in which it did; -1


def new_books(batch: int, nodes: int, copies: int, spares: int, age: np.ndarray, every: int) -> Books:
    """The first books: all nodes at work, the newest copy `age` slices old [B], the others `every` apart."""

    def ints(value: int = 0, *shape: int) -> np.ndarray:
        return np.full((batch, *shape), value, dtype=np.int64)

    units, older = nodes + spares, age[:, None] + every * np.arange(copies)[None, :]
    return Books(
        time=ints(), place=ints(IN_JOB, nodes), tickets=ints(0, nodes), spares=ints(spares), frail_spares=ints(),
        repair_stage=ints(0, units), repair_place=ints(-1, units), detour=ints(), detour_stage=ints(),
        turned=ints(-_LATER), requeue_at=ints(_LATER), failures=ints(), lost=ints(), was_down=ints(),
        good=np.zeros(batch), copy_good=-older.astype(np.float64), copy_time=-older,
        heads=np.zeros((batch, len(HEADS))), discarded=np.zeros(batch), false_moves=ints(),
        incident=ints(-1), recovered=ints(-1),
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def go_on(rules: Rules, state: State, books: Books, times: np.ndarray) -> None:
    """What happens by itself before a slice: repairs end, collectors fall silent and speak again."""
    silent = np.empty((4, books.place.shape[1] + 1))
    for b in range(times.shape[0]):
        t, k0, k1 = times[b], state.key[b, 0], state.key[b, 1]
        if t < 0:
            continue
        for i in range(books.repair_stage.shape[1]):
            if books.repair_stage[b, i] > 0 and causal_uniform(t, _REPAIRS, i, k0, k1) < rules.repair:
                books.repair_stage[b, i] -= 1
                if books.repair_stage[b, i] == 0:
                    _back(books, b, i)
        if books.detour_stage[b] > 0 and causal_uniform(t, _DETOURS, 0, k0, k1) < rules.repair:
            books.detour_stage[b] -= 1
            if books.detour_stage[b] == 0:
                books.detour[b] = NO_DETOUR
        if rules.dark > 0.0:
            _fall_silent(rules, state, b, t, silent)


@njit(cache=True, error_model="numpy")
def _back(books, b, i):
    """A node comes back from repair: its place waits for it, or it becomes a spare."""
    place = books.repair_place[b, i]
    if place >= 0 and books.place[b, place] == IN_REPAIR:
        books.place[b, place] = REPAIRED
    else:
        books.frail_spares[b] += 1


@njit(cache=True, error_model="numpy")
def _fall_silent(rules, state, b, t, u):
    for stream in range(state.silent.shape[1]):
        if stream % 4 == 0:
            fill_uniform_block(
                u, t, CELLS << KIND_SHIFT, _SILENT_BLOCKS + stream // 4, (state.key[b, 0], state.key[b, 1])
            )
        for c in range(state.silent.shape[2]):
            is_silent = state.silent[b, stream, c] & 1
            flips = u[stream % 4, c] < (rules.light if is_silent else rules.dark)
            state.silent[b, stream, c] = (state.silent[b, stream, c] & 2) | (is_silent ^ (1 if flips else 0))


@njit(cache=True, error_model="numpy")
def begin_repair(rules: Rules, books: Books, b: int, place: int) -> None:
    """The node of a place goes to repair."""
    for i in range(books.repair_stage.shape[1]):
        if books.repair_stage[b, i] == 0:
            books.repair_stage[b, i], books.repair_place[b, i] = rules.repair_stages, place
            return


@njit(cache=True, error_model="numpy")
def rejoin(rules: Rules, state: State, books: Books, b: int) -> None:
    """With a start of the job, repaired nodes take their places; proneness and silence follow the places."""
    nodes, total = books.place.shape[1], 0.0
    for n in range(nodes):
        if books.place[b, n] == REPAIRED:
            books.place[b, n], books.tickets[b, n] = IN_JOB, 1
    for n in range(nodes):
        working = books.place[b, n] == IN_JOB
        state.proneness[b, n] = (rules.frail if books.tickets[b, n] else 1.0) if working else 0.0
        total += state.proneness[b, n]
        for stream in range(state.silent.shape[1]):
            state.silent[b, stream, n] = (state.silent[b, stream, n] & 1) | (0 if working else 2)
    state.share[b] = total / nodes


@njit(cache=True, error_model="numpy")
def settle(
    plan: CausalPlan, rules: Rules, benign: np.ndarray, state: State, books: Books, times: np.ndarray,
    restarts: np.ndarray, discards: np.ndarray,
) -> None:  # fmt: skip
    """Close the books of a slice.  benign: [V]; restarts, discards: [B] of what was done before the slice."""
    for b in range(times.shape[0]):
        if times[b] < 0:
            continue
        books.heads[b, :] = 0.0
        books.discarded[b] = 0.0
        books.time[b] = times[b] + 1
        if restarts[b]:
            _load(books, state, b, discards[b])
            books.was_down[b], books.requeue_at[b] = 0, _LATER
        down = state.job_class[b] == DOWN
        if down and not books.was_down[b]:
            _load(books, state, b, 0)
            books.failures[b] += 1
            if books.failures[b] > rules.retries:
                books.lost[b] = 1
            else:
                books.requeue_at[b] = times[b] + rules.requeue
        books.was_down[b] = 1 if down else 0
        _share_out(plan, rules, state, books, b)
        if state.saved[b]:
            books.failures[b] = 0
            for c in range(state.held[b] - 1, 0, -1):
                books.copy_good[b, c], books.copy_time[b, c] = books.copy_good[b, c - 1], books.copy_time[b, c - 1]
            books.copy_good[b, 0], books.copy_time[b, 0] = books.good[b], times[b]
        _note_incident(benign, state, books, b, times[b])


@njit(cache=True, error_model="numpy")
def _load(books, state, b, discards):
    """Work since the newest copy that is kept is gone.  A copy holds no more than what survives."""
    for c in range(books.copy_good.shape[1] - discards):
        books.copy_good[b, c], books.copy_time[b, c] = (
            books.copy_good[b, c + discards],
            books.copy_time[b, c + discards],
        )
    books.discarded[b] += books.good[b] - books.copy_good[b, 0]
    books.good[b] = books.copy_good[b, 0]


@njit(cache=True, error_model="numpy")
def _share_out(plan, rules, state, books, b):
    phase, kind = state.phase[b], state.job_class[b]
    starting = False
    for p in STARTING:
        starting = starting or phase == p
    if books.lost[b] or kind == DOWN or starting:
        books.heads[b, IS_DOWN] = 1.0
        return
    if kind == HALTED or phase != _STEP:
        books.heads[b, STALLED] = 1.0
        return
    working = 0
    for n in range(books.place.shape[1]):
        working += 1 if books.place[b, n] == IN_JOB else 0
    capacity = working / books.place.shape[1]
    low, high = state.bits[b, 0] & plan.slow[0], state.bits[b, 1] & plan.slow[1]
    slowest = slowest_of(plan.slowdown, low, high, state.severity[b])
    slowest *= rules.tree if books.detour[b] == TREE else rules.around if books.detour[b] == DETOUR else 1.0
    made = capacity / slowest
    poisoned = state.bits[b, 0] & plan.poison[0] or state.bits[b, 1] & plan.poison[1]
    books.heads[b, SHRUNK] = 1.0 - capacity
    books.heads[b, SLOW] = capacity - made
    books.heads[b, POISONED if poisoned else USEFUL] = made
    books.good[b] += 0.0 if poisoned else made


@njit(cache=True, error_model="numpy")
def _note_incident(benign, state, books, b, t):
    """When failures enter the slot and leave it."""
    books.recovered[b] = -1
    failing = state.variant[b] >= 0 and benign[state.variant[b]] == 0
    if books.incident[b] >= 0 and (not failing or (state.entered[b] > 0 and state.left[b] > 0)):
        books.recovered[b] = t - books.incident[b]
        books.incident[b] = -1
    if failing and books.incident[b] < 0:
        books.incident[b] = t
