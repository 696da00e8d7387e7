"""The causal graph: what it holds of the reference model, and orders and cycles on small ones."""

from pathlib import Path

import networkx as nx
import pytest

from clusterorch.causal import graph as causal
from clusterorch.errors import InvalidModel
from clusterorch.models.reading import read_whole
from clusterorch.models.spec import ModelSpec

REFERENCE = Path(__file__).resolve().parents[2] / "models" / "reference.toml"


@pytest.fixture(scope="module")
def spec():
    return ModelSpec.model_validate(read_whole(REFERENCE))


@pytest.fixture(scope="module")
def graph(spec):
    return causal.causal_graph(spec)


def small(spec, edges, mechanisms="dcba", **changes):
    """The reference with other mechanisms and edges, and one signal without rules."""
    declared = spec.model_dump(by_alias=True)
    mode = declared["mode"][0] | {"name": "m", "variant": [declared["mode"][0]["variant"][0] | {"name": "v"}]}
    declared |= {
        "mode": [mode | {"variant": [mode["variant"][0] | {"share": 1.0}]}],
        "benign": [],
        "mechanism": [{"name": name, "title": name} for name in mechanisms],
        "edge": [{"from": pair[0], "to": pair[1]} | (pair[2] if len(pair) > 2 else {}) for pair in edges],
        "signal": [declared["signal"][0] | {"name": "s", "when": []}],
    }
    return ModelSpec.model_validate(declared | changes)


def test_every_declared_thing_is_a_node_of_its_kind(spec, graph):
    kinds = nx.get_node_attributes(graph, "kind")
    by_kind = {kind: {n for n, k in kinds.items() if k == kind} for kind in set(kinds.values())}
    assert by_kind["mechanism"] == {mechanism.name for mechanism in spec.mechanism}
    assert by_kind["signal"] == {signal.name for signal in spec.signal}
    assert by_kind["mode"] == {mode.name for mode in spec.mode} | {"healthy"}
    assert by_kind["variant"] == set(causal.declared_roots(spec))
    assert all(title for _, title in graph.nodes(data="title"))


def test_an_edge_tells_its_gate_and_delay(spec, graph):
    for edge in spec.edge:
        traits = graph.edges[edge.from_, edge.to]
        assert traits["kind"] == "cause"
        assert edge.gate in traits["gate"]
        if edge.delay.geometric:
            assert edge.delay.geometric in traits["seconds"]
    timed = next(edge for edge in spec.edge if edge.delay.timer)
    limit = next(timer.seconds for timer in spec.timer if timer.name == timed.delay.timer)
    traits = graph.edges[timed.from_, timed.to]
    assert traits["seconds"] == (limit,)
    assert timed.delay.timer in traits["delay"][0]


def test_two_edges_between_the_same_ends_are_both_told(spec):
    edges = [
        ("m.v", "a"),
        ("a", "b", {"gate": 0.5}),
        ("a", "b", {"gate": 0.25, "delay": {"erlang": [2, 60]}}),
    ]
    traits = causal.causal_graph(small(spec, edges)).edges["a", "b"]
    assert traits["gate"] == (0.5, 0.25)
    assert traits["delay"] == ("fast", "erlang of 2, mean 60 s")
    assert traits["seconds"] == (0.0, 60.0)


def test_signals_hang_from_the_mechanisms_of_their_rules(spec, graph):
    for signal in spec.signal:
        named = {name for rule in signal.when for name in (*rule.needs, *rule.absent_mechanisms)}
        assert set(causal.parents_of(graph, signal.name)) == named
        assert graph.nodes[signal.name]["by_job"] == any(rule.job for rule in signal.when)
        for name in named:
            relations = {r.where for r in signal.when if name in (*r.needs, *r.absent_mechanisms)}
            assert set(graph.edges[name, signal.name]["where"]) == relations


def test_parents_stand_in_order_of_the_file(spec):
    graph = causal.causal_graph(small(spec, [("a", "d"), ("c", "d"), ("m.v", "d"), ("b", "d")]))
    assert causal.parents_of(graph, "d") == ["m.v", "c", "b", "a"]


def test_order_is_topological_with_ties_as_declared(spec):
    edges = [("m.v", "a"), ("a", "d"), ("c", "b")]
    assert causal.mechanism_order(causal.causal_graph(small(spec, edges))) == ["c", "b", "a", "d"]
    assert causal.mechanism_order(causal.causal_graph(small(spec, [("m.v", "a")]))) == ["d", "c", "b", "a"]


def test_the_order_of_the_reference_puts_causes_first(spec, graph):
    place = {name: i for i, name in enumerate(causal.mechanism_order(graph))}
    assert len(place) == len(spec.mechanism)
    assert all(place[edge.from_] < place[edge.to] for edge in spec.edge if edge.from_ in place)


def test_a_variant_reaches_the_descendants_of_its_edges(spec):
    graph = causal.causal_graph(small(spec, [("m.v", "b"), ("b", "d"), ("c", "d"), ("a", "c")]))
    assert causal.reachable_mechanisms(graph, "m.v") == ["b", "d"]


def test_every_variant_of_the_reference_reaches_a_mechanism(spec, graph):
    assert all(causal.reachable_mechanisms(graph, name) for name in causal.declared_roots(spec))


def test_a_cycle_is_found_and_named(spec):
    graph = causal.causal_graph(small(spec, [("m.v", "a"), ("a", "b"), ("b", "c"), ("c", "a")]))
    cycle = causal.find_cycle(graph)
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a", "b", "c"}
    with pytest.raises(InvalidModel, match="a cycle"):
        causal.mechanism_order(graph)


def test_the_reference_has_no_cycle(graph):
    assert causal.find_cycle(graph) == []


def test_rates_are_shared_among_the_variants_of_a_mode(spec):
    roots = causal.declared_roots(spec)
    for mode in spec.mode:
        own = [root.per_1000_node_days for root in roots.values() if root.mode == mode.name]
        assert sum(own) == pytest.approx(mode.rate_per_1000_node_days)
    assert [name for name in roots if name.startswith("healthy.")] == [f"healthy.{b.name}" for b in spec.benign]


@pytest.mark.parametrize(
    ("edges", "changes", "match"),
    [
        ([("m.v", "nowhere")], {}, "no mechanism is named 'nowhere'"),
        ([("m.w", "a")], {}, "no mechanism or variant is named 'm.w'"),
        ([("a", "s")], {}, "no mechanism is named 's'"),
        ([("m.v", "a", {"delay": {"timer": "t"}})], {"timer": []}, "no timer is named 't'"),
    ],
)
def test_an_undeclared_name_is_an_error(spec, edges, changes, match):
    with pytest.raises(InvalidModel, match=match):
        causal.causal_graph(small(spec, edges, **changes))


def test_two_things_of_one_name_are_an_error(spec):
    with pytest.raises(InvalidModel, match="a mechanism has this name already"):
        causal.causal_graph(small(spec, [("m.v", "a")], mechanisms="as"))
