"""Weights of evidence add up, and predictive distributions are what the next evidence is weighed by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clusterorch.inference.evidence import leave_one_out, log_odds, prequential_weights
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.predictions import predictive
from clusterorch.models.layout import Layout
from clusterorch.models.rows import DISCRETE, KIND_OF_FAMILY
from clusterorch.models.spec import PHASES
from tests.inference.worlds import Pair, hot_network

NET = hot_network(Layout(1, 2))
EVIDENCE = Pair(NET, 2, 4).evidence


@pytest.mark.parametrize("by_entity", [False, True])
def test_weights_add_up_to_the_whole_change(by_entity):
    # A published class can rule every other mode out at once; without it the log odds stay finite.
    net = hot_network(Layout(1, 2), hidden_age=True)
    evidence = Pair(net, 2, 4, classes=False).evidence
    weights = prequential_weights(net, evidence, by_entity=by_entity)
    f = Filter(net)
    for one in evidence:
        f.step(one)
    for mode, odds in log_odds(f.posterior()).items():
        if mode != "healthy":  # its log odds start at infinity
            assert sum(w.change[mode] for w in weights) == pytest.approx(odds, abs=1e-9)


def test_an_item_outside_the_evidence_weighs_nothing_and_leaving_out_all_but_one_is_its_weight():
    values = np.full(NET.width, np.nan)
    engine = next(s.values.index("engine") for s in NET.spec.signal if s.name == "xid")
    values[NET.slice_of(NET.signal_index("xid"))] = [engine, 0.0]
    alone = [*EVIDENCE[:2], SliceEvidence(values)]
    weights = [w for w in prequential_weights(NET, alone) if w.slice_index == 2 and w.signal]
    left = leave_one_out(NET, alone)
    assert [w.signal for w in weights] == [w.signal for w in left] == ["xid"]
    assert weights[0].change["gpu_xid"] == pytest.approx(left[0].change["gpu_xid"], abs=1e-9)
    assert weights[0].change["gpu_xid"] > 5


@pytest.mark.parametrize("signal", [s.name for s in NET.spec.signal if KIND_OF_FAMILY[s.family] == DISCRETE])
def test_prediction_of_a_class_is_the_evidence_of_seeing_it(signal):
    f = Filter(NET)
    for one in EVIDENCE[:3]:
        f.step(one)
    said = predictive(f, signal, 0, phase=PHASES.index("step"), age_before=2)
    assert said.classes is not None
    assert said.classes.sum() == pytest.approx(1.0, abs=1e-12)
    kept = f.belief.copy(), f.last.copy(), f.gap.copy(), f.time
    for k, p in enumerate(said.classes):
        f.belief[:], f.last[:], f.gap[:], f.time = kept
        values = np.full(NET.width, np.nan)
        values[NET.slice_of(NET.signal_index(signal)).start] = k
        assert f.step(SliceEvidence(values, age_before=2))[0] == pytest.approx(np.log(p), abs=1e-10)


def test_prediction_of_a_value_has_the_mean_and_spread_of_its_density():
    f = Filter(NET)
    for one in EVIDENCE[:3]:
        f.step(one)
    said = predictive(f, "temperature", 1)
    kept = f.belief.copy(), f.last.copy(), f.gap.copy(), f.time
    grid = np.linspace(-40.0, 180.0, 4401)
    density = np.empty_like(grid)
    at = NET.slice_of(NET.signal_index("temperature")).start + 1
    for i, x in enumerate(grid):
        f.belief[:], f.last[:], f.gap[:], f.time = kept
        values = np.full(NET.width, np.nan)
        values[at] = x
        density[i] = np.exp(f.step(SliceEvidence(values))[0])
    mass = np.trapezoid(density, grid)
    mean = np.trapezoid(density * grid, grid) / mass
    sd = np.sqrt(np.trapezoid(density * (grid - mean) ** 2, grid) / mass)
    assert said.mean == pytest.approx(mean, abs=1e-3)
    assert said.sd == pytest.approx(sd, rel=1e-3)


def test_evidence_without_values_moves_nothing_but_time():
    empty = [replace(one, values=np.full(NET.width, np.nan)) for one in EVIDENCE]
    assert all(w.signal is None for w in prequential_weights(NET, empty))
