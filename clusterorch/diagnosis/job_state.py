"""Here lives the state of the job as logs tell it, at their end: its phase, whether it moves, how old its copy is."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clusterorch.causal.slices import HALTED, MOVING
from clusterorch.diagnosis.diagnose import Diagnosis
from clusterorch.inference.beliefs import Belief
from clusterorch.models.spec import JOB_CLASSES, PHASES
from clusterorch.telemetry.readings import PhaseMark

_STEP = "step"  # a job is taken to step before it says otherwise
_SAVE = "save"


class JobState(NamedTuple):
    """A job at the end of its logs.

    phase, told: its phase, and whether a line says so.  job_class, probability: MOVING, HALTED or DOWN, the likeliest
    under the belief, and how probable that is.  halted: expected age of the halt, slices; 0 if there is none.
    saved: seconds since the last copy was completed; None if no line tells.
    """

    phase: str
    told: bool
    job_class: int
    probability: float
    halted: float
    saved: float | None


def read_job(diagnosis: Diagnosis) -> JobState:
    """The state of the job of a diagnosis that has a belief."""
    assert diagnosis.belief is not None
    marks = sorted(diagnosis.ingested.phases, key=lambda mark: (_time(mark), mark.order))
    phase = marks[-1].phase if marks else _STEP
    shares, age = _classes(diagnosis.belief, phase)
    kind = int(shares.argmax())
    halted = age if kind == HALTED else 0.0
    return JobState(phase, bool(marks), kind, float(shares[kind]), halted, _since_save(diagnosis, marks))


def _time(mark: PhaseMark) -> float:
    return mark.time if mark.clock == "wall" and mark.time is not None else -np.inf


def _classes(belief: Belief, phase: str) -> tuple[np.ndarray, float]:
    """[classes] probability of each class of the job in a phase, and the expected age of a halt in slices."""
    shares, ages, at = np.zeros(len(JOB_CLASSES)), 0.0, PHASES.index(phase)
    shares[MOVING] = belief.empty
    for block in belief.network.blocks:
        mass, classes = belief.block(block).sum(axis=(0, 2)), block.classes[:, at]
        shares += np.bincount(classes, weights=mass, minlength=len(shares))
        age = np.array([c.age for c in block.chain.configurations])
        ages += float((mass * age)[classes == HALTED].sum())
    return shares, ages / shares[HALTED] if shares[HALTED] > 0.0 else 0.0


def _since_save(diagnosis: Diagnosis, marks: list[PhaseMark]) -> float | None:
    """Seconds from the end of the last save that another phase followed to the last line with a time."""
    timed = [(mark.time, mark.phase) for mark in marks if _time(mark) > -np.inf and mark.time is not None]
    ends = [after for (_, phase), (after, _) in pairwise(timed) if phase == _SAVE]
    if not ends:
        return None
    wall = [r.time for r in diagnosis.ingested.readings if r.clock == "wall" and r.time is not None]
    return max(0.0, max([*wall, timed[-1][0]]) - ends[-1])
