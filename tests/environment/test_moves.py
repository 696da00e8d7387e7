"""Every move does what it is declared to do: masks, starts, repairs, spares, detours, and what is billed."""

from __future__ import annotations

import numpy as np
import pytest

from clusterorch.causal.slices import DOWN, HALTED, MOVING
from clusterorch.environment.books import DETOUR, IN_JOB, IN_REPAIR, NO_DETOUR, REPAIRED, TREE, USEFUL
from clusterorch.inference.actions import action_kernel
from clusterorch.models.spec import PHASES
from clusterorch.simulation.state import AGAIN, CLEARED, COME, DRAWN, ENDED, NOTHING
from tests.environment.worlds import calm, cold, hot, play, world_of

LAUNCH, INIT, LOAD, STEP, STOP = (PHASES.index(p) for p in ("launch", "init_comm", "load", "step", "stop"))
ERRORS = 4.9


def step(world, move: str | int = 0) -> None:
    """One slice of every instance under one move."""
    number = world.moves.parse(move) if isinstance(move, str) else move
    world.step(np.full(world.batch, number), np.ones(world.batch, dtype=bool))


def wait_for(world, phase: int, most: int = 50) -> None:
    while world.state.phase[0] != phase:
        step(world)
        most -= 1
        assert most


def assert_near(found: np.ndarray, mean: float) -> None:
    """The mean of draws, within 4.9 standard errors."""
    assert abs(found.mean() - mean) < ERRORS * found.std() / np.sqrt(len(found))


def legal(world, b: int, m: int, crashed: bool, turned: int) -> bool:  # noqa: FBT001
    """Whether a move is legal, from what is published."""
    books, rules, (name, target) = world.books, world.rules, world.moves.names[m]
    action = next(a for a in world.network.spec.action if a.name == name)
    there = action.target != "node" or books.place[b, target] == IN_JOB
    if m == 0:
        return True
    if books.lost[b]:
        return False
    if action.does == "isolate":
        return there and (books.place[b] == IN_JOB).sum() - 1 >= -(-world.network.layout.nodes // 2)
    if action.does == "swap":
        return books.spares[b] + books.frail_spares[b] >= 1
    if action.discards:
        return target < world.state.held[b]
    if action.restarts:
        return there
    may = world.state.phase[b] == STEP and not crashed and books.time[b] - turned >= rules.dwell
    topology = ("none", "tree", "detour")[books.detour[b]]
    return may and topology in {"tree": ("none",), "ring": ("tree",), "around": ("none", "tree")}[action.does]


@pytest.mark.parametrize(("layout", "spares"), [("1x2", 1), ("2x2", 2), ("3x2", 1)])
def test_masks_follow_from_what_is_published(layout, spares):
    world = world_of(hot(layout, spares=spares, retries=8), 5, seed=4)
    turned, seen = np.full(5, -1000), {}
    for _ in play(world, 150, seed=4, busy=0.4):
        does = world.moves.table.does[world.taken]
        turned = np.where(np.isin(does, (4, 5, 6)), world.books.time - 1, turned)
        masks = world.masks()
        for b in range(5):
            crashed = world.state.job_class[b] == DOWN
            for m in range(world.moves.count):
                assert masks[b, m] == legal(world, b, m, crashed, turned[b]), world.moves.label(m)
                seen.setdefault(m, set()).add(int(masks[b, m]))
    always = {m for m, found in seen.items() if found == {1}}
    assert 0 in always
    assert len(always) < 3
    assert sum(found == {0, 1} for found in seen.values()) >= world.moves.count - (3 if layout == "1x2" else 1)


@pytest.mark.parametrize(("seconds", "retries"), [(60, 3), (105, 1)])
def test_a_crashed_job_starts_again_at_the_declared_time_and_is_given_up_at_last(seconds, retries):
    world = world_of(hot("1x2", requeue_seconds=seconds, retries=retries), 40, seed=2)
    crashed, failures = np.full(40, -1), np.zeros(40, dtype=int)
    starts, lost, before = 0, set(), np.zeros(40, dtype=int)
    for t, _ in enumerate(play(world, 200, busy=0.0)):
        state, books = world.state, world.books
        for b in range(40):
            started = world.taken[b] == world.moves.requeue
            due = crashed[b] >= 0 and t == crashed[b] + seconds // 15 and b not in lost
            assert started == due
            if started:
                starts += 1
                assert state.phase[b] == LAUNCH
                crashed[b] = -1
            elif before[b] == DOWN:
                assert (state.phase[b], state.job_class[b]) == (STOP, DOWN)
            if state.job_class[b] == DOWN and crashed[b] < 0 and b not in lost:
                crashed[b], failures[b] = t, failures[b] + 1
                lost |= {b} if failures[b] == retries + 1 else set()
            failures[b] = 0 if state.saved[b] else failures[b]
            assert (books.lost[b] == 1) == (b in lost)
        before = state.job_class.copy()
    assert starts > 15
    assert lost


def test_a_job_that_is_given_up_earns_and_loses_nothing_more():
    world = world_of(hot("1x2", retries=0), 40, seed=3)
    lost = np.zeros(40, dtype=bool)
    for _ in play(world, 150, seed=3, busy=0.3):
        books = world.books
        assert (books.heads[lost, 3] == 1.0).all()
        assert (books.heads[lost, USEFUL] == 0.0).all()
        assert (books.discarded[lost] == 0.0).all()
        assert (books.false_moves[lost] == 0).all()
        assert (world.state.phase[lost] == STOP).all()
        assert (books.lost[lost] == 1).all()
        lost = books.lost == 1
    assert lost.mean() > 0.3


@pytest.mark.parametrize("layout", ["1x2", "2x2"])
def test_only_a_start_brings_a_crashed_job_back(layout):
    world = world_of(hot(layout, requeue_seconds=300), 60, seed=6)
    down, chances = np.zeros(60, dtype=bool), 0
    for _ in play(world, 80, seed=6, busy=0.5):
        restarted = world.moves.table.restarts[world.taken] == 1
        assert (world.state.phase[down & ~restarted] == STOP).all()
        assert (world.state.job_class[down & ~restarted] == DOWN).all()
        assert (world.state.phase[restarted] == LAUNCH).all()
        down = world.state.job_class == DOWN
        chances += int((down & (world.state.phase == STEP)).sum())
    assert chances > 5


def test_repairs_take_their_time_and_bring_the_node_back():
    world = world_of(calm(), 1500, seed=1)
    step(world, "isolate_node:1")
    assert (world.books.place[:, 1] == IN_REPAIR).all()
    back = np.zeros(1500)
    for t in range(1, 120):
        step(world)
        back = np.where((back == 0) & (world.books.place[:, 1] != IN_REPAIR), t, back)
        assert np.isin(world.books.place[:, 1], (IN_REPAIR, REPAIRED)).all()
        assert (world.state.proneness[:, 1] == 0.0).all()
        assert (world.state.arrival[:, :, 1] == -1).all()
    assert (back > 0).all()
    # Two stages with mean 150 s in slices of 15 s.
    assert_near(back, 10.0)
    assert_near((back - 10.0) ** 2, 2 * 0.8 / 0.2**2)
    step(world, "restart_rank:0")
    assert (world.books.place == IN_JOB).all()
    assert world.books.tickets[0].tolist() == [0, 1]
    assert world.state.proneness[0].tolist() == [1.0, 5.0]
    assert world.state.share[0] == 3.0
    assert (world.state.arrival[:, :, 1] >= 0).any()


def test_a_spare_takes_the_place_and_the_node_comes_back_as_a_frail_spare():
    world = world_of(calm(brings=1e-9), seed=1)
    step(world, "move_to_spare:1")
    books = world.books
    assert (books.spares[0], books.frail_spares[0]) == (0, 0)
    assert (books.place[0].tolist(), books.tickets[0].tolist()) == ([IN_JOB] * 2, [0, 0])
    assert world.state.proneness[0].tolist() == [1.0, 1.0]
    assert world.masks()[0, world.moves.parse("move_to_spare:0")] == 0
    while not books.frail_spares[0]:
        step(world)
    assert (books.spares[0], books.repair_stage[0].sum()) == (0, 0)
    step(world, "move_to_spare:0")
    assert (books.frail_spares[0], books.tickets[0].tolist()) == (0, [1, 0])
    assert world.state.proneness[0].tolist() == [5.0, 1.0]


def test_a_spare_fills_an_empty_place_and_the_node_it_waited_for_becomes_one():
    world = world_of(calm(brings=1e-9), seed=2)
    step(world, "isolate_node:1")
    step(world, "move_to_spare:1")
    books = world.books
    assert books.place[0].tolist() == [IN_JOB, IN_JOB]
    assert (books.repair_stage[0] > 0).sum() == 1
    while books.repair_stage[0].any():
        step(world)
    assert (books.frail_spares[0], books.place[0].tolist()) == (1, [IN_JOB, IN_JOB])


@pytest.mark.parametrize("brings", [0.1036, 0.5])
def test_a_spare_is_sick_as_often_as_declared_and_sick_where_it_is_put(brings):
    world = world_of(calm(brings=brings), 3000, seed=3)
    action = next(a for a in world.network.spec.action if a.does == "swap")
    step(world, f"{action.name}:1")
    state, layout = world.state, world.network.layout
    come = state.entered == COME
    assert ((state.variant >= 0) == come).all()
    assert_near(come, brings)
    blocks, of = world.network.blocks, set(action.brings.of)
    rate = np.array([b.variant.rate_per_hour * bool({b.variant.name, b.variant.mode} & of) for b in blocks])
    for v, share in enumerate(rate / rate.sum()):
        assert abs((state.variant[come] == v).mean() - share) <= ERRORS * np.sqrt(share * (1 - share) / come.sum())
    for b in np.flatnonzero(come):
        assert layout.node_of(blocks[state.variant[b]].variant.spec.site)[state.site[b]] == 1
    kernel = action_kernel(world.network, action.name, 1)
    np.testing.assert_allclose(kernel.brought, brings * rate / rate.sum())


def test_faults_start_on_frail_nodes_as_often_as_declared():
    world = world_of(hot("2x2", benign=1e-9), 6000, seed=5)
    world.books.tickets[:, 1] = 1
    step(world, "restart_rank:0")
    fresh = np.flatnonzero(world.state.entered == DRAWN)
    nodes = [world.network.layout.node_of(b.variant.spec.site) for b in world.network.blocks]
    hosted = np.array([found[0] >= 0 for found in nodes])
    at = np.array([nodes[world.state.variant[b]][world.state.site[b]] for b in fresh])
    assert (hosted[world.state.variant[fresh]] == (at >= 0)).all()
    assert_near((at[at >= 0] == 1).astype(float), 5 / 6)
    onset = world.prior.stationary[LAUNCH]
    assert_near((world.state.entered == DRAWN).astype(float), (onset * np.where(hosted, 3.0, 1.0)).sum())


@pytest.mark.parametrize(("move", "topology", "factor"), [("use_tree", TREE, 1.05), ("around_rail:1", DETOUR, 1.1)])
def test_another_topology_is_slower_and_comes_through_init_comm(move, topology, factor):
    world, waiting = world_of(calm(), seed=4), world_of(calm(), seed=4)
    for one in (world, waiting):
        while (one.state.phase[0], one.state.clock[0]) != (STEP, 1):
            step(one)
    clock, good = int(world.state.clock[0]), float(world.books.good[0])
    step(world, move)
    for _ in range(world.simulator.plan.duration[INIT]):
        assert (world.state.phase[0], world.books.heads[0, 3]) == (INIT, 1.0)
        assert not world.masks()[0, [world.moves.parse(m) for m in ("use_ring", "use_tree", "around_rail:0")]].any()
        step(world)
    assert (world.state.phase[0], world.state.clock[0]) == (STEP, clock)
    assert world.books.detour[0] == topology
    assert world.books.discarded[0] == 0.0
    for _ in range(40):  # the schedule is the same from here on, later by the re-initialisation
        assert (world.state.phase[0], world.state.clock[0], world.state.saved[0]) == (
            waiting.state.phase[0], waiting.state.clock[0], waiting.state.saved[0],
        )  # fmt: skip
        if world.state.phase[0] == STEP and world.books.detour[0] == topology:
            assert world.books.heads[0, USEFUL] == pytest.approx(1 / factor)
        step(world)
        step(waiting)
    assert world.books.good[0] > good


def test_a_ring_undoes_a_tree_and_not_too_soon():
    world = world_of(calm(dwell_seconds=150), seed=4)
    wait_for(world, STEP)
    turned = int(world.books.time[0])
    step(world, "use_tree")
    ring = world.moves.parse("use_ring")
    while not world.masks()[0, ring]:
        step(world)
    assert world.books.time[0] - turned >= 10
    assert world.state.phase[0] == STEP
    step(world, ring)
    assert world.books.detour[0] == NO_DETOUR
    wait_for(world, STEP)
    assert world.books.heads[0, USEFUL] == 1.0


def test_a_detour_ends_when_the_switch_is_repaired():
    world = world_of(calm(), 1500, seed=6)
    while (world.state.phase != STEP).any():
        world.step(np.zeros(1500, dtype=int), world.state.phase != STEP)
    step(world, "around_rail:0")
    ended = np.zeros(1500)
    for t in range(1, 150):
        step(world)
        over = world.books.detour == NO_DETOUR
        assert (over == (world.books.detour_stage == 0)).all()
        ended = np.where((ended == 0) & over, t, ended)
    assert (ended > 0).all()
    assert_near(ended, 10.0)


def test_what_an_action_made_of_the_slot_stands_for_that_slice():
    world, counts = world_of(hot("2x2", per_hour=150.0), 40, seed=7), dict.fromkeys(("cleared", "again", "come"), 0)
    variant = world.state.variant.copy()
    for _ in play(world, 100, seed=7, busy=0.5):
        state = world.state
        acted = world.moves.table.action[world.taken] >= 0
        cleared, again, come = state.left == CLEARED, state.entered == AGAIN, state.entered == COME
        assert (acted | ~(cleared | again | come)).all()
        assert ((state.variant < 0) | come)[cleared].all()
        assert (state.variant == variant)[again].all()
        assert (state.left == NOTHING)[again].all()
        assert (state.entered != DRAWN)[variant >= 0].all()
        assert ((state.variant == -1) | (state.left != ENDED)).all()
        for name, found in (("cleared", cleared), ("again", again), ("come", come)):
            counts[name] += int(found.sum())
        variant = state.variant.copy()
    assert min(counts.values()) > 20, counts


@pytest.mark.parametrize("layout", ["1x2", "2x2"])
def test_a_move_that_nothing_called_for_is_counted(layout):
    world, found = world_of(hot(layout), 30, seed=8), [0, 0]
    benign = np.array([b.variant.benign for b in world.network.blocks])
    truth, places = [(-1, 0, 0, MOVING)] * 30, world.books.place.copy()
    start = np.cumsum([0, *(b.sites for b in world.network.blocks)])
    for moves in play(world, 60, seed=8, busy=0.4):
        for b in range(30):
            v, site, poisoned, kind = truth[b]
            helpful = v >= 0 and not benign[v]
            if helpful and moves[b]:
                kernel = action_kernel(world.network, *world.moves.names[moves[b]])
                helpful = kernel.clears[start[v] + site] > 0.0 and poisoned <= kernel.discards
            name, target = world.moves.names[moves[b]]
            restarts = next(a.restarts for a in world.network.spec.action if a.name == name)
            swapped = name == "move_to_spare" and places[b, target] != IN_JOB
            if not swapped and restarts and (places[b] == IN_REPAIR).any():
                continue  # a node may have come back in this very slice
            fills = swapped or (restarts and (places[b] == REPAIRED).any())
            false = int(moves[b] != 0 and kind != DOWN and not helpful and not fills)
            assert world.books.false_moves[b] == false
            found[false] += int(moves[b] != 0)
        state = world.state
        truth = list(zip(state.variant, state.site, state.poisoned, state.job_class, strict=True))
        places = world.books.place.copy()
    assert min(found) > 50


def test_collectors_fall_silent_as_often_as_declared():
    world, dark, light = world_of(calm(), 60, seed=9), 0.02, 0.25
    for _ in play(world, 60, busy=0.0):
        silent = world.state.silent & 1
        assert (world.state.arrival[world.state.silent > 0] == -1).all()
    assert_near(silent.reshape(-1).astype(float), dark / (dark + light))
    quiet = world_of(calm(), 60, seed=9, blackouts=False)
    for _ in play(quiet, 60, busy=0.0):
        assert not quiet.state.silent.any()
    assert (quiet.state.arrival >= 0).mean() > 0.8


def test_the_declared_numbers_of_the_reference_become_slices():
    rules, economy = world_of(cold("4x1")).rules, cold("4x1").spec.economy
    assert rules.requeue == round(economy.requeue_seconds / 15)
    assert rules.dwell == round(economy.dwell_seconds / 15)
    assert rules.repair == pytest.approx(economy.repair_stages * 15 / economy.repair_seconds)
    assert rules.light == pytest.approx(15 / economy.dark_seconds)
    assert (rules.least_nodes, rules.retries, rules.dark) == (2, economy.retries, economy.dark)
    assert world_of(cold("4x1"), blackouts=False).rules.dark == 0.0


def test_a_halted_job_trains_nothing_and_loses_nothing():
    world, halted = world_of(hot("2x2"), 30, seed=10), 0
    for _ in play(world, 60, busy=0.0):
        at = (
            (world.state.job_class == HALTED)
            & ~np.isin(world.state.phase, (LAUNCH, INIT, LOAD))
            & (world.books.lost == 0)
        )
        halted += int(at.sum())
        assert (world.books.heads[at, 2] == 1.0).all()
        assert (world.books.discarded[at] == 0.0).all()
    assert halted > 20
