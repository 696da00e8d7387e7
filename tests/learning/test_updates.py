"""Updates by hand: the loss is that of Stable-Baselines3, and shares of a team add up to the whole."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from clusterorch.learning.instances import Lesson, Played
from clusterorch.learning.network import Inputs, MoveIndex, Policy, Shape
from clusterorch.learning.ppo import Schedule, loss_of, new_group, play, take, update
from clusterorch.learning.team import Team

DISCOUNT = 0.9


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


# ---- The loss ----


class Noise:
    """Instances of noise: episodes of random length, whose rows, rewards and legal moves are random.

    Instance i of a share is instance `first + i` of the whole, and has the same noise in both.
    """

    moves = 4

    def __init__(self, batch, first=0):
        self.batch, self.index = batch, MoveIndex(torch.arange(1, 5), torch.tensor([0, 1, 2, 3]))
        self.draws = [np.random.default_rng(i) for i in range(first, first + batch)]
        self.drawn = [{} for _ in range(batch)]
        self.again(np.arange(batch))

    def now(self, name):
        return torch.from_numpy(np.stack([one[name] for one in self.drawn]))

    def inputs(self, *, critic):
        truth = torch.zeros(self.batch, 0)
        return Inputs(*(self.now(name) for name in ("nodes", "job", "moves", "masks")), truth)

    def lesson(self):
        best, worth, modes, potential = (self.now(name) for name in ("best", "worth", "modes", "potential"))
        return Lesson(best, worth, potential.numpy(), modes)

    def decide(self, moves):
        self.again(np.arange(self.batch))
        reward, u, slices = (self.now(name).numpy() for name in ("reward", "u", "slices"))
        over, ended = u < 0.1, u > 0.9
        return Played(reward + 0.1 * moves, slices, ended=ended, over=over, struck=np.zeros_like(over))

    def again(self, rows):
        for row in rows:
            rng = self.draws[row]
            masks = rng.random(4) < 0.6
            masks[1] = True
            normal = {"nodes": (2, 3), "job": 2, "moves": (4, 2)}
            self.drawn[row] = {name: rng.normal(size=size).astype(np.float32) for name, size in normal.items()}
            self.drawn[row] |= {
                "masks": masks, "best": rng.integers(-1, 4), "worth": -rng.random(4).astype(np.float32),
                "modes": rng.integers(3), "potential": rng.normal(), "reward": rng.normal(), "u": rng.random(),
                "slices": float(rng.integers(1, 4)),
            }  # fmt: skip
        return [(0.0, 1)] * len(rows)


def made(memory="recurrent", batch=6, **changed):
    """A policy, a segment that it played and the schedule by which it did."""
    torch.manual_seed(0)
    policy = Policy(Shape(3, 2, 2, 5, 2, 1, 0, 16, memory))
    schedule = Schedule(**({"length": 10, "critic_sees_truth": False} | changed))
    group = new_group(policy, Noise(batch))
    draws = torch.Generator().manual_seed(1)
    play(policy, group, schedule, draws)  # so that the segment begins in the middle of episodes
    return policy, play(policy, group, schedule, draws), schedule, group


def moved(policy, by):
    """Weights that are no longer those which played."""
    draws = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for one in policy.parameters():
            one.add_(by * torch.randn(one.shape, generator=draws))


def gradients(policy):
    return {name: one.grad.clone() for name, one in policy.named_parameters() if one.grad is not None}


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
def test_the_loss_and_its_gradients_are_those_of_stable_baselines():
    stable = pytest.importorskip("stable_baselines3")
    masked = pytest.importorskip("sb3_contrib.common.maskable.distributions").MaskableCategorical
    logger, spaces = (pytest.importorskip(one) for one in ("stable_baselines3.common.logger", "gymnasium.spaces"))
    gymnasium = pytest.importorskip("gymnasium")
    policy, segment, schedule, _ = made(entropy=0.05, value_weight=0.7, mode_weight=0.0, imitation=0.0, regret=0.0)
    moved(policy, 0.15)
    gain = 2.0 * segment.advantages + 0.3
    loss, said = loss_of(policy, segment, gain, schedule, done=0.0, count=60)
    loss.backward()
    mine = gradients(policy)

    class Theirs(nn.Module):
        """What Stable-Baselines3 asks of a policy, told by ours; it sees the number of a decision."""

        def __init__(self):
            super().__init__()
            self.ours = policy
            self.optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)

        def set_training_mode(self, mode):
            self.train(mode)

        def evaluate_actions(self, numbers, moves):
            nodes, rows = policy.rows(segment.inputs)
            hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
            reading = policy.read(segment.inputs, nodes, hidden, segment.index)
            at = numbers[:, 0].long()
            masks = segment.inputs.masks.flatten(0, 1)[at]
            law = masked(logits=reading.logits.flatten(0, 1)[at], masks=masks.numpy())
            return reading.value.flatten()[at], law.log_prob(moves), law.entropy()

    class Idle(gymnasium.Env):
        observation_space, action_space = spaces.Box(0.0, 60.0, (1,)), spaces.Discrete(4)

    theirs = stable.PPO(
        "MlpPolicy", Idle(), n_steps=60, batch_size=60, n_epochs=1, clip_range=schedule.clip, learning_rate=0.0,
        ent_coef=schedule.entropy, vf_coef=schedule.value_weight, max_grad_norm=1e9, normalize_advantage=False,
        device="cpu",
    )  # fmt: skip
    theirs.policy = Theirs()
    theirs.set_logger(logger.Logger(None, []))
    buffer = theirs.rollout_buffer
    columns = {
        "observations": torch.arange(60.0), "actions": segment.moves, "values": segment.values,
        "log_probs": segment.log_p, "advantages": gain, "returns": segment.returns,
    }  # fmt: skip
    for name, column in columns.items():
        held = getattr(buffer, name)
        held[:] = column.numpy().reshape(held.shape)
    buffer.full = True
    policy.zero_grad(set_to_none=True)
    theirs.train()

    names = ["policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction"]
    wanted = np.array([theirs.logger.name_to_value[f"train/{name}"] for name in names])
    said[2] = -said[2]  # theirs is the loss, ours the entropy
    np.testing.assert_allclose(said[:5], wanted, rtol=1e-5, atol=1e-6)
    assert float(loss.detach()) == pytest.approx(theirs.logger.name_to_value["train/loss"], rel=1e-5)
    assert 0.1 < wanted[4] < 0.9  # some ratios were clipped, and some were not
    found = gradients(policy)
    # Theirs knows nothing of the stated diagnosis, whose weight is 0 here.
    assert found.keys() == {name for name in mine if not name.startswith("modes.")}
    assert len(found) > 20
    for name, gradient in found.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("gain", "moves_on"), [(1.0, False), (-1.0, True)])
def test_a_move_that_has_become_likely_enough_is_not_pushed_further(gain, moves_on):
    policy, segment, schedule, _ = made(entropy=0.0, value_weight=0.0, imitation=0.0, regret=0.0)
    segment = segment._replace(log_p=segment.log_p - 0.3)  # every ratio is 1.35, beyond the clip of 0.2
    loss_of(policy, segment, torch.full((6, 10), gain), schedule, done=0.0, count=60)[0].backward()
    assert (policy.move[-1].weight.grad.abs().max() > 0.0) == moves_on


def test_the_weights_that_fall_do_so_in_a_straight_line():
    policy, segment, schedule, _ = made(entropy=0.2, entropy_at_last=0.1, imitation_until=0.5, regret_until=0.8)
    whole = (schedule.imitation, schedule.regret)
    falling = {0.0: (1.0, 1.0), 0.25: (0.5, 1.0 - 0.25 / 0.8), 0.5: (0.0, 0.375), 0.8: (0.0, 0.0), 1.0: (0.0, 0.0)}
    for done, left in falling.items():
        assert schedule.aids(done) == pytest.approx([weight * share for weight, share in zip(whole, left, strict=True)])
    losses, said = zip(
        *(loss_of(policy, segment, segment.advantages, schedule, done=done, count=60) for done in (0.0, 0.25, 1.0)),
        strict=True,
    )
    assert said[0] == said[1] == said[2]
    entropy, imitation, regret = said[0][2], said[0][5], said[0][6]
    imitating, regretting = schedule.imitation * imitation, schedule.regret * regret
    first, second, third = (float(one.detach()) for one in losses)
    fallen = 0.5 * imitating + 0.25 / 0.8 * regretting
    assert first - second == pytest.approx(fallen - 0.025 * entropy, abs=1e-5)
    assert first - third == pytest.approx(imitating + regretting - 0.1 * entropy, abs=1e-5)


def test_a_masked_move_has_no_probability_and_no_gradient():
    policy, segment, schedule, _ = made("attention", entropy=0.1)
    moved(policy, 0.1)
    features = segment.inputs.moves.clone().requires_grad_()
    segment = segment._replace(inputs=segment.inputs._replace(moves=features))
    nodes, rows = policy.rows(segment.inputs)
    hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
    masks, p = segment.inputs.masks, policy.read(segment.inputs, nodes, hidden, segment.index).logits.softmax(-1)
    assert (p[~masks] == 0.0).all()
    assert (p[masks] > 0.0).all()
    assert masks.gather(-1, segment.moves[..., None]).all()
    loss_of(policy, segment, segment.advantages, schedule, done=0.0, count=60)[0].backward()
    assert (features.grad[~masks] == 0.0).all()
    assert (features.grad[masks] != 0.0).any()
    assert all(torch.isfinite(one).all() for one in gradients(policy).values())


# ---- Shares ----


@pytest.mark.parametrize("memory", ["attention", "recurrent", "recent"])
def test_gradients_of_two_shares_add_up_to_those_of_the_whole(memory):
    policy, segment, schedule, _ = made(memory)
    moved(policy, 0.05)
    gain, found = segment.advantages / 3.0, []
    for rows in (torch.arange(6), torch.tensor([4, 0]), torch.tensor([1, 2, 3, 5])):
        policy.zero_grad(set_to_none=True)
        loss, _ = loss_of(policy, take(segment, rows), gain[rows], schedule, done=0.1, count=60, spread=2.5)
        loss.backward()
        found.append(gradients(policy))
    whole, one, other = found
    for name, gradient in whole.items():
        torch.testing.assert_close(one[name] + other[name], gradient, rtol=1e-5, atol=1e-6)


class Pair(Team):
    """One of two threads that learn together as two processes would."""

    def __init__(self, rank, barrier, board):
        super().__init__(rank, 2)
        self.barrier, self.board = barrier, board

    def sum(self, values):
        self.board[self.rank] = values.detach().clone()
        self.barrier.wait()
        total = self.board[0] + self.board[1]
        self.barrier.wait()
        return values.copy_(total)


def steps_of(policy, first, share, team, schedule):
    """Weights after two segments, and what was told of the last update."""
    group = new_group(policy, Noise(share.stop - share.start, first), total=6, share=share)
    draws, order = (torch.Generator().manual_seed(i) for i in (1, 2))
    optimiser = torch.optim.SGD(policy.parameters(), lr=schedule.rate)
    for done in (0.0, 0.5):
        segment = play(policy, group, schedule, draws)
        said = update(policy, optimiser, [segment], [group], schedule, done, order, team)
    return said


def test_two_shares_learn_what_one_process_learns():
    policy, _, _, _ = made()
    schedule = Schedule(length=10, epochs=3, minibatches=4, rate=0.05, critic_sees_truth=False)
    pair = [copy.deepcopy(policy) for _ in range(2)]
    whole = steps_of(policy, 0, slice(0, 6), Team(), schedule)
    barrier, board, said = threading.Barrier(2, timeout=60.0), [None, None], [None, None]

    def work(rank):
        share = slice(3 * rank, 3 * rank + 3)
        said[rank] = steps_of(pair[rank], 3 * rank, share, Pair(rank, barrier, board), schedule)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said[0] == said[1]
    np.testing.assert_allclose(said[0], whole, rtol=1e-4, atol=1e-5)
    for name, weight in policy.state_dict().items():
        assert torch.equal(pair[0].state_dict()[name], pair[1].state_dict()[name])
        torch.testing.assert_close(pair[0].state_dict()[name], weight, rtol=1e-5, atol=1e-6)


# ---- An update ----


class Counting(torch.optim.SGD):
    """Counts its steps, and keeps the length of each gradient."""

    def step(self, closure=None):
        grads = [one.grad.flatten() for group in self.param_groups for one in group["params"] if one.grad is not None]
        self.lengths = [*getattr(self, "lengths", []), float(torch.cat(grads).norm())]
        return super().step(closure)


def updated(done=0.0, **changed):
    policy, segment, schedule, group = made(**({"minibatches": 2, "epochs": 5} | changed))
    optimiser = Counting(policy.parameters(), lr=1.0)
    order = torch.Generator().manual_seed(0)
    said = update(policy, optimiser, [segment], [group], schedule, done, order, Team())
    return said, optimiser


def test_epochs_after_one_that_moved_too_far_are_left_out():
    patient, optimiser = updated(rate=0.3, most_kl=1e9)
    assert len(optimiser.lengths) == 10
    assert patient.approx_kl > 1e-3
    hasty, optimiser = updated(rate=0.3, most_kl=1e-4)
    # Ratios of the very first step are one, those of the second are not: the first epoch is too far already.
    assert len(optimiser.lengths) == 2
    assert 1e-4 < hasty.approx_kl < patient.approx_kl
    _, optimiser = updated(rate=0.0, most_kl=1e-4)
    assert len(optimiser.lengths) == 10


def test_what_one_epoch_moves_is_not_held_against_the_mean_of_all():
    _, optimiser = updated(rate=0.05, most_kl=1e9)
    kls = [updated(rate=0.05, most_kl=1e9, epochs=n)[0].approx_kl * n for n in range(1, 6)]
    of_epoch = np.diff([0.0, *kls])
    assert len(optimiser.lengths) == 10
    threshold = float(of_epoch[2]) * 0.999
    assert threshold > of_epoch[:2].max()
    _, optimiser = updated(rate=0.05, most_kl=threshold)
    assert len(optimiser.lengths) == 6


def test_rates_fall_and_gradients_are_no_longer_than_allowed():
    _, optimiser = updated(done=0.25, rate=0.1, most_gradient=0.01, most_kl=1e9)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.075)
    assert max(optimiser.lengths) <= 0.01 + 1e-6
    _, optimiser = updated(done=1.0, rate=0.1)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.002)


def test_the_share_that_the_critic_explains_is_told():
    policy, segment, schedule, group = made(rate=0.0, minibatches=2)
    optimiser, order = torch.optim.SGD(policy.parameters(), lr=0.0), torch.Generator().manual_seed(0)
    said = update(policy, optimiser, [segment], [group], schedule, 0.0, order, Team())
    left = (segment.returns - segment.values).var(unbiased=False) / segment.returns.var(unbiased=False)
    assert said.explained_variance == pytest.approx(1.0 - float(left), abs=1e-4)
