"""Here lives the network of a policy: one set of weights for every layout.

Nodes share their encoder and are pooled; a memory runs over decisions; every move is scored from its action, its target
and, with beliefs, what the belief says of it.  So nothing in the weights knows how many nodes or rails there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clusterorch.learning.memory import MEMORIES

COST, CURES, LOG_CURES = range(3)  # columns of a move; the last in units of LOG_UNIT, both 0 without a belief
LOG_UNIT = 4.0
FIRST_PATIENCE = 8.0  # logit of the first action, which does nothing, before any learning


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
    prior: float = 0.0  # weight of the log of what the belief says that a move ends, added to its logit


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
        self.modes = nn.Sequential(
            nn.Linear(3 * width + shape.job_features, width), nn.GELU(), nn.Linear(width, shape.modes + 1)
        )
        with torch.no_grad():
            self.move[-1].weight.mul_(0.1)
            self.value[-1].weight.mul_(0.1)
            # A policy that acts at random ends every job: at first it waits, nearly always.
            self.readiness.weight.zero_()
            self.readiness.weight[0] = FIRST_PATIENCE

    def rows(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """[..., N, width] of the nodes, [..., width] of the decision."""
        nodes = self.node(inputs.nodes)
        return nodes, self.row(_pooled(inputs, nodes))

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
        if self.shape.prior:
            logits = logits + self.shape.prior * LOG_UNIT * inputs.moves[..., LOG_CURES] * (moves.action != 0)
        value = self.value(torch.cat([hidden, inputs.truth], dim=-1))[..., 0]
        # The diagnosis is stated, not taught to the rest of the network.  What the policy remembers is what its moves
        # need, which is less than the mode; so the head reads what is seen, too.
        modes = self.modes(torch.cat([hidden, _pooled(inputs, nodes)], dim=-1).detach())
        return Reading(logits.masked_fill(~inputs.masks, -torch.inf), value, modes)


def _pooled(inputs: Inputs, nodes: Tensor) -> Tensor:
    """[..., 2 width + J] what is seen at a decision, whatever the number of nodes."""
    return torch.cat([nodes.mean(-2), nodes.amax(-2), inputs.job], dim=-1)


class MoveIndex(NamedTuple):
    """Where the moves of a layout find their action and their target."""

    action: Tensor  # [M]
    place: Tensor  # [M] 0 none, 1 + n a node, 1 + N + k a copy
