"""Here lives where to look: the hosts of a diagnosis by the probability that the fault lives on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.diagnosis.universe import Universe
from clusterorch.inference.beliefs import Belief
from clusterorch.models.ground import HEALTHY

LEAST, MOST = 0.05, 4  # share of the failures that makes a host suspect; suspects told
_NAMED = {"gpu": "pci", "link": "device", "rank": "rank"}


class Suspect(NamedTuple):
    """A host, as far as the logs name it.

    host: its name, None if no line names one.  probability: that the fault lives on it.
    names: of its likeliest GPU (`pci`), network device (`device`) and rank (`rank`), as far as lines name them.
    """

    host: str | None
    node: int
    probability: float
    suspected: bool
    names: dict[str, str]


def suspects_of(belief: Belief, universe: Universe) -> list[Suspect]:
    """The hosts that the logs name, likeliest first; hosts that no line tells apart count as one."""
    mass = np.zeros(universe.layout.nodes)
    best: dict[tuple[int, str], tuple[float, str]] = {}
    for (kind, number), p in belief.sites().items():
        node = int(universe.layout.node_of(kind)[number])
        if node < 0:
            continue
        mass[node] += p
        ref = universe.names.get((kind, number))
        name = None if ref is None else ref.name if kind != "rank" else None if ref.name else str(ref.index)
        if kind in _NAMED and name is not None and p > best.get((node, _NAMED[kind]), (0.0, ""))[0]:
            best[node, _NAMED[kind]] = (p, name)
    failing = max(1.0 - belief.modes[HEALTHY], 1e-300)
    order = sorted(range(len(universe.hosts)), key=lambda node: -mass[node])
    found = []
    for place, node in enumerate(order):
        host = universe.hosts[node] if ("node", node) in universe.names else None
        names = {what: name for (on, what), (_, name) in best.items() if on == node}
        suspected = place < MOST and mass[node] >= LEAST * failing
        found.append(Suspect(host, node, float(mass[node]), bool(suspected), names))
    return found
