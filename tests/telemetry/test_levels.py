"""What the values of a series are compared with: their level at the beginning, or under load."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clusterorch.telemetry.levels import at_beginning, under_load, usual
from clusterorch.telemetry.readings import EntityRef, PhaseMark, Reading, Sample

GPU = EntityRef("gpu", "n1", None, 0)


def noisy(count, seed=0, spread=0.08, odd=0.0):
    rng = np.random.default_rng(seed)
    logs = np.where(rng.random(count) < odd, rng.normal(-0.7, 0.7, count), rng.normal(0.0, spread, count))
    return np.exp(logs).tolist()


def sampled(numbers, clock="wall"):
    base = Reading("smi.csv", 1, None, 0, "smi", "power_ratio", 0.0, GPU, "", "power", clock=clock)
    times = [15.0 * n if clock == "wall" else None for n in range(len(numbers))]
    return [Sample("power", x, {}, base._replace(time=time)) for x, time in zip(numbers, times, strict=True)]


def marked(phase, time):
    return PhaseMark("job.log", 1, time, 0, phase, "", "", "wall")


def test_one_value_in_five_may_be_far_below_the_level():
    off = [abs(math.log(usual(noisy(30, seed, odd=0.2)))) for seed in range(200)]
    medians = [abs(math.log(np.median(noisy(30, seed, odd=0.2)))) for seed in range(200)]
    assert np.mean(off) < 0.025 < np.mean(medians)


def test_a_series_that_stays_is_not_off_by_what_its_beginning_was():
    off = [
        abs(np.mean(np.log(numbers)) - math.log(at_beginning(numbers))) for numbers in map(noisy, [120] * 50, range(50))
    ]
    assert np.mean(off) < 0.003
    assert sum(x > 0.01 for x in off) <= 2


@pytest.mark.parametrize("change", [-0.5, 0.15, 1.0])
def test_a_series_that_changes_has_the_level_of_its_beginning(change):
    numbers = noisy(40, 1) + [x * math.exp(change) for x in noisy(80, 2)]
    assert math.log(at_beginning(numbers)) == pytest.approx(0.0, abs=0.05)


def test_the_level_under_load_is_not_that_of_the_highest_values():
    load, rest = [600.0 * x for x in noisy(80, 3, 0.06)], [70.0 * x for x in noisy(40, 4, 0.15)]
    assert under_load(sampled(load + rest), [], 150.0) == pytest.approx(600.0, rel=0.02)


def test_who_never_works_has_no_level_under_load():
    numbers = [200.0 * x for x in noisy(60, 5)] + [70.0 * x for x in noisy(60, 6)]
    assert under_load(sampled(numbers), [], 150.0) is not None
    assert under_load(sampled(numbers), [marked("launch", 0.0)], 150.0) is None
    assert under_load(sampled(numbers), [marked("launch", 0.0), marked("step", 450.0)], 150.0) is not None
    assert under_load(sampled(numbers, "none"), [marked("launch", 0.0)], 150.0) is not None


def test_nothing_tells_load_from_rest_where_all_is_alike_or_low():
    assert under_load(sampled([600.0 * x for x in noisy(60, 7, 0.03)]), [], 150.0) is None
    assert under_load(sampled([100.0] * 30 + [20.0] * 30), [], 150.0) is None
