"""Here lives the kernels' view of a network: every table as a flat array, every loop as index ranges.

Likelihoods are built in four steps, each once per slice: *slots* (log-likelihood ratio of one row
against the background, for every entity), their *group sums*, *terms* (one signal's share in a
hypothesis, for every site: rest + difference near + difference at the site), *patterns* (sums of
terms).  A hypothesis thus costs its difference from the background, not a pass over the cluster.
A *view* is a phase together with the published job class, or without one: where the class is known,
only hypotheses of that class are weighed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.models.compile import Block, Network, Pattern, family_kinds
from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.models.rows import CHORUS, FIRST
from clusterorch.models.spec import JOB_CLASSES, PHASES

ADDITIVE, CHORAL, SPEAKING = range(3)
MOST_GAP = 64  # slices after which a sample's memory is as good as gone
NO_CLASS = -1
VIEWS = len(PHASES) * (len(JOB_CLASSES) + 1)


def view_of(phase: int, job_class: int) -> int:
    """Number of the view for a phase and a published class; without a class it is the phase's own number."""
    return phase + len(PHASES) * (job_class + 1)


class Plan(NamedTuple):
    """Arrays for the kernels; ranges are [start, end) pairs indexed by view, pattern or table."""

    # signals
    kind: np.ndarray  # [S]
    offset: np.ndarray  # [S + 1] into the flat values
    background: np.ndarray  # [views, S]
    rows: np.ndarray  # [R, width]
    log_rows: np.ndarray  # [R, width + 1] logs of the discrete rows; the last column is "not delivered"
    per_node: np.ndarray  # [S] entities on each node, 0 if they have none
    outlier: np.ndarray  # [S, 3] probability, mean, sd
    members: np.ndarray  # [S] entities of the signal's kind
    decay: np.ndarray  # [S, MOST_GAP] memory ** gap
    spread: np.ndarray  # [S, MOST_GAP] sqrt(1 - decay**2)
    # slots: (signal, row, column) evaluated against the background
    slot_range: np.ndarray  # [views + 1]
    slot_signal: np.ndarray
    slot_row: np.ndarray
    slot_column: np.ndarray  # chorus: which `speak`; else -1
    slot_table: np.ndarray  # [slots, width + 1] log ratio of each class to the background
    slot_unit: np.ndarray  # where its entities lie in the scratch of units
    slot_group: np.ndarray  # [slots, 3] where its node, leaf and rail sums lie in the scratch of groups, -1
    unit_size: int
    slot_size: int  # slots of the phase that has most
    group_size: int
    group_map: np.ndarray  # [signals, 3] start in `maps` of entity -> node, leaf, rail; -1
    group_count: np.ndarray  # [signals, 3]
    # terms
    term_range: np.ndarray  # [views + 1]
    term_signal: np.ndarray
    term_form: np.ndarray  # ADDITIVE, CHORAL, SPEAKING
    term_slots: np.ndarray  # [terms, 3] slot at rest, near, site; -1 is the background itself
    term_row: np.ndarray  # row of a choral or speaking term
    term_near: np.ndarray  # [terms, 2] level (-1 none) and start in `maps` of site -> near group
    term_site: np.ndarray  # [terms, 2] level (0 unit, 1.. groups) and start in `maps` of site -> site group
    term_sites: np.ndarray  # number of sites
    term_out: np.ndarray  # where its vector over sites lies
    term_counts: np.ndarray  # [terms, 2] speaking: start in `maps` of members near and at each site
    term_flat: np.ndarray  # 1 where the term is the same for all sites
    term_size: int
    maps: np.ndarray
    identity: int  # start of the map in which every site points to its own number
    # patterns
    pattern_range: np.ndarray  # [views + 1]
    pattern_terms: np.ndarray  # [patterns + 1] into pattern_term
    pattern_term: np.ndarray
    pattern_sites: np.ndarray
    pattern_out: np.ndarray
    pattern_size: int
    # blocks
    block_offset: np.ndarray
    block_levels: np.ndarray
    block_configurations: np.ndarray
    block_sites: np.ndarray
    weight_start: np.ndarray  # [V + 1] into vectors with one entry for each (variant, site)
    severity: np.ndarray  # [V, 3]
    recovers: np.ndarray  # [V]
    may_end: np.ndarray  # [flat configurations] 1 if the fault may end from here
    configuration_start: np.ndarray  # [V + 1]
    classes: np.ndarray  # [flat configurations, phases]
    poisoned: np.ndarray  # [flat configurations]
    table_of: np.ndarray  # [V, phases, due + 1, 2]
    onset_of: np.ndarray  # [V, phases, due + 1, 2]
    starts: np.ndarray  # [V] distinct contexts: onset table m * starts + context starts from m poisoned copies
    table_range: np.ndarray
    table_from: np.ndarray
    table_to: np.ndarray
    table_p: np.ndarray
    onset_range: np.ndarray
    onset_to: np.ndarray
    onset_p: np.ndarray
    component_range: np.ndarray  # [flat (view, level, configuration) + 1]
    component_pattern: np.ndarray
    component_weight: np.ndarray
    component_base: np.ndarray  # [views, V] first flat index


class _Pool:
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


_GROUPS = ("node", "leaf", "rail")


def make_plan(network: Network) -> Plan:
    """Lay a network out for the kernels."""
    pool = _Pool()
    pool.put(("identity",), np.arange(max(network.layout.count(kind) for kind in ENTITY_KINDS)))
    signals = _signals(network, pool)
    slots = _Slots(network, signals["log_rows"])
    terms = _Terms(network, slots, pool)
    for view in range(VIEWS):
        slots.open_phase()
        terms.open_phase()
        for number in _patterns_in(network, view):
            terms.add_pattern(
                number, network.patterns[view % len(PHASES)][number], network.background[view % len(PHASES)]
            )
    blocks = _blocks(network, terms.numbers)
    return Plan(
        **signals, **slots.arrays(), **terms.arrays(), **blocks,
        maps=np.concatenate([*pool.parts, np.zeros(1, dtype=np.int64)]), identity=0,
    )  # fmt: skip


def _patterns_in(network: Network, view: int) -> list[int]:
    """Patterns of a phase that hypotheses of the view's class have."""
    job_class, phase = divmod(view, len(PHASES))
    if job_class == 0:
        return list(range(len(network.patterns[phase])))
    found: set[int] = set()
    for block, chosen, shares in zip(network.blocks, network.emissions, network.weights, strict=True):
        mine = block.classes[:, phase] == job_class - 1
        found.update(chosen[phase][:, mine][:, shares[mine] > 0.0].ravel().tolist())
    return sorted(found)


def _signals(network: Network, pool: _Pool) -> dict[str, np.ndarray]:
    spec, layout = network.spec, network.layout
    gaps = np.arange(MOST_GAP)
    decay = np.array([signal.memory ** np.maximum(gaps, 1) for signal in spec.signal])
    decay[:, 0] = 0.0  # gap 0 stands for "no earlier sample"
    outlier = np.array([(o.probability, o.mean, o.sd) if (o := s.outlier) else (0.0, 0.0, 1.0) for s in spec.signal])
    group_map = np.full((len(spec.signal), 3), -1)
    group_count = np.zeros((len(spec.signal), 3), dtype=np.int64)
    for s, signal in enumerate(spec.signal):
        for g, level in enumerate(_GROUPS):
            if _has_level(signal.entity, level):
                group_map[s, g] = pool.put(("of", signal.entity, level), layout.groups(signal.entity, level))
                group_count[s, g] = layout.group_count(signal.entity, level)
    # Only the rows of classes are probabilities; the others (means, weights) are never looked up here.
    log_rows = np.log(np.where(network.rows > 0.0, network.rows, 1.0))
    log_rows = np.hstack([log_rows, np.zeros((len(log_rows), 1))])
    hosted = {"gpu": layout.gpus, "rank": layout.gpus, "link": layout.rails}
    return {
        "kind": family_kinds(spec), "offset": network.signal_offset, "background": np.tile(network.background, (len(JOB_CLASSES) + 1, 1)),
        "rows": network.rows, "log_rows": log_rows,
        "per_node": np.array([hosted.get(signal.entity, 0) for signal in spec.signal]),
        "outlier": outlier, "decay": decay,
        "members": np.array([layout.count(signal.entity) for signal in spec.signal]),
        "spread": np.sqrt(1.0 - decay**2), "group_map": group_map, "group_count": group_count,
    }  # fmt: skip


def _has_level(kind: str, level: str) -> bool:
    if level == "rail":
        return kind == "link"
    return kind in ("gpu", "rank", "link") or (level == "leaf" and kind == "node")


class _Slots:
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
            self._group_now += self.network.layout.group_count(declared.entity, _GROUPS[level])
            self.group_size = max(self.group_size, self._group_now)

    def arrays(self) -> dict[str, object]:
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


class _Terms:
    """Collects terms and patterns phase by phase."""

    def __init__(self, network: Network, slots: _Slots, pool: _Pool) -> None:
        self.network, self.slots, self.pool = network, slots, pool
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
        self.term_range.append(len(self.terms))
        self.pattern_range.append(len(self.pattern_sites))
        self.numbers.append({})
        self.known: dict[tuple[object, ...], int] = {}
        self._term_now = self._pattern_now = 0

    def add_pattern(self, number: int, pattern: Pattern, background: np.ndarray) -> None:
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
        family, declared = int(family_kinds(network.spec)[signal]), network.spec.signal[signal]
        form, row, slots = ADDITIVE, -1, [-1, -1, -1]
        if family == FIRST:
            form, row = SPEAKING, rows[0]
        elif family == CHORUS:
            form, row = CHORAL, rows[0]
            slots = [self.slots.of(signal, rows[0], column, background[signal]) for column in (3, 2, 1)]
        else:
            base = background[signal]
            slots = [-1 if r == base else self.slots.of(signal, r, -1, base) for r in rows]
        near, site = self._levels(network.layout, kind, declared.entity)
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
                found.append((("unit", *_GROUPS).index(level), start))
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


def _blocks(network: Network, numbers: list[dict[int, int]]) -> dict[str, object]:
    blocks, phases = network.blocks, len(PHASES)
    dues = 1 if network.hidden_age else len(network.limits) + 1
    table_of = np.zeros((len(blocks), phases, dues, 2), dtype=np.int64)
    onset_of = np.zeros_like(table_of)
    tables, onsets, starts = [], [], []
    for v, block in enumerate(blocks):
        chain = block.chain
        for (phase, due, ends), number in chain.table_of.items():
            table_of[v, phase, due, int(ends)] = len(tables) + number
            onset_of[v, phase, due, int(ends)] = len(onsets) + number
        tables.extend(chain.tables)
        onsets.extend(chain.onsets)
        starts.append(len(chain.onsets) // (block.chain.law.copies + 1))
    component_range, patterns, weights = [0], [], []
    base = np.zeros((VIEWS, len(blocks)), dtype=np.int64)
    for view in range(VIEWS):
        job_class, phase = divmod(view, phases)
        for v, (chosen, shares) in enumerate(zip(network.emissions, network.weights, strict=True)):
            base[view, v] = len(component_range) - 1
            for level in range(chosen.shape[1]):
                for c in range(chosen.shape[2]):
                    if job_class == 0 or blocks[v].classes[c, phase] == job_class - 1:
                        used = np.flatnonzero(shares[c] > 0.0)
                        patterns.extend(numbers[view][int(chosen[phase, level, c, k])] for k in used)
                        weights.extend(float(shares[c, k]) for k in used)
                    component_range.append(len(patterns))
    severity = np.zeros((len(blocks), 3))
    for v, block in enumerate(blocks):
        severity[v, : block.levels] = block.variant.severities
    return {
        "block_offset": np.array([b.offset for b in blocks]), "block_levels": np.array([b.levels for b in blocks]),
        "block_configurations": np.array([len(b.chain.configurations) for b in blocks]),
        "block_sites": np.array([b.sites for b in blocks]), "severity": severity,
        "weight_start": np.cumsum([0, *(b.sites for b in blocks)]),
        "recovers": np.array([b.variant.recovers for b in blocks]),
        "may_end": np.concatenate([_may_end(b) for b in blocks]),
        "configuration_start": np.cumsum([0, *(len(b.chain.configurations) for b in blocks)]),
        "classes": np.concatenate([b.classes for b in blocks]),
        "poisoned": np.array([c.poisoned for b in blocks for c in b.chain.configurations]),
        "table_of": table_of, "onset_of": onset_of, "starts": np.array(starts),
        **_csr("table", tables, 3), **_csr("onset", onsets, 2),
        "component_range": np.array(component_range), "component_pattern": np.array(patterns),
        "component_weight": np.array(weights), "component_base": base,
    }  # fmt: skip


def _may_end(block: Block) -> np.ndarray:
    law = block.chain.law
    holding = law.mask("stall", "crash", "block_save", "block_start")
    return np.array([not c.bits & holding for c in block.chain.configurations], dtype=np.int64)


def _csr(name: str, tables: list[tuple[tuple[float, ...], ...]], columns: int) -> dict[str, np.ndarray]:
    flat = np.array([row for table in tables for row in table]).reshape(-1, columns)
    found = {
        f"{name}_range": np.cumsum([0, *(len(table) for table in tables)]),
        f"{name}_p": flat[:, -1].copy(),
    }
    found[f"{name}_to"] = flat[:, -2].astype(np.int64)
    if columns == 3:
        found[f"{name}_from"] = flat[:, 0].astype(np.int64)
    return found
