"""Here lives the site universe of a set of logs: the entities that they name, plus one elsewhere of each kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.telemetry.readings import LOCAL, EntityRef, Place, Reading

HOSTED = ("gpu", "rank", "link")
ALONE = ("job", "storage", "checkpoint", "communicator")  # the logs' universe has one of each
_UNHOSTED = "?"  # hosts that no line names are one host
MOST_UNITS = 64  # on one host, the unnamed one included
MOST_SITES = 256  # units, and links, of all hosts together


@dataclass(frozen=True)
class Aliases:
    """What the logs tell about who is who: ranks by host and place, and the host of what names none.

    Args:
        ranks: host and local number of a rank, where one line tells both.
        local: the reverse.
        sole: the only host there is; what names no host is on it.
    """

    ranks: dict[int, tuple[str, int]]
    local: dict[tuple[str, int], int]
    sole: str | None

    def of(self, ref: EntityRef) -> EntityRef:
        """The entity by its one name."""
        if ref.kind == "rank" and ref.name is None and ref.index in self.ranks:
            return ref._replace(host=self.ranks[ref.index][0])
        if ref.kind in HOSTED and ref.host is None and self.sole is not None:
            ref = ref._replace(host=self.sole)
        if ref.kind == "rank" and ref.name == LOCAL and (ref.host or "", ref.index or 0) in self.local:
            return EntityRef("rank", ref.host, None, self.local[ref.host or "", ref.index or 0])
        return ref

    def label(self, ref: EntityRef) -> str:
        """What to call it: ranks by both of their numbers."""
        known = self.ranks.get(ref.index) if ref.kind == "rank" and ref.name is None and ref.index is not None else None
        return f"rank {ref.index} (local rank {known[1]}) on {known[0]}" if known else str(ref)


def _aliases(places: Iterable[Place], hosts: Iterable[str]) -> Aliases:
    found: dict[int, set[tuple[str, int]]] = defaultdict(set)
    reverse: dict[tuple[str, int], set[int]] = defaultdict(set)
    for place in places:
        if place.host and place.rank is not None and place.local is not None:
            found[place.rank].add((place.host, place.local))
            reverse[place.host, place.local].add(place.rank)
    # Two jobs, or two communicators, may number their ranks differently: what is not told once is not told.
    sure = {rank: next(iter(at)) for rank, at in found.items() if len(at) == 1 and len(reverse[next(iter(at))]) == 1}
    named = set(hosts)
    return Aliases(sure, {at: rank for rank, at in sure.items()}, named.pop() if len(named) == 1 else None)


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
    left_out: int = 0  # entities that are named but not told apart, for want of room
    aliases: Aliases = field(default_factory=lambda: Aliases({}, {}, None), repr=False)

    def entity(self, ref: EntityRef) -> int:
        """Number of an entity; -1 if the logs do not tell which."""
        return self.index.get(self.aliases.of(ref), 0 if ref.kind in ALONE else -1)

    def some(self, ref: EntityRef) -> int:
        """Number of an entity; of one that has no name, that of the unnamed one of its host."""
        number, ref = self.entity(ref), self.aliases.of(ref)
        if number >= 0 or ref.kind not in HOSTED or ref.name is not None or ref.index is not None:
            return number
        host = self.hosts.index(_host_of(ref)) if _host_of(ref) in self.hosts else self.layout.nodes - 1
        per_node = self.layout.rails if ref.kind == "link" else self.layout.gpus
        real = np.flatnonzero(self.present[ref.kind][host * per_node : (host + 1) * per_node])
        return host * per_node + int(real[-1])

    def entities(self, ref: EntityRef) -> tuple[int, ...]:
        """Numbers of the entities that a name may stand for: one, all of a host's, or none if nothing is told."""
        number, ref = self.entity(ref), self.aliases.of(ref)
        if number >= 0:
            return (number,)
        if ref.kind not in HOSTED or ref.host not in self.hosts or ref.name is not None or ref.index is not None:
            return ()
        per_node = self.layout.rails if ref.kind == "link" else self.layout.gpus
        start = self.hosts.index(ref.host) * per_node
        return tuple(start + int(i) for i in np.flatnonzero(self.present[ref.kind][start : start + per_node]))

    def label(self, kind: str, number: int) -> str:
        """What to call a site."""
        if (kind, number) in self.names:
            return self.aliases.label(self.names[kind, number])
        twin = {"gpu": "rank", "rank": "gpu"}.get(kind, "")
        if (twin, number) in self.names:
            return f"{kind} of {self.aliases.label(self.names[twin, number])}"
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


def most_telling_first(readings: Sequence[Reading]) -> list[EntityRef]:
    """Entities that the readings name; those that say what few others say come first."""
    alike: dict[tuple[str, str], set[EntityRef]] = defaultdict(set)
    for reading in readings:
        alike[reading.signal, reading.value if isinstance(reading.value, str) else ""].add(reading.entity)
    fewest: dict[EntityRef, int] = {}
    for refs in alike.values():
        for ref in refs:
            fewest[ref] = min(fewest.get(ref, len(refs)), len(refs))
    return sorted(fewest, key=lambda ref: (fewest[ref], _order(ref)))


@dataclass
class _Room:
    """Takes in names as long as the rectangle of hosts and units has room, one unnamed unit a host included."""

    same: dict[tuple[str, str], str]
    most: int
    tables: dict[str, tuple[dict[str, int], dict[str, int]]] = field(default_factory=dict)
    widest: list[int] = field(default_factory=lambda: [0, 0])

    def key(self, ref: EntityRef) -> str:
        """What units of one host are told apart by."""
        return self.same.get((ref.kind, ref.place), _unit_key(ref))

    def takes(self, ref: EntityRef) -> bool:
        """Whether a name is in, now."""
        host, nameless = _host_of(ref), ref.kind == "node" or (ref.name is None and ref.index is None)
        own, which = self.tables.get(host, ({}, {})), int(ref.kind == "link")
        added = not nameless and self.key(ref) not in own[which]
        widest = list(self.widest)
        widest[which] = max(widest[which], len(own[which]) + added)
        hosts = len(self.tables) + (host not in self.tables) + 1
        if max(widest) >= MOST_UNITS or hosts * (max(widest) + 1) > self.most:
            return False
        self.tables[host], self.widest = own, widest
        if added:
            own[which][self.key(ref)] = 0
        return True


def build_universe(
    refs: Iterable[EntityRef], places: Iterable[Place] = (), *, hosts_named: Iterable[str] = (), most: int = MOST_SITES
) -> Universe:
    """Lay out the entities that the logs name, as many as there is room for, the first ones first.

    A rank and a GPU are the same unit where a line says so (`places`) or both have the same local number.
    Where all lines together name one host only (`hosts_named`, and those of `refs`), all of it is on that host.
    """
    refs, places = list(refs), list(places)
    aliases = _aliases(places, {*hosts_named, *(ref.host for ref in refs if ref.host)})
    room = _Room(_same_places(places), most)
    alone = {ref.kind: ref for ref in reversed(refs) if ref.kind in ALONE and (ref.name or ref.host)}
    wanted = [ref for ref in dict.fromkeys(map(aliases.of, refs)) if ref.kind in (*HOSTED, "node")]
    # Names must not decide anything: what is in is numbered in an order that the order of the lines cannot change.
    taken = sorted((ref for ref in wanted if room.takes(ref)), key=_order)
    hosts = list(dict.fromkeys(_host_of(ref) for ref in taken)) or [_UNHOSTED]
    room.tables.setdefault(_UNHOSTED, ({}, {}))
    gpus, links = (width + 1 for width in room.widest)
    layout = Layout(len(hosts) + 1, gpus, rails=links, leaves=1)
    index: dict[EntityRef, int] = {}
    names: dict[tuple[str, int], EntityRef] = {}
    numbered: dict[tuple[int, int, str], int] = {}
    for ref in taken:
        if ref.kind == "node" or (ref.name is None and ref.index is None):
            continue
        which, host = int(ref.kind == "link"), hosts.index(_host_of(ref))
        mine = [unit for (kind, at, _), unit in numbered.items() if (kind, at) == (which, host)]
        unit = numbered.setdefault((which, host, room.key(ref)), len(mine))
        index[ref] = host * (links if which else gpus) + unit
        names.setdefault((ref.kind, index[ref]), ref)
    for number, host in enumerate(hosts):
        if host != _UNHOSTED:
            index[EntityRef("node", host)] = number
            names["node", number] = EntityRef("node", host)
    names |= {(kind, 0): ref for kind, ref in alone.items()}
    sizes = [[len(room.tables[host][which]) for host in hosts] for which in range(2)]
    return Universe(layout, hosts, index, names, _present(layout, *sizes), len(wanted) - len(taken), aliases)


def _order(ref: EntityRef) -> tuple[str, str, str, int]:
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
        elif place.rank is not None and place.local is not None and place.host:
            same.setdefault(("rank", str(place.rank)), f"local {place.local}")
    return same


def _present(layout: Layout, units: list[int], links: list[int]) -> dict[str, np.ndarray]:
    """Named units, one more on each host, and one on the node elsewhere."""
    present = {kind: np.ones(layout.count(kind), dtype=bool) for kind in ENTITY_KINDS}
    for kind in HOSTED:
        sizes = links if kind == "link" else units
        real = np.zeros((layout.nodes, layout.rails if kind == "link" else layout.gpus), dtype=bool)
        for number, size in enumerate(sizes):
            real[number, : size + 1] = True
        real[-1, 0] = True
        present[kind] = real.ravel()
    return present
