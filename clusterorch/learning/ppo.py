"""Here lives PPO, readable from top to bottom: play a segment, judge it, improve the policy on it.

Source: Schulman et al. 2017, with the details of CleanRL.  Decisions differ in length, so discounts are those of
slices; a truncated episode is bootstrapped from its last observation.  What helps beside the rewards needs the truth,
in training only, and is the same for every kind of observation: a critic that sees it (Pinto et al. 2018), a potential
(Ng et al. 1999), the best move (Ross et al. 2011) and what every move would cost (Sun et al. 2017).  That a failure
begins is no move's doing, and most of what returns differ by; so its drop of the potential is left out, in the spirit
of a baseline that knows it (Mao et al. 2019).  The price: what a move changes of that drop, such as the work at stake
when some later failure begins, is not told it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from clusterorch.errors import InvalidAgent
from clusterorch.learning.advantages import advantages
from clusterorch.learning.instances import Instances, Lesson
from clusterorch.learning.network import Inputs, MoveIndex, Policy
from clusterorch.learning.team import Team


@dataclass(frozen=True)
class Schedule:
    """How learning goes.  What falls, falls in a straight line."""

    length: int = 32  # decisions of a segment
    epochs: int = 4
    minibatches: int = 4
    rate: float = 1e-3
    discount: float = 0.9995  # a slice
    trace: float = 0.8  # a decision
    clip: float = 0.2
    most_kl: float = 0.05  # of an epoch; the epochs after it are left out
    entropy: float = 0.002
    entropy_at_last: float = 0.0
    value_weight: float = 0.5
    most_gradient: float = 0.5
    mode_weight: float = 0.1
    critic_sees_truth: bool = True
    shaping: float = 1.0  # weight of the potential, the oracle's value of the true state
    luck_left_out: bool = True  # whether the drop of the potential when a failure begins is
    imitation: float = 0.3  # weight of the oracle's move: it still pulls where regret no longer does, at odds near 0
    regret: float = 4.0  # weight of what the policy's moves are expected to cost, by the oracle
    imitation_until: float = 1.0  # share of the training at which the weight has fallen to nothing
    regret_until: float = 1.0

    def aids(self, done: float) -> tuple[float, float]:
        """What the weights of imitation and of regret have fallen to."""
        pairs = ((self.imitation, self.imitation_until), (self.regret, self.regret_until))
        imitation, regret = (weight * max(0.0, 1.0 - done / end) if end > 0.0 else 0.0 for weight, end in pairs)
        return imitation, regret


class Segment(NamedTuple):
    """[B, T, ...] of one group of instances; `state` from before it."""

    inputs: Inputs
    begun: Tensor
    moves: Tensor
    log_p: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    best: Tensor  # the oracle's move, NO_MOVE without one
    worth: Tensor  # [B, T, M] of every move against the best one, by the oracle
    modes: Tensor  # the true mode
    state: tuple[Tensor, ...]
    index: MoveIndex


@dataclass
class Group:
    """Instances on one layout, and where they are."""

    instances: Instances
    total: int  # instances of all processes together, of which these are `share`
    share: slice
    state: tuple[Tensor, ...]
    begun: np.ndarray
    lesson: Lesson
    returns: list[float] = field(default_factory=list)  # of the episodes that ended since somebody asked
    lengths: list[int] = field(default_factory=list)


def new_group(policy: Policy, instances: Instances, total: int | None = None, share: slice | None = None) -> Group:
    """Instances at the beginning of their first episodes."""
    batch = instances.batch
    return Group(
        instances, total or batch, share or slice(0, batch), policy.memory.fresh(batch), np.ones(batch, dtype=bool),
        instances.lesson(),
    )  # fmt: skip


def drawn(logits: Tensor, group: Group, draws: torch.Generator) -> Tensor:
    """[B] moves drawn from [B, M] logits; every process draws for all instances and keeps those of its own."""
    u = torch.rand(group.total, generator=draws)[group.share]
    below = logits.softmax(-1).cumsum(-1)
    return (below / below[:, -1:] <= u[:, None]).sum(-1)


@torch.no_grad()
def play(policy: Policy, group: Group, schedule: Schedule, draws: torch.Generator) -> Segment:
    """Play a segment of every instance."""
    instances, before, critic = group.instances, group.state, schedule.critic_sees_truth
    kept: list[Inputs] = []
    columns: dict[str, list[Any]] = {
        name: [] for name in ("begun", "moves", "log_p", "values", "best", "worth", "modes")
    }
    scores: dict[str, list[np.ndarray]] = {name: [] for name in ("rewards", "after", "slices", "ended")}
    inputs = instances.inputs(critic=critic)
    for t in range(schedule.length):
        _check(inputs)
        begun = torch.from_numpy(group.begun.copy())
        nodes, row = policy.rows(inputs)
        hidden, state = policy.memory.step(row, begun, group.state)
        reading = policy.read(inputs, nodes, hidden, instances.index)
        if t > 0:
            scores["after"][-1] = np.where(scores["ended"][-1], scores["after"][-1], reading.value.numpy())
        moves = drawn(reading.logits, group, draws)
        log_p = reading.logits.log_softmax(-1).gather(1, moves[:, None])[:, 0]
        lesson = group.lesson
        kept.append(inputs)
        row_of = (begun, moves, log_p, reading.value, lesson.moves, lesson.worth, lesson.modes)
        for name, value in zip(columns, row_of, strict=True):
            columns[name].append(value)
        played = instances.decide(moves.numpy())
        group.state, group.lesson = state, instances.lesson()
        inputs = instances.inputs(critic=critic)
        ended = played.ended | played.over
        left_out = played.over | (played.struck & schedule.luck_left_out)
        reached, after = np.where(left_out, 0.0, group.lesson.value), np.zeros(instances.batch)
        if ended.any():
            bootstrapped = _value_of(policy, inputs, group).numpy()
            after = np.where(played.ended & ~played.over, bootstrapped, 0.0)
            for value_of_episode, length in instances.again(np.flatnonzero(ended)):
                group.returns.append(value_of_episode)
                group.lengths.append(length)
            group.lesson, inputs = instances.lesson(), instances.inputs(critic=critic)
        group.begun = ended
        gained = schedule.discount**played.slices * reached - lesson.value
        scores["rewards"].append(played.reward + schedule.shaping * gained)
        scores["after"].append(after)
        scores["slices"].append(played.slices)
        scores["ended"].append(ended)
    last = _value_of(policy, inputs, group).numpy()
    scores["after"][-1] = np.where(scores["ended"][-1], scores["after"][-1], last)
    made = {name: torch.stack(column, dim=1) for name, column in columns.items()}
    values = made["values"].numpy().T
    found = advantages(
        np.array(scores["rewards"]), values, np.array(scores["after"]), np.array(scores["slices"]),
        np.array(scores["ended"]), np.ones_like(values, dtype=bool), schedule.discount, schedule.trace,
    )  # fmt: skip
    gain = torch.from_numpy(found.T.astype(np.float32))
    whole = Inputs(*(torch.stack(parts, dim=1) for parts in zip(*kept, strict=True)))
    return Segment(
        whole, made["begun"], made["moves"], made["log_p"], made["values"], gain, gain + made["values"],
        made["best"], made["worth"], made["modes"], before, instances.index,
    )  # fmt: skip


def _check(inputs: Inputs) -> None:
    """Refuse what is no number.

    Raises:
        InvalidAgent: an observation is not finite.
    """
    for name, part in zip(inputs._fields, inputs, strict=True):
        if part.dtype.is_floating_point and not bool(torch.isfinite(part).all()):
            raise InvalidAgent(
                f"observation {name} holds a value that is no finite number; the last checkpoint is whole"
            )


def _value_of(policy: Policy, inputs: Inputs, group: Group) -> Tensor:
    """[B] value of what is seen now, in the episode that it belongs to."""
    nodes, row = policy.rows(inputs)
    hidden, _ = policy.memory.step(row, torch.zeros(len(row), dtype=torch.bool), group.state)
    return policy.read(inputs, nodes, hidden, group.instances.index).value


class Losses(NamedTuple):
    """Means over an update, by the names that CleanRL gives them."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clipfrac: float
    explained_variance: float
    imitation: float
    regret: float


def update(
    policy: Policy, optimiser: torch.optim.Optimizer, segments: list[Segment], groups: list[Group],
    schedule: Schedule, done: float, order: torch.Generator, team: Team,
) -> Losses:  # fmt: skip
    """Improve the policy on segments.

    Args:
        policy: the network.
        optimiser: of its weights.
        segments: of every group.
        groups: the instances that played them.
        schedule: how.
        done: share of the training that is over, 0..1.
        order: of the minibatches.
        team: the processes that learn together.
    """
    for one in optimiser.param_groups:
        one["lr"] = schedule.rate * max(1.0 - done, 0.02)
    mean, variance = _moments([segment.advantages for segment in segments], team)
    _, spread = _moments([segment.returns for segment in segments], team)
    found: list[list[float]] = []
    for _ in range(schedule.epochs):
        begun = len(found)
        for segment, group in zip(segments, groups, strict=True):
            whole = torch.randperm(group.total, generator=order)
            for part in whole.chunk(schedule.minibatches):
                mine = part[(part >= group.share.start) & (part < group.share.stop)] - group.share.start
                optimiser.zero_grad(set_to_none=True)
                told = [0.0] * 7
                if len(mine):
                    one = take(segment, mine)
                    gain = (one.advantages - mean) / (variance**0.5 + 1e-8)
                    count = len(part) * schedule.length
                    loss, told = loss_of(policy, one, gain, schedule, done=done, count=count, spread=spread)
                    loss.backward()
                team.sum_gradients(policy.parameters())
                torch.nn.utils.clip_grad_norm_(policy.parameters(), schedule.most_gradient)
                optimiser.step()
                found.append(told)
        kl = team.sum(torch.tensor(found[begun:], dtype=torch.float64).sum(0))[3] / (len(found) - begun)
        if kl > schedule.most_kl:  # every process has the same number, so they stop together
            break
    means = team.sum(torch.tensor(found, dtype=torch.float64).mean(0)).tolist()
    _, left = _moments([segment.returns - segment.values for segment in segments], team)
    policy_loss, value_loss, entropy, kl_, clipped, imitation, regret = means
    return Losses(policy_loss, value_loss, entropy, kl_, clipped, 1.0 - left / (spread + 1e-8), imitation, regret)


def _moments(parts: list[Tensor], team: Team) -> tuple[float, float]:
    """Mean and variance over the segments of all processes."""
    whole = torch.cat([part.flatten() for part in parts]).double()
    count, total, squares = team.sum(torch.stack([torch.tensor(float(len(whole))), whole.sum(), whole.square().sum()]))
    mean = total / count
    return float(mean), float((squares / count - mean.square()).clamp(min=0.0))


def take(segment: Segment, rows: Tensor) -> Segment:
    """Some instances of a segment."""
    inputs = Inputs(*(part[rows] for part in segment.inputs))
    rest = [column[rows] for column in segment[1:10]]
    return Segment(inputs, *rest, tuple(part[rows] for part in segment.state), segment.index)


def loss_of(
    policy: Policy, segment: Segment, gain: Tensor, schedule: Schedule, *, done: float, count: int, spread: float = 1.0
) -> tuple[Tensor, list[float]]:
    """This segment's part of the mean loss over `count` decisions, and what to tell of it.

    Args:
        policy: the network.
        segment: of some instances.
        gain: [B, T] their advantages, to a common scale.
        schedule: weights.
        done: share of the training that is over.
        count: decisions of the minibatch, those of other processes included.
        spread: variance of the returns, which the loss of the critic is told in.
    """
    nodes, rows = policy.rows(segment.inputs)
    hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
    reading = policy.read(segment.inputs, nodes, hidden, segment.index)
    logs, masks = reading.logits.log_softmax(-1), segment.inputs.masks
    log_ratio = logs.gather(-1, segment.moves[..., None])[..., 0] - segment.log_p
    ratio, p = log_ratio.exp(), logs.exp()
    clipped = ratio.clamp(1.0 - schedule.clip, 1.0 + schedule.clip)
    policy_loss = -torch.min(gain * ratio, gain * clipped).sum() / count
    value_loss = functional.mse_loss(reading.value, segment.returns, reduction="sum") / count
    entropy = -(p * logs.masked_fill(~masks, 0.0)).sum() / count
    stated = functional.cross_entropy(reading.modes.flatten(0, 1), segment.modes.flatten(), reduction="sum") / count
    legal = (segment.best >= 0) & masks.gather(-1, segment.best.clamp(min=0)[..., None])[..., 0]
    best = logs.gather(-1, segment.best.clamp(min=0)[..., None])[..., 0]
    imitation = -best.masked_fill(~legal, 0.0).sum() / count
    regret = -(p * segment.worth).sum() / count
    bonus = schedule.entropy + (schedule.entropy_at_last - schedule.entropy) * done
    loss = (
        policy_loss
        + schedule.value_weight * value_loss / (spread + 1e-8)
        - bonus * entropy
        + schedule.mode_weight * stated
    )
    imitating, regretting = schedule.aids(done)
    loss = loss + imitating * imitation + regretting * regret
    with torch.no_grad():
        kl = (ratio - 1.0 - log_ratio).sum() / count
        share = ((ratio - 1.0).abs() > schedule.clip).float().sum() / count
    told = [policy_loss, value_loss, entropy, kl, share, imitation, regret]
    return loss, [float(number.detach()) for number in told]
