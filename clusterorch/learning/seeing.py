"""Here lives how an agent sees a batch of episodes: as tensors whose sizes know nothing of a cluster's."""

from __future__ import annotations

import numpy as np
import torch

from clusterorch.environment.episodes import Episodes
from clusterorch.errors import InvalidAgent
from clusterorch.learning.network import COST, CURES, LOG_CURES, LOG_UNIT, Inputs, MoveIndex, Shape
from clusterorch.policies.prospects import move_costs
from clusterorch.policies.view import copy_ages, view_of

_LEAST = 1e-4  # probability below which a belief's logarithm says no more
_COST_UNIT = 50.0  # slices
MOVE_FEATURES = 3


def inputs_of(episodes: Episodes, *, observe: str | None = None, critic: bool = False) -> Inputs:
    """What the episodes show now.

    Args:
        episodes: the batch.
        observe: what of it an agent sees, if not all that is shown: telemetry ("raw"), a belief, or "both".
        critic: whether there is a critic that sees the truth, in training.

    Raises:
        InvalidAgent: the episodes do not show it.
    """
    names, outlook = episodes.names, episodes.outlook
    shown = episodes.settings.observe
    observe = observe or shown
    if observe not in {shown} | ({"raw", "belief"} if shown == "both" else set()):
        raise InvalidAgent(f"the agent observes {observe}, and the episodes show {shown}: make them show that")
    node, job = episodes.window.node_rows[:, -1], episodes.window.job_rows[:, -1]
    if observe not in ("raw", "both"):
        node, job = node[:, :, names.told_node :], job[:, names.told_job :]
    moves = np.zeros((episodes.batch, episodes.world.moves.count, MOVE_FEATURES), dtype=np.float32)
    moves[:, :, COST] = published_costs(episodes) / _COST_UNIT
    if observe != "raw":
        node = np.concatenate([node, outlook.nodes], axis=2)
        job = np.concatenate([job, outlook.variants, outlook.copies], axis=1)
        moves[:, :, CURES] = outlook.cures
        moves[:, :, LOG_CURES] = np.log(outlook.cures + _LEAST) / LOG_UNIT
    hidden = _truth(episodes) if critic else np.zeros((episodes.batch, 0), dtype=np.float32)
    return Inputs(
        torch.from_numpy(np.ascontiguousarray(node)), torch.from_numpy(np.ascontiguousarray(job)),
        torch.from_numpy(moves), torch.from_numpy(episodes.world.masks().astype(bool)), torch.from_numpy(hidden),
    )  # fmt: skip


def published_costs(episodes: Episodes) -> np.ndarray:
    """[B, M] what each move costs in itself, in slices, by the rules and what is published of the job."""
    view, books = view_of(episodes), episodes.world.books
    work = copy_ages(view)
    down = view.job[:, view.job_names.index("class.down")] > 0.5
    work = work - np.where(down, work[:, 0], 0.0)[:, None]  # that of a job which is down is lost already
    return move_costs(episodes.model, view.moves, view.horizon - view.time, work, books.spares + books.frail_spares)


def move_index(episodes: Episodes) -> MoveIndex:
    """Where the moves of the episodes' layout find their action and their target."""
    moves, network = episodes.world.moves, episodes.world.network
    kinds = {action.name: action.target for action in network.spec.action}
    numbers = {action.name: i for i, action in enumerate(network.spec.action)}
    nodes, action, place = network.layout.nodes, [], []
    for name, target in moves.names[: moves.count]:
        action.append(numbers[name])
        place.append({"node": 1 + target, "copy": 1 + nodes + target}.get(kinds[name], 0))
    return MoveIndex(torch.tensor(action), torch.tensor(place))


def shape_of(
    episodes: Episodes, *, critic: bool, width: int = 96, memory: str = "attention", prior: float = 0.0
) -> Shape:
    """The shape of an agent for episodes like these.

    Raises:
        InvalidAgent: it is to have a prior by the belief, and is shown none.
    """
    if prior and not episodes.believes:
        raise InvalidAgent(f"prior={prior:g}: an agent that observes {episodes.settings.observe} has no belief for it")
    inputs = inputs_of(episodes, critic=critic)
    spec = episodes.world.network.spec
    return Shape(
        inputs.nodes.shape[-1], inputs.job.shape[-1], inputs.moves.shape[-1], len(spec.action), len(spec.mode),
        episodes.world.network.layout.copies, inputs.truth.shape[-1], width, memory, prior,
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
