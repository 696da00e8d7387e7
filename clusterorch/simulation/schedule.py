"""Here lives the published schedule: phases, job class, age of a halt, progress and copies."""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.causal.slices import DOWN, HALTED, MOVING
from clusterorch.models.spec import PHASES
from clusterorch.simulation.plan import HALTING_PHASES, LAUNCH, SAVE, STOP, WORD, CausalPlan
from clusterorch.simulation.state import State

STEP, INIT_COMM = PHASES.index("step"), PHASES.index("init_comm")


@njit(cache=True, error_model="numpy")
def move_phase(plan: CausalPlan, state: State, times: np.ndarray, actions: np.ndarray) -> None:
    """The published schedule."""
    for b in range(actions.shape[0]):
        if times[b] < 0:
            continue
        phase, clock = state.phase[b], state.clock[b]
        if actions[b] >= 0 and plan.restarts[actions[b]] == 1:
            phase, clock, state.resumes[b] = LAUNCH, 0, -1
        elif actions[b] >= 0 and plan.reinitialises[actions[b]] == 1 and phase == STEP:
            phase, clock, state.resumes[b] = INIT_COMM, 0, clock
        elif state.job_class[b] == DOWN:
            phase, clock = STOP, 0
        elif state.job_class[b] == MOVING:
            clock += 1
            if clock >= plan.duration[phase] and phase == INIT_COMM and state.resumes[b] >= 0:
                phase, clock, state.resumes[b] = STEP, state.resumes[b], -1
            elif clock >= plan.duration[phase]:
                phase, clock = plan.following[phase], 0
        state.phase[b], state.clock[b] = phase, clock


@njit(cache=True, error_model="numpy")
def set_phase(state: State, times: np.ndarray, phase: int, start: int, stop: int) -> None:
    """An intervention sets the phase in slices [start, stop); where it is another one, its clock starts."""
    for b in range(state.phase.shape[0]):
        if not start <= times[b] < stop:
            continue
        state.clock[b] = 0 if state.phase[b] != phase else state.clock[b]
        state.phase[b] = phase


@njit(cache=True, error_model="numpy")
def judge_job(plan: CausalPlan, state: State, times: np.ndarray) -> None:
    """Job class, age of the halt, progress, and whether a save ends here."""
    for b in range(state.bits.shape[0]):
        if times[b] < 0:
            continue
        low, high, phase = state.bits[b, 0], state.bits[b, 1], state.phase[b]
        kind = MOVING
        if low | high:
            kind = _class(plan, low, high, phase)
        state.job_class[b] = kind
        state.age[b] = state.age_before[b] + 1 if kind == HALTED else 0
        state.save_ends[b] = 1 if phase == SAVE and state.clock[b] == plan.duration[SAVE] - 1 else 0
        state.saved[b] = 1 if state.save_ends[b] and kind == MOVING else 0
        if kind == MOVING and phase == STEP:
            slowest = slowest_of(plan.slowdown, low & plan.slow[0], high & plan.slow[1], state.severity[b])
            state.progress[b] += 1.0 / slowest
        if state.saved[b]:
            _save(plan, state, b)


@njit(cache=True, error_model="numpy")
def _class(plan, low, high, phase):
    """Job class of the active mechanisms."""
    if low & plan.crash[0] or high & plan.crash[1]:
        return DOWN
    halts = low & plan.stall[0] or high & plan.stall[1]
    if phase == SAVE:
        halts = halts or low & plan.block_save[0] or high & plan.block_save[1]
    if HALTING_PHASES >> phase & 1:
        halts = halts or low & plan.block_start[0] or high & plan.block_start[1]
    return HALTED if halts else MOVING


@njit(cache=True, error_model="numpy")
def slowest_of(slowdown: np.ndarray, low: int, high: int, severity: int) -> float:
    """Step time over its own level: of several slow mechanisms, the slowest counts."""
    slowest = 1.0
    if low | high:
        for m in range(slowdown.shape[0]):
            if (low >> m & 1) if m < WORD else (high >> (m - WORD) & 1):
                slowest = max(slowest, slowdown[m, severity])
    return slowest


@njit(cache=True, error_model="numpy")
def _save(plan, state, b):
    """A copy is completed, poisoned if the weights are."""
    state.saves[b] += 1
    state.held[b] = min(state.held[b] + 1, plan.copies)
    for c in range(state.held[b] - 1, 0, -1):
        state.copy_progress[b, c] = state.copy_progress[b, c - 1]
    state.copy_progress[b, 0] = state.progress[b]
    if state.bits[b, 0] & plan.poison[0] or state.bits[b, 1] & plan.poison[1]:
        state.poisoned[b] = min(state.poisoned[b] + 1, plan.copies)
