"""Gymnasium and Stable-Baselines3 find nothing to object to, and their learners take the environment as it is."""

from __future__ import annotations

import importlib.util
import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clusterorch.environment import LEVELS

SHORT = {"hours": 0.25}
DRAWN = importlib.util.find_spec("clusterorch.environment.rendering") is not None


@pytest.mark.parametrize("name", LEVELS)
def test_gymnasium_has_no_objection(name, capsys):
    env = gym.make(name, **SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=not DRAWN)
    assert "WARN" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", LEVELS)
def test_stable_baselines_has_no_objection(name, capsys):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(gym.make(name, **SHORT).unwrapped, warn=True, skip_render_check=not DRAWN)
    assert "WARN" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", LEVELS)
def test_specs_are_plain_json(name):
    env = gym.make(name, **SHORT)
    again = gym.spec(name)
    assert again.kwargs == LEVELS[name]
    assert json.loads(json.dumps(env.spec.kwargs)) == env.spec.kwargs
    assert gym.envs.registration.EnvSpec.from_json(env.spec.to_json()).kwargs == env.spec.kwargs
    assert env.spec.vector_entry_point == again.vector_entry_point


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("which", ["raw", "belief", "both"])
def test_observations_lie_in_their_space(name, which):
    vector = gym.make_vec(name, num_envs=2, observe=which, **SHORT)
    found, info = vector.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(12):
        assert found in vector.observation_space
        assert all(np.isfinite(values).all() for values in found.values())
        moves = np.array([rng.choice(np.flatnonzero(mask)) for mask in info["action_mask"]])
        found, *_, info = vector.step(moves)
    np.testing.assert_array_equal(vector.unwrapped.action_masks(), info["action_mask"] == 1)


def test_a_random_rollout_passes_the_passive_checker():
    env = gym.make("clusterorch/GPUCluster-v0", layout="1x2", **SHORT)
    env.action_space.seed(0)
    _, info = env.reset(seed=0)
    for _ in range(50):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
        assert isinstance(reward, float)
        assert terminated is False
        if truncated:
            _, info = env.reset()


def test_statistics_of_episodes_are_gymnasium_s_own():
    env = gym.wrappers.RecordEpisodeStatistics(gym.make("clusterorch/GPUCluster-v0", layout="1x2", **SHORT))
    env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        _, reward, _, ended, info = env.step(0)
        total += reward
    assert info["episode"]["r"] == pytest.approx(total)
    assert info["incident"]["kept"] == pytest.approx(total)


def tiny(learner: type, seed: int = 0):
    """Two updates of an unmodified learner."""
    env = gym.make("clusterorch/GPUCluster-v0", layout="1x2", **SHORT)
    return learner("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=seed, device="cpu").learn(64)


@pytest.mark.filterwarnings("ignore")
def test_ppo_of_stable_baselines_learns():
    learners = pytest.importorskip("stable_baselines3")
    model = tiny(learners.PPO)
    assert model.num_timesteps == 64
    assert all(torch_finite(p) for p in model.policy.parameters())


@pytest.mark.filterwarnings("ignore")
def test_maskable_ppo_learns_and_takes_legal_moves():
    learners = pytest.importorskip("sb3_contrib")
    model = tiny(learners.MaskablePPO)
    env = model.get_env()
    found = env.reset()
    for _ in range(20):
        masks = np.stack(env.env_method("action_masks"))
        moves, _ = model.predict(found, action_masks=masks)
        assert masks[0, moves[0]]
        found, _, _, infos = env.step(moves)
        assert not infos[0].get("invalid_action", False)


def torch_finite(parameter) -> bool:
    return bool(parameter.isfinite().all())


def test_environments_can_be_pickled_and_go_on_as_they_would():
    env = gym.make("clusterorch/GPUCluster-v0", layout="1x2", **SHORT).unwrapped
    env.reset(seed=1)
    env.step(0)
    again = pickle.loads(pickle.dumps(env))
    for _ in range(3):
        one, other = env.step(0), again.step(0)
        assert one[1:4] == other[1:4]
        np.testing.assert_array_equal(one[0]["nodes"], other[0]["nodes"])
