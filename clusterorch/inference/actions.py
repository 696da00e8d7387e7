"""Here lives what an action does to a belief: the table of the model file, laid out by variant and site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clusterorch.errors import InvalidIntervention
from clusterorch.models.compile import Network, brought_shares
from clusterorch.models.spec import Action


@dataclass(frozen=True)
class ActionKernel:
    """An action with its target.

    clears: [sum of sites over variants] probability that the fault leaves.
    restarts: whether what is left starts again.  discards: copies discarded before loading.
    brought, brought_to: what comes with a replacement, if the slot is empty after the action.
    """

    name: str
    target: int
    clears: np.ndarray
    restarts: bool
    discards: int
    brought: np.ndarray  # [variants] probability that a fault comes with what replaces the target
    brought_to: np.ndarray  # [sum of sites over variants] where it then is


def action_kernel(network: Network, name: str, target: int = 0) -> ActionKernel:
    """Look an action up and lay its effects out.

    Raises:
        InvalidIntervention: no such action, or no such target.
    """
    declared = {action.name: action for action in network.spec.action}
    if name not in declared:
        raise InvalidIntervention(f"action {name!r}: the model has {', '.join(declared)}")
    action = declared[name]
    most = network.layout.targets(action.target)
    if not 0 <= target < most:
        raise InvalidIntervention(f"action {name}: {action.target} {target} is not in 0..{most - 1}")
    clears = []
    for block in network.blocks:
        hosted = network.layout.place_of(block.variant.spec.site, action.target) == target
        probability = np.zeros(block.sites)
        undecided = np.ones(block.sites, dtype=bool)
        for effect in action.effect:
            if not {block.variant.name, block.variant.mode} & set(effect.of):
                continue
            relation = {"site": hosted, "elsewhere": ~hosted, "any": np.ones(block.sites, dtype=bool)}[effect.relation]
            probability[undecided & relation] = effect.clears
            undecided &= ~relation
        clears.append(probability)
    brought, sites = _brought(network, action, target)
    discards = target if action.discards else 0
    return ActionKernel(name, target, np.concatenate(clears), action.restarts, discards, brought, sites)


def _brought(network: Network, action: Action, target: int) -> tuple[np.ndarray, np.ndarray]:
    """[variants] as above, and [sum of sites] where each then is: on the target, all of its sites alike."""
    places = [network.layout.place_of(b.variant.spec.site, action.target) == target for b in network.blocks]
    return brought_shares(network, action), np.concatenate([p / max(p.sum(), 1) for p in places])
