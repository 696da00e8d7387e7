"""Nothing that is observed tells more than was published and delivered."""

from __future__ import annotations

import numpy as np
import pytest

from clusterorch.environment.cluster import GPUCluster
from clusterorch.environment.vector import GPUClusterVector
from clusterorch.models.spec import STREAMS
from clusterorch.simulation.plan import bit_set
from tests.environment.worlds import calm, cold, episodes_in, hot, random_moves

KNOWN = {"action_mask", "slices", "invalid_action", "incident", "reset"}


def seen(episodes) -> list[np.ndarray]:
    """All that an observation is made of."""
    window = episodes.window
    return [
        window.node_rows.copy(), window.job_rows.copy(), window.real.copy(), episodes.world.masks(),
        *(column.copy() for column in episodes.outlook),
    ]  # fmt: skip


def put(state, b: int, v: int, site: int, *, bits: np.ndarray | None = None, poisoned: int = 0) -> None:
    """A fault in the slot by hand."""
    state.variant[b], state.site[b], state.severity[b], state.poisoned[b] = v, site, 1, poisoned
    state.entered[b] = 0
    state.bits[b] = 0 if bits is None else bits


@pytest.mark.parametrize("layout", ["1x2", "2x2"])
def test_a_fault_that_has_shown_nothing_is_not_seen(layout):
    """No mechanism is on and no edge pending: telemetry is that of a healthy job."""
    plain, hidden = (episodes_in(calm(layout), 6, seed=3, hours=0.5) for _ in range(2))
    world = hidden.world
    for b in range(6):
        block = world.network.blocks[7 * b]
        put(world.state, b, 7 * b, block.sites - 1)
    world.state.stage[:] = 0
    held = world.state.variant.copy()
    for _ in range(12):
        for episodes in (plain, hidden):
            played = episodes.decide(np.zeros(6, dtype=int), np.ones(6, dtype=bool))
            assert not played.illegal.any()
        for mine, theirs in zip(seen(plain), seen(hidden), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert (world.state.variant == held).sum() >= 3
    assert (plain.world.state.variant != world.state.variant).any()


def test_a_fault_whose_telemetry_is_lost_is_not_seen():
    """Slow nodes and poisoned weights leave the published schedule alone; with no cell delivered nothing tells."""
    network = calm("2x2").network
    quiet = [
        (v, {x.name for x in b.chain.law.mechanisms if x.effect != "none"})
        for v, b in enumerate(network.blocks)
        if {x.effect for x in b.chain.law.mechanisms} - {"none"} in ({"slow"}, {"poison"}, {"slow", "poison"})
    ]
    assert len(quiet) > 3
    plain, hidden = (
        episodes_in(calm("2x2"), len(quiet), seed=4, hours=0.5, blackouts=False) for _ in range(2)
    )  # fmt: skip
    for episodes in (plain, hidden):
        episodes.world.state.silent[:] = 1
    for b, (v, names) in enumerate(quiet):
        on = [i for i, x in enumerate(network.spec.mechanism) if x.name in names]
        put(hidden.world.state, b, v, 0, bits=bit_set(on))
    differs, rng = np.zeros(len(quiet), dtype=bool), np.random.default_rng(0)
    for _ in range(12):
        moves = np.where(rng.random(len(quiet)) < 0.1, plain.world.moves.parse("restart_rank:1"), 0)
        for episodes in (plain, hidden):
            episodes.decide(moves, np.ones(len(quiet), dtype=bool))
            assert (episodes.world.state.arrival == -1).all()
        differs |= (hidden.world.books.heads != plain.world.books.heads).any(axis=1)
        for mine, theirs in zip(seen(plain), seen(hidden), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert differs.sum() > 3


def test_a_cell_that_has_not_arrived_is_not_seen():
    """What is still under way may be anything: the rows and the belief are those of an empty cell."""
    pair = [episodes_in(hot("2x2"), 3, seed=9, hours=0.5, decision=1) for _ in range(2)]
    step = pair[1].world.step

    def spoilt(moves: np.ndarray, running: np.ndarray) -> None:
        """What arrives later or never is another value until then."""
        step(moves, running)
        world = pair[1].world
        for b in range(3):
            for s, signal in enumerate(world.network.spec.signal):
                stream, part = STREAMS.index(signal.stream), world.network.slice_of(s)
                if (world.state.arrival[b, stream] < 0).all():
                    world.state.values[b, part] = 1.0

    pair[1].world.step = spoilt  # type: ignore[method-assign]
    rng, lost = np.random.default_rng(2), 0
    for _ in range(60):
        moves = random_moves(rng, pair[0].world.masks())
        for episodes in pair:
            episodes.decide(moves, np.ones(3, dtype=bool))
        arrival = pair[0].world.state.arrival
        lost += int((arrival < 0).all(axis=2).any(axis=1).sum())
        for mine, theirs in zip(seen(pair[0]), seen(pair[1]), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert lost > 5


def keys(info: object) -> set[str]:
    """Every key at any depth."""
    found: set[str] = set()
    if isinstance(info, dict):
        for name, value in info.items():
            found |= {name} | keys(value)
    return found


@pytest.mark.parametrize("layout", ["1x2", "2x2"])
def test_infos_tell_no_truth_before_the_last_step(layout):
    env = GPUCluster(layout=layout, hours=0.2)
    vector = GPUClusterVector(2, layout=layout, hours=0.2)
    _, info = env.reset(seed=0)
    _, infos = vector.reset(seed=0)
    assert set(info) == {"action_mask"}
    assert {name.lstrip("_") for name in infos} == {"action_mask"}
    ended = False
    while not ended:
        *_, ended, info = env.step(0)
        assert set(info) == {"action_mask", "slices", "invalid_action"} | ({"incident"} if ended else set())
        *_, stopped, infos = vector.step(np.zeros(2, dtype=int))
        assert {name.lstrip("_") for name in infos} <= KNOWN
        assert ("incident" in infos) == stopped.any()


def test_privileged_infos_tell_the_truth_at_every_step():
    env, network = GPUCluster(layout="2x2", hours=0.2, privileged=True), cold("2x2").network
    _, info = env.reset(seed=0)
    assert info["truth"]["fault"] == {
        "mode": None, "variant": None, "site_kind": None, "severity": None, "site": -1, "node": -1,
    }  # fmt: skip
    v = next(v for v, b in enumerate(network.blocks) if b.variant.spec.site == "gpu" and b.variant.spec.severity)
    put(env.episodes.world.state, 0, v, 3)
    info = env.step(0)[-1]
    variant = network.blocks[v].variant
    assert info["truth"]["fault"] == {
        "mode": variant.mode, "variant": variant.name, "site_kind": "gpu", "site": 3, "node": 1,
        "severity": network.spec.model.severities[1],
    }  # fmt: skip
    assert sum(info["truth"]["heads"].values()) == pytest.approx(1.0)
    assert keys(info) >= {"poisoned_copies", "kept"}


def test_nothing_of_the_clock_on_the_wall_is_in_an_info():
    plays = []
    for _ in range(2):
        env = GPUCluster(layout="1x2", hours=0.2, privileged=True)
        told = [env.reset(seed=5)[1]]
        for _ in range(12):
            told.append(env.step(0)[-1])
        plays.append(str(told))
    assert plays[0] == plays[1]
