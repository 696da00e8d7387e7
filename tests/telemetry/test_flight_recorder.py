import json
import pickle

import pytest

from clusterorch.errors import IngestError
from clusterorch.telemetry.flight_recorder import FlightRecorderReader
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())
WORLD = [0, 1, 2, 3, 4, 5, 6, 7]


def entry(sequence, operation="nccl:all_reduce", group="0", local=0, **changes):
    """A record as version 2.4 writes it."""
    return {
        "record_id": sequence,
        "pg_id": local,
        "process_group": [group, f"group_{group}"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": operation,
        "time_created_ns": 1_700_000_000_000_000_000 + sequence,
        "input_sizes": [[1024]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[1024]],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **changes,
    }


def done(sequence, **changes):
    return entry(sequence, **{"state": "completed", "time_discovered_completed_ns": 9, "retired": True, **changes})


def dump(entries, groups=None, status=None, version="2.4"):
    groups = groups or {"0": WORLD}
    return {
        "version": version,
        "pg_config": {name: {"name": name, "desc": f"group_{name}", "ranks": str(r)} for name, r in groups.items()},
        "pg_status": {
            local: {"last_enqueued_collective": e, "last_started_collective": -1, "last_completed_collective": c}
            for local, (e, c) in (status or {}).items()
        },
        "entries": entries,
    }


def told(dumps, tmp_path, name="nccl_trace_rank_{}", write="json"):
    for rank, value in dumps.items():
        data = json.dumps(value).encode() if write == "json" else pickle.dumps(value, 2)
        (tmp_path / name.format(rank)).write_bytes(data)
    result = read_paths([tmp_path], FORMATS)
    return sorted((reading.signal, str(reading.entity)) for reading in result.readings), result


def all_wait(at=10, world=WORLD):
    return {rank: dump([done(at - 1), entry(at)]) for rank in world}


# ------------------------------------------------------------ who is behind


@pytest.mark.parametrize("write", ["json", "pickle"])
def test_the_member_that_never_enqueued_is_behind(tmp_path, write):
    dumps = all_wait() | {5: dump([done(8), done(9)])}
    readings, result = told(dumps, tmp_path, write=write)
    assert readings == [("lagging_rank", "rank 5")]
    assert "never enqueued collective 10" in result.readings[0].text
    assert result.coverage.unrecognised == 0
    assert result.coverage.streams["nccl"] == result.coverage.lines
    assert {mark.seconds for mark in result.limits} == {600.0}
    assert {place.ranks for place in result.places} == {8}


def test_counters_tell_where_a_dump_of_the_pending_has_no_record(tmp_path):
    dumps = {rank: dump([entry(10)], status={"0": (10, 9)}) for rank in WORLD}
    dumps[2] = dump([], status={"0": (9, 9)})
    assert told(dumps, tmp_path, name="_dump_{}")[0] == [("lagging_rank", "rank 2")]


def test_a_rank_that_recorded_nothing_and_counts_nothing_is_behind(tmp_path):
    dumps = all_wait() | {7: dump([])}
    assert told(dumps, tmp_path)[0] == [("lagging_rank", "rank 7")]


def test_who_waits_for_the_one_behind_is_not_named(tmp_path):
    """Rank 1 is late in the world's group, but only because it waits for rank 0 in their own."""
    groups = {"0": [0, 1, 2, 3], "1": [0, 1]}
    dumps = {rank: dump([entry(10)], {"0": [0, 1, 2, 3]}) for rank in (2, 3)}
    dumps[0] = dump([done(9), done(4, group="1", local=1)], groups)
    dumps[1] = dump([done(9), entry(5, group="1", local=1)], groups)
    assert told(dumps, tmp_path)[0] == [("lagging_rank", "rank 0")]


def pair(number, operation, group="9", **changes):
    return entry(number, operation, group=group, local=9, is_p2p=True, **changes)


def test_who_waits_for_nothing_while_the_others_wait_to_receive_from_it(tmp_path):
    groups = {"0": [0, 1, 2, 3], "9": [0, 1, 2, 3]}
    dumps = {rank: dump([done(4), pair(5, f"nccl:recv {rank}<-{rank + 1}")], groups) for rank in range(3)}
    dumps[3] = dump([done(4)], groups)
    assert told(dumps, tmp_path)[0] == [("lagging_rank", "rank 3")]


def test_who_is_late_because_it_waits_to_receive_is_not_named(tmp_path):
    """Ranks 0 and 1 wait in a collective for 2, which waits to receive from 3, which waits for nothing."""
    groups = {"0": [0, 1, 2], "9": [2, 3]}
    dumps = {rank: dump([done(9), entry(10)], {"0": [0, 1, 2]}) for rank in (0, 1)}
    dumps[2] = dump([done(9), pair(5, "nccl:recv 0<-1")], groups)
    dumps[3] = dump([], {"9": [2, 3]})
    assert told(dumps, tmp_path)[0] == [("lagging_rank", "rank 3")]


def test_two_that_wait_for_each_other_are_both_named(tmp_path):
    groups = {"a": [0, 1], "b": [0, 1]}
    dumps = {
        0: dump([entry(5, group="a"), done(2, group="b", local=1)], groups),
        1: dump([done(4, group="a"), entry(3, group="b", local=1)], groups),
        2: dump([entry(1, group="c")], {"c": [2, 3]}),
        3: dump([entry(1, group="c")], {"c": [2, 3]}),
    }
    assert told(dumps, tmp_path)[0] == [("lagging_rank", "rank 0"), ("lagging_rank", "rank 1")]


def test_the_one_that_left_no_dump_where_all_others_wait(tmp_path):
    dumps = all_wait(world=[rank for rank in WORLD if rank != 4])
    readings, result = told(dumps, tmp_path)
    assert readings == [("lagging_rank", "rank 4")]
    assert "left no dump" in result.readings[0].text


def test_the_first_versions_have_other_keys(tmp_path):
    def old(sequence, state):
        return {"id": sequence, "pg_id": 0, "seq_id": sequence, "profiling_name": "nccl:all_gather", "state": state}

    dumps = {
        rank: {"version": "1.0", "pg_config": {"0": {"ranks": [0, 1, 2, 3]}}, "entries": [old(6, "scheduled")]}
        for rank in range(4)
    }
    dumps[1]["entries"] = [old(5, "completed")]
    assert told(dumps, tmp_path, name="trace_{}.json")[0] == [("lagging_rank", "rank 1")]


# ------------------------------------------------------------ whose device stopped


def test_a_device_that_completes_nothing_while_peers_go_on_is_named(tmp_path):
    dumps = {rank: dump([done(11), entry(12)]) for rank in WORLD}
    dumps[6] = dump([done(8), *(entry(sequence) for sequence in range(9, 13))])
    readings, result = told(dumps, tmp_path)
    assert readings == [("unstarted_rank", "rank 6")]
    assert "did not complete collective 9" in result.readings[0].text


def test_a_device_that_never_began_what_all_others_began(tmp_path):
    dumps = {rank: dump([done(9), entry(10, state="started", time_discovered_started_ns=5)]) for rank in WORLD}
    dumps[3] = dump([done(9, time_discovered_started_ns=5), entry(10)])
    assert told(dumps, tmp_path)[0] == [("unstarted_rank", "rank 3")]


def test_the_one_whose_device_stopped_is_not_behind_as_well(tmp_path):
    dumps = {rank: dump([done(11), entry(12)]) for rank in WORLD}
    dumps[4] = dump([done(7), entry(8), entry(9)])
    assert told(dumps, tmp_path)[0] == [("unstarted_rank", "rank 4")]


# ------------------------------------------------------------ who does something else


def test_another_operation_at_the_same_place(tmp_path):
    dumps = all_wait() | {1: dump([done(9), entry(10, "nccl:broadcast")])}
    readings, result = told(dumps, tmp_path)
    assert readings == [("collective_mismatch", "rank 1")]
    assert "nccl:broadcast" in result.readings[0].text


def test_another_size_at_the_same_place(tmp_path):
    dumps = all_wait() | {3: dump([done(9), entry(10, input_sizes=[[2048]])])}
    assert told(dumps, tmp_path, write="pickle")[0] == [("collective_mismatch", "rank 3")]


def test_of_two_that_differ_both_are_named(tmp_path):
    groups = {"0": [0, 1]}
    dumps = {0: dump([entry(10)], groups), 1: dump([entry(10, "nccl:all_to_all")], groups)}
    assert told(dumps, tmp_path)[0] == [("collective_mismatch", "rank 0"), ("collective_mismatch", "rank 1")]


# ------------------------------------------------------------ what must say nothing

GROUPS_OF_PAIRS = {"0": WORLD, "9": [0, 1]}
QUIET = {
    "all wait alike": all_wait(),
    "all is done": {rank: dump([done(9), done(10)]) for rank in WORLD},
    "one dump alone": {3: dump([entry(10)])},
    "a few dumps of many": all_wait(world=[0, 1, 5]),
    "two of eight without a dump": all_wait(world=WORLD[:6]),
    "one part of all_to_all is larger": {
        rank: dump([entry(10, "nccl:all_to_all", input_sizes=[[900 if rank == 2 else 100]])]) for rank in WORLD
    },
    "broadcasts that their root has left behind": {
        rank: dump([(entry if rank else done)(at, operation="nccl:broadcast") for at in (10, 11, 12)], {"0": [0, 1]})
        for rank in (0, 1)
    },
    "a send and its receive": {
        0: dump([entry(3, "nccl:send 0->1", is_p2p=True)], GROUPS_OF_PAIRS),
        1: dump([entry(2, "nccl:recv 1<-0", is_p2p=True)], GROUPS_OF_PAIRS),
    },
    "parts of all_to_all": {rank: dump([entry(10, "nccl:all_to_all", input_sizes=[[100 + rank]])]) for rank in WORLD},
    "a broadcast that its root has left": {
        rank: dump([done(10, operation="nccl:broadcast")] if rank == 0 else [entry(10, "nccl:broadcast")])
        for rank in WORLD
    },
    "one completion seen a moment earlier": {
        rank: dump([done(9), done(10)] if rank < 4 else [done(9), entry(10)]) for rank in WORLD
    },
    "two halves at different places": {
        rank: dump([entry(10, group="a")], {"a": WORLD[:4]})
        if rank < 4
        else dump([entry(20, group="b")], {"b": WORLD[4:]})
        for rank in WORLD
    },
}


@pytest.mark.parametrize("dumps", QUIET.values(), ids=QUIET)
def test_look_alikes_say_nothing(dumps, tmp_path):
    assert told(dumps, tmp_path)[0] == []


# ------------------------------------------------------------ files


def test_the_rank_is_that_of_the_groups_before_that_of_the_name(tmp_path):
    groups = {"0": WORLD, "1": [5]}
    dumps = {rank: dump([entry(10)]) for rank in WORLD if rank != 5}
    dumps[99] = dump([done(9)], groups)
    assert told(dumps, tmp_path)[0] == [("lagging_rank", "rank 5")]


def test_a_dump_of_nobody_is_noted(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(dump([entry(10)])))
    assert "no_rank" in {finding.kind for finding in read_paths([tmp_path], FORMATS).findings}


def test_jobs_in_folders_of_their_own_are_not_mixed(tmp_path):
    for folder, at in (("first", 10), ("second", 30)):
        (tmp_path / folder).mkdir()
        for rank, value in all_wait(at).items():
            (tmp_path / folder / f"trace_rank_{rank}").write_text(json.dumps(value))
    assert not read_paths([tmp_path], FORMATS).readings


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}X\x09\x00\x00\x00pg_configcos\nsystem\ns.",
        b'{"pg_config": {"0": {"ranks": "[0, 1]"',
        b'{"pg_config": ' + b"[" * 100_000,
        b'{"profiling_name": 1, "entries": 7}',
    ],
    ids=["a call", "cut", "deep", "no entries"],
)
def test_a_hostile_or_broken_dump_is_refused_by_its_name(data):
    reader = FlightRecorderReader()
    assert reader.recognises(data[:8192])
    with pytest.raises(IngestError, match="bad_dump"):
        reader.read("bad_dump", data, Gathering(FORMATS))


@pytest.mark.parametrize(
    "value",
    [
        {"pg_config": [1, 2], "pg_status": {"0": 5}, "entries": [None, 3, {"pg_id": {}, "process_group": 5}]},
        {"pg_config": {"0": {"ranks": [[], "x", 1]}}, "entries": [{"collective_seq_id": "9", "state": 4}]},
        {"entries": [{"profiling_name": None, "collective_seq_id": 1 << 200, "timeout_ms": -1}]},
        {"pg_config": {"0": {"ranks": "1" * 10_000}}, "entries": []},
    ],
)
def test_wrong_types_inside_a_dump_say_nothing(value, tmp_path):
    for rank in range(3):
        (tmp_path / f"dump_{rank}").write_text(json.dumps(value))
    assert not read_paths([tmp_path], FORMATS).readings


@pytest.mark.parametrize("head", [b"", b"{}", b"iteration 1 pg_config", b"\x80\x02}q\x00.", bytes(range(190, 254))])
def test_other_files_are_left_to_others(head):
    assert not FlightRecorderReader().recognises(head)
