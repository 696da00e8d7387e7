"""PPO on small tasks whose best return is known: one that only a memory solves, and a machine with a hidden fault."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from clusterorch.learning.instances import NO_MOVE, Lesson, Played
from clusterorch.learning.memory import Attention, Recent
from clusterorch.learning.network import Inputs, MoveIndex, Policy, Shape
from clusterorch.learning.ppo import Schedule, new_group, play, update
from clusterorch.learning.team import Team


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class SmallTask:
    """What the tasks share: a row of numbers is seen, every move is legal, and no truth helps."""

    moves: int
    features: int
    batch: int

    def __init__(self, batch, seed):
        self.batch, self.rng = batch, np.random.default_rng(seed)
        # No move is of action 0, the one which new policies prefer.
        self.index = MoveIndex(torch.arange(1, self.moves + 1), torch.zeros(self.moves, dtype=torch.long))
        self.earned, self.lasted = np.zeros(batch), np.zeros(batch, dtype=int)

    def seen(self):
        raise NotImplementedError

    def inputs(self, *, critic):
        assert not critic
        return Inputs(
            torch.zeros(self.batch, 1, 1), torch.from_numpy(self.seen().astype(np.float32)),
            torch.zeros(self.batch, self.moves, 1), torch.ones(self.batch, self.moves, dtype=torch.bool),
            torch.zeros(self.batch, 0),
        )  # fmt: skip

    def lesson(self):
        none = torch.full((self.batch,), NO_MOVE)
        return Lesson(none, torch.zeros(self.batch, self.moves), np.zeros(self.batch), torch.zeros_like(none))


def policy_for(task, memory, width, seed, window=None):
    torch.manual_seed(seed)
    kind = type(task)
    policy = Policy(Shape(1, kind.features, 1, kind.moves + 1, 0, 1, 0, width, memory))
    if window is not None:
        policy.memory = {"attention": Attention, "recent": Recent}[memory](width, window=window)
    return policy


def learn(policy, task, schedule, updates, seed, solved=None):
    """Train for a number of updates, or until it is solved, which is asked after every fifth one."""
    group = new_group(policy, task)
    draws, order = (torch.Generator().manual_seed(2 * seed + i) for i in range(2))
    optimiser = torch.optim.Adam(policy.parameters(), lr=schedule.rate, eps=1e-5)
    for n in range(updates):
        segment = play(policy, group, schedule, draws)
        update(policy, optimiser, [segment], [group], schedule, n / updates, order, Team())
        if solved and n % 5 == 4 and solved(policy):
            return


class Best:
    """The move that a policy likes best, decision after decision."""

    def __init__(self, policy, task):
        self.policy, self.task = policy, task
        self.state, self.begun = policy.memory.fresh(task.batch), torch.ones(task.batch, dtype=torch.bool)

    @torch.no_grad()
    def __call__(self):
        inputs = self.task.inputs(critic=False)
        nodes, row = self.policy.rows(inputs)
        hidden, self.state = self.policy.memory.step(row, self.begun, self.state)
        self.begun = torch.zeros_like(self.begun)
        return self.policy.read(inputs, nodes, hidden, self.task.index).logits.argmax(-1).numpy()


# ---- Proof of memory ----

DELAY = 8  # decisions from the cue to the one that it matters for


class Recall(SmallTask):
    """The first sign of an episode is the move to make in the last decision; those between are noise.

    Source: the proof-of-memory environment that CleanRL tests its recurrent PPO with.
    """

    moves, features = 2, 3

    def __init__(self, batch, seed):
        super().__init__(batch, seed)
        self.at, self.cue = np.zeros(batch, dtype=int), np.zeros(batch, dtype=int)
        self.again(np.arange(batch))

    def seen(self):
        return np.stack([2.0 * self.sign - 1.0, self.at == 0, self.at == DELAY], axis=1)

    def decide(self, moves):
        over = self.at == DELAY
        reward = np.where(over, np.where(moves == self.cue, 1.0, -1.0), 0.0)
        self.at, self.sign = self.at + 1, self.rng.integers(2, size=self.batch)
        no = np.zeros(self.batch, dtype=bool)
        return Played(reward, slices=np.ones(self.batch), ended=no, over=over, struck=no)

    def again(self, rows):
        self.at[rows], self.cue[rows] = 0, self.rng.integers(2, size=len(rows))
        if len(rows) == self.batch:
            self.sign = self.cue.copy()
        self.sign[rows] = self.cue[rows]
        return [(0.0, DELAY + 1)] * len(rows)


# Segments end in the middle of episodes.  The short trace spares the moves that matter nothing from noise.
RECALL = Schedule(
    length=20, epochs=4, minibatches=4, rate=1e-2, discount=0.99, trace=0.3, entropy=0.01, most_kl=1.0,
    mode_weight=0.0, critic_sees_truth=False,
)  # fmt: skip
RECALLING = {  # width and schedule
    "attention": (16, replace(RECALL, rate=4e-3)),
    "recurrent": (32, RECALL),
    "recent": (16, RECALL),
}


def share_recalled(policy, episodes=2000):
    task = Recall(episodes, seed=10**6)
    best = Best(policy, task)
    for _ in range(DELAY + 1):
        played = task.decide(best())
    assert played.over.all()
    return float((played.reward > 0.0).mean())


def recalls(policy):
    return share_recalled(policy, 200) == 1.0


@pytest.mark.parametrize("memory", RECALLING)
@pytest.mark.parametrize("seed", range(5))
def test_every_memory_solves_what_needs_one(memory, seed):
    width, schedule = RECALLING[memory]
    task = Recall(64, seed)
    policy = policy_for(task, memory, width, seed)
    learn(policy, task, schedule, 60, seed, recalls)
    assert share_recalled(policy) > 0.99


@pytest.mark.parametrize(("memory", "window"), [("attention", 1), ("recent", 1), ("recent", DELAY)])
def test_without_one_it_cannot_be_solved(memory, window):
    width, schedule = RECALLING[memory]
    task = Recall(64, 0)
    policy = policy_for(task, memory, width, 0, window)
    learn(policy, task, schedule, 20, 0)
    # Every policy that does not see the cue is right in a half: 4.9 standard errors of 2,000 episodes are 5.5 %.
    assert abs(share_recalled(policy) - 0.5) < 0.055


def test_a_window_that_just_reaches_the_cue_solves_it():
    task = Recall(64, 0)
    policy = policy_for(task, "recent", 16, 0, DELAY + 1)
    learn(policy, task, RECALL, 60, 0, recalls)
    assert share_recalled(policy) > 0.99


# ---- A machine with a hidden fault ----


@dataclass(frozen=True)
class Machine:
    """A machine whose fault nobody sees.  In units of slices and of what a healthy machine makes in one.

    A fault makes the machine idle, and in every slice it may break down, which ends the episode.  An alarm, true or
    false, is heard after every slice of work.  An inspection and a repair stop the machine, and with it its wear.
    """

    fault: float = 0.05  # a slice of work
    breakdown: float = 0.05  # a slice of work with a fault
    loss: float = 5.0  # of a breakdown
    alarm: tuple[float, float] = (0.3, 0.7)  # a slice of work, without and with a fault
    right: float = 0.95  # of an inspection
    slices: tuple[int, int, int] = (1, 2, 12)  # of work, an inspection, a repair
    discount: float = 0.97  # a slice

    def gamma(self, move):
        return self.discount ** self.slices[move]


MACHINE = Machine()
WORK, INSPECT, REPAIR = range(3)
RENEWED, QUIET, ALARM, CLEAN, DIRTY = range(5)  # what is seen
GRID = np.linspace(0.0, 1.0, 401)  # beliefs: probability of a fault


def follows(machine, belief, move):
    """Expected reward of a move under a belief, and [(probability, what is seen, next belief)]; the rest is over."""
    healthy, faulty, found = 1.0 - belief, belief, []
    if move == REPAIR:
        return 0.0, [(1.0, RENEWED, 0.0)]
    if move == INSPECT:
        reward, says = 0.0, {CLEAN: (machine.right, 1.0 - machine.right), DIRTY: (1.0 - machine.right, machine.right)}
    else:
        reward = healthy - faulty * machine.breakdown * machine.loss
        faulty = healthy * machine.fault + faulty * (1.0 - machine.breakdown)
        healthy = healthy * (1.0 - machine.fault)
        says = {QUIET: (1.0 - machine.alarm[0], 1.0 - machine.alarm[1]), ALARM: machine.alarm}
    for seen, (if_healthy, if_faulty) in says.items():
        chance = healthy * if_healthy + faulty * if_faulty
        found.append((chance, seen, faulty * if_faulty / chance))
    return reward, found


def value_iteration(machine, gamma):
    """[3, beliefs] worth of every move, by the slow and obvious sweep over the grid."""
    steps = [[follows(machine, belief, move) for belief in GRID] for move in range(3)]
    reward = np.array([[one[0] for one in row] for row in steps])
    value = np.zeros(len(GRID))
    while True:
        worth = reward.copy()
        for move, row in enumerate(steps):
            for i in range(len(row[0][1])):
                chance, belief = (np.array([one[1][i][k] for one in row]) for k in (0, 2))
                worth[move] += gamma(move) * chance * np.interp(belief, GRID, value)
        if np.abs(worth.max(axis=0) - value).max() < 1e-9:
            return worth
        value = worth.max(axis=0)


UNIT = 10.0  # slices of work that count as one in training


class Maintenance(SmallTask):
    """Episodes of the machine, healthy at first and cut off after `limit` slices; noise hangs on the slice alone."""

    moves, features = 3, 5

    def __init__(self, batch, seed, machine=MACHINE, limit=40):
        super().__init__(batch, seed)
        self.machine, self.limit = machine, limit
        self.noise = np.zeros((batch, limit, 3))
        self.time, self.told = np.zeros(batch, dtype=int), np.zeros(batch, dtype=int)
        self.faulty = np.zeros(batch, dtype=bool)
        self.again(np.arange(batch))

    def seen(self):
        return np.eye(self.features)[self.told]

    def decide(self, moves):
        machine, faulty = self.machine, self.faulty
        u = self.noise[np.arange(self.batch), np.minimum(self.time, self.limit - 1)].T
        work, inspect = moves == WORK, moves == INSPECT
        over = work & faulty & (u[0] < machine.breakdown)
        reward = np.where(work & ~faulty, 1.0, 0.0) - machine.loss * over
        self.faulty = np.where(work, faulty | (u[1] < machine.fault), faulty & inspect)
        alarm = u[2] < np.where(self.faulty, machine.alarm[1], machine.alarm[0])
        dirty = self.faulty ^ (u[2] >= machine.right)
        self.told = np.where(work, np.where(alarm, ALARM, QUIET), np.where(dirty, DIRTY, CLEAN))
        self.told[moves == REPAIR] = RENEWED
        slices = np.array(machine.slices)[moves]
        self.time = self.time + slices
        no = np.zeros(self.batch, dtype=bool)
        ended = (self.time >= self.limit) & ~over
        return Played(reward / UNIT, slices=slices.astype(float), ended=ended, over=over, struck=no)

    def again(self, rows):
        ended = [(0.0, int(self.time[b])) for b in rows]
        self.noise[rows] = self.rng.random((len(rows), self.limit, 3))
        self.time[rows], self.told[rows], self.faulty[rows] = 0, RENEWED, False
        return ended


class Believing:
    """The best moves by a table of their worth, out of the belief that Bayes' rule makes of what was seen."""

    def __init__(self, worth, task):
        self.worth, self.task = worth, task
        self.belief, self.moves = np.zeros(task.batch), None

    def see(self):
        """The belief now, and the worth of every move under it.  [B], [3, B]"""
        if self.moves is not None:
            before, after = self.belief, np.zeros_like(self.belief)
            for move in (WORK, INSPECT):
                for _, seen, belief in follows(self.task.machine, before, move)[1]:
                    after = np.where((self.moves == move) & (self.task.told == seen), belief, after)
            self.belief = after
        return np.array([np.interp(self.belief, GRID, row) for row in self.worth])

    def __call__(self):
        self.moves = self.see().argmax(axis=0)
        return self.moves


class Reacting:
    """A move for everything that may be seen, whatever was seen before."""

    def __init__(self, table, task):
        self.table, self.task = np.array(table), task

    def __call__(self):
        return self.table[self.task.told]


def returns_of(make, best, episodes=8000, seed=10**6, machine=MACHINE, limit=250):
    """[episodes] discounted return, and what the moves were worth less than the best ones by the table of the optimum.

    By the lemma of Kakade and Langford (2002) the mean of the second is how far the policy is from the optimum.
    """
    task = Maintenance(episodes, seed, machine, limit)
    decide, judge = make(task), Believing(best, task)
    found, lost, alive = np.zeros(episodes), np.zeros(episodes), np.ones(episodes, dtype=bool)
    while alive.any():
        weight, worth, judge.moves = alive * machine.discount**task.time, judge.see(), decide()
        lost += weight * (worth.max(axis=0) - worth[judge.moves, np.arange(episodes)])
        played = task.decide(judge.moves)
        found += weight * played.reward * UNIT
        alive &= ~(played.ended | played.over)
    return found, lost


def interval(x):
    """Mean, and how far from it the truth may be: 4 standard errors, wrong once in 16,000 times."""
    return float(x.mean()), float(4.0 * x.std(ddof=1) / np.sqrt(len(x)))


def value_of_reacting(machine, table):
    """Discounted return of a move for everything that may be seen, by the equations of states and what is seen."""
    chain, rewards = np.eye(10), np.zeros(10)
    for faulty, told in itertools.product((0, 1), range(5)):
        move = table[told]
        rewards[5 * faulty + told], nexts = follows(machine, float(faulty), move)
        for chance, seen, belief in nexts:
            for after, share in ((0, 1.0 - belief), (1, belief)):
                chain[5 * faulty + told, 5 * after + seen] -= machine.gamma(move) * chance * share
    return np.linalg.solve(chain, rewards)[RENEWED]


@pytest.fixture(scope="module")
def optimum():
    """[3, beliefs] worth of every move, and the discounted returns of who knows it."""
    worth = value_iteration(MACHINE, MACHINE.gamma)
    returns, lost = returns_of(lambda task: Believing(worth, task), worth)
    assert (lost == 0.0).all()
    return worth, returns


def test_the_optimum_by_value_iteration_is_what_its_policy_earns(optimum):
    worth, returns = optimum
    assert worth[:, 0].max() == pytest.approx(17.34, abs=0.005)
    mean, off = interval(returns)
    assert abs(mean - worth[:, 0].max()) < off
    assert off < 0.02 * mean
    changes = np.flatnonzero(np.diff(worth.argmax(axis=0))) + 1
    assert worth.argmax(axis=0)[[0, *changes]].tolist() == [WORK, INSPECT, REPAIR]


def test_whatever_is_not_the_optimum_is_far_from_it(optimum):
    worth, returns = optimum
    best = worth[:, 0].max()
    tables = {table: value_of_reacting(MACHINE, table) for table in itertools.product(range(3), repeat=5)}
    assert tables[0, 0, 0, 0, 0] < 0.65 * best  # never stop
    assert tables[0, 0, REPAIR, 0, REPAIR] < 0.5 * best  # repair at every alarm
    assert max(tables.values()) < 0.85 * best  # the best of all 243 policies without a memory
    # The same by playing, and by the lemma.
    table = max(tables, key=tables.get)
    found, lost = returns_of(lambda task: Reacting(table, task), worth)
    mean, off = interval(found)
    assert abs(mean - tables[table]) < off
    apart, off = interval(returns - found)
    assert abs(apart - lost.mean()) < off
    assert abs(best - lost.mean() - tables[table]) < interval(lost)[1] + 0.01
    # Whoever discounts every decision alike, however long it lasts, repairs far too readily.
    wrong = value_iteration(MACHINE, lambda _: MACHINE.discount)
    assert returns_of(lambda task: Believing(wrong, task), worth)[0].mean() < 0.75 * best


# With an entropy of 0.01 some seeds give inspections up before they know what these are for, and stay 6.6 % short.
KEEPING = Schedule(
    length=32, epochs=4, minibatches=4, rate=3e-3, discount=MACHINE.discount, trace=0.9, entropy=0.05, most_kl=0.1,
    mode_weight=0.0, critic_sees_truth=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "width", "window", "updates", "seed"),
    [
        ("recent", 32, 8, 60, 0),
        *(pytest.param("recent", 32, 8, 80, seed, marks=pytest.mark.long) for seed in (1, 2, 3)),
    ],
)
def test_a_hidden_fault_is_met_within_two_percent_of_the_optimum(optimum, memory, width, window, updates, seed):
    worth, returns = optimum
    task = Maintenance(64, seed)
    policy = policy_for(task, memory, width, seed, window)
    learn(policy, task, KEEPING, updates, seed)
    found, lost = returns_of(lambda one: Best(policy, one), worth)
    best = worth[:, 0].max()
    paired, by_lemma = interval((returns - found) / best), interval(lost / best)
    told = "short of the optimum by {:.2%} ± {:.2%} in pairs, {:.2%} ± {:.2%} by the lemma".format(*paired, *by_lemma)
    print(told)
    assert abs(paired[0] - by_lemma[0]) < paired[1] + by_lemma[1], told
    assert sum(by_lemma) < 0.02, told
    assert paired[0] < 0.02, told
