"""The same seed and the same moves give the same bytes, alone or among many, however episodes follow each other."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from clusterorch.environment.cluster import GPUCluster
from clusterorch.environment.vector import GPUClusterVector
from clusterorch.environment.world import World
from tests.environment.worlds import hot

SHORT = {"layout": "1x2", "hours": 0.2}
SEED, DECISIONS = 11, 9


def chosen(k: int, step: int, count: int) -> int:
    """A move of instance k, legal or not, that depends on nothing else."""
    drawn = np.random.default_rng((k, step)).integers(2 * count)
    return int(drawn) if drawn < count else 0


def alone(k: int, episodes: int = 1, seed: int = SEED, **arguments: object) -> list[tuple]:
    """Everything that instance k tells, played by itself."""
    env = GPUCluster(first_instance=k, **(SHORT | arguments))
    rows, step = [], 0
    for episode in range(episodes):
        observation, info = env.reset(seed=seed) if episode == 0 else env.reset()
        rows.append((observation, 0.0, False, info))
        while not rows[-1][2]:
            observation, reward, _, ended, info = env.step(chosen(k, step, env.action_space.n))
            rows.append((observation, reward, ended, info))
            step += 1
    return rows


def assert_same(one: dict, other: dict, b: int | None = None) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        theirs = other[name] if b is None else other[name][b]
        assert values.dtype == theirs.dtype
        np.testing.assert_array_equal(values, theirs)


def moves_of(step: int | np.ndarray, size: int, count: int, first: int = 0) -> np.ndarray:
    steps = np.broadcast_to(step, (size,))
    return np.array([chosen(first + b, int(steps[b]), count) for b in range(size)])


@pytest.mark.parametrize("size", [1, 3, 257])
def test_a_vector_plays_what_each_instance_plays_alone(size):
    vector = GPUClusterVector(size, **SHORT)
    watched = [k for k in (0, 1, 2, 255, 256) if k < size]
    singles = {k: alone(k) for k in watched}
    observation, info = vector.reset(seed=SEED)
    rewards, truncated = np.zeros(size), np.zeros(size, dtype=bool)
    for step in range(100):
        for k in watched:
            if step < len(singles[k]):
                mine, reward, ended, told = singles[k][step]
                assert_same(mine, observation, k)
                np.testing.assert_array_equal(told["action_mask"], info["action_mask"][k])
                if step:
                    assert (reward, ended) == (rewards[k], truncated[k])
                    assert all(told[name] == info[name][k] for name in ("slices", "invalid_action"))
                for name, value in told.get("incident", {}).items():
                    assert str(value) == str(info["incident"][name][k])
        if step == max(map(len, singles.values())) - 1:
            break
        moves = moves_of(step, size, vector.single_action_space.n)
        observation, rewards, _, truncated, info = vector.step(moves)
    assert all(len(rows) > 4 for rows in singles.values())
    assert len({rows[-1][0]["nodes"].tobytes() for rows in singles.values()}) == len(watched)


def test_first_instance_shifts_the_rows_of_a_vector():
    whole, part = GPUClusterVector(6, **SHORT), GPUClusterVector(2, first_instance=3, **SHORT)
    one, other = whole.reset(seed=5)[0], part.reset(seed=5)[0]
    for step in range(6):
        assert_same({name: values[3:5] for name, values in one.items()}, other)
        moves = moves_of(step, 6, whole.single_action_space.n)
        one, rewards, *_ = whole.step(moves)
        other, fewer, *_ = part.step(moves[3:5])
        np.testing.assert_array_equal(rewards[3:5], fewer)


def assert_told(mine: dict, theirs: dict) -> None:
    """Whatever another vector tells of an instance, this one tells too."""
    for name in theirs:
        if name.startswith("_"):
            continue
        told = theirs[f"_{name}"]
        assert (mine[f"_{name}"] >= told).all(), name
        if isinstance(theirs[name], dict):
            assert_told(mine[name], theirs[name])
            continue
        assert mine[name].dtype == theirs[name].dtype, name
        for k in np.flatnonzero(told):
            if name == "final_obs":
                assert_same(mine[name][k], theirs[name][k])
            else:
                assert str(mine[name][k]) == str(theirs[name][k]), name


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("privileged", [False, True])
def test_a_vector_does_what_gymnasium_does_with_single_environments(mode, privileged):
    arguments = SHORT | {"privileged": privileged}
    vector = GPUClusterVector(3, autoreset_mode=mode, **arguments)
    twin = SyncVectorEnv([lambda k=k: GPUCluster(first_instance=k, **arguments) for k in range(3)], autoreset_mode=mode)
    assert vector.observation_space == twin.observation_space
    assert vector.action_space == twin.action_space
    one, told = vector.reset(seed=SEED)
    other, theirs = twin.reset(seed=[SEED] * 3)
    ended = 0
    for step in range(40):
        assert_same(one, other)
        assert_told(told, theirs)
        assert ("truth" in told) is privileged
        moves = moves_of(step, 3, vector.single_action_space.n)
        one, *mine, told = vector.step(moves)
        other, *known, theirs = twin.step(moves)
        for a, b in zip(mine, known, strict=True):
            np.testing.assert_array_equal(a, b)
        assert ("final_obs" in told) == ("final_obs" in theirs)
        ended += int(mine[2].sum())
    assert ended >= 6


def rollout(mode: AutoresetMode, size: int, steps: int) -> list[list[tuple]]:
    """What each instance tells step by step, ignored steps left out and final observations put in their places."""
    vector = GPUClusterVector(size, autoreset_mode=mode, **SHORT)
    observation, _ = vector.reset(seed=SEED)
    rows: list[list[tuple]] = [[] for _ in range(size)]
    taken, skip = np.zeros(size, dtype=int), np.zeros(size, dtype=bool)
    for _ in range(steps):
        before = observation
        moves = moves_of(taken, size, vector.single_action_space.n)
        observation, rewards, _, truncated, info = vector.step(moves)
        np.testing.assert_array_equal(info["reset"], skip)
        for b in np.flatnonzero(~skip):
            after = info["final_obs"][b] if "final_obs" in info and truncated[b] else {
                name: values[b] for name, values in observation.items()
            }  # fmt: skip
            own = {name: values[b].copy() for name, values in before.items()}
            rows[b].append((own, int(moves[b]), float(rewards[b]), bool(truncated[b]), after))
            taken[b] += 1
        skip = truncated if mode == AutoresetMode.NEXT_STEP else np.zeros(size, dtype=bool)
        if mode == AutoresetMode.DISABLED and truncated.any():
            observation, _ = vector.reset(options={"reset_mask": truncated})
    return rows


def test_the_modes_of_autoreset_agree_once_ignored_steps_are_masked():
    plays = [rollout(mode, 3, 40) for mode in AutoresetMode]
    for b in range(3):
        shortest = min(len(play[b]) for play in plays)
        assert shortest > 25
        assert sum(row[3] for row in plays[0][b][:shortest]) >= 2
        for k in range(shortest):
            for other in plays[1:]:
                assert plays[0][b][k][1:4] == other[b][k][1:4]
                assert_same(plays[0][b][k][0], other[b][k][0])
                assert_same(plays[0][b][k][4], other[b][k][4])


def test_a_reset_mask_begins_these_instances_and_leaves_the_others_alone():
    vector = GPUClusterVector(3, autoreset_mode=AutoresetMode.DISABLED, **SHORT)
    vector.reset(seed=SEED)
    one, *_ = vector.step(np.zeros(3, dtype=np.int64))
    other, _ = vector.reset(options={"reset_mask": np.array([False, True, False])})
    for name, values in other.items():
        np.testing.assert_array_equal(values[[0, 2]], one[name][[0, 2]])
    single = GPUCluster(first_instance=1, **SHORT)
    single.reset(seed=SEED)
    assert_same(single.reset()[0], other, 1)
    assert vector.episodes.world.episode.tolist() == [0, 1, 0]


def test_episodes_of_a_seed_follow_each_other():
    rows = alone(0, episodes=2)
    starts = [k for k, row in enumerate(rows) if k == 0 or rows[k - 1][2]]
    assert len(starts) == 2
    env = GPUCluster(**SHORT)
    env.reset(seed=SEED)
    env.step(0)  # an episode that is broken off counts all the same
    assert_same(env.reset()[0], rows[starts[1]][0])
    assert env.episodes.world.episode.tolist() == [1]
    env.reset(seed=SEED)
    assert env.episodes.world.episode.tolist() == [0]


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not():
    one, again, other = alone(0), alone(0), alone(0, seed=SEED + 1)
    for (mine, *rest, info), (theirs, *known, told) in zip(one, again, strict=True):
        assert_same(mine, theirs)
        assert rest == known
        assert str(info) == str(told)
    assert one[-1][0]["nodes"].tobytes() != other[-1][0]["nodes"].tobytes()
    assert one[-1][0]["nodes"].tobytes() != alone(1)[-1][0]["nodes"].tobytes()


def test_a_seed_does_not_depend_on_what_was_played_before():
    env = GPUCluster(**SHORT)
    env.reset(seed=1)
    for _ in range(4):
        env.step(0)
    assert_same(env.reset(seed=SEED)[0], GPUCluster(**SHORT).reset(seed=SEED)[0])
    for step in range(4):
        found = env.step(chosen(0, step, env.action_space.n))
        assert_same(found[0], alone(0)[step + 1][0])


def test_what_is_observed_changes_nothing_of_what_happens():
    plays = [alone(0, observe=which) for which in ("raw", "belief", "both")]
    for rows in plays[1:]:
        assert [row[1:3] for row in rows] == [row[1:3] for row in plays[0]]
    for raw, belief, both in zip(*plays, strict=True):
        assert_same(raw[0], {name: both[0][name] for name in raw[0]})
        for name in ("belief", "belief_nodes", "belief_copies", "cures"):
            np.testing.assert_array_equal(belief[0][name], both[0][name])


def test_observations_are_copies():
    vector = GPUClusterVector(2, **SHORT)
    observation, info = vector.reset(seed=SEED)
    kept = {name: values.copy() for name, values in observation.items()}
    mask = info["action_mask"].copy()
    for values in observation.values():
        values[:] = 0.5
    info["action_mask"][:] = 0
    vector.reset(seed=SEED)
    again, told = vector.reset(seed=SEED)
    assert_same(kept, again)
    np.testing.assert_array_equal(mask, told["action_mask"])
    first = {name: values.copy() for name, values in again.items()}
    vector.step(np.zeros(2, dtype=np.int64))
    assert_same(first, again)


def test_make_and_make_vec_give_the_same_environment():
    single = gym.make("clusterorch/GPUCluster-v0", **SHORT)
    vector = gym.make_vec("clusterorch/GPUCluster-v0", num_envs=2, **SHORT)
    assert isinstance(vector.unwrapped, GPUClusterVector)
    assert_same(single.reset(seed=3)[0], vector.reset(seed=3)[0], 0)


def test_the_truth_does_not_depend_on_whether_anything_is_printed():
    worlds = [World(hot("2x2"), 12, seed=4, telemetry=telemetry) for telemetry in (True, False)]
    running, draws = np.ones(12, dtype=bool), np.random.default_rng(3)
    for t in range(80):
        masks = worlds[0].masks()
        np.testing.assert_array_equal(masks, worlds[1].masks())
        moves = np.array([draws.choice(np.flatnonzero(row)) if draws.random() < 0.1 else 0 for row in masks])
        for world in worlds:
            world.step(moves if t % 4 == 0 else np.zeros(12, dtype=np.int64), running)
        for name in ("variant", "severity", "site", "bits", "poisoned", "phase", "job_class", "held"):
            np.testing.assert_array_equal(getattr(worlds[0].state, name), getattr(worlds[1].state, name))
        for one, other in zip(worlds[0].books, worlds[1].books, strict=True):
            np.testing.assert_array_equal(one, other)
    assert np.isfinite(worlds[0].state.values).any()
    assert not np.isfinite(worlds[1].state.values).any()
