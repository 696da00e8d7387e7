"""The compiled filter against the walk over declared variables: all variants together, to 1e-12."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from clusterorch.inference.filtering import Filter
from clusterorch.models.layout import Layout
from tests.inference.worlds import Pair, as_states, assert_same, hot_network, walked_states
from tests.reference.walk import walk_filter

LAYOUT = Layout(1, 2)


@functools.cache
def network(hidden_age: bool = False, layout: Layout = LAYOUT):  # noqa: FBT001, FBT002
    return hot_network(layout, hidden_age=hidden_age)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("classes", "actions", "hidden"),
    [(True, False, False), (True, True, False), (False, True, True), (True, False, True), (True, True, True)],
)
def test_filter_equals_the_walk(seed, classes, actions, hidden):
    net = network(hidden)
    pair = Pair(net, seed, 6, classes=classes, actions=actions)
    walked = walk_filter(net.spec, net.layout, pair.slices, pair.timers)
    f = Filter(net)
    for evidence, reference in zip(pair.evidence, walked, strict=True):
        log_evidence = f.step(evidence)[0]
        mine, theirs = (
            as_states(net, f.belief[0]),
            walked_states(net.spec, reference.posterior, hidden_age=hidden),
        )
        assert_same(mine, theirs, 1e-12)
        np.testing.assert_allclose(log_evidence, reference.log_evidence, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("actions", [False, True])
def test_hidden_timers_equal_published_timers_where_progress_is_published(seed, actions):
    published, hidden = network(), network(hidden_age=True)
    # Four slices of halt let every limit of the hot world run out.
    evidence = Pair(published, seed, 10, actions=actions).evidence
    one, other = Filter(published), Filter(hidden)
    for now in evidence:
        assert one.step(now)[0] == pytest.approx(other.step(now)[0], abs=1e-11)
        ageless: dict[tuple, float] = {}
        for key, p in as_states(hidden, other.belief[0]).items():
            key = key if key == ("none",) else (*key[:-1], 0)
            ageless[key] = ageless.get(key, 0.0) + p
        assert_same(as_states(published, one.belief[0]), ageless, 1e-12)
