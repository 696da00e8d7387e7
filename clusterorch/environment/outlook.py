"""Here lives the belief as a policy reads it: by variant, node and mode, copy, and what each move would end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.environment.moves import MoveTable
from clusterorch.inference.plan import Plan
from clusterorch.models.compile import Network


class Places(NamedTuple):
    """Where the sites of every variant are, and what of them is a failure."""

    node: np.ndarray  # [sum of sites] -1 none
    mode: np.ndarray  # [V] number of the mode, -1: of `healthy`


class Outlook(NamedTuple):
    """[B, ...] float32."""

    variants: np.ndarray  # [B, V + 1] the empty slot first
    nodes: np.ndarray  # [B, N, modes] a failure of the mode is at the node
    copies: np.ndarray  # [B, C] the copy is poisoned
    cures: np.ndarray  # [B, M] there is a failure, and the move ends it
    gains: np.ndarray  # [B, M] the same weighted by what each variant is worth


def places_of(network: Network) -> Places:
    """The places of a network's sites."""
    modes = [mode.name for mode in network.spec.mode]
    return Places(
        np.concatenate([network.layout.node_of(b.variant.spec.site) for b in network.blocks]),
        np.array([-1 if b.variant.benign else modes.index(b.variant.mode) for b in network.blocks], dtype=np.int64),
    )


def new_outlook(network: Network, moves: int, batch: int) -> Outlook:
    """Room for the outlook of a batch."""
    layout, modes = network.layout, len(network.spec.mode)

    def floats(*shape: int) -> np.ndarray:
        return np.zeros((batch, *shape), dtype=np.float32)

    return Outlook(
        floats(len(network.blocks) + 1),
        floats(layout.nodes, modes),
        floats(layout.copies),
        floats(moves),
        floats(moves),
    )


@njit(cache=True, error_model="numpy")
def look(
    plan: Plan, table: MoveTable, places: Places, belief: np.ndarray, rows: np.ndarray, worth: np.ndarray,
    outlook: Outlook,
) -> None:  # fmt: skip
    """Fill the outlook of some instances.  [B, states] belief, [n] rows, [V] worth of the end of each variant"""
    copies, moves = outlook.copies.shape[1], outlook.cures.shape[1]
    sites = places.node.shape[0]
    at_least = np.empty((copies + 1, sites))  # mass by number of poisoned copies
    for i in range(rows.shape[0]):
        b = rows[i]
        at_least[:] = 0.0
        outlook.nodes[b, :, :] = 0.0
        outlook.copies[b, :] = 0.0
        outlook.variants[b, 0] = belief[b, 0]
        worst = 0
        for v in range(places.mode.shape[0]):
            n, configurations, start = plan.block_sites[v], plan.block_configurations[v], plan.weight_start[v]
            total = 0.0
            for level in range(plan.block_levels[v]):
                for c in range(configurations):
                    at = plan.block_offset[v] + (level * configurations + c) * n
                    poisoned = min(plan.poisoned[plan.configuration_start[v] + c], copies)
                    worst = max(worst, poisoned)
                    for s in range(n):
                        at_least[poisoned, start + s] += belief[b, at + s]
                        total += belief[b, at + s]
                    if poisoned > 0:
                        mass = 0.0
                        for s in range(n):
                            mass += belief[b, at + s]
                        for k in range(poisoned):
                            outlook.copies[b, k] += mass
            outlook.variants[b, v + 1] = total
            if places.mode[v] < 0:
                for poisoned in range(copies + 1):
                    at_least[poisoned, start : start + n] = 0.0
                continue
            for s in range(n):
                if places.node[start + s] >= 0:
                    for poisoned in range(copies + 1):
                        outlook.nodes[b, places.node[start + s], places.mode[v]] += at_least[poisoned, start + s]
        for m in range(moves):
            cured = gained = 0.0
            if table.action[m] >= 0:
                for v in range(places.mode.shape[0]):
                    start, mine = plan.weight_start[v], 0.0
                    for poisoned in range(min(worst, table.discards[m]) + 1):
                        for s in range(start, start + plan.block_sites[v]):
                            mine += at_least[poisoned, s] * table.clears[m, s]
                    cured += mine
                    gained += mine * worth[v]
            outlook.cures[b, m] = cured
            outlook.gains[b, m] = gained


@njit(cache=True, error_model="numpy")
def look_at_truth(
    table: MoveTable, places: Places, site_start: np.ndarray, variant: np.ndarray, site: np.ndarray,
    poisoned: np.ndarray, rows: np.ndarray, worth: np.ndarray, outlook: Outlook,
) -> None:  # fmt: skip
    """Fill the outlook of some instances as one does who knows the state.  [B] variant, -1 none; site; poisoned"""
    for i in range(rows.shape[0]):
        b = rows[i]
        v = variant[b]
        outlook.variants[b, :] = 0.0
        outlook.variants[b, v + 1] = 1.0
        outlook.nodes[b, :, :] = 0.0
        outlook.copies[b, : poisoned[b]] = 1.0
        outlook.copies[b, poisoned[b] :] = 0.0
        outlook.cures[b, :] = 0.0
        outlook.gains[b, :] = 0.0
        if v < 0 or places.mode[v] < 0:
            continue
        at = site_start[v] + site[b]
        if places.node[at] >= 0:
            outlook.nodes[b, places.node[at], places.mode[v]] = 1.0
        for m in range(outlook.cures.shape[1]):
            if table.action[m] >= 0 and poisoned[b] <= table.discards[m]:
                outlook.cures[b, m] = table.clears[m, at]
                outlook.gains[b, m] = table.clears[m, at] * worth[v]
