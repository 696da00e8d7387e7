"""Here lives the site universe of a set of logs: the entities that they name, plus one elsewhere of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.telemetry.readings import EntityRef, Place

HOSTED = ("gpu", "rank", "link")
_UNHOSTED = "?"  # hosts that no line names are one host
MOST_UNITS, MOST_HOSTS = 64, 4096


@dataclass
class Universe:
    """A layout whose units carry the names found in logs; the last node and the last unit of a node are elsewhere.

    GPUs and ranks share the units of a node.  `present[kind]` says which entities exist at all.
    """

    layout: Layout
    hosts: list[str]
    index: dict[EntityRef, int]
    names: dict[tuple[str, int], EntityRef]
    present: dict[str, np.ndarray] = field(repr=False)

    def entity(self, ref: EntityRef) -> int:
        """Number of an entity; -1 if the logs do not tell which."""
        return self.index.get(ref, 0 if ref.kind == "job" else -1)

    def label(self, kind: str, number: int) -> str:
        """What to call a site."""
        if (kind, number) in self.names:
            return str(self.names[kind, number])
        twin = {"gpu": "rank", "rank": "gpu"}.get(kind, "")
        if (twin, number) in self.names:
            return f"{kind} of {self.names[twin, number]}"
        if kind in ("gpu", "rank", "link", "node"):
            per_node = {
                "gpu": self.layout.gpus,
                "rank": self.layout.gpus,
                "link": self.layout.rails,
                "node": 1,
            }[kind]
            host = number // per_node
            if host < len(self.hosts) and self.hosts[host] != _UNHOSTED:
                return f"another {kind} on {self.hosts[host]}" if kind != "node" else f"node {self.hosts[host]}"
            return f"{kind} not named in these logs"
        return kind

    def site_weights(self, kinds: Iterable[str]) -> np.ndarray:
        """Uniform over the real sites of each given kind, concatenated."""
        parts = [self.present[kind] / self.present[kind].sum() for kind in kinds]
        return np.concatenate(parts)


def _host_of(ref: EntityRef) -> str:
    return ref.host or _UNHOSTED


def build_universe(refs: Iterable[EntityRef], places: Iterable[Place] = ()) -> Universe:
    """Lay out the entities that the logs name.

    A rank and a GPU are the same unit where a line says so (`places`) or both have the same local number.
    """
    refs = sorted({ref for ref in refs if ref.kind in (*HOSTED, "node")}, key=_order)
    hosts = list(dict.fromkeys(_host_of(ref) for ref in refs))[:MOST_HOSTS] or [_UNHOSTED]
    units: dict[str, dict[str, int]] = {host: {} for host in hosts}
    rails: dict[str, dict[str, int]] = {host: {} for host in hosts}
    same = _same_places(places)
    index: dict[EntityRef, int] = {}
    placed: list[tuple[EntityRef, str, int]] = []
    for ref in refs:
        host = _host_of(ref)
        if host not in units or ref.kind == "node" or (ref.name is None and ref.index is None):
            continue
        table = rails[host] if ref.kind == "link" else units[host]
        key = same.get((ref.kind, ref.place), _unit_key(ref))
        if key not in table and len(table) < MOST_UNITS - 1:
            table[key] = len(table)
        if key in table:
            placed.append((ref, host, table[key]))
    gpus = max(len(table) for table in units.values()) + 1
    links = max(len(table) for table in rails.values()) + 1
    layout = Layout(len(hosts) + 1, gpus, rails=links, leaves=1)
    names: dict[tuple[str, int], EntityRef] = {}
    for ref, host, unit in placed:
        number = hosts.index(host) * (links if ref.kind == "link" else gpus) + unit
        index[ref] = number
        names.setdefault((ref.kind, number), ref)
    for number, host in enumerate(hosts):
        if host != _UNHOSTED:
            index[EntityRef("node", host)] = number
            names["node", number] = EntityRef("node", host)
    return Universe(layout, hosts, index, names, _present(layout, hosts, units, rails))


def _order(ref: EntityRef) -> tuple[str, str, str, int]:
    # Names must not decide anything: the order only has to be the same whatever the order of the lines.
    return (ref.kind, ref.host or "", ref.name or "", ref.index if ref.index is not None else -1)


def _unit_key(ref: EntityRef) -> str:
    if ref.kind == "gpu" and ref.index is not None and ref.name is None:
        return f"local {ref.index}"
    return ref.place.replace("local rank", "local") if ref.kind == "rank" else ref.place


def _same_places(places: Iterable[Place]) -> dict[tuple[str, str], str]:
    same = {}
    for place in places:
        if place.rank is not None and place.pci is not None:
            same["rank", str(place.rank)] = place.pci
    return same


def _present(
    layout: Layout, hosts: list[str], units: dict[str, dict[str, int]], rails: dict[str, dict[str, int]]
) -> dict[str, np.ndarray]:
    """Named units, one more on each host, and one on the node elsewhere."""
    present = {kind: np.ones(layout.count(kind), dtype=bool) for kind in ENTITY_KINDS}
    for kind in HOSTED:
        per_node = layout.rails if kind == "link" else layout.gpus
        tables = rails if kind == "link" else units
        real = np.zeros((layout.nodes, per_node), dtype=bool)
        for number, host in enumerate(hosts):
            real[number, : len(tables[host]) + 1] = True
        real[-1, 0] = True
        present[kind] = real.ravel()
    return present
