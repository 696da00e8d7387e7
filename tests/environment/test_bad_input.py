"""What is not a move, a layout or a setting is refused in words, and a move that is not legal does nothing."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from clusterorch.environment.cluster import GPUCluster
from clusterorch.environment.making import model_of
from clusterorch.environment.moves import Moves
from clusterorch.environment.rules import rules_of
from clusterorch.environment.vector import GPUClusterVector
from clusterorch.errors import ClusterorchError, InvalidIntervention, InvalidLayout, InvalidModel, UnknownModel
from clusterorch.models import load
from tests.environment.worlds import cold, hot, world_of

SHORT = {"layout": "1x2", "hours": 0.25, "observe": "raw"}
NO_MOVES = [
    float("nan"), 0.0, 1.5, -1, 10_000, 2**63, "0", None, [0], np.array([0, 0]), np.array([]), np.array(np.nan),
    np.array([1.0]), np.int64(-1), {}, 1j,
]  # fmt: skip


@pytest.mark.parametrize("move", NO_MOVES, ids=repr)
def test_what_is_not_a_move_is_refused_and_nothing_is_played(move):
    env = GPUCluster(**SHORT)
    env.reset(seed=0)
    with pytest.raises(InvalidIntervention, match="whole number"):
        env.step(move)
    assert env.episodes.world.books.time.tolist() == [0]
    env.step(0)


@pytest.mark.parametrize("move", [0, np.int64(0), np.uint8(0), np.array(0), np.array([0])], ids=repr)
def test_every_whole_number_is_taken(move):
    env = GPUCluster(**SHORT)
    env.reset(seed=0)
    assert env.step(move)[4]["slices"] == 4


@pytest.mark.parametrize(
    "moves",
    [
        np.zeros(3, dtype=int), np.zeros((2, 1), dtype=int), 0, np.zeros(2), np.array([np.nan, 0.0]), [0, -1],
        [0, 10_000], np.array([0, 2**64 - 1], dtype=np.uint64), ["0", "0"], np.array([True, False]), [], None,
        np.array([0, None]),
    ],
    ids=repr,
)  # fmt: skip
def test_what_are_not_moves_of_a_vector_are_refused(moves):
    vector = GPUClusterVector(2, **SHORT)
    vector.reset(seed=0)
    with pytest.raises(InvalidIntervention, match="whole number"):
        vector.step(moves)
    assert vector.episodes.world.books.time.tolist() == [0, 0]


@pytest.mark.parametrize("make", [lambda: GPUCluster(**SHORT), lambda: GPUClusterVector(1, **SHORT)])
def test_a_step_before_a_reset_is_refused(make):
    env = make()
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0 if isinstance(env, GPUCluster) else np.zeros(1, dtype=int))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"layout": "4by8"}, InvalidLayout), ({"layout": "0x2"}, InvalidLayout), ({"layout": 4}, InvalidLayout),
        ({"layout": ""}, InvalidLayout), ({"layout": "1x2\n"}, InvalidLayout), ({"spares": -1}, InvalidLayout),
        ({"spares": 2}, InvalidLayout), ({"leaves": 5}, InvalidLayout), ({"pad_nodes": 0}, InvalidLayout),
        ({"profile": "nobody"}, UnknownModel), ({"model": "nothing"}, UnknownModel),
        ({"overlays": ("nothing",)}, UnknownModel), ({"observe": "rumours"}, InvalidIntervention),
        ({"decision": 0}, InvalidIntervention), ({"decision": 1.5}, InvalidIntervention),
        ({"rows": 0}, InvalidIntervention), ({"rows": 100_000}, InvalidIntervention),
        ({"hours": 0.0}, InvalidIntervention), ({"hours": float("nan")}, InvalidIntervention),
        ({"hours": float("inf")}, InvalidIntervention), ({"hours": -1.0}, InvalidIntervention),
        ({"first_instance": -1}, InvalidIntervention), ({"first_instance": 0.5}, InvalidIntervention),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("make", [GPUCluster, GPUClusterVector])
def test_arguments_out_of_range_are_refused(make, arguments, error):
    assert issubclass(error, ClusterorchError)
    with pytest.raises(error):
        make(**(SHORT | arguments))


@pytest.mark.parametrize("mode", ["text", "", "ANSI"])
def test_unknown_ways_to_render_are_refused(mode):
    with pytest.raises(InvalidIntervention, match="render_mode"):
        GPUCluster(render_mode=mode, **SHORT)
    with pytest.raises(InvalidIntervention, match="render_mode"):
        GPUClusterVector(1, render_mode=mode, **SHORT)


@pytest.mark.parametrize("number", [0, -1, 5000, 2.5, "2", None])
def test_a_vector_has_1_to_4096_instances(number):
    with pytest.raises(InvalidIntervention, match="num_envs"):
        GPUClusterVector(number, **SHORT)


@pytest.mark.parametrize("seed", [[1, 2], (1,), 1.5, "1", -1])
def test_a_vector_takes_one_seed(seed):
    with pytest.raises(InvalidIntervention, match="seed"):
        GPUClusterVector(2, **SHORT).reset(seed=seed)


@pytest.mark.parametrize("mask", [[True], [1, 0], [False, False], True, np.ones((2, 1), dtype=bool)], ids=repr)
def test_a_reset_mask_is_a_mask_of_the_instances(mask):
    vector = GPUClusterVector(2, **SHORT)
    vector.reset(seed=0)
    with pytest.raises(InvalidIntervention, match="reset_mask"):
        vector.reset(options={"reset_mask": mask})


def test_a_first_reset_leaves_nobody_out():
    vector = GPUClusterVector(2, **SHORT)
    with pytest.raises(InvalidIntervention, match="reset_mask"):
        vector.reset(seed=0, options={"reset_mask": np.array([True, False])})


def test_a_vector_that_does_not_reset_by_itself_refuses_to_go_on():
    vector = GPUClusterVector(2, autoreset_mode=gym.vector.AutoresetMode.DISABLED, **SHORT)
    vector.reset(seed=0)
    ended = np.zeros(2, dtype=bool)
    while not ended.any():
        ended = vector.step(np.zeros(2, dtype=int))[3]
    with pytest.raises(InvalidIntervention, match="reset"):
        vector.step(np.zeros(2, dtype=int))
    vector.reset(options={"reset_mask": ended})
    vector.step(np.zeros(2, dtype=int))


@pytest.mark.parametrize("text", ["fly", "isolate_node:7", "isolate_node:-1", "isolate_node:x", ":", "", "requeue:1"])
def test_moves_that_do_not_exist_are_refused(text):
    with pytest.raises(InvalidIntervention):
        Moves(cold("2x2").network).parse(text)


def test_moves_read_what_they_write():
    moves = Moves(cold("2x2").network)
    assert [moves.parse(moves.label(m)) for m in range(moves.count + 1)] == list(range(moves.count + 1))
    assert len(set(moves.names)) == moves.count + 1


def test_a_model_without_an_economy_is_no_world():
    model = hot()
    spec = model.spec.model_copy(update={"economy": None})
    with pytest.raises(InvalidModel, match="economy"):
        rules_of(type(model)(spec, model.layout, model.path, model.overlays, model.raw, model.limits))
    assert load("reference", layout="1x2").spec.economy is not None


def test_models_of_the_same_arguments_are_one():
    assert model_of("1x2", 1, 0, None) is model_of("1x2", 1, 0, None)


@pytest.mark.parametrize("layout", ["1x2", "2x2"])
def test_a_move_that_is_not_legal_does_nothing_and_says_so(layout):
    arguments = SHORT | {"layout": layout, "hours": 0.5}
    env, waiting = GPUCluster(**arguments), GPUCluster(**arguments)
    info, tried = env.reset(seed=4)[1], 0
    waiting.reset(seed=4)
    for step in range(6):
        illegal = np.flatnonzero(info["action_mask"] == 0)
        move = int(illegal[step % len(illegal)]) if len(illegal) else 0
        tried += move > 0
        found, reward, _, _, info = env.step(move)
        other, same, *_ = waiting.step(0)
        assert info["invalid_action"] is (move > 0)
        assert reward == same
        for name, values in found.items():
            np.testing.assert_array_equal(values, other[name])
    assert tried
    assert env.episodes.incident(0)["moves"] == 0
    vector = GPUClusterVector(2, **arguments)
    masks = vector.reset(seed=4)[1]["action_mask"]
    first = [int(np.flatnonzero(masks[0] == 0)[0]), 0]
    assert vector.step(np.array(first))[4]["invalid_action"].tolist() == [True, False]


def test_only_legal_moves_change_what_is_published():
    world = world_of(hot("2x2"), seed=1)
    before = world.books.place.copy()
    world.step(np.array([0]), np.array([True]))
    np.testing.assert_array_equal(world.books.place, before)
    world.step(np.array([world.moves.number("isolate_node", 1)]), np.array([True]))
    assert world.books.place[0].tolist() == [0, 1]
