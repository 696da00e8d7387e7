"""Here lives the kernels' view of a network: every table as a flat array, every loop as index ranges.

Likelihoods are built in four steps, each once per slice: *slots* (log-likelihood ratio of one row
against the background, for every entity), their *group sums*, *terms* (one signal's share in a
hypothesis, for every site: rest + difference near + difference at the site), *patterns* (sums of
terms).  A hypothesis thus costs its difference from the background, not a pass over the cluster.
A *view* is a phase together with the published job class, or without one: where the class is known,
only hypotheses of that class are weighed.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np

from clusterorch.inference.slots import GROUPS, Pool, Slots, Terms, has_level
from clusterorch.models.compile import Block, Network, family_kinds
from clusterorch.models.layout import ENTITY_KINDS
from clusterorch.models.spec import JOB_CLASSES, PHASES

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


_plans: dict[int, Plan] = {}


def make_plan(network: Network) -> Plan:
    """Lay a network out for the kernels, once for as long as it lives: nothing writes into a plan."""
    if id(network) not in _plans:
        _plans[id(network)] = _lay_out(network)
        weakref.finalize(network, _plans.pop, id(network), None)
    return _plans[id(network)]


def _lay_out(network: Network) -> Plan:
    pool = Pool()
    pool.put(("identity",), np.arange(max(network.layout.count(kind) for kind in ENTITY_KINDS)))
    signals = _signals(network, pool)
    slots = Slots(network, signals["log_rows"])
    terms = Terms(network, slots, pool)
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


def _signals(network: Network, pool: Pool) -> dict[str, np.ndarray]:
    spec, layout = network.spec, network.layout
    gaps = np.arange(MOST_GAP)
    decay = np.array([signal.memory ** np.maximum(gaps, 1) for signal in spec.signal])
    decay[:, 0] = 0.0  # gap 0 stands for "no earlier sample"
    outlier = np.array([(o.probability, o.mean, o.sd) if (o := s.outlier) else (0.0, 0.0, 1.0) for s in spec.signal])
    group_map = np.full((len(spec.signal), 3), -1)
    group_count = np.zeros((len(spec.signal), 3), dtype=np.int64)
    for s, signal in enumerate(spec.signal):
        for g, level in enumerate(GROUPS):
            if has_level(signal.entity, level):
                group_map[s, g] = pool.put(("of", signal.entity, level), layout.groups(signal.entity, level))
                group_count[s, g] = layout.group_count(signal.entity, level)
    # Only the rows of classes are probabilities; the others (means, weights) are never looked up here.
    log_rows = np.log(np.where(network.rows > 0.0, network.rows, 1.0))
    log_rows = np.hstack([log_rows, np.zeros((len(log_rows), 1))])
    hosted = {"gpu": layout.gpus, "rank": layout.gpus, "link": layout.rails}
    return {
        "kind": family_kinds(spec), "offset": network.signal_offset,
        "background": np.tile(network.background, (len(JOB_CLASSES) + 1, 1)),
        "rows": network.rows, "log_rows": log_rows,
        "per_node": np.array([hosted.get(signal.entity, 0) for signal in spec.signal]),
        "outlier": outlier, "decay": decay,
        "members": np.array([layout.count(signal.entity) for signal in spec.signal]),
        "spread": np.sqrt(1.0 - decay**2), "group_map": group_map, "group_count": group_count,
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
