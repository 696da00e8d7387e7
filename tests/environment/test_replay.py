"""Counterfactuals: the same noise again, exactly, as it was or under other moves and interventions."""

from dataclasses import replace

import numpy as np
import pytest

from clusterorch.environment.delivery import delivered
from clusterorch.environment.replaying import episodes_of_trace, model_of_trace, replay, replay_exactly, text_of
from clusterorch.environment.tables import TABLES, read_trace, write_trace
from clusterorch.errors import InvalidIntervention, InvalidTrace
from clusterorch.simulation.interventions import Do
from tests.environment.played import recorded, trace_of

MOVED = "move=restart_rank:1@40"
AT, LATER = 100, "move=isolate_node:1@200"


def moves_of(trace):
    return [(round(row["time"] / 15.0), row["move"]) for row in trace.rows("recovery") if row["move"] != "wait"]


def before(trace, name, time):
    """Rows of a table that stand before a moment; a decision at the moment itself is another already."""
    column = trace.tables[name].column("time").to_numpy()
    keep = column <= time if name in ("telemetry", "truth", "diagnosis") else column < time
    return trace.tables[name].filter(keep.tolist())


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"observe": "raw", "seed": 11},
        {"layout": "1x4", "seed": 5, "blackouts": False, "decision": 7},
        {
            "layout": "4x2",
            "spares": 2,
            "leaves": 2,
            "profile": "infiniband",
            "first_instance": 3,
            "domain": "elsewhere",
        },
    ],
)
def test_without_a_change_the_episode_is_the_same_to_the_bit(arguments, tmp_path):
    if "profile" in arguments:
        arguments = arguments | {"profile": site_profile()}
    _, recorder, _ = recorded({4: "restart_rank:0", 20: "use_tree", 21: "use_tree", 40: "roll_back:1"}, **arguments)
    trace = read_trace(recorder.save(tmp_path / "trace"))
    again = replay(trace)
    assert again.same_as(trace)
    assert again.metadata == trace.metadata


def site_profile():
    from clusterorch.models.reading import locate_overlay

    folder = locate_overlay("episode").parent
    return sorted(file.stem.removeprefix("site_") for file in folder.glob("site_*.toml"))[0]


def test_what_was_stated_is_stated_again():
    _, recorder, _ = recorded({}, stated={2: ("straggler", 1), 9: ("healthy", None)})
    assert replay(recorder.trace()).tables["recovery"].equals(recorder.trace().tables["recovery"])


def test_an_episode_that_was_left_early_plays_again_as_far():
    episodes, recorder, _ = recorded({}, hours=0.5)
    episodes.begin(np.array([0]), np.array([2]))
    for move in (0, 0, 3, 0):
        episodes.decide(np.array([move]), np.array([True]))
    trace = recorder.trace()
    assert 12 < trace.slices < episodes.horizon
    assert replay_exactly(trace).metadata["episode"] == 2


@pytest.mark.parametrize("move", ["restart_rank:0", "roll_back:0", "use_tree", "move_to_spare:1"])
def test_another_move_changes_nothing_before_it(move):
    trace, other = trace_of(MOVED), replay(trace_of(MOVED), [f"move={move}@{AT}"])
    time = next(row["time"] for row in trace.rows("recovery") if row["time"] >= AT * 15.0)
    for name in ("truth", "diagnosis", "recovery"):
        assert before(trace, name, time).equals(before(other, name, time)), name
        assert not trace.tables[name].equals(other.tables[name]), name
    seen, would = before(trace, "telemetry", time), before(other, "telemetry", time)
    arrived = seen.filter((seen.column("arrival").to_numpy() <= time).tolist())
    assert arrived.equals(would.filter((would.column("arrival").to_numpy() <= time).tolist()))
    assert [e for e in trace.events if e.time < time] == [e for e in other.events if e.time < time]


@pytest.mark.parametrize("move", ["restart_rank:0", "use_tree"])
def test_a_move_on_a_healthy_job_changes_only_what_depends_on_it(move):
    """The job stands in another phase for a while; where it does not, every word and every cell is the same."""
    trace = trace_of("fault=none@0:")
    other = replay(trace, [f"move={move}@{AT}"])
    assert not [row for row in other.rows("truth") if row["variant"]]
    network = model_of_trace(trace.metadata).network
    (values, arrival), (values_other, arrival_other) = delivered(trace, network), delivered(other, network)
    np.testing.assert_array_equal(arrival, arrival_other)
    alike = [
        (a["phase"], a["job_class"]) == (b["phase"], b["job_class"])
        for a, b in zip(trace.rows("truth"), other.rows("truth"), strict=True)
    ]
    assert 0 < alike.count(False) < 60
    words = [s.name for s in network.spec.signal if s.family not in ("gaussian", "log_ratio")]
    for s, signal in enumerate(network.spec.signal):
        if signal.name in words:
            columns = network.slice_of(s)
            np.testing.assert_array_equal(values[alike, columns], values_other[alike, columns], err_msg=signal.name)


def test_a_node_that_leaves_a_healthy_job_moves_nothing_on_the_others():
    trace = trace_of("fault=none@0:")
    other = replay(trace, [f"move=isolate_node:1@{AT}"])
    network = model_of_trace(trace.metadata).network
    (values, arrival), (values_other, arrival_other) = delivered(trace, network), delivered(other, network)
    np.testing.assert_array_equal(arrival[:, :, [0, 2]], arrival_other[:, :, [0, 2]])
    assert (arrival[AT:, :, 1] >= 0).any()
    assert not (arrival_other[AT + 40 :, :, 1] >= 0).any()
    phases = [[row["phase"] for row in one.rows("truth")] for one in (trace, other)]
    alike = [a == b for a, b in zip(*phases, strict=True)]
    for s, signal in enumerate(network.spec.signal):
        nodes = network.layout.node_of(signal.entity)
        if nodes[0] == 0 and signal.family in ("presence", "count", "categorical"):
            columns = np.arange(network.width)[network.slice_of(s)][nodes == 0]
            told, would = values[:, columns][alike], values_other[:, columns][alike]
            np.testing.assert_array_equal(told, would, err_msg=signal.name)


def test_a_value_that_is_set_is_all_that_changes_in_the_world():
    trace = trace_of(MOVED)
    other = replay(trace, ["xid[1]=lost@50"])
    assert other.tables["truth"].equals(trace.tables["truth"])
    network = model_of_trace(trace.metadata).network
    values, arrival = delivered(trace, network)
    values_other, arrival_other = delivered(other, network)
    np.testing.assert_array_equal(arrival, arrival_other)
    place = network.slice_of([s.name for s in network.spec.signal].index("xid")).start + 1
    differ = ~((values == values_other) | (np.isnan(values) & np.isnan(values_other)))
    assert np.argwhere(differ).tolist() == [[50, place]]
    assert other.metadata["do"] == [MOVED, "xid[1]=lost@50"]


def test_a_fault_that_is_kept_out_leaves_no_incident():
    trace, other = trace_of(MOVED), replay(trace_of(MOVED), ["fault=none@0:"])
    assert any(row["variant"] for row in trace.rows("truth"))
    assert not any(row["variant"] for row in other.rows("truth"))
    assert moves_of(other) == moves_of(trace)


def test_later_moves_are_made_as_recorded_or_not_at_all():
    trace = trace_of(MOVED, LATER)
    slice_of = {move: t for t, move in moves_of(trace)}
    kept = replay(trace, ["move=use_tree@60"])
    assert moves_of(kept)[:2] == [(40, "restart_rank:1"), (62, "use_tree")]
    assert moves_of(kept)[2][1] == "isolate_node:1"
    assert 0 <= moves_of(kept)[2][0] - slice_of["isolate_node:1"] < 4
    assert moves_of(replay(trace, ["move=use_tree@60"], then="wait")) == moves_of(kept)[:2]


def test_a_start_that_is_fast_forwarded_puts_no_later_move_off():
    trace = trace_of(LATER)
    (_, restarted), (later, name) = moves_of(replay(trace, ["move=restart_rank:0@100"]))
    assert (restarted, name) == ("restart_rank:0", "isolate_node:1")
    assert 200 <= later < 204


def test_a_move_may_be_undone_and_a_range_of_decisions_set():
    trace = trace_of(MOVED, LATER)
    assert moves_of(replay(trace, ["move=wait@40"])) == [(204, "isolate_node:1")]  # recorded at 202
    assert moves_of(replay(trace, ["move=wait@0:"])) == []
    assert replay(trace, ["move=wait@0:"]).tables["truth"].equals(trace_of().tables["truth"])


def test_a_counterfactual_plays_again_too(tmp_path):
    other = replay(trace_of(MOVED), ["move=roll_back:1@100", "xid[0]=memory@30"])
    stored = read_trace(write_trace(other, tmp_path / "other"))
    assert replay_exactly(stored).metadata == stored.metadata
    assert replay(stored, ["move=wait@100"]).metadata["do"][-1] == "move=wait@100"


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("move=use_ring@100", r"use_ring is not legal at slice 102: legal are wait, "),
        ("move=fly@100", r"no move fly:0 on layout 2x2"),
        ("move=restart_rank:9@100", r"give a target in 0\.\.1"),
        ("move=requeue@100", r"the scheduler's own"),
        ("move=wait@900", r"no decision of 0\.\.239 falls there"),
        ("gremlins=1@3", r"no variable is named 'gremlins'"),
        ("move", r"write NAME=VALUE"),
    ],
)
def test_what_cannot_be_done_is_told(do, message):
    with pytest.raises(InvalidIntervention, match=message):
        replay(trace_of(MOVED), [do])


def test_an_unknown_way_to_go_on_is_told():
    with pytest.raises(InvalidIntervention, match="give one of recorded, wait"):
        replay(trace_of(MOVED), then="panic")


def test_a_trace_of_another_model_is_not_played():
    trace = trace_of(MOVED)
    with pytest.raises(InvalidTrace, match="as the files now are"):
        replay(replace(trace, metadata=trace.metadata | {"sha256": "0" * 64}))
    with pytest.raises(InvalidTrace, match="no model to play with"):
        replay(replace(trace, metadata=trace.metadata | {"model": "atlantis"}))
    with pytest.raises(InvalidTrace, match="without what it takes"):
        episodes_of_trace({key: value for key, value in trace.metadata.items() if key != "seed"})


def test_an_episode_that_comes_out_otherwise_is_told():
    trace = trace_of(MOVED)
    with pytest.raises(InvalidTrace, match="plays again to the bit"):
        replay_exactly(replace(trace, metadata=trace.metadata | {"seed": 4}))
    assert all(replay_exactly(trace).tables[name].equals(trace.tables[name]) for name in TABLES)


def test_interventions_are_written_as_they_are_read():
    for text in ("move=roll_back:2@16", "xid[12]=lost@7:9", "fault=none@0:", "A>B.gate=0@4"):
        assert text_of(Do.parse(text)) == text
