"""Here lives what is published of a job and its cluster, noiseless and never late, as columns of a row."""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.environment.books import IN_REPAIR, REPAIRED, Books
from clusterorch.environment.moves import NOTHING, REQUEUE, MoveTable
from clusterorch.environment.rules import Rules
from clusterorch.models.spec import JOB_CLASSES, PHASES
from clusterorch.simulation.state import State

NODE_COLUMNS = ("in_repair", "repaired", "was_in_repair", "moved_at")
_DOES = ("isolate", "swap", "roll_back", "tree", "ring", "around", "restart", "requeue")
_DETOURS = ("tree", "detour")
FAR = 40.0  # slices that count as one: a watchdog's limit
COPY_AGE = 4.0  # of a copy, in times between two of them, that counts as one


def job_columns(copies: int) -> list[str]:
    """Names of the job's published columns."""
    return [
        *(f"phase.{name}" for name in PHASES), *(f"class.{name}" for name in JOB_CLASSES), "age_of_halt",
        *(f"copy_{k}.held" for k in range(copies)), *(f"copy_{k}.age" for k in range(copies)),
        *(f"topology.{name}" for name in _DETOURS), "spares", "working", "failures", "lost", "until_requeue",
        *(f"moved.{name}" for name in _DOES), "time",
    ]  # fmt: skip


@njit(cache=True, error_model="numpy")
def publish(
    rules: Rules, table: MoveTable, state: State, books: Books, moved: np.ndarray, every: int, horizon: int,
    of_node: np.ndarray, of_job: np.ndarray,
) -> None:  # fmt: skip
    """Fill [B, N, 4] and [B, columns].  moved: [B] the move of the decision; every: slices between copies."""
    copies, nodes = books.copy_time.shape[1], books.place.shape[1]
    for b in range(of_job.shape[0]):
        out, at = of_job[b], 0
        out[:] = 0.0
        out[state.phase[b]] = 1.0
        at = 8
        out[at + state.job_class[b]] = 1.0
        at += 3
        out[at] = min(state.age[b] / FAR, 2.0)
        at += 1
        for k in range(copies):
            held = k < state.held[b]
            out[at + k] = 1.0 if held else 0.0
            out[at + copies + k] = (
                min((books.time[b] - books.copy_time[b, k]) / (COPY_AGE * every), 2.0) if held else 0.0
            )
        at += 2 * copies
        if books.detour[b] > 0:
            out[at + books.detour[b] - 1] = 1.0
        at += 2
        working = 0
        for n in range(nodes):
            place = books.place[b, n]
            working += 1 if place == 0 else 0
            of_node[b, n, 0] = 1.0 if place == IN_REPAIR else 0.0
            of_node[b, n, 1] = 1.0 if place == REPAIRED else 0.0
            of_node[b, n, 2] = books.tickets[b, n]
            of_node[b, n, 3] = 0.0
        out[at] = min(books.spares[b] + books.frail_spares[b], 4) / 4.0
        out[at + 1] = working / nodes
        out[at + 2] = books.failures[b] / (rules.retries + 1.0)
        out[at + 3] = books.lost[b]
        waits = books.was_down[b] == 1 and books.lost[b] == 0
        out[at + 4] = min(max(books.requeue_at[b] - books.time[b], 0) / FAR, 2.0) if waits else 0.0
        at += 5
        m = moved[b]
        if table.does[m] != NOTHING:
            out[at + table.does[m] - 1] = 1.0
            if table.at_node[m]:
                of_node[b, table.target[m], 3] = 1.0
        at += REQUEUE
        out[at] = books.time[b] / horizon
