"""Here lives the network of a policy: one set of weights for every layout.

Nodes share their encoder and are pooled; a memory runs over decisions; every move is scored from its action, its target
and, with beliefs, what the belief says of it.  So nothing in the weights knows how many nodes or rails there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clusterorch.environment.episodes import Episodes
from clusterorch.learning.memory import MEMORIES

FIRST_PATIENCE = 6.0  # logit of the first action, which does nothing, before any learning
_LEAST = 1e-4  # probability below which a belief's logarithm says no more


class Inputs(NamedTuple):
    """What a policy reads at a decision.  [B, ...] or [B, T, ...]"""

    nodes: Tensor  # [N, F]
    job: Tensor  # [J]
    moves: Tensor  # [M, K] what is known of each move
    masks: Tensor  # [M] bool
    truth: Tensor  # [X] for the critic in training; zero elsewhere


class Reading(NamedTuple):
    """What it answers."""

    logits: Tensor  # [M], -inf where illegal
    value: Tensor  # []
    modes: Tensor  # [modes + 1] logits of the stated diagnosis, healthy last


@dataclass(frozen=True)
class Shape:
    """Sizes that weights depend on; those of a cluster are not among them."""

    node_features: int
    job_features: int
    move_features: int
    actions: int
    modes: int
    copies: int
    truth_features: int
    width: int = 96
    memory: str = "attention"


class Policy(nn.Module):
    """The network.

    Args:
        shape: of its inputs.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self.node = nn.Sequential(nn.Linear(shape.node_features, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.row = nn.Sequential(nn.Linear(2 * width + shape.job_features, width), nn.GELU(), nn.Linear(width, width))
        self.memory = MEMORIES[shape.memory](width)
        self.action, self.readiness = nn.Embedding(shape.actions, 32), nn.Embedding(shape.actions, 1)
        self.copy = nn.Embedding(shape.copies, width)
        self.move = nn.Sequential(
            nn.Linear(2 * width + 32 + shape.move_features, width), nn.GELU(), nn.Linear(width, 1)
        )
        self.value = nn.Sequential(nn.Linear(width + shape.truth_features, width), nn.GELU(), nn.Linear(width, 1))
        self.modes = nn.Linear(width, shape.modes + 1)
        with torch.no_grad():
            self.move[-1].weight.mul_(0.1)
            self.value[-1].weight.mul_(0.1)
            # A policy that acts at random ends every job: at first it waits, nearly always.
            self.readiness.weight.zero_()
            self.readiness.weight[0] = FIRST_PATIENCE

    def rows(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """[..., N, width] of the nodes, [..., width] of the decision."""
        nodes = self.node(inputs.nodes)
        pooled = torch.cat([nodes.mean(-2), nodes.amax(-2), inputs.job], dim=-1)
        return nodes, self.row(pooled)

    def read(self, inputs: Inputs, nodes: Tensor, hidden: Tensor, moves: MoveIndex) -> Reading:
        """Score the moves, the state and the modes.  [..., width] hidden"""
        nothing = torch.zeros(*hidden.shape[:-1], 1, hidden.shape[-1])
        copies = self.copy.weight.expand(*hidden.shape[:-1], -1, -1)
        table = torch.cat([nothing, nodes, copies], dim=-2)
        target = table[..., moves.place, :]
        whole = hidden[..., None, :].expand(*target.shape)
        action = self.action(moves.action).expand(*target.shape[:-1], -1)
        logits = self.move(torch.cat([whole, target, action, inputs.moves], dim=-1))[..., 0]
        logits = logits + self.readiness(moves.action)[..., 0]
        value = self.value(torch.cat([hidden, inputs.truth], dim=-1))[..., 0]
        # The diagnosis is stated, not taught to the rest of the network.
        return Reading(logits.masked_fill(~inputs.masks, -torch.inf), value, self.modes(hidden.detach()))


class MoveIndex(NamedTuple):
    """Where the moves of a layout find their action and their target."""

    action: Tensor  # [M]
    place: Tensor  # [M] 0 none, 1 + n a node, 1 + N + k a copy


def move_index(episodes: Episodes) -> MoveIndex:
    """The index of a batch's moves."""
    moves, network = episodes.world.moves, episodes.world.network
    kinds = {action.name: action.target for action in network.spec.action}
    numbers = {action.name: i for i, action in enumerate(network.spec.action)}
    nodes, action, place = network.layout.nodes, [], []
    for name, target in moves.names[: moves.count]:
        action.append(numbers[name])
        place.append({"node": 1 + target, "copy": 1 + nodes + target}.get(kinds[name], 0))
    return MoveIndex(torch.tensor(action), torch.tensor(place))


def shape_of(episodes: Episodes, *, truth: bool, width: int = 96, memory: str = "attention") -> Shape:
    """The shape for episodes like these."""
    inputs = inputs_of(episodes, truth=truth)
    spec = episodes.world.network.spec
    return Shape(
        inputs.nodes.shape[-1], inputs.job.shape[-1], inputs.moves.shape[-1], len(spec.action), len(spec.mode),
        episodes.world.network.layout.copies, inputs.truth.shape[-1], width, memory,
    )  # fmt: skip


def inputs_of(episodes: Episodes, *, truth: bool) -> Inputs:
    """What the episodes show now; the truth only if a critic may see it."""
    world, names, outlook, observed = episodes.world, episodes.names, episodes.outlook, episodes.settings.observe
    node, job = episodes.window.node_rows[:, -1], episodes.window.job_rows[:, -1]
    if observed == "belief":
        node, job = node[:, :, names.told_node :], job[:, names.told_job :]
    moves = np.zeros((episodes.batch, world.moves.count, 2), dtype=np.float32)
    if episodes.believes:
        node = np.concatenate([node, outlook.nodes], axis=2)
        job = np.concatenate([job, outlook.variants, outlook.copies], axis=1)
        moves[:, :, 0] = outlook.cures
        moves[:, :, 1] = np.log(outlook.cures + _LEAST) / 4.0
    hidden = _truth(episodes) if truth else np.zeros((episodes.batch, 0), dtype=np.float32)
    return Inputs(
        torch.from_numpy(np.ascontiguousarray(node)), torch.from_numpy(np.ascontiguousarray(job)),
        torch.from_numpy(moves), torch.from_numpy(world.masks().astype(bool)), torch.from_numpy(hidden),
    )  # fmt: skip


def _truth(episodes: Episodes) -> np.ndarray:
    """[B, X] the variant in the slot, the poisoned copies, the work at stake and the time left."""
    world, books = episodes.world, episodes.world.books
    variants = len(world.network.blocks)
    found = np.zeros((episodes.batch, variants + 4), dtype=np.float32)
    found[np.arange(episodes.batch), world.state.variant + 1] = 1.0
    found[:, variants + 1] = world.state.poisoned / max(world.network.layout.copies, 1)
    found[:, variants + 2] = (books.good - books.copy_good[:, 0]) / episodes.every
    found[:, variants + 3] = (episodes.horizon - books.time) / episodes.horizon
    return found
