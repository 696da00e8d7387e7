"""Segments by hand: returns end where episodes do, a potential changes no order, moves are drawn by their odds."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import torch

from clusterorch.errors import InvalidAgent
from clusterorch.learning.instances import NO_MOVE, Lesson, Played
from clusterorch.learning.network import Inputs, MoveIndex, Reading
from clusterorch.learning.ppo import Group, Schedule, drawn, new_group, play

DISCOUNT = 0.9


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


# ---- A story whose values can be worked out by hand ----


class Line(NamedTuple):
    """What is seen, which is also what the critic says of it, and what the decision there brings."""

    seen: float
    reward: float
    slices: int
    end: str = ""  # "cut" by the limit of time, or "over"
    last: float = 0.0  # what is seen after a decision that ends the episode
    potential: float = 0.0
    last_potential: float = 0.0


class Story:
    """Instances that play lines, whatever the moves, and begin again at the first one after the last."""

    def __init__(self, *lines):
        self.lines, self.batch = lines, len(lines)
        self.at, self.between = np.zeros(self.batch, dtype=int), np.zeros(self.batch, dtype=bool)
        self.index = MoveIndex(torch.tensor([0, 1]), torch.tensor([0, 0]))

    def now(self):
        return [lines[at % len(lines)] for lines, at in zip(self.lines, self.at, strict=True)]

    def inputs(self, *, critic):
        seen = [one.last if over else one.seen for one, over in zip(self.now(), self.between, strict=True)]
        masks = torch.ones(self.batch, 2, dtype=torch.bool)
        return Inputs(
            torch.zeros(self.batch, 1, 1), torch.tensor(seen)[:, None], torch.zeros(self.batch, 2, 1), masks,
            torch.zeros(self.batch, 0),
        )  # fmt: skip

    def decide(self, moves):
        assert not self.between.any()
        now = self.now()
        self.between = np.array([one.end != "" for one in now])
        self.at = self.at + ~self.between
        is_end = {end: np.array([one.end == end for one in now]) for end in ("cut", "over")}
        return Played(
            np.array([one.reward for one in now]), slices=np.array([float(one.slices) for one in now]),
            ended=is_end["cut"], over=is_end["over"], struck=np.zeros(self.batch, dtype=bool),
        )  # fmt: skip

    def again(self, rows):
        assert self.between[rows].all()
        self.between[rows] = False
        self.at[rows] += 1
        return [(7.0, 3)] * len(rows)

    def lesson(self):
        potential = [
            one.last_potential if over else one.potential for one, over in zip(self.now(), self.between, strict=True)
        ]
        none = torch.full((self.batch,), NO_MOVE)
        return Lesson(none, torch.zeros(self.batch, 2), np.array(potential), torch.zeros_like(none))


class Reader:
    """A policy that moves at random and whose critic says what it sees."""

    class memory:  # noqa: N801
        """Counts the decisions of an episode, for the sake of having a state."""

        @staticmethod
        def fresh(batch):
            return (torch.zeros(batch, 1),)

        @staticmethod
        def step(row, begun, state):
            count = state[0] * ~begun[:, None] + 1.0
            return torch.cat([row, count], dim=1), (count,)

    @staticmethod
    def rows(inputs):
        return inputs.nodes, inputs.job

    @staticmethod
    def read(inputs, nodes, hidden, index):
        return Reading(torch.zeros(len(hidden), 2), hidden[:, 0], torch.zeros(len(hidden), 1))


def told(*lines, length=4, **changed):
    """The segment of some lines."""
    schedule = Schedule(length=length, discount=DISCOUNT, critic_sees_truth=False, **changed)
    group = new_group(Reader(), Story(*lines))
    return play(Reader(), group, schedule, torch.Generator().manual_seed(0)), group


CUT = [Line(1.0, 0.5, 2), Line(2.0, -1.0, 3, "cut", last=4.0), Line(8.0, 0.25, 1), Line(16.0, 2.0, 5)]
OVER = [Line(1.0, 0.5, 2), Line(2.0, -1.0, 3, "over", last=4.0), Line(8.0, 0.25, 1), Line(16.0, 2.0, 5)]


def test_an_episode_cut_off_is_worth_what_its_last_observation_promises_and_one_that_is_over_nothing():
    segment, group = told(CUT, OVER, trace=0.0)
    g = DISCOUNT
    first, third, fourth = 0.5 + g**2 * 2.0, 0.25 + g * 16.0, 2.0 + g**5 * 1.0  # after the last one comes the first
    wanted = [[first, -1.0 + g**3 * 4.0, third, fourth], [first, -1.0, third, fourth]]
    np.testing.assert_allclose(segment.returns, wanted, rtol=1e-6)
    np.testing.assert_allclose(segment.advantages, np.array(wanted) - [1.0, 2.0, 8.0, 16.0], rtol=1e-6)
    assert segment.begun.tolist() == [[True, False, True, False]] * 2
    assert (group.returns, group.lengths) == ([7.0, 7.0], [3, 3])


def test_with_a_whole_trace_returns_are_discounted_sums_to_the_end_of_the_episode():
    segment, _ = told(CUT, OVER, trace=1.0)
    g = DISCOUNT
    tail = 2.0 + g**5 * 1.0
    wanted = [
        [0.5 + g**2 * (-1.0 + g**3 * 4.0), -1.0 + g**3 * 4.0, 0.25 + g * tail, tail],
        [0.5 - g**2, -1.0, 0.25 + g * tail, tail],
    ]
    np.testing.assert_allclose(segment.returns, wanted, rtol=1e-6)


def test_an_episode_that_ends_with_the_segment_is_not_taken_for_the_next_one():
    segment, group = told(CUT[:2], OVER[:2], length=2, trace=0.0)
    np.testing.assert_allclose(segment.returns[:, 1], [-1.0 + DISCOUNT**3 * 4.0, -1.0], rtol=1e-6)
    assert group.begun.all()


# ---- The potential ----


def with_potentials(lines, seed):
    rng = np.random.default_rng(seed)
    return [one._replace(potential=rng.normal(), last_potential=rng.normal()) for one in lines]


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_a_potential_adds_what_it_is_at_the_end_less_what_it_was(weight):
    lines = [with_potentials(CUT, 1), with_potentials(OVER, 2)]
    plain, _ = told(*lines, trace=1.0, shaping=0.0)
    shaped, _ = told(*lines, trace=1.0, shaping=weight)
    g = DISCOUNT
    for b, one in enumerate(lines):
        at_last = 0.0 if b else one[1].last_potential
        after = [g**5 * at_last, g**3 * at_last, g**6 * one[0].potential, g**5 * one[0].potential]
        wanted = [weight * (last - line.potential) for last, line in zip(after, one, strict=True)]
        np.testing.assert_allclose(shaped.returns[b] - plain.returns[b], wanted, rtol=1e-5, atol=1e-6)


def test_a_potential_leaves_the_order_of_all_ways_to_act_as_it_is():
    rng = np.random.default_rng(0)
    reward, potential = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))  # of stage and place, which is the last move
    slices = rng.integers(1, 5, size=(3, 2))

    def ways(end):
        for moves in itertools.product(range(2), repeat=3):
            lines, place = [], 0
            for stage, move in enumerate(moves):
                known = potential[stage, place], potential[stage + 1, move]
                # A critic of shaped rewards promises less by the potential; without one there is nothing to come.
                lines.append(
                    Line(0.0, reward[stage, move], int(slices[stage, move]), end * (stage == 2), -known[1], *known)
                )
                place = move
            yield lines

    plain, _ = told(*ways("over"), length=3, trace=1.0, shaping=0.0)
    for end in ("over", "cut"):
        shaped, _ = told(*ways(end), length=3, trace=1.0)
        assert plain.returns[:, 0].argsort().tolist() == shaped.returns[:, 0].argsort().tolist()
        apart = shaped.returns[:, 0] - plain.returns[:, 0]
        np.testing.assert_allclose(apart, np.full(8, -potential[0, 0]), rtol=1e-5)


# ---- Drawing moves ----


def grouped(total, share):
    rows = share.stop - share.start
    return Group(Story(*[CUT] * rows), total, share, (), np.ones(rows, dtype=bool), None)


def test_moves_are_drawn_by_their_probabilities():
    p = torch.tensor([0.0, 0.5, 0.2, 0.0, 0.3, 0.0])
    draws, count = torch.Generator().manual_seed(3), 200_000
    moves = drawn(p.log().expand(count, 6), grouped(count, slice(0, count)), draws)
    found = torch.bincount(moves, minlength=6) / count
    assert (found[p == 0.0] == 0.0).all()
    assert ((found - p).abs() <= 4.9 * (p * (1 - p) / count).sqrt()).all()


@pytest.mark.parametrize("u", [0.0, 1.0 - 2.0**-24])
def test_the_outermost_draws_are_legal_moves(monkeypatch, u):
    monkeypatch.setattr(torch, "rand", lambda count, generator: torch.full((count,), u))
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    logits[:, [0, 4, 8]] = -torch.inf
    moves = drawn(logits, grouped(50, slice(0, 50)), torch.Generator())
    assert (moves == (1 if u == 0.0 else 7)).all()


def test_shares_of_a_team_draw_what_one_process_draws():
    logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    whole, shares = [], []
    draws = torch.Generator().manual_seed(4)
    both = [torch.Generator().manual_seed(4) for _ in range(2)]
    for _ in range(20):
        whole.append(drawn(logits, grouped(8, slice(0, 8)), draws))
        parts = [slice(0, 4), slice(4, 8)]
        shares.append(torch.cat([drawn(logits[s], grouped(8, s), d) for s, d in zip(parts, both, strict=True)]))
    assert torch.equal(torch.stack(whole), torch.stack(shares))
    assert len(torch.stack(whole).unique(dim=0)) > 1


def test_an_observation_that_is_no_number_is_refused():
    group = new_group(Reader(), Story([Line(float("nan"), 0.0, 1)]))
    with pytest.raises(InvalidAgent, match="job holds"):
        play(Reader(), group, Schedule(length=1, critic_sees_truth=False), torch.Generator())
