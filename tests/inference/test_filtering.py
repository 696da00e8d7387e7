"""The compiled filter against the walk over declared variables: all variants together and each alone, to 1e-12."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from clusterorch.inference.filtering import Filter
from clusterorch.inference.priors import OnsetPrior
from clusterorch.models.ground import variant_names
from clusterorch.models.layout import Layout
from clusterorch.models.spec import PHASES
from tests.inference.worlds import Pair, as_states, assert_same, hot_network, hot_spec, walked_states
from tests.reference.walk import walk_filter

LAYOUT = Layout(1, 2)


@functools.cache
def network(hidden_age: bool = False, layout: Layout = LAYOUT):  # noqa: FBT001, FBT002
    return hot_network(layout, hidden_age=hidden_age)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start", ["launch", "step"])
@pytest.mark.parametrize(
    ("classes", "actions", "hidden"),
    [(True, False, False), (True, True, False), (False, True, True), (True, False, True), (True, True, True)],
)
def test_filter_equals_the_walk(seed, start, classes, actions, hidden):
    net = network(hidden)
    pair = Pair(net, seed, 6, classes=classes, actions=actions, start=start)
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


@pytest.mark.parametrize("variant", variant_names(hot_spec()))
def test_the_filter_of_one_variant_equals_its_walk(variant):
    """Nothing else can start, so every state of the variant is believed, in phases in which it may start."""
    net, only = network(), [b.variant.name == variant for b in network().blocks]
    phases = next(b.variant.spec.phases for b in net.blocks if b.variant.name == variant) or PHASES
    onset = np.outer([phase in phases for phase in PHASES], np.array(only) * 0.4)
    start = "step" if "step" in phases else phases[0]
    most = 0.0
    for classes, missing in ((True, 0.6), (False, 0.97)):
        pair = Pair(
            net, 0, 7, classes=classes, actions=not classes, start=start, prior=OnsetPrior(onset), missing=missing
        )
        chances = [0.4 if one.phase in phases else 0.0 for one in pair.slices]
        walked = walk_filter(net.spec, net.layout, pair.slices, pair.timers, (chances, {variant: 1.0}), variant)
        f = Filter(net, prior=OnsetPrior(onset))
        for evidence, reference in zip(pair.evidence, walked, strict=True):
            assert f.step(evidence)[0] == pytest.approx(reference.log_evidence, rel=1e-12, abs=1e-10)
            mine = as_states(net, f.belief[0])
            assert_same(mine, walked_states(net.spec, reference.posterior, hidden_age=False), 1e-12)
            most = max(most, 1.0 - mine.get(("none",), 0.0))
    assert most > 0.3


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
