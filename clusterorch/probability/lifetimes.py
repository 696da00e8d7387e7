"""Here lives the only passage from rates and durations to probabilities per slice.

A model file states rates per hour and durations in seconds; the network steps in slices.
Delays counted in slices start at 1: a delay of 0 is an edge inside the slice.
"""

import math
from typing import NamedTuple

_SECONDS_PER_HOUR = 3600.0
_HOURS_PER_1000_NODE_DAYS = 24_000.0
_SLACK = 1e-9  # slices; 2.1 s over 0.7 s is 3.0000000000000004 in floating point
_GRID = 2000  # points of the comparison of two distribution functions


class ErlangFit(NamedTuple):
    """An Erlang delay that stands in for a lognormal one."""

    stages: int  # 1..3
    mean: float  # of both laws, in the unit of the median given
    error: float  # largest difference of the two distribution functions, 0..1


def _require_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < math.inf:  # also true of nan
            raise ValueError(f"{name} is {value}; give a finite value above 0")


def onset_probability(rate_per_hour: float, slice_seconds: float) -> float:
    """Probability that a constant hazard strikes within one slice.

    Args:
        rate_per_hour: hazard, >= 0.
        slice_seconds: width of a slice, > 0.
    Source: exponential lifetime, 1 - exp(-rate * width).

    >>> round(onset_probability(1.0, 3600.0), 6)
    0.632121
    """
    _require_positive(slice_seconds=slice_seconds)
    if not rate_per_hour >= 0.0:
        raise ValueError(f"rate_per_hour is {rate_per_hour}; give a value of 0 or more")
    return -math.expm1(-rate_per_hour * slice_seconds / _SECONDS_PER_HOUR)


def per_1000_node_days_to_per_hour(rate: float) -> float:
    """Hazard of one node per hour, from failures per 1000 node-days as papers quote it."""
    return rate / _HOURS_PER_1000_NODE_DAYS


def geometric_from_mean(mean_seconds: float, slice_seconds: float) -> float:
    """Probability p of ending in each slice, for a delay on 1, 2, ... slices of that mean.

    The mean in slices is 1 / p; below one slice it cannot be met, and p is 1.
    Source: geometric law.

    >>> geometric_from_mean(60.0, 15.0)
    0.25
    """
    _require_positive(mean_seconds=mean_seconds, slice_seconds=slice_seconds)
    return min(1.0, slice_seconds / mean_seconds)


def erlang_from_mean(stages: int, mean_seconds: float, slice_seconds: float) -> float:
    """Probability p of advancing one stage in each slice, for a delay of that mean.

    At most one stage a slice, so the delay is `stages` slices or more, negative binomial
    with mean stages / p.

    Raises:
        ValueError: the mean is shorter than one slice a stage.
    """
    _require_positive(stages=stages, mean_seconds=mean_seconds, slice_seconds=slice_seconds)
    shortest = stages * slice_seconds
    if mean_seconds < shortest:
        raise ValueError(f"a mean of {mean_seconds} s is below {stages} stages of {slice_seconds} s")
    return shortest / mean_seconds


def timer_slices(seconds: float, slice_seconds: float) -> int:
    """Slices until a timer of that many seconds has run out, rounded up.

    >>> timer_slices(480.0, 15.0), timer_slices(31.0, 15.0)
    (32, 3)
    """
    _require_positive(slice_seconds=slice_seconds)
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"seconds is {seconds}; give a finite value of 0 or more")
    return max(0, math.ceil(seconds / slice_seconds - _SLACK))


def _erlang_cdf(x: float, stages: int) -> float:
    """Distribution function at x of the sum of `stages` exponentials of rate 1."""
    terms = [x**i / math.factorial(i) for i in range(stages)]
    return 1.0 - math.exp(-x) * math.fsum(terms)


def lognormal_to_erlang(median: float, sigma: float) -> ErlangFit:
    """Erlang law with the mean of a lognormal one and the nearest variance of 1..3 stages.

    `median` has any unit of time; `sigma` is the standard deviation of the logarithm.  An
    Erlang law of k stages has squared coefficient of variation 1/k, a lognormal one
    exp(sigma**2) - 1; k is nearest in ratio.
    Source: moments of both laws (Johnson, Kotz & Balakrishnan 1994, chapters 14 and 17).
    """
    _require_positive(median=median)
    if not 0.0 <= sigma < math.inf:
        raise ValueError(f"sigma is {sigma}; give a finite value of 0 or more")
    mean = median * math.exp(sigma**2 / 2.0)
    squared_variation = max(math.expm1(sigma**2), 1e-300)
    stages = min((1, 2, 3), key=lambda k: abs(math.log(k * squared_variation)))
    error = 0.0
    for step in range(_GRID + 1):
        z = 16.0 * step / _GRID - 8.0
        lognormal = 0.5 * math.erfc(-z / math.sqrt(2.0))
        erlang = _erlang_cdf(stages * math.exp(sigma * z - sigma**2 / 2.0), stages)
        error = max(error, abs(lognormal - erlang))
    return ErlangFit(stages, mean, error)
