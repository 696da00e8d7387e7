"""Here lives the lay-out of likelihoods for the kernels: which slots, terms and patterns each view needs."""

from __future__ import annotations

import numpy as np

from clusterorch.models.compile import Network, Pattern, family_kinds
from clusterorch.models.layout import Layout
from clusterorch.models.rows import CHORUS, FIRST

ADDITIVE, CHORAL, SPEAKING = range(3)
GROUPS = ("node", "leaf", "rail")


class Pool:
    """Index maps, each stored once."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.size = 0
        self.known: dict[tuple[str, ...], int] = {}

    def put(self, key: tuple[str, ...], values: np.ndarray) -> int:
        """Start of a map."""
        if key not in self.known:
            self.known[key] = self.size
            self.parts.append(values.astype(np.int64))
            self.size += len(values)
        return self.known[key]


def has_level(kind: str, level: str) -> bool:
    """Whether entities of a kind have groups of a level above themselves."""
    if level == "rail":
        return kind == "link"
    return kind in ("gpu", "rank", "link") or (level == "leaf" and kind == "node")


class Slots:
    """Collects the (signal, row, column) whose ratio to the background a phase needs."""

    def __init__(self, network: Network, log_rows: np.ndarray) -> None:
        self.network, self.log_rows, self.known = network, log_rows, {}
        self.table: list[np.ndarray] = []
        self.range: list[int] = []
        self.rows: list[tuple[int, int, int]] = []
        self.unit: list[int] = []
        self.group: list[list[int]] = []
        self.unit_size = self.group_size = 0

    def open_phase(self) -> None:
        """Begin the next view."""
        self.range.append(len(self.rows))
        self.known = {}
        self._unit_now = self._group_now = 0

    def of(self, signal: int, row: int, column: int, background: int) -> int:
        """The slot; its scratch is reused from phase to phase."""
        key = (signal, row, column)
        if key not in self.known:
            layout, declared = self.network.layout, self.network.spec.signal[signal]
            self.known[key] = len(self.rows)
            self.rows.append(key)
            self.unit.append(self._unit_now)
            self._unit_now += layout.count(declared.entity)
            self.group.append([-1, -1, -1])
            self.table.append(self.log_rows[row] - self.log_rows[background])
            self.unit_size = max(self.unit_size, self._unit_now)
        return self.known[key]

    def need(self, slot: int, level: int) -> None:
        """Have the sums of a slot over the groups of a level (0 node, 1 leaf, 2 rail) made."""
        if slot >= 0 and self.group[slot][level] < 0:
            declared = self.network.spec.signal[self.rows[slot][0]]
            self.group[slot][level] = self._group_now
            self._group_now += self.network.layout.group_count(declared.entity, GROUPS[level])
            self.group_size = max(self.group_size, self._group_now)

    def arrays(self) -> dict[str, object]:
        """The fields of a plan."""
        rows = np.array(self.rows, dtype=np.int64).reshape(-1, 3)
        return {
            "slot_range": np.array([*self.range, len(self.rows)]), "slot_signal": rows[:, 0].copy(),
            "slot_row": rows[:, 1].copy(), "slot_column": rows[:, 2].copy(),
            "slot_table": np.array(self.table),
            "slot_unit": np.array(self.unit, dtype=np.int64),
            "slot_group": np.array(self.group, dtype=np.int64).reshape(-1, 3),
            "slot_size": int(np.diff([*self.range, len(self.rows)]).max()),
            "unit_size": self.unit_size, "group_size": self.group_size,
        }  # fmt: skip


class Terms:
    """Collects terms and patterns phase by phase."""

    def __init__(self, network: Network, slots: Slots, pool: Pool) -> None:
        self.network, self.slots, self.pool = network, slots, pool
        self.family = family_kinds(network.spec).tolist()
        self.levels: dict[tuple[str, str], tuple[tuple[int, int], tuple[int, int]]] = {}
        self.term_range: list[int] = []
        self.terms: list[tuple[int, ...]] = []
        self.pattern_range: list[int] = []
        self.pattern_terms: list[int] = [0]
        self.pattern_term: list[int] = []
        self.pattern_sites: list[int] = []
        self.pattern_out: list[int] = []
        self.numbers: list[dict[int, int]] = []  # by view: where each of the network's patterns stands
        self.term_size = self.pattern_size = 0

    def open_phase(self) -> None:
        """Begin the next view."""
        self.term_range.append(len(self.terms))
        self.pattern_range.append(len(self.pattern_sites))
        self.numbers.append({})
        self.known: dict[tuple[object, ...], int] = {}
        self._term_now = self._pattern_now = 0

    def add_pattern(self, number: int, pattern: Pattern, background: np.ndarray) -> None:
        """Add one of the network's patterns to the view, with the terms that it needs."""
        kind, terms = pattern
        self.numbers[-1][number] = len(self.pattern_sites)
        sites = self.network.layout.count(kind)
        for term in terms:
            self.pattern_term.append(self._term(kind, term, background, sites))
        self.pattern_terms.append(len(self.pattern_term))
        self.pattern_sites.append(sites)
        self.pattern_out.append(self._pattern_now)
        self._pattern_now += sites
        self.pattern_size = max(self.pattern_size, self._pattern_now)

    def _term(self, kind: str, term: tuple[int, ...], background: np.ndarray, sites: int) -> int:
        if (kind, term) in self.known:
            return self.known[kind, term]
        network = self.network
        signal, *rows = term
        family, declared = self.family[signal], network.spec.signal[signal]
        form, row, slots = ADDITIVE, -1, [-1, -1, -1]
        if family == FIRST:
            form, row = SPEAKING, rows[0]
        elif family == CHORUS:
            form, row = CHORAL, rows[0]
            slots = [self.slots.of(signal, rows[0], column, background[signal]) for column in (3, 2, 1)]
        else:
            base = background[signal]
            slots = [-1 if r == base else self.slots.of(signal, r, -1, base) for r in rows]
        if (kind, declared.entity) not in self.levels:
            self.levels[kind, declared.entity] = self._levels(network.layout, kind, declared.entity)
        near, site = self.levels[kind, declared.entity]
        self._need(slots, near[0], site[0])
        counts = self._counts(network.layout, kind, declared.entity) if family == FIRST else (0, 0)
        self.known[kind, term] = len(self.terms)
        inner = slots[1] if near[0] >= 0 else slots[0]
        flat = form == ADDITIVE and not (near[0] >= 0 and slots[1] != slots[0])
        flat = flat and not (site[0] >= 0 and slots[2] != inner)
        self.terms.append((signal, form, *slots, row, *near, *site, sites, self._term_now, *counts, int(flat)))
        self._term_now += sites
        self.term_size = max(self.term_size, self._term_now)
        return self.known[kind, term]

    def _levels(self, layout: Layout, kind: str, entity: str) -> tuple[tuple[int, int], tuple[int, int]]:
        site_level, near_level = layout.relation_levels(kind, entity)
        found = []
        for level in (near_level, site_level):
            if level is None:
                found.append((-1, -1))
            else:
                to = layout.site_group(kind, entity, level)
                own = np.array_equal(to, np.arange(len(to)))
                start = self.pool.put(("identity",) if own else ("to", kind, entity, level), to)
                found.append((("unit", *GROUPS).index(level), start))
        return found[0], found[1]

    def _need(self, slots: list[int], near_level: int, site_level: int) -> None:
        """Order the group sums that this term will read."""
        rest, near, site = slots
        if near_level > 0 and near != rest:
            self.slots.need(near, near_level - 1)
            self.slots.need(rest, near_level - 1)
        inner = near if near_level >= 0 else rest
        if site_level > 0 and site != inner:
            self.slots.need(site, site_level - 1)
            self.slots.need(inner, site_level - 1)

    def _counts(self, layout: Layout, kind: str, entity: str) -> tuple[int, int]:
        """How many members stand near and at each site (near without those at it)."""
        site_level, near_level = layout.relation_levels(kind, entity)
        inside = []
        for level in (site_level, near_level):
            if level is None:
                inside.append(np.zeros(layout.count(kind), dtype=np.int64))
            else:
                sizes = np.bincount(layout.groups(entity, level), minlength=layout.group_count(entity, level))
                inside.append(sizes[layout.site_group(kind, entity, level)])
        at, near = inside[0], inside[1] - inside[0] if near_level is not None else inside[1]
        return self.pool.put(("near", kind, entity), near), self.pool.put(("at", kind, entity), at)

    def arrays(self) -> dict[str, object]:
        """The fields of a plan."""
        terms = np.array(self.terms, dtype=np.int64).reshape(-1, 15)
        return {
            "term_range": np.array([*self.term_range, len(self.terms)]), "term_signal": terms[:, 0].copy(),
            "term_form": terms[:, 1].copy(), "term_slots": terms[:, 2:5].copy(), "term_row": terms[:, 5].copy(),
            "term_near": terms[:, 6:8].copy(), "term_site": terms[:, 8:10].copy(),
            "term_sites": terms[:, 10].copy(), "term_out": terms[:, 11].copy(), "term_counts": terms[:, 12:14].copy(),
            "term_flat": terms[:, 14].copy(), "term_size": self.term_size,
            "pattern_range": np.array([*self.pattern_range, len(self.pattern_sites)]),
            "pattern_terms": np.array(self.pattern_terms), "pattern_term": np.array(self.pattern_term, dtype=np.int64),
            "pattern_sites": np.array(self.pattern_sites), "pattern_out": np.array(self.pattern_out),
            "pattern_size": self.pattern_size,
        }  # fmt: skip
