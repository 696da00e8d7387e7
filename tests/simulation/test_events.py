import networkx as nx
import numpy as np
import pytest

from clusterorch.errors import IngestError
from clusterorch.simulation import Simulator, simulate
from clusterorch.simulation.plan import active
from clusterorch.simulation.recording import Recorder
from clusterorch.telemetry.events import Event, cascade_graph, read_events, write_events
from tests.simulation.worlds import quick, twisted, variants, world

EVERYTHING = {"mechanism_on", "mechanism_off", "fault", "fault_end", "action"}


def traced(name, **options):
    return simulate(world(), 90, seed=5, fault=name, at=3, **options)


@pytest.mark.parametrize("name", variants())
def test_the_causes_of_every_event_are_its_parents_in_the_declared_network(name):
    model = world()
    trace = traced(name)
    parents = {m.name: {e.from_ for e in model.spec.edge if e.to == m.name} for m in model.spec.mechanism}
    effect = {m.name: m.effect for m in model.spec.mechanism}
    asked = {s.name: {n for rule in s.when for n in rule.needs} for s in model.spec.signal}
    by_job = {s.name for s in model.spec.signal if any(rule.job for rule in s.when)}
    known = {event.id: event for event in trace.events}

    def label(event):
        return event.payload["variant"] if event.kind == "fault" else event.payload["name"]

    assert sorted(known) == list(range(len(trace.events)))
    lines = 0
    for event in trace.events:
        causes = [known[c] for c in event.causes]
        assert all(c.time <= event.time for c in causes)
        if event.kind == "mechanism_on":
            assert causes or event.payload.get("do")
            assert {label(c) for c in causes} <= parents[event.payload["name"]]
        elif event.kind in asked:
            lines += bool(causes)
            for cause in causes:
                assert cause.kind == "mechanism_on"
                stopping = effect[label(cause)] in ("crash", "stall", "block_save", "block_start")
                assert label(cause) in asked[event.kind] or (event.kind in by_job and stopping)
        else:
            assert event.kind in EVERYTHING
    # What only slows the job shows in samples, and in lines now and then.
    died = any(effect[e.payload["name"]] == "crash" for e in trace.events if e.kind == "mechanism_on")
    assert lines or not died or name.startswith("healthy.")
    assert nx.is_directed_acyclic_graph(cascade_graph(trace.events))


def test_events_are_the_changes_of_the_bits():
    model = world()
    trace = traced("gpu_xid.engine_fault")
    dt = model.spec.model.slice_seconds
    names = [m.name for m in model.spec.mechanism]
    on = set()
    for t in range(trace.slices):
        for event in trace.events:
            lasting = event.kind in ("mechanism_on", "mechanism_off") and not event.payload.get("transient")
            if lasting and t * dt <= event.time < (t + 1) * dt:
                on ^= {event.payload["name"]}
        assert on == {name for m, name in enumerate(names) if active(trace.truth["bits"][t], m)}


def test_lines_are_the_values():
    model = world()
    trace = traced("gpu_xid.engine_fault")
    dt = model.spec.model.slice_seconds
    seen = {(e.kind, int(e.time // dt), int(e.entity.split()[1])) for e in trace.events if e.kind not in EVERYTHING}
    wanted = set()
    for signal in model.spec.signal:
        values = trace.signal(signal.name)
        if not signal.lines or signal.family in ("gaussian", "log_ratio"):
            continue
        if signal.family == "first_speaker":
            wanted |= {(signal.name, t, int(v)) for t, v in enumerate(values[:, 0]) if v >= 0}
        else:
            wanted |= {(signal.name, t, e) for t, e in zip(*np.nonzero(values > 0), strict=True)}
    assert seen == wanted
    assert all(e.arrival >= e.time for e in trace.events)


def test_who_speaks_first_is_first():
    """Order inside a slice is evidence through the first speaker only, so it has to hold."""
    found = 0
    for seed in range(20):
        trace = simulate(world(), 12, seed=seed, fault="gpu_xid.engine_fault", at=3)
        spec = {s.name: s for s in world().spec.signal}
        for speaker in (e for e in trace.events if spec.get(e.kind) and spec[e.kind].family == "first_speaker"):
            mates = [
                e for e in trace.events
                if e.kind in spec and spec[e.kind].stream == spec[speaker.kind].stream
                and spec[e.kind].entity == spec[speaker.kind].entity and int(e.time // 15) == int(speaker.time // 15)
            ]  # fmt: skip
            own = min(e.time for e in mates if e.entity == speaker.entity)
            assert own == min(e.time for e in mates)
            found += len(mates) > 1
    assert found


def test_actions_restarts_and_ends_are_recorded_with_their_causes():
    model = quick()
    trace = simulate(
        model, 12, fault="stuck_collective.member_elsewhere/0", at=1, seed=1, onset=0 * model.network.onset,
        actions={5: ("around_rail", 0), 6: ("isolate_node", 0)},
    )  # fmt: skip
    known = {e.id: e for e in trace.events}
    acted = [e for e in trace.events if e.kind == "action"]
    assert [a.payload["name"] for a in acted] == ["around_rail", "isolate_node"]
    after = next(e for e in trace.events if e.kind == "fault_end" or e.payload.get("again"))
    assert acted[1].id in after.causes
    off = [e for e in trace.events if e.kind == "mechanism_off" and e.time >= 90]
    assert off
    assert all(known[o.causes[0]].kind == "mechanism_on" for o in off)


def test_events_survive_a_file(tmp_path):
    trace = traced("gpu_xid.engine_fault")
    write_events(trace.events, tmp_path / "events.jsonl")
    assert list(read_events(tmp_path / "events.jsonl")) == trace.events
    (tmp_path / "bad.jsonl").write_text('{"time": 1}\n')
    with pytest.raises(IngestError, match=r"bad\.jsonl:1"):
        list(read_events(tmp_path / "bad.jsonl"))
    with pytest.raises(IngestError):
        list(read_events(tmp_path / "none.jsonl"))


def test_a_cascade_is_a_graph():
    root = Event(0.0, 0.0, "cascade", "gpu 0", "fault", {"variant": "a.b"}, (), 0)
    line = Event(1.0, 15.0, "nccl", "rank 0", "x", {}, (0,), 1)
    graph = cascade_graph([root, line])
    assert list(graph.edges) == [(0, 1)]
    assert graph.nodes[1]["source"] == "nccl"


def test_a_cause_is_an_edge_that_arrived_and_no_other_active_parent():
    model = twisted()
    spec, apart = model.spec, 0
    for name in variants():
        for seed in range(4):
            simulator = Simulator(model, 1, seed=seed, fault=name, at=1, onset=0 * model.network.onset)
            recorder, known = Recorder(simulator), {}
            for _ in range(25):
                simulator.step()
                fresh = recorder.record()
                known |= {e.id: e for e in fresh}
                arrived = {(e.from_, e.to) for e, a in zip(spec.edge, simulator.state.arrived[0], strict=True) if a}
                for event in (e for e in fresh if e.kind == "mechanism_on"):
                    causes = {known[c].payload.get("variant") or known[c].payload["name"] for c in event.causes}
                    assert causes == {start for start, end in arrived if end == event.payload["name"]}
                    active = {e.from_ for e in spec.edge if e.to == event.payload["name"] and e.from_ == name}
                    apart += bool(active - causes)
    assert apart  # some parent was active and had not arrived
