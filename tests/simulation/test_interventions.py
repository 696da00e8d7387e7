import networkx as nx
import numpy as np
import pytest

from clusterorch.errors import InvalidIntervention
from clusterorch.models.spec import PHASES
from clusterorch.simulation import Do, Simulator, simulate
from clusterorch.simulation.plan import active
from tests.simulation.worlds import quick, run, world

FAULT = "ib_link_flap.beyond_limit"
EDGE = "link_down>transport_gave_up"


def both(do, *, fault=FAULT, slices=80, **options):
    model = world()
    return model, *(simulate(model, slices, seed=7, fault=fault, at=2, do=d, **options) for d in ((), do))


def same(a, b):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("signal", ["power_ratio", "xid", "peer_closed", "progress"])
def test_setting_a_signal_changes_nothing_else_before_and_nothing_but_its_memory_after(signal):
    value = {"power_ratio": "0.5", "xid": "lost", "peer_closed": "1", "progress": "0"}[signal]
    model, factual, altered = both([f"{signal}[0]={value}@10"])
    place = model.network.slice_of(model.network.signal_index(signal)).start
    others = np.arange(model.network.width) != place
    same(factual.values[:, others], altered.values[:, others])
    same(factual.values[:10], altered.values[:10])
    assert altered.values[10, place] in (float(value) if value[0].isdigit() else 1.0, np.nan)
    for name, column in factual.truth.items():
        same(column, altered.truth[name])
    if signal != "power_ratio":
        same(factual.values[11:], altered.values[11:])


def test_a_mechanism_that_is_set_changes_only_its_descendants():
    """The counterfactual reads the same noise: what does not follow from the mechanism is the same to the bit."""
    mechanism = "link_loss_reported"
    model, factual, altered = both([f"{mechanism}=0"])
    graph = model.graph
    names = [m.name for m in model.spec.mechanism]
    below = nx.descendants(graph, mechanism) | {mechanism}
    changed_bits = np.bitwise_or.reduce(factual.truth["bits"] ^ altered.truth["bits"], axis=0)
    assert active(changed_bits, names.index(mechanism))
    assert {n for i, n in enumerate(names) if active(changed_bits, i)} <= below
    for s, signal in enumerate(model.spec.signal):
        if signal.name not in below:
            place = model.network.slice_of(s)
            same(factual.values[:, place], altered.values[:, place])
    for name in ("variant", "site", "severity"):
        same(factual.truth[name], altered.truth[name])
    assert not np.array_equal(factual.values, altered.values, equal_nan=True)


@pytest.mark.parametrize("do", ["link_down=0@40:60", f"{EDGE}.gate=1@3:60", "phase=step@5:9", "fault=none@0:2"])
def test_doing_what_happened_anyway_changes_nothing(do):
    options = {"fault": "gpu_xid.gsp_hang"} if do.startswith("link") else {}
    _, factual, altered = both([do], **options)
    same(factual.values, altered.values)


def test_the_future_cannot_reach_back():
    _, factual, altered = both(["link_down=1@30:35", "phase=save@31:33", "fault=none@36"])
    same(factual.values[:30], altered.values[:30])
    same(factual.arrival, altered.arrival)


def test_a_mechanism_held_on_runs_its_timer_to_the_slice():
    model = world()
    trace = simulate(model, 20, do=["link_down=1@4:"], onset=0 * model.network.onset)
    down = [m.name for m in model.spec.mechanism].index("transport_gave_up")
    on = active(trace.truth["bits"], down)
    # Held on from slice 4, the job is halted from then on; the limit of two slices has passed before slice 6.
    assert on.tolist() == [0] * 6 + [1] * 14


def test_gates_and_arrivals_obey():
    model = world()
    gave_up = [m.name for m in model.spec.mechanism].index("transport_gave_up")
    base = ["link_down=1@4:"]
    onset = 0 * model.network.onset
    never = simulate(model, 12, do=[*base, f"{EDGE}=0"], onset=onset)
    at_9 = simulate(model, 12, do=[*base, f"{EDGE}=0@0:9"], onset=onset)
    shut = simulate(model, 12, do=[*base, f"{EDGE}.gate=0@4"], onset=onset)
    early = simulate(model, 12, do=[f"{EDGE}.arrival=1@5"], onset=onset)
    first = [np.flatnonzero(active(t.truth["bits"], gave_up)) for t in (never, at_9, shut, early)]
    assert [f[:1].tolist() for f in first] == [[], [9], [], [5]]


def test_do_on_a_mechanism_equals_the_law_with_it_cut():
    """P(child | do(parent on)) is the gate of a fast edge, whatever the parent's own law."""
    model = quick()
    edge = next(e for e in model.spec.edge if e.delay.fast and 0 < e.gate < 1 and "." not in e.from_)
    child = [m.name for m in model.spec.mechanism].index(edge.to)
    others = [e for e in model.spec.edge if e.to == edge.to and e.from_ != edge.from_]
    cut = [f"{e.from_}>{e.to}=0" for e in others]
    n = 10_000
    simulator = Simulator(model, n, seed=1, onset=0 * model.network.onset, do=[f"{edge.from_}=1", *cut])
    run(simulator, 1)
    hits = active(simulator.state.bits, child).sum()
    assert abs(hits - n * edge.gate) < 4.9 * np.sqrt(n * edge.gate * (1 - edge.gate))


def test_a_fault_may_be_put_in_held_and_taken_out():
    model = world()
    held = simulate(model, 200, do=["fault=healthy.retransmissions/2@5:150", "fault=none@150:160"])
    variant = held.truth["variant"]
    assert (variant[:5] == -1).all()
    assert (variant[5:150] == model.variants.index("healthy.retransmissions")).all()
    assert (held.truth["site"][5:150] == 2).all()
    assert (variant[150:160] == -1).all()
    assert held.truth["entered"][5] > 0
    assert not held.truth["entered"][6:150].any()


def test_severity_and_site_are_drawn_where_not_given():
    model = world()
    drawn = Simulator(model, 400, fault="nan_injection.bad_batch", at=0)
    drawn.step()
    assert (drawn.state.site == 0).all()
    sites = Simulator(model, 400, fault="gpu_xid.gsp_hang", at=0)
    sites.step()
    assert np.unique(sites.state.site).tolist() == [0, 1, 2, 3]
    assert np.unique(sites.state.severity).tolist() == [0, 1, 2]
    given = Simulator(model, 9, fault="gpu_xid.gsp_hang/3/severe", at=0)
    given.step()
    assert (given.state.site == 3).all()
    assert (given.state.severity == 2).all()


def test_each_instance_may_have_its_own_fault():
    model = world()
    faults = ["gpu_xid.gsp_hang", None, "stuck_collective.member_elsewhere/1"]
    simulator = Simulator(model, 3, fault=faults, at=[1, 0, 3], onset=0 * model.network.onset)
    variant = np.array(run(simulator, 5, "variant")["variant"])
    held = (variant >= 0).T.tolist()
    assert held == [[False] + [True] * 4, [False] * 5, [False] * 3 + [True] * 2]


def test_phase_is_set_and_its_clock_starts():
    model = world()
    trace = simulate(model, 12, do=["phase=load@3"], onset=0 * model.network.onset)
    load = PHASES.index("load")
    assert (trace.published["phase"] == load).tolist() == [False] * 3 + [True] * 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("link_dwn=0", "link_down"),
        ("xid=lots", "lost"),
        ("xid[99]=lost", "0..3"),
        ("fault=gpu_xid", "gpu_xid.gsp_hang"),
        ("fault=gpu_xid.gsp_hang/9", "0..3"),
        ("fault=gpu_xid.gsp_hang/0/huge", "mild, moderate, severe"),
        ("fault=nan_injection.bad_batch/0/mild", "severity"),
        ("phase=stop_it", "stop"),
        ("link_down=maybe", "0 or 1"),
        ("link_down", "NAME=VALUE"),
        ("link_down=0@9:5", "no slice"),
        ("link_down[3]=0", "signal"),
        ("nothing>at_all=1", "near it"),
        ("power_ratio=warm", "number"),
        ("progress=2", "not a value"),
    ],
)  # fmt: skip
def test_what_the_network_does_not_have_is_refused_by_name(text, said):
    with pytest.raises(InvalidIntervention, match=said):
        Simulator(world(), do=[text])


def test_text_and_object_say_the_same():
    assert Do.parse("link_down=0@10:20") == Do("link_down", "0", 10, 20)
    assert Do.parse(f"{EDGE}.gate=1@7") == Do(f"{EDGE}.gate", "1", 7, 8)
    assert Do.parse("phase=save@3:").start == 3


def test_actions_with_unknown_names_or_targets_are_refused():
    simulator = Simulator(world())
    wrong = [
        ("reboot", "near it"),
        (("isolate_node", 2), "0..1"),
        ("isolate_node", "target"),
        (("roll_back", 3), "copy"),
    ]
    for action, said in wrong:
        with pytest.raises(InvalidIntervention, match=said):
            simulator.step(action)
    with pytest.raises(InvalidIntervention, match="0 or more"):
        Simulator(world(), fault=FAULT, at=-1)
    with pytest.raises(InvalidIntervention, match="2 faults for 3"):
        Simulator(world(), 3, fault=[FAULT, None])
    with pytest.raises(InvalidIntervention, match="start phase"):
        Simulator(world(), start="nowhere")
