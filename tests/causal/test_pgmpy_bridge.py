"""The view as a pgmpy network: its marginals are those of the walk over declared variables and of pyAgrum."""

import re
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from clusterorch.causal import graph as causal
from clusterorch.causal import pgmpy_bridge as bridge
from clusterorch.causal.slices import FAST
from clusterorch.errors import ImpossibleEvidence, OutputExists
from clusterorch.models.checks import count_configurations
from clusterorch.models.layout import Layout
from clusterorch.models.reading import read_whole
from clusterorch.models.spec import ModelSpec
from tests.reference.draws import Draws
from tests.reference.walk import Slice, walk_filter

REFERENCE = Path(__file__).resolve().parents[2] / "models" / "reference.toml"
CLASSES = ("moving", "halted", "down")
EXACT = {"rtol": 0.0, "atol": 1e-9}
LAYOUT = Layout.parse("1x2", copies=2)

# What the reference has no example of: erlang delays, phases, blocked saves and starts, two edges
# between the same ends, a mechanism that heals over slices with children, a phase-bound variant.
RARE = """
mode = [{ name = "m", title = "m", category = "network", rate_per_1000_node_days = 9e5, variant = [
  { name = "v", site = "node", share = 0.7, severity = [0.5, 0.3, 0.2], recovers_per_hour = 70 },
  { name = "w", site = "rank", share = 0.3, phases = ["load", "save"], recovers_per_hour = 20 } ] }]
benign = [{ name = "n", site = "job", rate_per_1000_node_days = 3e5 }]
mechanism = [
  { name = "spoils", title = "", effect = "poison", heals = 70 },
  { name = "ends", title = "", effect = "crash" },
  { name = "waits", title = "", effect = "stall", heals = 40 },
  { name = "full", title = "", effect = "block_save" },
  { name = "late", title = "", effect = "block_start", heals = 30 },
  { name = "tells", title = "", transient = true } ]
edge = [
  { from = "m.v", to = "full", gate = 0.8, delay = { erlang = [3, 50] } },
  { from = "m.v", to = "late", phases = ["load", "save"] },
  { from = "m.v", to = "waits", gate = 0.6, phases = ["load", "step"], delay = { geometric = 40 } },
  { from = "m.w", to = "waits", recurrent = true, delay = { geometric = 25 }, phases = ["step", "save"] },
  { from = "m.w", to = "spoils", gate = 0.7, delay = { erlang = [2, 35] } },
  { from = "m.w", to = "tells", gate = 0.4 },
  { from = "m.w", to = "waits", gate = 0.6, delay = { geometric = 40 } },
  { from = "full", to = "waits", gate = 0.5 },
  { from = "waits", to = "late", gate = 0.8, delay = { timer = "long" } },
  { from = "waits", to = "ends", gate = 0.4, delay = { timer = "short" } },
  { from = "waits", to = "ends", gate = 0.2, delay = { geometric = 60 } },
  { from = "spoils", to = "ends", gate = 0.1, phases = ["step"] },
  { from = "waits", to = "tells", gate = 0.7 },
  { from = "spoils", to = "tells", gate = 0.3 } ]
timer = [{ name = "short", seconds = 10 }, { name = "long", seconds = 25 }]
"""


@cache
def quick(name, prior="stationary"):
    """A model in which faults start, and timers run out, within five slices."""
    declared = read_whole(REFERENCE) | {"prior": {"kind": prior}}
    if name == "rare":
        signal = declared["signal"][0] | {"when": []}
        return ModelSpec.model_validate(declared | tomllib.loads(RARE) | {"signal": [signal], "action": []})
    for root in declared["mode"] + declared["benign"]:
        root["rate_per_1000_node_days"] = 5e5
    for timer in declared["timer"]:
        timer["seconds"] = {"transport": 30, "watchdog": 45}.get(timer["name"], 60)
    for edge in declared["edge"]:
        if "geometric" in edge.get("delay", {}):
            edge["delay"] = {"geometric": min(edge["delay"]["geometric"], 40)}
    return ModelSpec.model_validate(declared)


def timer_slices(spec):
    return {timer.name: -int(-timer.seconds // spec.model.slice_seconds) for timer in spec.timer}


@cache
def most_slices(name, variant):
    """How many slices the other libraries can eliminate in a second: fewer, the more edges can be pending at once."""
    if name == "rare":
        return 4
    law = count_configurations(quick(name), name)[variant].law
    slow = sum(edge.kind != FAST for edge in law.edges)
    return 5 if slow < 2 else 4 if slow < 4 else 3


VARIANTS = [(name, root) for name in ("reference", "rare") for root in causal.declared_roots(quick(name))]


class Case:
    """One variant under random contexts and likelihoods, asked of all three."""

    def __init__(self, name, variant, seed, slices=None):
        slices = slices or min(4, most_slices(name, variant))
        self.steps, self.last = range(slices), slices - 1
        self.spec, self.variant, self.rng = quick(name), variant, np.random.default_rng(seed)
        self.draws = Draws(self.spec, LAYOUT, {}, None)
        # Every third seed saves in every slice, so that the copies kept run out.
        phases = self.rng.choice(["save"] if seed % 3 == 0 else ["step", "save", "load"], size=slices)
        mode, _, root = variant.partition(".")
        roots = [*self.spec.benign, *(v for m in self.spec.mode if m.name == mode for v in m.variant)]
        if only := next((v.phases for v in roots if v.name == root and v.phases), None):
            phases = np.concatenate([self.rng.choice(only, size=2), phases[2:]])
        self.contexts = [(str(p), bool(p == "save" and self.rng.random() < 0.8)) for p in phases]
        self.network = bridge.to_pgmpy(self.spec, LAYOUT, variant, slices, self.contexts)
        self.cards = {cpd.variable: cpd.variable_card for cpd in self.network.get_cpds()}
        reached = causal.reachable_mechanisms(causal.causal_graph(self.spec), variant)
        transient = {m.name for m in self.spec.mechanism if m.transient}
        self.transient = [m for m in reached if m in transient]
        rest = [v for v in ("present", "severity", "class", "age", "poisoned") if f"{v}[0]" in self.cards]
        self.variables = ["fault", *rest, *(m for m in reached if m not in transient)]

    def likelihoods(self):
        """Random likelihoods of some variables in some slices."""
        chosen = {}
        for t in self.steps:
            if self.rng.random() < 0.3:
                continue  # nothing arrived in this slice
            for variable in self.variables:
                if self.rng.random() < 0.4:
                    name = f"{variable}[{t}]"
                    chosen[name] = self.rng.uniform(0.05, 3.0, self.cards[name])
        return chosen

    def place(self, variable, t, state):
        """The state of a variable of the network in a state of the walk."""
        if variable == "fault":
            return 0 if state.slot is None else 1 + state.slot[3]
        if variable == "severity":
            return 0 if state.slot is None else 1 + state.slot[2]
        if variable == "age":
            return min(state.age, self.cards[f"age[{t}]"] - 1)
        if variable == "class":
            return CLASSES.index(self.draws.job_class(state.active, self.contexts[t][0]))
        if variable == "poisoned":
            return state.poisoned
        return int(state.slot is not None if variable == "present" else variable in state.active)

    def slices(self, likelihoods):
        known = []
        for t, (phase, save_ends) in enumerate(self.contexts):
            given = [(v, likelihoods[f"{v}[{t}]"]) for v in self.variables if f"{v}[{t}]" in likelihoods]

            def soft(state, given=given, t=t):
                return float(np.prod([vector[self.place(v, t, state)] for v, vector in given]))

            known.append(Slice(phase, save_ends, soft=soft))
        return known

    def walk(self, slices):
        return walk_filter(self.spec, LAYOUT, slices, timer_slices(self.spec), only=self.variant)

    def joint(self, result, variables):
        """What the walk says of some variables after the last slice."""
        table = np.zeros([self.cards[f"{v}[{self.last}]"] for v in variables])
        for state, p in result.posterior.items():
            table[tuple(self.place(v, self.last, state) for v in variables)] += p
        return table

    def ask_pgmpy(self, variables, likelihoods, evidence=None):
        from pgmpy.inference import VariableElimination

        names = [f"{v}[{self.last}]" for v in variables]
        answer = VariableElimination(self.network).query(
            names,
            evidence=evidence,
            virtual_evidence=bridge.virtual_evidence(self.network, likelihoods),
            elimination_order="greedy",
            show_progress=False,
        )
        return np.transpose(answer.values, [answer.variables.index(name) for name in names])

    def pyagrum(self, likelihoods):
        """The same tables in pyAgrum, with the likelihoods entered."""
        import pyagrum

        twin = pyagrum.BayesNet()
        for cpd in self.network.get_cpds():
            twin.add(pyagrum.LabelizedVariable(cpd.variable, "", cpd.state_names[cpd.variable]))
        for cpd in self.network.get_cpds():
            for parent in cpd.variables[1:]:
                twin.addArc(parent, cpd.variable)
        for cpd in self.network.get_cpds():
            table = twin.cpt(cpd.variable)
            assert list(table.names) == list(cpd.variables)
            table.fillWith(cpd.values.ravel(order="F").tolist())  # the first variable runs fastest
        inference = pyagrum.LazyPropagation(twin)
        inference.setEvidence({name: (v / v.max()).tolist() for name, v in likelihoods.items()})
        inference.makeInference()
        return inference


def check(name, variant, seed, slices):
    case = Case(name, variant, seed, slices)
    likelihoods = case.likelihoods()
    result = case.walk(case.slices(likelihoods))[-1]
    expected = {v: case.joint(result, [v]) for v in case.variables}
    expected |= {v: [1 - result.transient[v], result.transient[v]] for v in case.transient}
    twin = case.pyagrum(likelihoods)
    for variable, marginal in expected.items():
        posterior = twin.posterior(f"{variable}[{case.last}]").tolist()
        np.testing.assert_allclose(posterior, marginal, **EXACT, err_msg=variable)
    for variable in case.transient:
        np.testing.assert_allclose(case.ask_pgmpy([variable], likelihoods), expected[variable], **EXACT)
    asked = ["fault", *(str(v) for v in case.rng.permutation(case.variables[1:])[:2])]
    np.testing.assert_allclose(case.ask_pgmpy(asked, likelihoods), case.joint(result, asked), **EXACT)
    return result


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_marginals_are_those_of_the_walk_and_of_pyagrum(name, variant, seed):
    result = check(name, variant, seed, slices=most_slices(name, variant))
    assert sum(p for state, p in result.posterior.items() if state.slot) > 1e-4


@pytest.mark.parametrize("seed", range(4, 10))
@pytest.mark.parametrize("variant", ["m.v", "m.w"])
def test_rare_declarations_agree_too(variant, seed):
    check("rare", variant, seed, slices=4)


@pytest.mark.long
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@pytest.mark.parametrize("seed", range(100, 120))
def test_marginals_agree_under_many_contexts_and_likelihoods(name, variant, seed):
    check(name, variant, seed, slices=most_slices(name, variant))


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@pytest.mark.parametrize("seed", [7, 8])
def test_published_class_and_age_are_no_more_than_the_class_as_evidence(name, variant, seed):
    case = Case(name, variant, seed)
    likelihoods = {k: v for k, v in case.likelihoods().items() if not k.startswith(("class", "age"))}
    known, age = case.slices(likelihoods), 0
    for t, now in enumerate(known):
        now.age_before = age
        for now.job_class in case.rng.permutation(CLASSES) if t else ["moving"]:
            try:
                result = case.walk(known[: t + 1])[-1]
                break
            except ImpossibleEvidence:  # this variant cannot bring the job there; take another class
                continue
        age = age + 1 if now.job_class == "halted" else 0
    assert all(state.age is None for state in result.posterior)
    asked = ["fault", [v for v in case.variables if v not in ("class", "age")][-1]]
    evidence = {f"class[{t}]": str(now.job_class) for t, now in enumerate(known)}
    answer = case.ask_pgmpy(asked, likelihoods, evidence)
    np.testing.assert_allclose(answer, case.joint(result, asked), **EXACT)


def test_under_an_incident_prior_no_fault_ends_by_itself():
    network = bridge.to_pgmpy(quick("rare", "incident"), LAYOUT, "m.v", 2, [("step", False)] * 2)
    fault = network.get_cpds("fault[1]")
    assert fault.variables == ["fault[1]", "fault[0]"]
    assert fault.get_values()[1, 1] == 1.0


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_tables_pass_the_check_of_pgmpy(name, variant):
    assert Case(name, variant, 3).network.check_model()


def test_sites_left_out_keep_their_probability_in_none():
    spec = quick("reference")
    variant = next(n for n, root in causal.declared_roots(spec).items() if root.variant.site == "gpu")
    whole = bridge.to_pgmpy(spec, LAYOUT, variant, 1, [("step", False)]).get_cpds("fault[0]")
    one = bridge.to_pgmpy(spec, LAYOUT, variant, 1, [("step", False)], sites=[1]).get_cpds("fault[0]")
    assert whole.state_names["fault[0]"] == ["none", "gpu_0", "gpu_1"]
    assert one.state_names["fault[0]"] == ["none", "gpu_1"]
    assert one.values[1] == whole.values[2]
    assert one.values.sum() == pytest.approx(1.0)


def test_missing_contexts_and_impossible_likelihoods_are_refused():
    with pytest.raises(ValueError, match="1 contexts for 2 slices"):
        bridge.to_pgmpy(quick("rare"), LAYOUT, "m.v", 2, [("step", False)])
    network = bridge.to_pgmpy(quick("rare"), LAYOUT, "m.v", 1, [("step", False)])
    for vector in ([0.0, 0.0], [np.nan, 1.0]):
        with pytest.raises(ImpossibleEvidence, match=r"fault\[0\]"):
            bridge.virtual_evidence(network, {"fault[0]": vector})


@pytest.mark.parametrize(("name", "variant"), [VARIANTS[0], ("rare", "m.v"), ("rare", "m.w")])
def test_an_exported_file_reads_back_as_the_same_network(name, variant, tmp_path):
    from pgmpy.readwrite import BIFReader

    spec, path = quick(name), tmp_path / "two_slices.bif"
    bridge.export_bif(spec, LAYOUT, variant, path)
    read = BIFReader(str(path)).get_model()
    network = bridge.to_pgmpy(spec, LAYOUT, variant, 2, [("step", False)] * 2)
    assert len(read.nodes) == len(network.nodes)
    for cpd in network.get_cpds():
        plain = [re.sub(r"[][:>.#]", "_", v).rstrip("_") for v in cpd.variables]
        other = read.get_cpds(plain[0])
        assert list(other.state_names[plain[0]]) == list(cpd.state_names[cpd.variable])
        order = [other.variables.index(v) for v in plain]
        np.testing.assert_allclose(np.transpose(other.values, order), cpd.values, rtol=1e-12, atol=0)
    with pytest.raises(OutputExists):
        bridge.export_bif(spec, LAYOUT, variant, path)


def test_a_graph_is_told_to_graphviz_whole_and_escaped():
    graph = causal.causal_graph(quick("rare"))
    graph.add_node('odd "name"\\', kind="signal", title="two\nlines")
    text = bridge.export_dot(graph)
    lines = text.splitlines()
    assert lines[0] == 'digraph "reference" {'
    assert text.endswith("}\n")
    assert sum(" -> " in line for line in lines) == graph.number_of_edges()
    assert sum("shape=" in line for line in lines) == graph.number_of_nodes()
    assert '  "odd \\"name\\"\\\\" [shape=note, tooltip="two\\nlines"];' in lines
    assert any(line.startswith('  "waits" -> "ends"') and "timer short, 10 s" in line for line in lines)
