"""An instance's bits do not depend on its company, nor on the path its evidence takes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from clusterorch import models
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.models import Model
from clusterorch.simulation import Simulator

MOST, SLICES = 257, 8
PUBLISHED = ("values", "phase", "job_class", "age_before", "save_ends")


@cache
def model() -> Model:
    return models.load("reference", layout="2x2")


@cache
def records() -> list[list[np.ndarray]]:
    """Arrays of every slice, for the largest batch; a fault in half of the instances."""
    faults = [model().variants[i % len(model().variants)] if i % 2 else None for i in range(MOST)]
    simulator = Simulator(model(), MOST, seed=3, fault=faults, at=2)
    found = []
    for _ in range(SLICES):
        record = simulator.step()
        found.append([getattr(record, name).copy() for name in PUBLISHED])
    return found


def filtered(instances: slice) -> tuple[np.ndarray, np.ndarray]:
    """[T, B] log evidence, [B, states] belief at the end."""
    f = Filter(model().network, batch=len(range(MOST)[instances]))
    logs = [f.step_batch(*(column[instances] for column in record)) for record in records()]
    return np.array(logs), f.belief


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 64, 257])
def test_an_instance_is_filtered_alike_in_any_batch(batch):
    logs, belief = filtered(slice(None))
    for instances in (slice(0, batch), slice(MOST - batch, MOST)):
        own_logs, own_belief = filtered(instances)
        np.testing.assert_array_equal(own_logs, logs[:, instances])
        np.testing.assert_array_equal(own_belief, belief[instances])


def test_one_by_one_and_in_a_batch_give_the_same_bits():
    logs, belief = filtered(slice(None))
    for b in (0, 1, 2, 7, 63, MOST - 1):
        f = Filter(model().network)
        for t, (values, phase, job_class, age, ends) in enumerate(records()):
            one = SliceEvidence(values[b], int(phase[b]), bool(ends[b]), int(job_class[b]), int(age[b]))
            assert f.step(one)[0] == logs[t, b]
        np.testing.assert_array_equal(f.belief[0], belief[b])
