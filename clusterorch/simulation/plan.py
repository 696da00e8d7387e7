"""Here lives the sampler's view of a network: the declared tables as flat arrays.

Mechanisms and edges keep the numbers of the file, whatever variant is in the slot: one bit a
mechanism, in two words, one stage an edge.  What a variant cannot reach is never active unless somebody
intervenes, so the slices of a fault pass only what it reaches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from clusterorch.causal.slices import ERLANG, FAST, GEOMETRIC, RECURRENT, TIMER
from clusterorch.errors import InvalidModel
from clusterorch.models.compile import Block, Network, brought_shares, entity_kind_index
from clusterorch.models.effects import clears
from clusterorch.models.ground import limit_slices, topological_mechanisms
from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.models.spec import PHASES, SEVERITIES, Edge, ModelSpec
from clusterorch.probability.lifetimes import erlang_from_mean, geometric_from_mean, timer_slices

WORD = 62  # bits of a signed word, less the sign and one
MOST_MECHANISMS = 2 * WORD
FOREVER = 2**40
SAVE, STOP, LAUNCH = PHASES.index("save"), PHASES.index("stop"), PHASES.index("launch")
TARGETS = ("node", "rail", "leaf")  # kinds of targets that sites lie on
HALTING_PHASES = sum(1 << PHASES.index(p) for p in ("launch", "init_comm", "load"))


class CausalPlan(NamedTuple):
    """What the state of a slice is drawn from.  M mechanisms, E edges, V variants, A actions."""

    order: np.ndarray  # [M] causal order
    transient: np.ndarray  # [M] 0 or 1
    heals: np.ndarray  # [M] probability a slice
    slowdown: np.ndarray  # [M, severities]
    incoming: np.ndarray  # [E] edges by child
    incoming_start: np.ndarray  # [M + 1]
    parent: np.ndarray  # [E] mechanism, or -1 - variant
    child: np.ndarray  # [E]
    kind: np.ndarray  # [E] FAST, RECURRENT, GEOMETRIC, ERLANG, TIMER
    gate: np.ndarray  # [E]
    advance: np.ndarray  # [E]
    stages: np.ndarray  # [E]
    limit: np.ndarray  # [E] slices of halt, timers only
    open_phases: np.ndarray  # [E] bit set
    reach: np.ndarray  # mechanisms that a variant reaches, in causal order, by variant
    reach_start: np.ndarray  # [V + 1]
    crash: np.ndarray  # [2] bit sets of mechanisms by effect
    stall: np.ndarray
    block_save: np.ndarray
    block_start: np.ndarray
    poison: np.ndarray
    slow: np.ndarray
    severity: np.ndarray  # [V, severities] cumulated
    severity_level: np.ndarray  # [V, severities]
    severities: np.ndarray  # [V] how many
    sites: np.ndarray  # [V]
    site_kind: np.ndarray  # [V]
    recovers: np.ndarray  # [V] probability a slice
    duration: np.ndarray  # [phases] slices
    following: np.ndarray  # [phases]
    restarts: np.ndarray  # [A]
    discards: np.ndarray  # [A]
    reinitialises: np.ndarray  # [A] whether it takes the job through init_comm without a load
    target_kind: np.ndarray  # [A] number in TARGETS, -1 for none of them
    brought: np.ndarray  # [A, V] cumulated probability that a fault comes with what replaces the target
    clears: np.ndarray  # [A, V, 2] elsewhere, at the site
    per_node: np.ndarray  # [kinds] entities on a node; 0 where they have none
    place: np.ndarray  # node, rail or leaf of every site, by target kind and site kind; -1 none
    place_start: np.ndarray  # [TARGETS, kinds]
    copies: int


def causal_plan(network: Network, limits: dict[str, float]) -> CausalPlan:
    """Lay the causal part of a network out for the kernels.

    Raises:
        InvalidModel: more mechanisms than two words have bits.
    """
    spec = network.spec
    names = [m.name for m in spec.mechanism]
    if len(names) > MOST_MECHANISMS:
        raise InvalidModel(
            spec.model.name, "mechanism", f"{len(names)} of them", f"the sampler takes {MOST_MECHANISMS}"
        )
    number = {name: i for i, name in enumerate(names)}
    number |= {b.variant.name: -1 - v for v, b in enumerate(network.blocks)}
    incoming = [[e for e, edge in enumerate(spec.edge) if edge.to == name] for name in names]
    masks = {
        effect: bit_set(i for i, m in enumerate(spec.mechanism) if m.effect == effect)
        for effect in ("crash", "stall", "block_save", "block_start", "poison", "slow")
    }
    slowdown = np.array([np.broadcast_to(m.slowdown, SEVERITIES) for m in spec.mechanism], dtype=np.float64)
    dt = spec.model.slice_seconds
    order = [names.index(name) for name in topological_mechanisms(spec)]
    reached = [frozenset(names.index(m.name) for m in _all_mechanisms(b)) for b in network.blocks]
    return CausalPlan(
        order=_ints(order),
        reach=_ints(m for mine in reached for m in order if m in mine),
        reach_start=_ints(np.concatenate([[0], np.cumsum([len(mine) for mine in reached])])),
        transient=_ints(m.transient for m in spec.mechanism),
        heals=np.array([geometric_from_mean(m.lasts, dt) if m.lasts else 0.0 for m in spec.mechanism]),
        slowdown=slowdown,
        incoming=_ints(e for edges in incoming for e in edges),
        incoming_start=_ints(np.concatenate([[0], np.cumsum([len(edges) for edges in incoming])])),
        parent=_ints(number[e.from_] for e in spec.edge),
        child=_ints(number[e.to] for e in spec.edge),
        **_edges(spec, limit_slices(spec, limits)),
        **masks,
        **_variants(network),
        **_schedule(spec),
        **_actions(network),
        **_places(network.layout),
        per_node=_ints(_per_node(network.layout, kind) for kind in ENTITY_KINDS),
        copies=network.layout.copies,
    )


def bit_set(mechanisms: Iterable[int]) -> np.ndarray:
    """[2] the words in which the bits of these mechanisms, and no others, are set.

    >>> bit_set([0, 2, 63]).tolist()
    [5, 2]
    """
    words = [0, 0]
    for m in mechanisms:
        words[m // WORD] |= 1 << m % WORD
    return np.array(words, dtype=np.int64)


def active(bits: np.ndarray, mechanism: int) -> np.ndarray:
    """[..., 2] words -> [...] 0 or 1, whether a mechanism is on."""
    return bits[..., mechanism // WORD] >> mechanism % WORD & 1


def _all_mechanisms(block: Block) -> list[Any]:
    return [*block.chain.law.mechanisms, *block.chain.law.transients]


def _ints(values: object) -> np.ndarray:
    return np.array([int(v) for v in values], dtype=np.int64)  # type: ignore[attr-defined]


def _per_node(layout: Layout, kind: str) -> int:
    return layout.count(kind) // layout.nodes if kind in ("gpu", "rank", "link", "node") else 0


def _edges(spec: ModelSpec, limits: dict[str, int]) -> dict[str, np.ndarray]:
    dt = spec.model.slice_seconds

    def law(edge: Edge) -> tuple[int, float, int, int]:
        delay = edge.delay
        if delay.fast:
            return FAST, 1.0, 1, 0
        if delay.geometric is not None:
            return RECURRENT if edge.recurrent else GEOMETRIC, geometric_from_mean(delay.geometric, dt), 1, 0
        if delay.erlang is not None:
            return ERLANG, erlang_from_mean(*delay.erlang, dt), delay.erlang[0], 0
        return TIMER, 1.0, 1, limits[delay.timer or ""]

    laws = [law(edge) for edge in spec.edge]
    everywhere = (1 << len(PHASES)) - 1
    phases = [everywhere if e.phases is None else sum(1 << PHASES.index(p) for p in e.phases) for e in spec.edge]
    return {
        "kind": _ints(x[0] for x in laws),
        "gate": np.array([e.gate for e in spec.edge]),
        "advance": np.array([x[1] for x in laws]),
        "stages": _ints(x[2] for x in laws),
        "limit": _ints(x[3] for x in laws),
        "open_phases": _ints(phases),
    }


def _places(layout: Layout) -> dict[str, np.ndarray]:
    tables = [layout.place_of(kind, target) for target in TARGETS for kind in ENTITY_KINDS]
    starts = np.concatenate([[0], np.cumsum([len(table) for table in tables])[:-1]])
    return {"place": np.concatenate(tables), "place_start": _ints(starts).reshape(len(TARGETS), -1)}


def _variants(network: Network) -> dict[str, np.ndarray]:
    variants = [b.variant for b in network.blocks]
    shares = np.ones((len(variants), SEVERITIES))
    levels = np.ones((len(variants), SEVERITIES), dtype=np.int64)
    for v, variant in enumerate(variants):
        shares[v, : len(variant.severities)] = np.cumsum(variant.severities)
        levels[v, : len(variant.severity_levels)] = variant.severity_levels
    return {
        "severity": shares,
        "severity_level": levels,
        "severities": _ints(len(v.severities) for v in variants),
        "sites": _ints(b.sites for b in network.blocks),
        "site_kind": _ints(entity_kind_index(v.spec.site) for v in variants),
        "recovers": np.array([v.recovers for v in variants]),
    }


def _schedule(spec: ModelSpec) -> dict[str, np.ndarray]:
    job, dt = spec.job, spec.model.slice_seconds
    seconds = {
        "launch": job.launch_seconds, "init_comm": job.init_comm_seconds, "load": job.load_seconds,
        "step": job.save_every_seconds, "save": job.save_seconds,
    }  # fmt: skip
    after = {"launch": "init_comm", "init_comm": "load", "load": "step", "step": "save", "save": "step"}
    return {
        "duration": _ints(max(1, timer_slices(seconds[p], dt)) if p in seconds else FOREVER for p in PHASES),
        "following": _ints(PHASES.index(after.get(p, p)) for p in PHASES),
    }


def _actions(network: Network) -> dict[str, np.ndarray]:
    actions = network.spec.action
    table = np.zeros((len(actions), len(network.blocks), 2))
    for a, action in enumerate(actions):
        for v, block in enumerate(network.blocks):
            for at_site, relation in enumerate(("elsewhere", "site")):
                table[a, v, at_site] = clears(action, block.variant.mode, block.variant.name, relation)
    return {
        "restarts": _ints(a.restarts for a in actions),
        "discards": _ints(a.discards for a in actions),
        "reinitialises": _ints(a.reinitialises for a in actions),
        "target_kind": _ints(TARGETS.index(a.target) if a.target in TARGETS else -1 for a in actions),
        "brought": np.cumsum([brought_shares(network, a) for a in actions], axis=1).reshape(len(actions), -1),
        "clears": table,
    }
