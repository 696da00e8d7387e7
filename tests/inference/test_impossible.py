"""Impossible and extreme evidence: refused or set aside by name, and never a nan."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.filtering import NO_SOFT, Filter, SliceEvidence
from clusterorch.inference.priors import STEP, OnsetPrior
from clusterorch.inference.transition import NO_CLASS, update
from clusterorch.models.compile import Network
from clusterorch.models.layout import Layout
from clusterorch.models.spec import JOB_CLASSES, PHASES
from tests.inference.worlds import hot_network

HALTED = JOB_CLASSES.index("halted")


@cache
def network() -> Network:
    return hot_network(Layout(1, 2))


def quiet() -> OnsetPrior:
    """Nothing ever starts, so a job that halts cannot be."""
    return OnsetPrior(np.zeros_like(network().onset))


def columns(classes: list[int]) -> tuple[np.ndarray, ...]:
    """A slice without telemetry for a batch with these classes."""
    batch = len(classes)
    values = np.full((batch, network().width), math.nan)
    return values, np.full(batch, STEP), np.array(classes), np.zeros(batch, dtype=np.int64), np.zeros(batch, dtype=bool)


def test_impossible_evidence_is_refused_and_says_where():
    f = Filter(network(), batch=3, prior=quiet())
    f.step_batch(*columns([0, 0, 0]))
    with pytest.raises(ImpossibleEvidence, match=r"slice 1, instance 2: .*class 1"):
        f.step_batch(*columns([0, 0, HALTED]))
    f = Filter(network(), batch=2, prior=quiet())
    each = [SliceEvidence(columns([c])[0][0], job_class=c) for c in (0, HALTED)]
    with pytest.raises(ImpossibleEvidence, match=r"slice 0, instance 1: .*class 1"):
        f.step(each)


@pytest.mark.parametrize("fast", [False, True])
def test_impossible_evidence_is_set_aside_and_counted(fast):
    """The prediction stands, the others go on, and so does the instance itself."""
    net = network()
    f, alone = (Filter(net, batch=2, strict=False), Filter(net, batch=2, strict=False))
    for g in (f, alone):
        g.step_batch(*columns([0, 0]))
    f.prior = alone.prior = quiet()
    f.belief[1] = alone.belief[1] = np.eye(net.states)[0]
    bad = columns([0, HALTED])
    if fast:
        log_evidence = f.step_batch(*bad)
    else:
        log_evidence = f.step([SliceEvidence(bad[0][b], job_class=int(bad[2][b])) for b in range(2)])
    alone.step_batch(*columns([0, NO_CLASS]))
    assert f.set_aside == [(1, 1)]
    assert log_evidence[1] == 0.0
    np.testing.assert_array_equal(f.belief, alone.belief)
    f.prior = Filter(net).prior
    f.step_batch(*columns([0, 0]))
    assert f.set_aside == [(1, 1)]
    np.testing.assert_allclose(f.belief.sum(axis=1), 1.0, rtol=0, atol=1e-14)


def updated(predicted: np.ndarray, patterns: np.ndarray, soft: np.ndarray, job: int = NO_CLASS) -> tuple:
    """(log ratio, belief)"""
    belief, plan = np.empty_like(predicted), Filter(network()).plan
    return update(plan, STEP, job, patterns, soft, np.empty_like(patterns), predicted, belief), belief


def room() -> np.ndarray:
    return np.zeros(Filter(network()).plan.pattern_size)


def test_a_state_of_no_belief_does_not_decide_the_scale():
    """Belief [1, 0, ...], log likelihood [-800, 0, ...]: the evidence is rare, not impossible."""
    predicted = np.eye(network().states)[0]
    soft = np.zeros(network().states)
    soft[0] = -800.0
    log_ratio, belief = updated(predicted, room(), soft)
    assert log_ratio == -800.0
    np.testing.assert_array_equal(belief, predicted)
    log_ratio, belief = updated(predicted, room() + 800.0, NO_SOFT)
    assert log_ratio == 0.0
    np.testing.assert_array_equal(belief, predicted)


@pytest.mark.parametrize("height", [700.0, 800.0, 5e4, 1e9])
def test_beliefs_far_below_the_largest_likelihood_keep_their_digits(height):
    """Two states share a likelihood of exp(-height), the others are ruled out: digits go only as height grows."""
    net = network()
    predicted = np.zeros(net.states)
    predicted[[0, -1]] = 0.25, 0.75
    soft = np.zeros(net.states)
    soft[[0, -1]] = -height
    log_ratio, belief = updated(predicted, room(), soft)
    assert log_ratio == -height
    np.testing.assert_allclose(belief[[0, -1]], [0.25, 0.75], rtol=4e-16 * height)
    assert belief[1:-1].sum() == 0.0


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-200])
def test_a_tiny_belief_can_be_raised_again(tiny):
    net = network()
    predicted = np.zeros(net.states)
    predicted[0], predicted[-1] = 1.0, tiny
    soft = np.full(net.states, -math.inf)
    soft[-1] = -5.0
    log_ratio, belief = updated(predicted, room(), soft)
    assert abs(log_ratio - (math.log(tiny) - 5.0)) < 1e-12 * abs(math.log(tiny))
    assert belief[-1] == 1.0


@pytest.mark.parametrize("soft", [False, True])
def test_likelihoods_of_zero_everywhere_are_impossible_and_leave_the_prediction(soft):
    net = network()
    predicted = np.full(net.states, 1.0 / (net.states - 1))
    predicted[0] = 0.0
    nowhere = np.full(net.states, -math.inf) if soft else NO_SOFT
    log_ratio, belief = updated(predicted, room() if soft else room() - math.inf, nowhere)
    assert log_ratio == -math.inf
    np.testing.assert_array_equal(belief, predicted)


def test_an_infinite_likelihood_of_an_unbelieved_class_is_not_met():
    """The published class rules all faults out that halt; what they would make of the values is of no account."""
    predicted = np.full(network().states, 1.0 / network().states)
    log_ratio, belief = updated(predicted, room(), NO_SOFT, HALTED)
    assert math.isfinite(log_ratio)
    assert belief[0] == 0.0
    assert abs(belief.sum() - 1.0) < 1e-14


def garbage(net: Network, rng: np.random.Generator, batch: int, reach: float) -> np.ndarray:
    """Values of the right kind without any likeness: samples up to `reach` outliers' sd away, rare classes, holes."""
    values = np.empty((batch, net.width))
    for s, signal in enumerate(net.spec.signal):
        at = net.slice_of(s)
        shape = (batch, at.stop - at.start)
        if signal.family in ("gaussian", "log_ratio"):
            far = rng.uniform(-1, 1, shape) * reach ** rng.random(shape)
            values[:, at] = signal.outlier.mean + signal.outlier.sd * far
            can_lack = {row[2] > 0.0 for row in net.rows[net.row_signal == s]} == {True}
            values[:, at] = np.where((rng.random(shape) < 0.1) & can_lack, math.inf, values[:, at])
        elif signal.family == "first_speaker":
            values[:, at] = rng.integers(-1, net.layout.count(signal.entity), shape)
        else:
            most = {"count": 5, "categorical": len(signal.values)}.get(signal.family, 2)
            values[:, at] = rng.integers(0, most, shape)
    return np.where(rng.random(values.shape) < 0.3, math.nan, values)


@pytest.mark.parametrize(("reach", "classes"), [(30.0, False), (30.0, True), (1e9, True)])
def test_ten_thousand_random_slices_stay_finite_and_normalised(reach, classes):
    """100 instances, 100 slices, all phases.  Only a class or a sample beyond reach may be impossible."""
    net, rng, batch = network(), np.random.default_rng(0), 100
    f = Filter(net, batch=batch, strict=False)
    for _ in range(100):
        phase = rng.integers(0, len(PHASES), batch)
        job = rng.choice([NO_CLASS, 0, 1, 2], batch, p=[0.7, 0.2, 0.08, 0.02] if classes else [1.0, 0.0, 0.0, 0.0])
        age, ends = rng.integers(0, 6, batch), rng.random(batch) < 0.1
        log_evidence = f.step_batch(garbage(net, rng, batch, reach), phase, job, age, ends)
        assert np.isfinite(log_evidence).all()
        assert (f.belief >= 0.0).all()
        np.testing.assert_allclose(f.belief.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert classes or not f.set_aside
