"""Here lives one slice of the hidden state, for one instance after the other.

Noise depends on nothing but where it is used (`channels`), so what happens to an instance depends
neither on the batch nor on whether anybody records it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.simulation.interventions import Interventions
from clusterorch.simulation.mechanisms import draw_mechanisms
from clusterorch.simulation.plan import CausalPlan
from clusterorch.simulation.schedule import judge_job, move_phase, set_phase
from clusterorch.simulation.slot import act, draw_slot
from clusterorch.simulation.state import State


@njit(cache=True, error_model="numpy")
def advance(
    plan: CausalPlan, do: Interventions, onset: np.ndarray, state: State, times: np.ndarray, action: np.ndarray,
    target: np.ndarray,
) -> None:  # fmt: skip
    """Advance the hidden state of every instance by its own slice.

    onset: [phases, V] cumulated over variants.  times: [B] slice of each, -1: it rests.  action, target: [B], -1 none.
    """
    act(plan, state, times, action, target)
    move_phase(plan, state, times, action)
    for i in range(do.phase.shape[0]):
        set_phase(state, times, do.phase[i, 0], do.phase[i, 1], do.phase[i, 2])
    draw_slot(plan, do, onset, state, times)
    draw_mechanisms(plan, do, state, times)
    judge_job(plan, state, times)
