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
    plan: CausalPlan, do: Interventions, onset: np.ndarray, state: State, t: int, action: np.ndarray, target: np.ndarray
) -> None:
    """Advance the hidden state of every instance by slice t.

    onset: [phases, V] cumulated over variants.  action, target: [B], -1 none.
    """
    act(plan, state, t, action, target)
    move_phase(plan, state, action)
    for i in range(do.phase.shape[0]):
        if do.phase[i, 1] <= t < do.phase[i, 2]:
            set_phase(state, do.phase[i, 0])
    draw_slot(plan, do, onset, state, t)
    draw_mechanisms(plan, do, state, t)
    judge_job(plan, state)
