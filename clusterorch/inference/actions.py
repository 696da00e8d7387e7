"""Here lives what an action does to a belief: the table of the model file, laid out by variant and site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clusterorch.errors import InvalidIntervention
from clusterorch.models.compile import Network


@dataclass(frozen=True)
class ActionKernel:
    """An action with its target.

    clears: [sum of sites over variants] probability that the fault leaves.
    restarts: whether what is left starts again.  discards: copies discarded before loading.
    """

    name: str
    target: int
    clears: np.ndarray
    restarts: bool
    discards: int


def action_kernel(network: Network, name: str, target: int = 0) -> ActionKernel:
    """Look an action up and lay its effects out.

    Raises:
        InvalidIntervention: no such action, or no such target.
    """
    declared = {action.name: action for action in network.spec.action}
    if name not in declared:
        raise InvalidIntervention(f"action {name!r}: the model has {', '.join(declared)}")
    action = declared[name]
    most = {"node": network.layout.nodes, "copy": network.layout.copies}.get(action.target, 1)
    if not 0 <= target < most:
        raise InvalidIntervention(f"action {name}: {action.target} {target} is not in 0..{most - 1}")
    clears = []
    for block in network.blocks:
        node = network.layout.node_of(block.variant.spec.site)
        hosted = (node == target) if action.target == "node" else np.zeros(block.sites, dtype=bool)
        probability = np.zeros(block.sites)
        undecided = np.ones(block.sites, dtype=bool)
        for effect in action.effect:
            if not {block.variant.name, block.variant.mode} & set(effect.of):
                continue
            relation = {"site": hosted, "elsewhere": ~hosted, "any": np.ones(block.sites, dtype=bool)}[effect.relation]
            probability[undecided & relation] = effect.clears
            undecided &= ~relation
        clears.append(probability)
    return ActionKernel(name, target, np.concatenate(clears), action.restarts, target if action.discards else 0)
