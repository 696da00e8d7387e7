"""Here lives the level of a series: what its values usually are, and what they are under load."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from statistics import fmean, median

from clusterorch.telemetry.readings import PhaseMark, Sample

LOAD_OVER_REST = 1.25  # by which load must differ from the least that is seen
SHARE = 4  # one value in so many is enough to see load, or rest
_FEWEST = 5  # of fewer values the median is as good as anything
_NORMAL_HALF = 0.6745  # half of a normal distribution lies within so many standard deviations
_KEPT = 3.0  # standard deviations from the densest half
_TOLD = 4.0  # standard errors by which two levels differ if they do; values that follow each other are alike
_STARTING = ("launch", "init_comm", "load")  # nothing computes yet


def usual(numbers: Sequence[float]) -> float:
    """What positive numbers usually are: the mean of those, on the log scale, that are near their densest half.

    A median leans towards where the odd values are, and one in five may be odd.

    >>> usual([2.0, 3.0, 70.0])
    3.0
    """
    return median(numbers) if len(numbers) < _FEWEST else math.exp(_densest(numbers)[0])


def at_beginning(numbers: Sequence[float]) -> float:
    """The level of a series at its beginning, the first quarter.

    If what follows is the same as far as that many values can tell, all of them tell the level: else each later value
    would be off by what the first ones were off by chance, which is a small change that never ends.

    >>> at_beginning([5.0, 5.0, 5.0, 7.0])
    5.0
    """
    quarter = max(1, len(numbers) // SHARE)
    first = numbers[:quarter]
    if quarter < _FEWEST:
        return usual(first)
    level, spread = _densest(first)
    later, _ = _densest(numbers[quarter:])
    error = spread * math.sqrt(1.0 / quarter + 1.0 / (len(numbers) - quarter))
    return usual(numbers) if abs(later - level) <= _TOLD * error else math.exp(level)


def _densest(numbers: Sequence[float]) -> tuple[float, float]:
    """Centre and standard deviation, on the log scale, of what is near the densest half."""
    logs = sorted(math.log(number) for number in numbers)
    half = (len(logs) + 1) // 2
    start = min(range(len(logs) - half + 1), key=lambda i: logs[i + half - 1] - logs[i])
    densest = logs[start : start + half]
    spread = 0.5 * (densest[-1] - densest[0]) / _NORMAL_HALF
    return fmean(x for x in logs if abs(x - median(densest)) <= _KEPT * spread), spread


def under_load(samples: Sequence[Sample], phases: Sequence[PhaseMark], least: float) -> float | None:
    """The level of a device at work: that of the values nearer to the highest quarter than to the lowest.

    None where nothing tells load from rest: nothing is much lower, all is below `least`, or the job only ever starts.
    """
    working = sorted(
        sample.number for sample, starts in zip(samples, _starting(samples, phases), strict=True) if not starts
    )
    if not working:
        return None
    every = sorted(sample.number for sample in samples)
    top, rest = (
        median(part) for part in (working[-max(1, len(working) // SHARE) :], every[: max(1, len(every) // SHARE)])
    )
    if top < max(least, LOAD_OVER_REST * rest):
        return None
    return usual([number for number in working if number * number >= top * rest])


def _starting(samples: Sequence[Sample], phases: Sequence[PhaseMark]) -> list[bool]:
    """Whether the job was starting when each sample was taken, as far as one clock tells."""
    timed = sorted(
        (mark.time, mark.order, mark.phase) for mark in phases if mark.clock == "wall" and mark.time is not None
    )
    times = [time for time, _, _ in timed]
    found = []
    for sample in samples:
        time = sample.base.time if sample.base.clock == "wall" else None
        at = 0 if time is None else bisect.bisect_right(times, time)
        found.append(at > 0 and timed[at - 1][2] in _STARTING)
    return found
