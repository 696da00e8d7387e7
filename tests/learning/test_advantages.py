"""Advantages: the slow sum that they stand for, those of Stable-Baselines3, borders, and rows that are no decision."""

from __future__ import annotations

import numpy as np
import pytest

from clusterorch.learning.advantages import advantages


def arrays(seed, length=12, batch=3):
    rng = np.random.default_rng(seed)
    rewards, values, after = rng.normal(size=(3, length, batch))
    slices = rng.integers(1, 30, size=(length, batch)).astype(float)
    ended = rng.random((length, batch)) < 0.15
    return rewards, values, after, slices, ended


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_sum_over_what_follows_in_the_episode(seed):
    rewards, values, after, slices, ended = arrays(seed)
    found = advantages(rewards, values, after, slices, ended, np.ones_like(ended), 0.98, 0.9)
    for b in range(3):
        for t in range(12):
            total, weight = 0.0, 1.0
            for s in range(t, 12):
                gamma = 0.98 ** slices[s, b]
                total += weight * (rewards[s, b] + gamma * after[s, b] - values[s, b])
                weight *= gamma * 0.9
                if ended[s, b]:
                    break
            assert found[t, b] == pytest.approx(total, rel=1e-12)


def test_it_equals_stable_baselines_on_decisions_of_one_length():
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    spaces = pytest.importorskip("gymnasium").spaces
    torch = pytest.importorskip("torch")
    rewards, values, _, _, _ = arrays(5)
    box, discrete = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)
    rng = np.random.default_rng(9)
    starts, last = (rng.random((13, 3)) < 0.2), rng.normal(size=3)
    buffer = buffers.RolloutBuffer(12, box, discrete, "cpu", gae_lambda=0.9, gamma=0.95, n_envs=3)
    for t in range(12):
        buffer.add(
            np.zeros((3, 1)), np.zeros((3, 1)), rewards[t], starts[t], torch.tensor(values[t]), torch.zeros(3),
        )  # fmt: skip
    buffer.compute_returns_and_advantage(torch.tensor(last), starts[12])
    ended = starts[1:]
    after = np.where(ended, 0.0, np.concatenate([values[1:], last[None]]))
    mine = advantages(rewards, values, after, np.ones_like(values), ended, np.ones_like(ended), 0.95, 0.9)
    np.testing.assert_allclose(mine, buffer.advantages, rtol=1e-5, atol=1e-5)


def test_a_row_that_is_no_decision_has_none_and_passes_nothing_on():
    rewards, values, after, slices, ended = arrays(1)
    real = np.ones_like(ended)
    real[5] = False
    ended[4] = True
    found = advantages(rewards, values, after, slices, ended, real, 0.99, 0.95)
    assert (found[5] == 0.0).all()
    rewards[5] += 100.0
    again = advantages(rewards, values, after, slices, ended, real, 0.99, 0.95)
    np.testing.assert_array_equal(found, again)
