from itertools import pairwise

import pytest

from clusterorch.errors import InvalidModel
from clusterorch.models import load
from clusterorch.models.checks import check, count_configurations, refuse_large
from clusterorch.models.configurations import expand
from clusterorch.models.ground import ground, limit_slices
from clusterorch.models.spec import ModelSpec
from tests.models import tiny
from tests.models.edits import Edit, add, again, both, edge, of, put, rename, rule, without


def test_the_tiny_model_holds():
    assert tiny.checked(tiny.raw()) == []


def test_the_reference_model_holds():
    model = load("reference")
    warnings = check(model.spec, model.raw, "reference.toml", thorough=True)
    assert all("configurations" in line or line.startswith("sources.") for line in warnings)


BROKEN: dict[str, tuple[Edit, str, str, str]] = {
    # what is wrong: (edit, key, part of the problem, part of the fix)
    "a number without origin": (
        lambda raw: of("timer", "limit")(raw).pop("source"), "timer(limit).seconds", "45", "add source"),
    "a source nobody declared": (
        put("timer", "limit", source="blog 3"),
        "timer(limit).source", "'blog'", "begin with one of its keys"),
    "two origins": (put("timer", "limit", assumed="guess"), "timer(limit)", "source and assumed", "keep one"),
    "an empty reason": (
        put("stream", "smi", assumed=" "), "stream(smi).assumed", "empty", "say where"),
    "an origin for the whole file": (
        lambda raw: raw.update(assumed="all of it"), "file", "outside every table", "move it"),
    "two mechanisms of one name": (again("mechanism", "hot"), "mechanism(hot)", "2 times", "its own name"),
    "two signals of one name": (again("signal", "alarm"), "signal(alarm)", "2 times", "its own name"),
    "an edge twice": (again("edge", "hot>stuck"), "edge(hot>stuck)", "2 times", "keep one"),
    "two timers of one name": (again("timer", "limit"), "timer(limit)", "2 times", "its own name"),
    "two streams of one name": (again("stream", "smi"), "stream(smi)", "2 times", "its own name"),
    "two actions of one name": (again("action", "restart"), "action(restart)", "2 times", "its own name"),
    "two disturbances of one name": (again("benign", "noise"), "benign(noise)", "2 times", "its own name"),
    "two variants of one name": (
        lambda raw: raw["mode"][0]["variant"][0].update(name="plain"),
        "mode(fault).variant(plain)", "2 times", "its own name"),
    "a mode called healthy": (rename("mode", "fault", "healthy"), "mode(healthy)", "absence", "another name"),
    "a signal with the name of a mechanism": (
        rename("signal", "alarm", "hot"), "signal(hot)", "a mechanism has this name", "its own name"),
    "a value twice": (
        put("signal", "state", values=["well", "well"]), "signal(state).values", "repeats", "once"),
    "an edge from nowhere": (
        put("edge", "hot>stuck", **{"from": "hots"}),
        "edge(hots>stuck).from", "'hots'", "did you mean 'hot'"),
    "an edge from a mode": (
        put("edge", "fault.plain>stuck", **{"from": "fault"}),
        "edge(fault>stuck).from", "mode.variant", "declare"),
    "an edge to nowhere": (
        put("edge", "fault.plain>stuck", to="gone"), "edge(fault.plain>gone).to", "'gone'", "declare it"),
    "a timer nobody declared": (
        put("edge", "stuck>gave_up", delay={"timer": "limits"}),
        "edge(stuck>gave_up).delay.timer", "'limits'", "did you mean 'limit'"),
    "a rule for an unknown mechanism": (
        rule("alarm", mechanisms=["hot", "cold"]),
        "signal(alarm).when[0].mechanisms", "'cold'", "declare it"),
    "a rule for one unknown mechanism": (
        rule("heat", mechanism="warm"), "signal(heat).when[0].mechanism", "'warm'", "declare it"),
    "a rule against an unknown mechanism": (
        rule("heat", absent_mechanisms=["warm"]),
        "signal(heat).when[0].absent_mechanisms", "'warm'", "declare it"),
    "an unknown phase in a rule": (
        rule("state", phases=["saving"]), "signal(state).when[0].phases", "'saving'", "did you mean 'save'"),
    "an unknown phase of a variant": (
        lambda raw: raw["mode"][0]["variant"][1].update(phases=["steps"]),
        "mode(fault).variant(plain).phases", "'steps'", "did you mean 'step'"),
    "an unknown phase of an edge": (
        put("edge", "hot>stuck", phases=["steps"]),
        "edge(hot>stuck).phases", "'steps'", "did you mean 'step'"),
    "no phase at all": (
        put("edge", "hot>stuck", phases=[]), "edge(hot>stuck).phases", "empty", "name a phase"),
    "an action on nothing": (
        lambda raw: of("action", "restart")(raw)["effect"][0].update(of=["fault.plane"]),
        "action(restart).effect[0].of", "'fault.plane'", "did you mean 'fault.plain'"),
    "an action on an empty list": (
        lambda raw: of("action", "restart")(raw)["effect"][0].update(of=[]),
        "action(restart).effect[0].of", "no fault", "list modes or variants"),
    "a signal of an undeclared stream": (
        put("signal", "alarm", stream="kernel"), "signal(alarm).stream", "'kernel'", "declare it"),
    "an unknown proximate": (
        lambda raw: raw["mode"][0]["variant"][1].update(proximate="gave_in"),
        "mode(fault).variant(plain).proximate", "'gave_in'", "did you mean 'gave_up'"),
    "a cycle": (
        edge("gave_up", "hot", delay={"geometric": 60}), "edge(", "a cycle: ", "remove an edge"),
    "a mechanism that causes itself": (
        edge("hot", "hot", delay={"geometric": 60}), "edge(hot>hot)", "a cycle: hot > hot", "remove an edge"),
    "a transient cause": (
        edge("told", "humming"), "edge(told>humming).from", "'told' is transient", "lasting"),
    "a transient mechanism that is awaited": (
        put("edge", "gave_up>told", delay={"geometric": 60}),
        "edge(gave_up>told).delay", "'told' is transient", 'delay = "fast"'),
    "a transient mechanism with phases": (
        put("edge", "gave_up>told", phases=["step"]), "edge(gave_up>told).phases", "transient", "remove"),
    "a timer on something that does not halt": (
        put("mechanism", "stuck", effect="slow"),
        "edge(stuck>gave_up).delay.timer", "'stuck' does not halt", 'effect = "stall"'),
    "a timer on a variant": (
        put("edge", "fault.plain>stuck", delay={"timer": "limit"}),
        "edge(fault.plain>stuck).delay.timer", "does not halt", 'effect = "stall"'),
    "an erlang delay below its stages": (
        put("edge", "hot>stuck", delay={"erlang": [3, 30]}),
        "edge(hot>stuck).delay.erlang", "45 s", "fewer stages"),
    "a variant without an edge": (
        without("edge", "fault.graded>hot"),
        "mode(fault).variant(graded)", "no edge leaves it", "add an edge"),
    "a disturbance without an edge": (
        without("edge", "healthy.noise>humming"), "benign(noise)", "no edge leaves it", "add an edge"),
    "a variant that nothing shows": (
        without("signal", "skips"), "benign(noise)", "no signal shows", "add a rule"),
    "a mechanism that nothing brings about": (
        add("mechanism", name="idle", title="never"),
        "mechanism(idle)", "no variant brings it", "add an edge"),
    "a background that is certain": (
        put("signal", "alarm", probability=1.0), "signal(alarm).probability", "1 makes", "below 1"),
    "a background that is impossible": (
        put("signal", "alarm", probability=0.0), "signal(alarm).probability", "0 makes", "small probability"),
    "a rule that is impossible": (
        rule("alarm", 1, probability=0.0),
        "signal(alarm).when[1].probability", "0 makes", "small probability"),
    "one severity that is certain": (
        rule("alarm", probability=[0.5, 0.9, 1.0]),
        "signal(alarm).when[0].probability", "1 makes", "below 1"),
    "an impossible class": (
        put("signal", "skips", probabilities=[0.9, 0.1, 0.0, 0.0, 0.0]),
        "signal(skips).probabilities", "0 makes", "small probability"),
    "an impossible chorus": (put("signal", "timeout", told=0.0), "signal(timeout).told", "0 makes", "small"),
    "a chorus that is always told": (
        rule("timeout", told=1.0), "signal(timeout).when[0].told", "1 makes", "below"),
    "a quiet that is impossible": (
        put("signal", "timeout", quiet=0.0), "signal(timeout).quiet", "0 makes", "small"),
    "a member that never speaks": (
        rule("timeout", speak={"site": 0.0, "node": 0.9, "rest": 0.9}),
        "signal(timeout).when[0].speak.site", "0 makes", "small"),
    "a member that speaks twice": (
        rule("timeout", speak={"site": 0.1, "node": 1.5, "rest": 0.9}),
        "signal(timeout).when[0].speak.node", "1.5", "between 0 and 1"),
    "a first word that is certain": (
        rule("first", speaks=1.0), "signal(first).when[0].speaks", "1 makes", "below"),
    "a first word that is impossible": (
        rule("first", weight={"site": 0, "node": 1, "rest": 1}),
        "signal(first).when[0].weight.site", "impossible", "small weight"),
    "values that are always absent": (
        rule("heat", absent=1.0), "signal(heat).when[0].absent", "every value", "[0, 1)"),
    "no spread": (rule("heat", sd=0.0), "signal(heat).when[0].sd", "not positive", "above 0"),
    "no noise": (put("signal", "heat", memory=1.0), "signal(heat).memory", "no noise", "below 1"),
    "a relation to a thing of which there is one": (
        rule("skips", where="site"), "signal(skips).when[0].where", "one job", 'where = "all"'),
    "a relation in a chorus": (
        rule("timeout", where="site"),
        "signal(timeout).when[0].where", "all members at once", "speak or weight"),
    "a rule that always matches": (
        lambda raw: of("signal", "state")(raw)["when"][0].pop("phases"),
        "signal(state).when[0]", "matches always", "say when"),
    "a parameter of another family": (
        rule("heat", probability=0.5), "signal(heat).when[0].probability", "does not read", "remove the key"),
    "a background by severity": (
        put("signal", "heat", mean=[1, 2, 3]), "signal(heat).mean", "without a fault", "one number"),
    "a rule by severity for what has none": (
        rule("skips", probabilities=[[0.2] * 5] * 3),
        "signal(skips).when[0].probabilities", "by severity", "one number"),
    "a slowdown by severity for what has none": (
        put("mechanism", "humming", effect="slow", slowdown=[1.1, 1.2, 1.3], assumed="a test"),
        "mechanism(humming).slowdown", "by severity", "one number"),
    "a rollback without a restart": (
        put("action", "roll_back", restarts=False),
        "action(roll_back).discards", "without a restart", "restarts"),
    "a rollback of a node": (
        put("action", "roll_back", target="node"), "action(roll_back).discards", "from a copy", '"copy"'),
    "an episode without a rate": (
        lambda raw: raw["prior"].update(kind="episode"),
        "prior.incidents_per_hour", "missing", "add the key"),
    "an incident without a healthy share": (
        lambda raw: raw["prior"].update(kind="incident"), "prior.healthy", "missing", "add the key"),
    "too many configurations": (
        both(*(add("mechanism", name=f"m{i}", title="one of seven") for i in range(7)),
             *(edge("healthy.noise", f"m{i}", gate=0.5) for i in range(7))),
        "benign(noise)", "more than 64 configurations", "drop gates"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_model_is_refused_in_one_line(case):
    edit, key, problem, fix = BROKEN[case]
    raw = tiny.raw()
    edit(raw)
    with pytest.raises(InvalidModel) as caught:
        tiny.checked(raw)
    error = caught.value
    assert error.file == "tiny.toml"
    assert error.key.startswith(key) if key.endswith("(") else error.key == key
    assert problem in error.problem
    assert fix in error.fix
    assert "\n" not in str(error)
    assert all(part in str(error) for part in ("tiny.toml", error.key, error.fix))


def test_a_cycle_is_named_all_the_way_round():
    raw = tiny.raw()
    edge("gave_up", "hot", delay={"geometric": 60})(raw)
    with pytest.raises(InvalidModel) as caught:
        tiny.checked(raw)
    steps = caught.value.problem.removeprefix("a cycle: ").split(" > ")
    assert steps[0] == steps[-1]
    assert sorted(steps[:-1]) == ["gave_up", "hot", "stuck"]
    edges = {(e["from"], e["to"]) for e in raw["edge"]}
    assert set(pairwise(steps)) <= edges


def test_what_nothing_brings_about_is_no_obstacle_to_loading():
    raw = tiny.raw()
    raw["mechanism"].append({"name": "idle", "title": "never"})
    assert tiny.checked(raw, thorough=False) == []


def test_many_configurations_are_a_warning():
    raw = tiny.raw()
    for i in range(5):
        add("mechanism", name=f"m{i}", title="one of five")(raw)
        edge("healthy.noise", f"m{i}", gate=0.5)(raw)
    assert tiny.checked(raw) == ["benign(noise): 32 configurations, more than 16: slow"]
    assert tiny.checked(raw, thorough=False) == []


def test_a_cascade_without_end_is_refused_before_it_is_expanded():
    raw = tiny.raw()
    for i in range(60):
        add("mechanism", name=f"m{i}", title="one of sixty")(raw)
        edge("humming", f"m{i}", gate=0.5)(raw)
    with pytest.raises(InvalidModel, match=r"benign.noise.: more than 64 configurations"):
        tiny.checked(raw)


def test_a_large_chain_is_refused_with_its_count():
    raw = tiny.raw()
    for i in range(7):
        add("mechanism", name=f"m{i}", title="one of seven")(raw)
        edge("healthy.noise", f"m{i}", gate=0.5)(raw)
    spec = ModelSpec.model_validate(raw)
    noise = next(v for v in ground(spec, 1, 3) if v.name == "healthy.noise")
    chain = expand(noise.law, tuple(limit_slices(spec).values()), hidden_age=False)
    with pytest.raises(InvalidModel, match=r"benign.noise.: 128 configurations, and 64"):
        refuse_large(chain, "tiny.toml")
    for small in count_configurations(tiny.spec(), "tiny.toml").values():
        refuse_large(small, "tiny.toml")


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (
            rule("alarm", mechanisms=["hot", "humming"], probability=0.5),
            "signal(alarm).when[0]: never matches: no variant",
        ),
        (
            put("signal", "heat", entity="leaf"),
            "signal(heat).when[0]: never matches: no leaf stands in relation",
        ),
        (
            both(put("signal", "heat", entity="node"), rule("heat", where="node")),
            "signal(heat).when[0]: never matches: no node stands in relation",
        ),
        (lambda raw: raw["sources"].update(spare="nobody reads it"), "sources.spare: no number cites it"),
    ],
)
def test_what_is_idle_is_a_warning(edit, line):
    raw = tiny.raw()
    edit(raw)
    assert any(warning.startswith(line) for warning in tiny.checked(raw))


@pytest.mark.parametrize(("job", "effect"), [("down", "crash"), ("halted", "stall"), ("moving", "stall")])
def test_a_variant_is_seen_by_what_it_does_to_the_job(job, effect):
    raw = tiny.raw()
    of("signal", "skips")(raw)["when"] = [{"job": job, "probabilities": [0.2] * 5}]
    of("mechanism", "humming")(raw)["effect"] = effect
    tiny.checked(raw)
    of("mechanism", "humming")(raw)["effect"] = "none"
    with pytest.raises(InvalidModel, match="no signal shows"):
        tiny.checked(raw)
