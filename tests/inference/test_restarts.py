"""Restarts nobody logged: mass is kept, forward and backward agree, and what is over explains as nothing does."""

import numpy as np
import pytest

from clusterorch.inference.beliefs import Belief
from clusterorch.inference.restarts import DOWN, Restarts, condition
from clusterorch.models import load
from clusterorch.models.spec import PHASES

STEP = PHASES.index("step")


@pytest.fixture(scope="module")
def network():
    return load("reference", layout="1x2", overlays=["incident"]).hidden_network


@pytest.fixture
def belief(network):
    return np.random.default_rng(3).dirichlet(np.ones(network.states))


def down(network, phase=STEP):
    """[states] whether the job is down, told block by block."""
    result = np.zeros(network.states, dtype=bool)
    for block in network.blocks:
        view = result[block.offset : block.offset + block.size].reshape(block.shape())
        view[:, block.classes[:, phase] == DOWN, :] = True
    return result


def test_only_jobs_that_are_down_are_started_again_and_no_mass_is_lost(network, belief):
    restarts, nothing = Restarts(network), np.zeros(network.states)
    after, over = restarts.pass_slice(belief, nothing, STEP)
    assert after.sum() + over.sum() == pytest.approx(1.0, abs=1e-12)
    stays = ~down(network)
    assert (after[stays] >= belief[stays]).all()
    moved = restarts.chance * belief[down(network)].sum()
    assert restarts.chance == pytest.approx(15 / 750)
    assert over.sum() == pytest.approx(0.7 * moved)
    np.testing.assert_array_equal(over[stays], 0.0)


def test_a_fault_that_is_over_keeps_its_name_and_place(network, belief):
    restarts = Restarts(network)
    before = Belief(network, belief)
    after, over = restarts.pass_slice(belief, np.zeros(network.states), STEP)
    then = Belief(network, after + over)
    assert then.variants == pytest.approx(before.variants)
    assert then.sites() == pytest.approx(before.sites())


def test_backward_is_the_transpose_of_forward(network, belief):
    rng = np.random.default_rng(7)
    restarts, future, future_over = Restarts(network), rng.random(network.states), 0.37
    over = 0.2 * rng.dirichlet(np.ones(network.states))
    after, gone = restarts.pass_slice(0.8 * belief, over, STEP)
    forward = after @ future + gone.sum() * future_over
    backward = 0.8 * belief @ restarts.retreat_slice(future, future_over, STEP) + over.sum() * future_over
    assert forward == pytest.approx(backward, rel=1e-12)


def test_without_the_number_nothing_is_started_again(belief):
    network = load("reference", layout="1x2").hidden_network
    belief = np.full(network.states, 1.0 / network.states)
    after, over = Restarts(network).pass_slice(belief, np.zeros_like(belief), STEP)
    assert after is belief
    assert not over.any()


@pytest.mark.parametrize("ratio", [-600.0, -3.0, 0.0, 5.0, 650.0])
def test_conditioning_is_bayes_rule(ratio):
    belief, over = np.array([0.25, 0.75]), np.array([0.0, 0.4])
    here, gone, log = condition(belief, over, ratio)
    odds = np.exp(min(ratio, 600.0)) * 0.6 / 0.4 if ratio < 600 else np.inf
    assert here.sum() + gone.sum() == pytest.approx(1.0)
    if np.isfinite(odds):
        assert here.sum() / gone.sum() == pytest.approx(odds, rel=1e-9)
    assert log == pytest.approx(np.logaddexp(np.log(0.6) + ratio, np.log(0.4)))
    np.testing.assert_allclose(here / max(here.sum(), 1e-300), belief if here.sum() > 0 else here, atol=1e-12)
