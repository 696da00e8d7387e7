"""Here lives the state of a batch of simulated jobs: one row of arrays an instance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.models.compile import Network, family_kinds
from clusterorch.models.rows import CONTINUOUS
from clusterorch.models.spec import PHASES, STREAMS


class State(NamedTuple):
    """B instances after a slice.  E edges, W width of the values, C copies, N nodes.

    The first group persists; the second says what happened in the newest slice.
    """

    key: np.ndarray  # [B, 2] uint64 of the noise
    variant: np.ndarray  # [B] fault in the slot, -1 none
    severity: np.ndarray  # [B] 0..2; 1 with an empty slot
    site: np.ndarray  # [B] -1 none
    bits: np.ndarray  # [B, 2] active mechanisms that last
    stage: np.ndarray  # [B, E] of pending edges
    poisoned: np.ndarray  # [B] copies
    phase: np.ndarray  # [B]
    clock: np.ndarray  # [B] slices of this phase that have passed
    job_class: np.ndarray  # [B] MOVING, HALTED, DOWN
    age: np.ndarray  # [B] slices of halt, this one included
    held: np.ndarray  # [B] copies held
    copy_progress: np.ndarray  # [B, C] progress saved in each copy, newest first
    progress: np.ndarray  # [B] slices of healthy training done and not rolled back
    saves: np.ndarray  # [B] completed since the beginning
    last: np.ndarray  # [B, W] last sample taken of every continuous signal
    gap: np.ndarray  # [B, W] slices since then, at most 63; 0 none yet
    queue: np.ndarray  # [B, streams, N + 1] arrival of the newest cell delivered
    resumes: np.ndarray  # [B] clock of the step that a re-initialisation returns to, -1 none
    proneness: np.ndarray  # [B, N] hazard of what is on a node, in that of any other; 0 while it is out of the job
    share: np.ndarray  # [B] mean of these
    silent: np.ndarray  # [B, streams, N + 1] whether a collector delivers nothing

    age_before: np.ndarray  # [B] published age that the slice started from
    save_ends: np.ndarray  # [B] 0 or 1
    saved: np.ndarray  # [B] 0 or 1, a copy was completed
    entered: np.ndarray  # [B] NOTHING, DRAWN, FORCED, AGAIN, COME: how the fault in the slot started in this slice
    left: np.ndarray  # [B] NOTHING, ENDED, CLEARED, REPLACED: how the fault of the slice before went
    bits_before: np.ndarray  # [B, 2] mechanisms before the slice, after the action
    transient: np.ndarray  # [B, 2] transient mechanisms that are on
    arrived: np.ndarray  # [B, E] edges that arrived
    busy: np.ndarray  # [B] whether `stage` or `arrived` holds anything
    situation: np.ndarray  # [B] row of the table of situations, -1 not yet known
    values: np.ndarray  # [B, W] telemetry: NaN lost, inf absent
    arrival: np.ndarray  # [B, streams, N + 1] slice in which a cell arrives, -1 lost; last column the job's


NOTHING, DRAWN, FORCED, AGAIN, COME = range(5)
ENDED, CLEARED, REPLACED = 1, 2, 3


def new_state(network: Network, keys: np.ndarray, start: str) -> State:
    """A batch about to run its first slice, in the first slice of phase `start`.  [B, 2] keys -> State"""
    batch, width = len(keys), network.width
    nodes, edges, copies = network.layout.nodes, len(network.spec.edge), network.layout.copies

    def ints(value: int = 0, *shape: int) -> np.ndarray:
        return np.full((batch, *shape), value, dtype=np.int64)

    cells = (batch, len(STREAMS), nodes + 1)
    return State(
        key=keys, variant=ints(-1), severity=ints(1), site=ints(-1), bits=ints(0, 2),
        stage=np.zeros((batch, edges), dtype=np.int8), poisoned=ints(), phase=ints(PHASES.index(start)),
        clock=ints(-1), job_class=ints(), age=ints(), held=ints(copies),
        copy_progress=np.zeros((batch, copies)), progress=np.zeros(batch), saves=ints(),
        last=np.zeros((batch, width)), gap=np.zeros((batch, width), dtype=np.int8),
        queue=np.zeros(cells, dtype=np.int32), resumes=ints(-1),
        proneness=np.ones((batch, nodes)), share=np.ones(batch), silent=np.zeros(cells, dtype=np.int8),
        age_before=ints(), save_ends=ints(), saved=ints(), entered=ints(), left=ints(), bits_before=ints(0, 2),
        transient=ints(0, 2), arrived=np.zeros((batch, edges), dtype=np.int8), busy=ints(), situation=ints(-1),
        values=np.full((batch, width), np.nan), arrival=np.full(cells, -1, dtype=np.int32),
    )  # fmt: skip


def continuous_signals(network: Network) -> np.ndarray:
    """Numbers of the signals that remember their last sample."""
    return np.flatnonzero(family_kinds(network.spec) == CONTINUOUS)
