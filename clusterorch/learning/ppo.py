"""Here lives PPO, readable from top to bottom: play a segment, judge it, improve the policy on it.

Source: Schulman et al. 2017, with the details of CleanRL.  Decisions differ in length, so discounts are those of
slices; a truncated episode is bootstrapped from its last observation; rewards are told as losses against a
healthy job, so that they are near zero most of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from clusterorch.environment.episodes import Episodes
from clusterorch.errors import InvalidAgent
from clusterorch.learning.advantages import advantages
from clusterorch.learning.network import Inputs, MoveIndex, Policy, inputs_of, move_index
from clusterorch.policies.oracle import Oracle
from clusterorch.policies.view import view_of

REWARD_UNIT = 20.0  # slices that count as one in the loss
_NO_MOVE = -1


@dataclass(frozen=True)
class Schedule:
    """How learning goes.  What falls, falls in a straight line to the end of it."""

    length: int = 32  # decisions of a segment
    epochs: int = 3
    minibatches: int = 4
    rate: float = 5e-4
    discount: float = 0.9995  # a slice
    trace: float = 0.95  # a decision
    clip: float = 0.2
    entropy: float = 0.01
    entropy_at_last: float = 0.0005
    value_weight: float = 0.5
    most_gradient: float = 0.5
    imitation: float = 1.0  # weight of the oracle's moves at first
    imitation_until: float = 0.6  # share of the training after which there is none
    critic_sees_truth: bool = True  # in training only
    mode_weight: float = 0.1


class Segment(NamedTuple):
    """[B, T, ...] of one group of instances; `state` from before it."""

    inputs: Inputs
    begun: Tensor
    moves: Tensor
    log_p: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    oracle: Tensor  # the oracle's move, -1 without one
    modes: Tensor  # the true mode
    state: tuple[Tensor, ...]
    index: MoveIndex


@dataclass
class Group:
    """Instances on one layout, and where they are."""

    episodes: Episodes
    index: MoveIndex
    oracle: Oracle
    state: tuple[Tensor, ...]
    begun: np.ndarray
    returns: list[float] = field(default_factory=list)  # of the episodes that ended since somebody asked
    lengths: list[int] = field(default_factory=list)


def new_group(policy: Policy, episodes: Episodes) -> Group:
    """Instances at the beginning of their first episodes."""
    rows = np.arange(episodes.batch)
    episodes.begin(rows, np.zeros(episodes.batch, dtype=np.int64))
    oracle = Oracle(episodes.model, episodes.settings.decision)
    return Group(
        episodes, move_index(episodes), oracle, policy.memory.fresh(episodes.batch), np.ones(len(rows), dtype=bool)
    )


@torch.no_grad()
def play(policy: Policy, group: Group, schedule: Schedule, draws: torch.Generator) -> tuple[Segment, int]:
    """Play a segment of every instance.  Returns it, and how many decisions it holds."""
    episodes, kept, before = group.episodes, [], group.state
    batch, rows = episodes.batch, np.arange(episodes.batch)
    columns: dict[str, list[Any]] = {name: [] for name in ("begun", "moves", "log_p", "values", "oracle", "modes")}
    scores: dict[str, list[np.ndarray]] = {name: [] for name in ("rewards", "after", "slices", "ended")}
    mode_names = [mode.name for mode in episodes.world.network.spec.mode]
    inputs = inputs_of(episodes, truth=schedule.critic_sees_truth)
    for _ in range(schedule.length):
        _check(inputs)
        begun = torch.from_numpy(group.begun.copy())
        nodes, row = policy.rows(inputs)
        hidden, state = policy.memory.step(row, begun, group.state)
        reading = policy.read(inputs, nodes, hidden, group.index)
        if columns["values"] and scores["after"]:
            known = scores["after"][-1]
            scores["after"][-1] = np.where(scores["ended"][-1], known, reading.value.numpy())
        moves = torch.multinomial(reading.logits.softmax(-1), 1, generator=draws)[:, 0]
        log_p = reading.logits.log_softmax(-1).gather(1, moves[:, None])[:, 0]
        told, modes = _taught(group, mode_names, schedule)
        kept.append(inputs)
        for name, value in zip(columns, (begun, moves, log_p, reading.value, told, modes), strict=True):
            columns[name].append(value)
        played = episodes.decide(moves.numpy(), np.ones(batch, dtype=bool))
        group.state = state
        inputs = inputs_of(episodes, truth=schedule.critic_sees_truth)
        after = np.zeros(batch)
        if played.ended.any():
            after = np.where(played.ended, _value_of(policy, inputs, group).numpy(), 0.0)
            inputs = _next_episodes(group, rows[played.ended], schedule)
        group.begun = played.ended.copy()
        scores["rewards"].append((played.reward - played.slices) / REWARD_UNIT)
        scores["after"].append(after)
        scores["slices"].append(played.slices.astype(float))
        scores["ended"].append(played.ended.copy())
    last = _value_of(policy, inputs, group).numpy()
    scores["after"][-1] = np.where(scores["ended"][-1], scores["after"][-1], last)
    made = {name: torch.stack(column, dim=1) for name, column in columns.items()}
    values = made["values"].numpy().T
    found = advantages(
        np.array(scores["rewards"]), values, np.array(scores["after"]), np.array(scores["slices"]),
        np.array(scores["ended"]), np.ones_like(values, dtype=bool), schedule.discount, schedule.trace,
    )  # fmt: skip
    worth = torch.from_numpy(found.T.astype(np.float32))
    whole = Inputs(*(torch.stack(parts, dim=1) for parts in zip(*kept, strict=True)))
    segment = Segment(
        whole, made["begun"], made["moves"], made["log_p"], made["values"], worth, worth + made["values"],
        made["oracle"], made["modes"], before, group.index,
    )  # fmt: skip
    return segment, batch * schedule.length


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


def _taught(group: Group, mode_names: list[str], schedule: Schedule) -> tuple[Tensor, Tensor]:
    """The oracle's move, if anybody imitates it, and the true mode."""
    episodes = group.episodes
    state, blocks = episodes.world.state, episodes.world.network.blocks
    modes = torch.full((episodes.batch,), len(mode_names), dtype=torch.long)
    for b in np.flatnonzero(state.variant >= 0):
        variant = blocks[state.variant[b]].variant
        if not variant.benign:
            modes[b] = mode_names.index(variant.mode)
    if schedule.imitation <= 0.0:
        return torch.full_like(modes, _NO_MOVE), modes
    return torch.from_numpy(group.oracle.decide(view_of(episodes, truth=True)).moves), modes


def _value_of(policy: Policy, inputs: Inputs, group: Group) -> Tensor:
    """[B] value of what is seen now, in the episode that it belongs to."""
    nodes, row = policy.rows(inputs)
    hidden, _ = policy.memory.step(row, torch.zeros(len(row), dtype=torch.bool), group.state)
    return policy.read(inputs, nodes, hidden, group.index).value


def _next_episodes(group: Group, rows: np.ndarray, schedule: Schedule) -> Inputs:
    episodes = group.episodes
    for b in rows:
        told = episodes.incident(int(b))
        group.returns.append(told["kept"] - told["false_moves"] * episodes.world.rules.false_intervention)
        group.lengths.append(told["slices"])
    episodes.begin(rows, episodes.world.episode[rows] + 1)
    return inputs_of(episodes, truth=schedule.critic_sees_truth)


class Losses(NamedTuple):
    """Means over an update, under CleanRL's names."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clipfrac: float
    explained_variance: float
    imitation: float


def update(
    policy: Policy, optimiser: torch.optim.Optimizer, segments: list[Segment], schedule: Schedule, done: float,
    order: torch.Generator,
) -> Losses:  # fmt: skip
    """Improve the policy on segments.

    Args:
        policy: the network.
        optimiser: of its weights.
        segments: of every group.
        schedule: how.
        done: share of the training that is over, 0..1.
        order: of the minibatches.
    """
    for group in optimiser.param_groups:
        group["lr"] = schedule.rate * max(1.0 - done, 0.02)
    found: list[list[float]] = []
    pooled = torch.cat([segment.advantages.flatten() for segment in segments])
    mean, spread = pooled.mean(), pooled.std() + 1e-8
    for _ in range(schedule.epochs):
        for segment in segments:
            rows = torch.randperm(len(segment.moves), generator=order)
            for part in rows.chunk(schedule.minibatches):
                one = take(segment, part)
                worth = (one.advantages - mean) / spread
                loss, told = loss_of(policy, one, worth, schedule, done)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), schedule.most_gradient)
                optimiser.step()
                found.append(told)
    returns = torch.cat([segment.returns.flatten() for segment in segments])
    values = torch.cat([segment.values.flatten() for segment in segments])
    explained = 1.0 - float((returns - values).var() / (returns.var() + 1e-8))
    policy_loss, value_loss, entropy, kl, clipped, imitation = np.mean(found, axis=0)
    return Losses(policy_loss, value_loss, entropy, kl, clipped, explained, imitation)


def take(segment: Segment, rows: Tensor) -> Segment:
    """Some instances of a segment."""
    inputs = Inputs(*(part[rows] for part in segment.inputs))
    rest = [column[rows] for column in segment[1:9]]
    return Segment(inputs, *rest, tuple(part[rows] for part in segment.state), segment.index)


def loss_of(
    policy: Policy, segment: Segment, worth: Tensor, schedule: Schedule, done: float
) -> tuple[Tensor, list[float]]:
    """The loss of a segment, and what to tell of it."""
    nodes, rows = policy.rows(segment.inputs)
    hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
    reading = policy.read(segment.inputs, nodes, hidden, segment.index)
    logs = reading.logits.log_softmax(-1)
    log_ratio = logs.gather(-1, segment.moves[..., None])[..., 0] - segment.log_p
    ratio = log_ratio.exp()
    gain = torch.min(worth * ratio, worth * ratio.clamp(1.0 - schedule.clip, 1.0 + schedule.clip)).mean()
    value = functional.mse_loss(reading.value, segment.returns)
    p = logs.exp()
    entropy = -(p * logs.masked_fill(~segment.inputs.masks, 0.0)).sum(-1).mean()
    stated = functional.cross_entropy(reading.modes.flatten(0, 1), segment.modes.flatten())
    weight = schedule.entropy + (schedule.entropy_at_last - schedule.entropy) * done
    loss = -gain + schedule.value_weight * value - weight * entropy + schedule.mode_weight * stated
    imitation = torch.zeros(())
    share = max(0.0, 1.0 - done / schedule.imitation_until) if schedule.imitation_until > 0.0 else 0.0
    legal = (segment.oracle >= 0) & segment.inputs.masks.gather(-1, segment.oracle.clamp(min=0)[..., None])[..., 0]
    if schedule.imitation > 0.0 and share > 0.0 and legal.any():
        imitation = -logs.gather(-1, segment.oracle.clamp(min=0)[..., None])[..., 0][legal].mean()
        loss = loss + schedule.imitation * share * imitation
    with torch.no_grad():
        kl = (ratio - 1.0 - log_ratio).mean()
        clipped = ((ratio - 1.0).abs() > schedule.clip).float().mean()
    told = [-gain, value, entropy, kl, clipped, imitation]
    return loss, [float(number.detach()) for number in told]
