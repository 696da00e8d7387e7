"""The table of failures by actions: its words follow the declared probabilities, and hardly any failure lacks help."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from clusterorch import models
from clusterorch.inference.actions import action_kernel
from clusterorch.models.effects import CLEARS, ENOUGH, HARMFUL, MITIGATES, USELESS, effects


@functools.cache
def model():
    return models.load("reference", layout=models.Layout(4, 2, leaves=2))


@functools.cache
def table():
    return effects(model().spec)


def test_the_best_target_of_the_kernel_is_the_probability_of_the_table():
    network = model().network
    start = 0
    for block in network.blocks:
        here = slice(start, start + block.sites)
        start += block.sites
        if block.variant.benign:
            continue
        for name, effect in table()[block.variant.name].items():
            kind = next(a.target for a in network.spec.action if a.name == name)
            kernels = [action_kernel(network, name, target) for target in range(network.layout.targets(kind))]
            assert max(k.clears[here].max() for k in kernels) == pytest.approx(effect.probability), (
                block.variant,
                name,
            )


def test_words_follow_the_probabilities():
    restarts = {a.name: a.restarts for a in model().spec.action}
    for row in table().values():
        for name, (word, p) in row.items():
            if p > 0.0:
                assert word == (CLEARS if p >= ENOUGH else MITIGATES)
            else:
                assert word == (HARMFUL if restarts[name] else USELESS)


def test_waiting_ends_nothing_and_almost_every_failure_can_be_ended():
    assert all(row["wait"] == (USELESS, 0.0) for row in table().values())
    helped = {variant for variant, row in table().items() if any(e.word == CLEARS for e in row.values())}
    assert len(helped) > 0.8 * len(table())
    assert all(any(e.probability > 0.0 for e in row.values()) for variant, row in table().items() if variant in helped)


def test_no_action_is_right_for_all_and_each_is_right_for_some():
    rows = np.array([[effect.word == CLEARS for effect in row.values()] for row in table().values()])
    names = list(next(iter(table().values())))
    for name, column in zip(names, rows.T, strict=True):
        assert not column.all()
        if name not in ("wait", "use_ring"):
            assert column.any(), name
