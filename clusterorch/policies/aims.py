"""Here lives what a move is aimed at: the failure of which it would end most, and where that is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.environment.moves import MoveTable
from clusterorch.inference.beliefs import Belief
from clusterorch.models.compile import Block

_MOST = 0.5  # share of the belief in a failure that must lie at a place for it to be the place


class Aim(NamedTuple):
    """The failure of which a move ends most.

    mode: its name.  probability: that it is there, at a place where the move ends it at all.
    ends: probability that the move then ends it.  kind, site: where it is; -1 if it lies at no place in particular.
    """

    mode: str
    probability: float
    ends: float
    kind: str
    site: int


def aim_of(belief: Belief, table: MoveTable, move: int) -> Aim | None:
    """What a move is aimed at; None if it ends nothing that is believed.  As `look`, a poisoned copy ends nothing."""
    if table.action[move] < 0:
        return None
    found: dict[str, list[tuple[Block, np.ndarray, np.ndarray]]] = {}  # by mode: reached and ended by site
    start = 0
    for block in belief.network.blocks:
        clears = table.clears[move, start : start + block.sites]
        start += block.sites
        if block.variant.benign or not clears.any():
            continue
        mass = belief.block(block).sum(axis=0)
        clean = np.array([c.poisoned for c in block.chain.configurations]) <= table.discards[move]
        ended = mass[clean].sum(axis=0) * clears
        found.setdefault(block.variant.mode, []).append((block, np.where(clears > 0.0, mass.sum(axis=0), 0.0), ended))
    if not found:
        return None
    sums = {mode: sum(float(ended.sum()) for _, _, ended in parts) for mode, parts in found.items()}
    mode = max(sums, key=lambda name: sums[name])
    if sums[mode] <= 0.0:
        return None
    reached = sum(float(there.sum()) for _, there, _ in found[mode])
    return Aim(mode, reached, sums[mode] / reached, *_place(belief, [(b, there) for b, there, _ in found[mode]]))


def place_of_mode(belief: Belief, mode: str) -> tuple[str, int]:
    """Kind and number of the place where a failure mostly lies: a node, or what lies on none; -1 without one."""
    blocks = [b for b in belief.network.blocks if b.variant.mode == mode]
    return _place(belief, [(b, belief.block(b).sum(axis=(0, 1))) for b in blocks])


def _place(belief: Belief, parts: list[tuple[Block, np.ndarray]]) -> tuple[str, int]:
    places: dict[tuple[str, int], float] = {}
    for block, mass in parts:
        kind = block.variant.spec.site
        node = belief.network.layout.node_of(kind)
        for site, p in enumerate(mass):
            place = ("node", int(node[site])) if node[site] >= 0 else (kind, site)
            places[place] = places.get(place, 0.0) + float(p)
    best = max(places, key=lambda place: places[place])
    return best if places[best] > _MOST * sum(places.values()) else ("", -1)
