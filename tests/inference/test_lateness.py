"""Late cells: at every step the online filter equals the batch posterior on what has arrived."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clusterorch.inference.filtering import Filter
from clusterorch.inference.lateness import LateFilter
from clusterorch.models.layout import Layout
from tests.inference.worlds import Pair, hot_network


@pytest.mark.parametrize("seed", range(5))
def test_online_equals_batch_on_what_has_arrived(seed):
    net = hot_network(Layout(1, 2))
    rng = np.random.default_rng(100 + seed)
    evidence = Pair(net, seed, 12, actions=True).evidence
    # Each of six groups of signals is a cell; it comes 0..4 slices late.
    group = rng.integers(6, size=net.width)
    delay = rng.integers(0, 5, size=(12, 6))
    online = LateFilter(net, max_lag=4)
    arrived = [np.full(net.width, np.nan) for _ in evidence]
    for now, one in enumerate(evidence):
        late: dict[int, np.ndarray] = {}
        for t in range(now + 1):
            here = np.isin(group, np.flatnonzero(t + delay[t] == now))
            fresh = np.where(here, evidence[t].values, np.nan)
            arrived[t] = np.where(here, evidence[t].values, arrived[t])
            if t < now and not np.isnan(fresh).all():
                late[t] = fresh
        online.open_slice(replace(one, values=arrived[now].copy()))
        online.arrive_many(late)
        batch = Filter(net)
        for t in range(now + 1):
            batch.step(replace(evidence[t], values=arrived[t]))
        np.testing.assert_allclose(online.posterior().vector, batch.belief[0], atol=1e-12)
    assert online.too_late == 0


def test_what_comes_after_the_window_is_counted_and_changes_nothing():
    net = hot_network(Layout(1, 2))
    evidence = Pair(net, 1, 6).evidence
    online = LateFilter(net, max_lag=2)
    for one in evidence:
        online.open_slice(one)
    before = online.posterior().vector
    assert not online.arrive(1, np.zeros(net.width))
    assert online.too_late == 1
    np.testing.assert_array_equal(online.posterior().vector, before)
