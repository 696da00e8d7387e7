"""Here lives grounding: from the declared model to the law of each variant on one layout."""

from __future__ import annotations

from dataclasses import dataclass, field

import networkx as nx

from clusterorch.causal.slices import (
    ERLANG,
    FAST,
    GEOMETRIC,
    RECURRENT,
    TIMER,
    VARIANT,
    EdgeLaw,
    MechanismLaw,
    TransientLaw,
    VariantLaw,
)  # fmt: skip
from clusterorch.models.spec import PHASES, Benign, Edge, ModelSpec, Variant
from clusterorch.probability.lifetimes import (
    erlang_from_mean,
    geometric_from_mean,
    onset_probability,
    per_1000_node_days_to_per_hour,
    timer_slices,
)  # fmt: skip

HEALTHY = "healthy"  # benign roots are variants of it


@dataclass(frozen=True)
class GroundedVariant:
    """A variant with its name, prior numbers and law.  Rates are per hour, over all its sites."""

    name: str
    mode: str
    spec: Variant
    rate_per_hour: float
    incident_share: float
    severities: tuple[float, ...]
    severity_levels: tuple[int, ...]
    recovers: float  # probability a slice
    phases: frozenset[int]
    law: VariantLaw = field(repr=False)

    @property
    def benign(self) -> bool:
        """Whether it counts as healthy."""
        return self.mode == HEALTHY


def variant_names(spec: ModelSpec) -> list[str]:
    """Every variant, `mode.variant`, in the order of the file; benign ones last."""
    named = [f"{mode.name}.{variant.name}" for mode in spec.mode for variant in mode.variant]
    return named + [f"{HEALTHY}.{benign.name}" for benign in spec.benign]


def limit_slices(spec: ModelSpec, limits: dict[str, float] | None = None) -> dict[str, int]:
    """Slices of halt after which each timer is due; `limits` replaces declared seconds."""
    seconds = {timer.name: timer.seconds for timer in spec.timer} | (limits or {})
    return {name: timer_slices(value, spec.model.slice_seconds) for name, value in seconds.items()}


def topological_mechanisms(spec: ModelSpec) -> list[str]:
    """Mechanisms in causal order, ties by declaration."""
    order = {mechanism.name: i for i, mechanism in enumerate(spec.mechanism)}
    graph = nx.DiGraph()
    graph.add_nodes_from(order)
    graph.add_edges_from((e.from_, e.to) for e in spec.edge if e.from_ in order)
    return list(nx.lexicographical_topological_sort(graph, key=order.__getitem__))


def ground(spec: ModelSpec, nodes: int, copies: int, limits: dict[str, float] | None = None) -> list[GroundedVariant]:
    """The law of every variant, in the order of `variant_names`."""
    due = {n: i + 1 for i, n in enumerate(sorted(set(limit_slices(spec, limits).values())))}
    timers = {name: due[n] for name, n in limit_slices(spec, limits).items()}
    order = topological_mechanisms(spec)
    per_hour = nodes * per_1000_node_days_to_per_hour(1.0)
    grounded = []
    for mode in spec.mode:
        for variant in mode.variant:
            rate = mode.rate_per_1000_node_days * variant.share * per_hour
            share = mode.incident_share * variant.share
            grounded.append(_variant(spec, mode.name, variant, rate, share, order, timers, copies))
    for benign in spec.benign:
        rate = benign.rate_per_1000_node_days * per_hour
        grounded.append(_variant(spec, HEALTHY, benign, rate, benign.incident_share, order, timers, copies))
    return grounded


def _variant(
    spec: ModelSpec, mode: str, variant: Variant | Benign, rate: float, share: float,
    order: list[str], timers: dict[str, int], copies: int,
) -> GroundedVariant:  # fmt: skip
    name = f"{mode}.{variant.name}"
    phases = range(len(PHASES)) if variant.phases is None else (PHASES.index(p) for p in variant.phases)
    # Logs that somebody collected ask what happened: there a fault is not forgotten because it passed.
    recovers = 0.0 if spec.prior.kind == "incident" else variant.recovers_per_hour
    levels = tuple(range(3)) if variant.severity else (1,)
    return GroundedVariant(
        name=name, mode=mode, spec=variant, rate_per_hour=rate, incident_share=share,
        severities=tuple(variant.severity) if variant.severity else (1.0,), severity_levels=levels,
        recovers=onset_probability(recovers, spec.model.slice_seconds) if recovers else 0.0,
        phases=frozenset(phases), law=_law(spec, name, order, timers, copies),
    )  # fmt: skip


def _law(spec: ModelSpec, name: str, order: list[str], timers: dict[str, int], copies: int) -> VariantLaw:
    reached = {name}
    for mechanism in order:
        if any(e.to == mechanism and e.from_ in reached for e in spec.edge):
            reached.add(mechanism)
    declared = {mechanism.name: mechanism for mechanism in spec.mechanism}
    lasting = [m for m in order if m in reached and not declared[m].transient]
    index = {m: i for i, m in enumerate(lasting)} | {name: VARIANT}
    dt = spec.model.slice_seconds
    mechanisms = tuple(
        MechanismLaw(m, declared[m].effect, geometric_from_mean(heals, dt) if (heals := declared[m].lasts) else 0.0)
        for m in lasting
    )
    edges = tuple(
        _edge(edge, index, timers, dt) for m in lasting for edge in spec.edge if edge.to == m and edge.from_ in index
    )
    transients = tuple(
        TransientLaw(m, tuple((index[e.from_], e.gate) for e in spec.edge if e.to == m and e.from_ in index))
        for m in order
        if m in reached and declared[m].transient
    )
    poisons = any(m.effect == "poison" for m in mechanisms)
    return VariantLaw(name, mechanisms, edges, transients, copies if poisons else 0)


def _edge(edge: Edge, index: dict[str, int], timers: dict[str, int], slice_seconds: float) -> EdgeLaw:
    delay, advance, stages, due = edge.delay, 1.0, 1, 0
    if delay.fast:
        kind = FAST
    elif delay.geometric is not None:
        kind = RECURRENT if edge.recurrent else GEOMETRIC
        advance = geometric_from_mean(delay.geometric, slice_seconds)
    elif delay.erlang is not None:
        kind, stages = ERLANG, delay.erlang[0]
        advance = erlang_from_mean(stages, delay.erlang[1], slice_seconds)
    else:
        kind, due = TIMER, timers[delay.timer or ""]
    phases = None if edge.phases is None else frozenset(PHASES.index(p) for p in edge.phases)
    return EdgeLaw(
        f"{edge.from_}>{edge.to}",
        index[edge.from_],
        index[edge.to],
        kind,
        edge.gate,
        advance,
        stages,
        due,
        phases,
    )
