"""Here lives the causal graph of a declared model: roots, mechanisms, signals, and what drives what.

The graph is that of the declaration, once per kind of thing; time, sites and entities are left out.
"""

from typing import Any, NamedTuple

import networkx as nx

from clusterorch.errors import InvalidModel

# A checked model file.  Its class stands one floor above and may not be imported here; read are
# `mode`, `benign`, `mechanism`, `edge`, `signal`, `timer` and `model` as that floor declares them.
Spec = Any

BENIGN_MODE = "healthy"


class Root(NamedTuple):
    """A variant as it can start: its full name, the declared variant, and its hazard."""

    name: str  # mode.variant
    mode: str
    variant: Any
    per_1000_node_days: float  # its share of the hazard of its mode


def declared_roots(spec: Spec) -> dict[str, Root]:
    """Every variant by its full name, benign ones (of mode `healthy`) last, in order of the file."""
    roots = [
        Root(f"{mode.name}.{variant.name}", mode.name, variant, mode.rate_per_1000_node_days * variant.share)
        for mode in spec.mode
        for variant in mode.variant
    ]
    roots += [
        Root(f"{BENIGN_MODE}.{benign.name}", BENIGN_MODE, benign, benign.rate_per_1000_node_days)
        for benign in spec.benign
    ]
    return {root.name: root for root in roots}


def causal_graph(spec: Spec) -> nx.DiGraph:
    """The declared network: mode -> variant -> mechanism -> mechanism -> signal.

    Nodes carry `kind` (mode, variant, mechanism, signal), `title` and `index` (order of the file);
    variants `site` and `category`, mechanisms `effect` and `transient`, signals `stream`, `entity`,
    `family` and `by_job` (whether a rule reads the job class, and so every mechanism that has an
    effect on the job).  Edges carry `kind`: `variant`; `cause` with `gate`, `delay` (text) and
    `seconds` (mean or limit) of each declared edge between the two; `evidence` with `where`,
    the relations to the site in which it shows.

    Raises:
        InvalidModel: two things share a name, or an edge or rule names a thing that is not declared.
    """
    graph = nx.DiGraph(name=spec.model.name)
    categories = {mode.name: mode.category for mode in spec.mode} | {BENIGN_MODE: "benign"}
    titles = {mode.name: mode.title for mode in spec.mode} | {BENIGN_MODE: "no failure"}
    for mode, category in categories.items():
        if mode != BENIGN_MODE or spec.benign:
            _add(graph, mode, kind="mode", title=titles[mode], category=category)
    for root in declared_roots(spec).values():
        site, category = root.variant.site, categories[root.mode]
        _add(graph, root.name, kind="variant", title=root.variant.title, site=site, category=category)
        graph.add_edge(root.mode, root.name, kind="variant")
    for mechanism in spec.mechanism:
        traits = {"effect": mechanism.effect, "transient": mechanism.transient}
        _add(graph, mechanism.name, kind="mechanism", title=mechanism.title, **traits)
    for edge in spec.edge:
        _add_cause(graph, spec, edge)
    for signal in spec.signal:
        traits = {"stream": signal.stream, "entity": signal.entity, "family": signal.family}
        by_job = any(rule.job is not None for rule in signal.when)
        _add(graph, signal.name, kind="signal", title=signal.title, by_job=by_job, **traits)
        for rule in signal.when:
            for name in (*rule.needs, *rule.absent_mechanisms):
                _require(graph, name, f"signal.{signal.name}")
                where = graph.edges[name, signal.name]["where"] if graph.has_edge(name, signal.name) else ()
                if rule.where not in where:
                    graph.add_edge(name, signal.name, kind="evidence", where=(*where, rule.where))
    return graph


def _add(graph: nx.DiGraph, name: str, **traits: Any) -> None:
    if name in graph:
        raise InvalidModel(
            graph.name, name, f"a {graph.nodes[name]['kind']} has this name already", "give each its own name"
        )
    graph.add_node(name, index=len(graph), **traits)


def _require(graph: nx.DiGraph, name: str, where: str, kinds: tuple[str, ...] = ("mechanism",)) -> None:
    if name not in graph or graph.nodes[name]["kind"] not in kinds:
        raise InvalidModel(graph.name, where, f"no {' or '.join(kinds)} is named {name!r}", "declare it")


def _add_cause(graph: nx.DiGraph, spec: Spec, edge: Any) -> None:
    here = f"edge {edge.from_} -> {edge.to}"
    _require(graph, edge.from_, here, ("mechanism", "variant"))
    _require(graph, edge.to, here)
    text, seconds = delay_text(spec, edge)
    known = graph.edges[edge.from_, edge.to] if graph.has_edge(edge.from_, edge.to) else {}
    graph.add_edge(
        edge.from_,
        edge.to,
        kind="cause",
        gate=(*known.get("gate", ()), edge.gate),
        delay=(*known.get("delay", ()), text),
        seconds=(*known.get("seconds", ()), seconds),
    )


def delay_text(spec: Spec, edge: Any) -> tuple[str, float]:
    """The delay of an edge in words, and its mean or limit in seconds.

    Raises:
        InvalidModel: the edge waits for a timer that is not declared.
    """
    delay = edge.delay
    if delay.fast:
        return "fast", 0.0
    if delay.geometric is not None:
        again = "again and again, " if edge.recurrent else ""
        return f"{again}geometric, mean {delay.geometric:g} s", delay.geometric
    if delay.erlang is not None:
        stages, mean = delay.erlang
        return f"erlang of {stages}, mean {mean:g} s", mean
    for timer in spec.timer:
        if timer.name == delay.timer:
            return f"timer {timer.name}, {timer.seconds:g} s", timer.seconds
    here = f"edge {edge.from_} -> {edge.to}"
    raise InvalidModel(spec.model.name, here, f"no timer is named {delay.timer!r}", "declare it")


def parents_of(graph: nx.DiGraph, name: str) -> list[str]:
    """Direct causes of a node, in order of the file."""
    return sorted(graph.predecessors(name), key=_index(graph))


def find_cycle(graph: nx.DiGraph) -> list[str]:
    """Nodes of one cycle, the first repeated at the end; empty if there is none."""
    try:
        steps = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        return []
    return [steps[0][0], *(head for _, head in steps)]


def mechanism_order(graph: nx.DiGraph) -> list[str]:
    """Mechanisms in topological order, ties by order of the file.

    Raises:
        InvalidModel: the mechanisms form a cycle.
    """
    if cycle := find_cycle(graph):
        raise InvalidModel(graph.name, "edge", f"a cycle: {' -> '.join(cycle)}", "remove one of these edges")
    mechanisms = graph.subgraph(name for name, kind in graph.nodes(data="kind") if kind == "mechanism")
    return list(nx.lexicographical_topological_sort(mechanisms, key=_index(graph)))


def reachable_mechanisms(graph: nx.DiGraph, variant: str) -> list[str]:
    """Mechanisms that a variant can bring about, in topological order."""
    reached = nx.descendants(graph, variant)
    return [name for name in mechanism_order(graph) if name in reached]


def _index(graph: nx.DiGraph) -> Any:
    return lambda name: graph.nodes[name]["index"]
