"""Here lives the truth of an instance as plain values, for those who may know it."""

from __future__ import annotations

from typing import Any

from clusterorch.environment.books import HEADS
from clusterorch.environment.episodes import Episodes


def privileged_info(episodes: Episodes, b: int) -> dict[str, Any]:
    """The fault in the slot, and how the newest slice was spent.  With an empty slot `fault` holds None and -1."""
    state, books, network = episodes.world.state, episodes.world.books, episodes.world.network
    fault: dict[str, Any] = dict.fromkeys(("mode", "variant", "site_kind", "severity")) | {"site": -1, "node": -1}
    if state.variant[b] >= 0:
        variant = network.blocks[state.variant[b]].variant
        fault |= {
            "mode": variant.mode, "variant": variant.name, "site_kind": variant.spec.site, "site": int(state.site[b]),
            "node": int(network.layout.node_of(variant.spec.site)[state.site[b]]),
            "severity": network.spec.model.severities[state.severity[b]] if variant.spec.severity else None,
        }  # fmt: skip
    heads = {name: float(books.heads[b, i]) for i, name in enumerate(HEADS)}
    return {"fault": fault, "poisoned_copies": int(state.poisoned[b]), "heads": heads, "kept": float(books.good[b])}
