"""The books balance: slices, tokens, nodes and copies, whatever moves are taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterorch.causal.slices import DOWN, HALTED, MOVING
from clusterorch.environment.books import HEADS, IN_JOB, IN_REPAIR, REPAIRED, USEFUL
from clusterorch.models.spec import PHASES
from clusterorch.simulation.plan import active
from tests.environment.worlds import cold, episodes_in, hot, play, random_moves, world_of

STEP = PHASES.index("step")
UP = [PHASES.index(name) for name in ("step", "save", "eval")]
LAYOUTS = [("1x2", 1), ("2x2", 2), ("4x1", 0), ("3x2", 3)]


def shared_out(world, b: int) -> list[float]:
    """The six heads of the newest slice, said again in words."""
    state, books, rules, spec = world.state, world.books, world.rules, world.network.spec
    share = dict.fromkeys(HEADS, 0.0)
    phase, on = int(state.phase[b]), [m for i, m in enumerate(spec.mechanism) if active(state.bits[b], i)]
    if books.lost[b] or state.job_class[b] == DOWN or phase not in UP:
        share["down"] = 1.0
    elif state.job_class[b] == HALTED or phase != STEP:
        share["stalled"] = 1.0
    else:
        working = sum(place == IN_JOB for place in books.place[b]) / world.network.layout.nodes
        slow = max([1.0, *(np.broadcast_to(m.slowdown, 3)[state.severity[b]] for m in on)])
        made = working / slow / (1.0, rules.tree, rules.around)[books.detour[b]]
        poisoned = any(m.effect == "poison" for m in on)
        share |= {"shrunk": 1.0 - working, "slow": working - made, "poisoned" if poisoned else "useful": made}
    return [share[name] for name in HEADS]


def check(world) -> None:
    """What holds after every slice of every instance."""
    books, layout = world.books, world.network.layout
    np.testing.assert_allclose(books.heads.sum(axis=1), 1.0, atol=1e-12)
    assert (books.heads >= 0.0).all()
    for b in range(world.batch):
        np.testing.assert_allclose(books.heads[b], shared_out(world, b), atol=1e-12)
    placed = np.isin(books.place, (IN_JOB, REPAIRED)).sum(axis=1)
    repairing = (books.repair_stage > 0).sum(axis=1)
    np.testing.assert_array_equal(placed + books.spares + books.frail_spares + repairing, layout.nodes + layout.spares)
    assert (books.spares >= 0).all()
    assert (books.frail_spares >= 0).all()
    awaited = [
        set(place[(place >= 0) & (stage > 0)].tolist())
        for place, stage in zip(books.repair_place, books.repair_stage, strict=True)
    ]
    assert awaited == [set(np.flatnonzero(place == IN_REPAIR).tolist()) for place in books.place]
    assert ((books.place == IN_JOB).sum(axis=1) >= min(world.rules.least_nodes, layout.nodes)).all()
    masks = world.masks()
    assert (masks[:, 0] == 1).all()
    assert np.isin(masks, (0, 1)).all()
    assert (masks[books.lost == 1, 1:] == 0).all()


@pytest.mark.parametrize(("layout", "spares"), LAYOUTS)
@pytest.mark.parametrize("batch", [1, 7])
def test_slices_tokens_and_nodes_are_conserved(layout, spares, batch):
    world = world_of(hot(layout, spares=spares), batch, seed=batch)
    useful, discarded, seen = np.zeros(batch), np.zeros(batch), np.zeros(len(HEADS))
    for _ in play(world, 150, seed=batch, busy=0.3):
        check(world)
        useful += world.books.heads[:, USEFUL]
        discarded += world.books.discarded
        seen += world.books.heads.sum(axis=0)
        np.testing.assert_allclose(world.books.good, useful - discarded, atol=1e-9)
        assert (world.books.discarded >= -1e-9).all()
    assert (seen[:4] > 0.0).all()
    assert (seen > 0.0).sum() >= (4 if layout == "1x2" or batch == 1 else 5)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_sequence_of_legal_moves_breaks_the_books(data):
    layout, spares = data.draw(st.sampled_from(LAYOUTS), label="layout")
    world = world_of(hot(layout, spares=spares), seed=data.draw(st.integers(0, 2**32 - 1), label="seed"))
    for _ in range(data.draw(st.integers(1, 12), label="moves")):
        legal = np.flatnonzero(world.masks()[0]).tolist()
        world.step(np.array([data.draw(st.sampled_from(legal), label="move")]), np.array([True]))
        check(world)
        for _ in range(data.draw(st.integers(0, 9), label="waits")):
            world.step(np.array([0]), np.array([True]))
            check(world)


class Ledger:
    """Listens to every slice of some episodes, and adds up what a decision is paid for."""

    def __init__(self, batch: int) -> None:
        self.paid, self.played = np.zeros(batch), np.zeros(batch, dtype=int)
        self.moved = [[] for _ in range(batch)]

    def listen(self, episodes, running) -> None:
        books = episodes.world.books
        for b in np.flatnonzero(running):
            self.paid[b] += books.heads[b, USEFUL] - books.discarded[b]
            self.paid[b] -= episodes.world.rules.false_intervention * books.false_moves[b]
            self.played[b] += 1
            self.moved[b].append(int(episodes.world.taken[b]))


@pytest.mark.parametrize(("layout", "decision"), [("1x2", 4), ("2x2", 1), ("2x2", 7)])
def test_rewards_add_up_to_what_the_slices_were_worth(layout, decision):
    episodes = episodes_in(hot(layout), 5, seed=decision, observe="raw", decision=decision, hours=0.75)
    ledger, rng, reward, slices = Ledger(5), np.random.default_rng(decision), np.zeros(5), np.zeros(5, dtype=int)
    episodes.listeners.append(ledger)
    going = np.ones(5, dtype=bool)
    while going.any():
        moves = random_moves(rng, episodes.world.masks())
        before = [len(moved) for moved in ledger.moved]
        played = episodes.decide(moves, going)
        for b in np.flatnonzero(going):
            mine = ledger.moved[b][before[b] :]
            scheduled = episodes.world.moves.requeue
            assert mine[0] in ({moves[b], scheduled} if moves[b] == 0 else {moves[b]})
            assert set(mine[1:]) <= {0, scheduled}  # a move is taken once
        assert (played.slices[~going] == 0).all()
        reward += played.reward
        slices += played.slices
        going &= ~played.ended
    np.testing.assert_allclose(reward, ledger.paid, atol=1e-9)
    np.testing.assert_array_equal(slices, ledger.played)
    assert (slices == episodes.horizon).all()
    for b in range(5):
        worth = episodes.incident(b)
        assert sum(worth[name] for name in HEADS) == pytest.approx(episodes.horizon)
        assert worth["kept"] == pytest.approx(worth["useful"] - worth["rolled_back"])
        assert worth["slices"] == episodes.horizon
        cost = episodes.world.rules.false_intervention * worth["false_moves"]
        assert reward[b] == pytest.approx(worth["kept"] - cost)


def test_incidents_are_noted_when_failures_enter_and_leave():
    episodes, seen = episodes_in(hot("2x2"), 6, seed=3, observe="raw", hours=1.0), [[] for _ in range(6)]

    class Witness:
        def listen(self, episodes, running) -> None:
            state, benign = episodes.world.state, episodes.world.benign
            for b in np.flatnonzero(running):
                t, v = int(episodes.world.books.time[b]) - 1, int(state.variant[b])
                failing = v >= 0 and not benign[v]
                anew = state.entered[b] in (1, 4)  # drawn, or come with a spare
                if seen[b] and seen[b][-1][2] is None and (not failing or anew):
                    seen[b][-1][2] = t - seen[b][-1][1]
                if failing and anew:
                    seen[b].append([episodes.world.network.blocks[v].variant.name, t, None])

    episodes.listeners.append(Witness())
    rng = np.random.default_rng(0)
    while (episodes.world.books.time < episodes.horizon).any():
        episodes.decide(random_moves(rng, episodes.world.masks()), np.ones(6, dtype=bool))
    for b in range(6):
        told = episodes.incident(b)["incidents"]
        assert [[one["variant"], one["slice"], one["recovered"]] for one in told] == seen[b]
    assert sum(len(mine) for mine in seen) > 10
    assert any(one[2] is not None for mine in seen for one in mine)


@pytest.mark.parametrize("layout", ["1x2", "2x2"])
def test_a_copy_holds_what_had_been_made_when_it_was_saved(layout):
    """Rolling back to copy k leaves what that copy holds, and no more work is counted twice."""
    world = world_of(hot(layout, per_hour=4.0), 6, seed=11)
    kept = [[(0.0 - a, -a) for a in (-world.books.copy_good[b]).tolist()] for b in range(6)]
    good, rolled = np.zeros(6), 0
    was_down = np.zeros(6, dtype=bool)
    for moves in play(world, 200, seed=11, busy=0.15):
        del moves
        table, state = world.moves.table, world.state
        for b in range(6):
            down = state.job_class[b] == DOWN
            if table.restarts[world.taken[b]]:
                k = int(table.discards[world.taken[b]])
                rolled += k > 0
                kept[b] = kept[b][k:]
            if table.restarts[world.taken[b]] or (down and not was_down[b]):
                assert world.books.discarded[b] == pytest.approx(good[b] - kept[b][0][0])
                good[b] = kept[b][0][0]
            else:
                assert world.books.discarded[b] == 0.0
            good[b] += world.books.heads[b, USEFUL]
            if state.saved[b]:
                kept[b] = [(good[b], int(world.books.time[b]) - 1), *kept[b]][: world.network.layout.copies]
            was_down[b] = down
            assert world.books.good[b] == pytest.approx(good[b])
            assert state.held[b] == len(kept[b])
            assert world.books.copy_good[b, : len(kept[b])].tolist() == pytest.approx([one for one, _ in kept[b]])
            assert world.books.copy_time[b, : len(kept[b])].tolist() == [time for _, time in kept[b]]
    assert rolled > 5


def test_a_decision_lasts_its_slices_and_as_long_as_the_job_is_starting():
    """With nobody to decide anything a start is played through; a halted or crashed one is not."""
    episodes = episodes_in(cold("1x2"), 4, seed=6, observe="raw", hours=2.0)
    rng, starting = np.random.default_rng(0), [PHASES.index(p) for p in ("launch", "init_comm", "load")]
    phases: list[list[bool]] = [[] for _ in range(4)]

    class Witness:
        def listen(self, episodes, running) -> None:
            state = episodes.world.state
            for b in np.flatnonzero(running):
                phases[b].append(state.phase[b] in starting and state.job_class[b] == MOVING)

    episodes.listeners.append(Witness())
    forwarded = 0
    while (episodes.world.books.time < episodes.horizon).all():
        before = [len(mine) for mine in phases]
        played = episodes.decide(random_moves(rng, episodes.world.masks(), 0.3), np.ones(4, dtype=bool))
        for b in range(4):
            mine = phases[b][before[b] :]
            assert played.slices[b] == len(mine)
            if not played.ended[b]:
                wanted = next(k for k in range(4, 41) if k == 40 or not mine[k - 1])
                assert len(mine) == wanted
                forwarded += wanted > 4
    assert forwarded > 20


def test_a_step_after_the_last_one_changes_no_account():
    episodes = episodes_in(hot("1x2"), 1, seed=1, observe="raw", hours=0.1)
    everybody = np.ones(1, dtype=bool)
    while not episodes.decide(np.zeros(1, dtype=int), everybody).ended[0]:
        pass
    told = str(episodes.incident(0))
    restart = episodes.world.moves.parse("restart_rank:0")
    played = episodes.decide(np.array([restart]), everybody)
    assert (played.reward[0], played.slices[0], played.ended[0]) == (0.0, 0, True)
    assert str(episodes.incident(0)) == told
