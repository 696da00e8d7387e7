"""The trace of an episode: what its tables hold, how they are joined, and how they are kept."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from clusterorch.environment import tables as tables_module
from clusterorch.environment.believer import cells_of
from clusterorch.environment.books import HEADS
from clusterorch.environment.delivery import background, delivered
from clusterorch.environment.making import episodes_of
from clusterorch.environment.recorder import TraceRecorder
from clusterorch.environment.tables import CELLS, TABLES, read_trace, write_trace
from clusterorch.errors import ClusterorchError, InvalidTrace, OutputExists
from tests.environment.played import SMALL, recorded, trace_of

MOVED = "move=restart_rank:1@40"


@pytest.fixture(scope="module")
def heard():
    """An episode with a move, one that is not legal, and two statements."""
    stated = {3: ("healthy", None), 12: ("straggler", 1)}
    return recorded({3: "roll_back:0", 5: "use_ring", 12: "isolate_node:1"}, stated=stated)


@pytest.fixture
def folder(tmp_path):
    return write_trace(trace_of(MOVED), tmp_path / "trace")


def test_what_is_written_is_read_again(folder):
    again = read_trace(folder)
    assert again.same_as(trace_of(MOVED))
    assert again.metadata == json.loads(json.dumps(trace_of(MOVED).metadata))
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        [*(f"{name}.parquet" for name in TABLES), "events.jsonl", "metadata.json"]
    )


def test_every_table_carries_the_schema_version(folder):
    for name in TABLES:
        assert parquet.read_schema(folder / f"{name}.parquet").metadata[b"clusterorch.schema_version"] == b"1"


def test_telemetry_tells_all_that_was_delivered_and_nothing_that_was_not(heard):
    episodes, recorder, seen = heard
    network = episodes.world.network
    values, arrival = np.array(seen.values), np.array(seen.arrival)
    came = (arrival >= 0) & (arrival < len(arrival))
    told, cells = delivered(recorder.trace(), network)
    np.testing.assert_array_equal(cells, np.where(came, arrival, -1))
    at_cell = came.reshape(len(came), -1)[:, cells_of(network)]
    np.testing.assert_array_equal(told, np.where(at_cell, values, np.nan))
    assert (~came).any(), "no cell was lost: choose another seed"


def test_telemetry_has_no_row_for_what_says_nothing(heard):
    episodes, recorder, _ = heard
    network, rows = episodes.world.network, recorder.trace().rows("telemetry")
    nothing = {s.name: background(network)[network.slice_of(i)][0] for i, s in enumerate(network.spec.signal)}
    for row in rows:
        assert (row["value"] is None) == (row["signal"] == CELLS)
        assert row["signal"] == CELLS or row["value"] != nothing[row["signal"]]
        assert row["arrival"] >= row["time"] == (row["slice"] + 1) * 15.0


def test_truth_is_a_row_a_slice_and_adds_up(heard):
    episodes, recorder, _ = heard
    rows = recorder.trace().rows("truth")
    assert [row["slice"] for row in rows] == list(range(episodes.horizon))
    np.testing.assert_allclose([sum(row[head] for head in HEADS) for row in rows], 1.0, atol=1e-12)
    told = episodes.incident(0)
    for head in HEADS:
        assert sum(row[head] for row in rows) == pytest.approx(told[head], abs=1e-9)
    assert rows[-1]["kept"] == told["kept"]
    began = [(row["variant"], row["slice"]) for row in rows if row["incident_since"] == row["slice"]]
    assert began == [(one["variant"], one["slice"]) for one in told["incidents"]]
    assert began, "no failure entered: choose another seed"


def test_the_tables_are_joined_by_time(heard):
    trace = heard[1].trace()
    decisions = [row["time"] for row in trace.rows("recovery")]
    beliefs = [row["time"] for row in trace.rows("diagnosis")]
    ends = [row["time"] for row in trace.rows("truth")]
    assert beliefs[:-1] == decisions
    assert beliefs[0] == 0.0
    assert beliefs[-1] == ends[-1]
    assert set(beliefs[1:]) <= set(ends)
    assert beliefs == sorted(set(beliefs))


def test_recovery_tells_moves_what_they_brought_and_what_was_stated(heard):
    episodes, recorder, _ = heard
    rows = recorder.trace().rows("recovery")
    assert [row["move"] for row in rows[:6]] == ["wait", "wait", "wait", "roll_back:0", "wait", "use_ring"]
    assert [row["legal"] for row in rows[:6]] == [True] * 5 + [False]
    assert rows[3]["slices"] > 4
    assert sum(row["slices"] for row in rows) == episodes.horizon
    told = episodes.incident(0)
    cost = episodes.world.rules.false_intervention * told["false_moves"]
    assert sum(row["reward"] for row in rows) == pytest.approx(told["useful"] - told["rolled_back"] - cost)
    stated = {i: (row["stated_mode"], row["stated_node"]) for i, row in enumerate(rows) if row["stated_mode"]}
    assert stated == {3: ("healthy", None), 12: ("straggler", 1)}
    assert (rows[12]["working"], rows[13]["working"], rows[13]["in_repair"]) == (2, 1, "1")


def test_the_diagnosis_is_the_filters_whether_the_policy_sees_it_or_not(heard):
    raw = recorded({3: "roll_back:0", 5: "use_ring", 12: "isolate_node:1"}, observe="raw")
    assert raw[0].believer is None
    assert raw[1].trace().tables["diagnosis"].equals(heard[1].trace().tables["diagnosis"])
    for row in raw[1].trace().rows("diagnosis"):
        assert sum(p for name, p in row.items() if name.startswith("p.")) == pytest.approx(1.0, abs=1e-9)


def test_what_the_policy_states_moves_no_diagnosis(heard):
    silent = recorded({3: "roll_back:0", 5: "use_ring", 12: "isolate_node:1"})
    assert silent[1].trace().tables["diagnosis"].equals(heard[1].trace().tables["diagnosis"])


def test_a_diagnosis_is_never_rewritten():
    episodes = episodes_of(1, **SMALL)
    recorder = TraceRecorder(episodes)
    episodes.begin(np.array([0]), np.array([0]))
    earlier = []
    for _ in range(50):
        earlier.append(recorder.trace().tables["diagnosis"])
        episodes.decide(np.array([0]), np.array([True]))
    whole = recorder.trace().tables["diagnosis"]
    for before in earlier[::7]:
        assert whole.slice(0, before.num_rows).equals(before)


def test_recording_changes_nothing():
    alone, listened = episodes_of(1, **SMALL), episodes_of(1, **SMALL)
    TraceRecorder(listened)
    for episodes in (alone, listened):
        episodes.begin(np.array([0]), np.array([0]))
        for i in range(20):
            episodes.decide(np.array([3 if i == 4 else 0]), np.array([True]))
    for a, b in zip(alone.window, listened.window, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(alone.outlook, listened.outlook, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_instance_of_a_batch_leaves_the_trace_that_it_leaves_alone():
    batch = episodes_of(3, **SMALL | {"hours": 0.25})
    recorder = TraceRecorder(batch, 2)
    batch.begin(np.arange(3), np.array([0, 0, 4]))
    while batch.world.books.time[2] < batch.horizon:
        batch.decide(np.array([0, 3, 0]), np.ones(3, dtype=bool))
    alone = episodes_of(1, **SMALL | {"hours": 0.25}, first_instance=2)
    other = TraceRecorder(alone)
    alone.begin(np.array([0]), np.array([4]))
    while alone.world.books.time[0] < alone.horizon:
        alone.decide(np.array([0]), np.array([True]))
    assert recorder.trace().same_as(other.trace())
    assert recorder.trace().metadata == other.trace().metadata


def test_metadata_tells_what_it_takes_to_play_again():
    told = trace_of(MOVED).metadata
    assert (told["model"], told["overlays"], told["profile"]) == ("reference", ["episode"], None)
    assert (told["layout"], told["spares"], told["seed"], told["instance"], told["episode"]) == ("2x2", 1, 3, 0, 0)
    assert told["moves"].count("restart_rank:1") == 1
    assert told["settings"]["hours"] == 1.0
    assert (told["kind"], told["schema_version"], len(told["sha256"])) == ("clusterorch.trace", 1, 64)


def test_nothing_recorded_and_nonsense_stated_are_errors():
    episodes = episodes_of(1, **SMALL)
    recorder = TraceRecorder(episodes)
    with pytest.raises(ClusterorchError, match="begin an episode"):
        recorder.trace()
    with pytest.raises(ClusterorchError, match="no mode is named 'gremlins'"):
        recorder.state_diagnosis("gremlins")
    with pytest.raises(ClusterorchError, match="node 2 is not in"):
        recorder.state_diagnosis("straggler", 2)


def test_a_recorder_that_stopped_hears_no_more():
    episodes = episodes_of(1, **SMALL)
    recorder = TraceRecorder(episodes)
    episodes.begin(np.array([0]), np.array([0]))
    episodes.decide(np.array([0]), np.array([True]))
    recorder.stop()
    episodes.decide(np.array([0]), np.array([True]))
    assert recorder.trace().slices == 4


def test_a_trace_is_replaced_only_by_force(folder):
    other = trace_of()
    with pytest.raises(OutputExists, match="force"):
        write_trace(other, folder)
    assert read_trace(folder).same_as(trace_of(MOVED))
    write_trace(other, folder, force=True)
    assert read_trace(folder).same_as(other)


def test_what_is_no_trace_is_never_replaced(tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("years")
    for force in (False, True):
        with pytest.raises(OutputExists, match="no trace"):
            write_trace(trace_of(MOVED), tmp_path / "papers", force=force)
    assert (tmp_path / "papers" / "thesis.txt").read_text() == "years"


@pytest.mark.parametrize("failing", ["events", "rename"])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(folder, monkeypatch, failing):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    if failing == "events":
        monkeypatch.setattr(tables_module, "write_events", full)
    else:
        path = type(folder)
        whole = path.rename
        monkeypatch.setattr(path, "rename", lambda self, to: full() if ".part" in self.name else whole(self, to))
    with pytest.raises(ClusterorchError, match="No space left"):
        write_trace(trace_of(), folder, force=True)
    assert [one.name for one in folder.parent.iterdir()] == [folder.name]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_file_cut_short_is_a_clear_error(folder, table, share):
    file = folder / f"{table}.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidTrace, match=rf"{table}\.parquet: a damaged file .*; record it again"):
        read_trace(folder)


def test_a_flipped_byte_in_the_footer_is_no_crash(folder):
    file = folder / "truth.parquet"
    whole = bytearray(file.read_bytes())
    length = int.from_bytes(whole[-8:-4], "little")
    for at in range(len(whole) - 8 - length, len(whole) - 8, max(length // 60, 1)):
        damaged = whole.copy()
        damaged[at] ^= 0xFF
        file.write_bytes(damaged)
        try:
            read_trace(folder)
        except InvalidTrace as error:
            assert "truth.parquet" in str(error)  # noqa: PT017, some flips do no harm


@pytest.mark.parametrize("missing", [f"{name}.parquet" for name in TABLES] + ["events.jsonl", "metadata.json"])
def test_a_folder_without_a_file_is_a_clear_error(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(InvalidTrace, match=missing.replace(".", r"\.")):
        read_trace(folder)


def test_another_schema_version_is_told_with_both_versions(folder):
    file = folder / "diagnosis.parquet"
    table = parquet.read_table(file)
    parquet.write_table(table.replace_schema_metadata({b"clusterorch.schema_version": b"7"}), file)
    with pytest.raises(InvalidTrace, match=r"diagnosis\.parquet: schema version 7 where schema version 1 is expected"):
        read_trace(folder)
    metadata = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps(metadata | {"schema_version": 2}))
    with pytest.raises(InvalidTrace, match=r"metadata\.json: schema version 2 where .*; .*record it again"):
        read_trace(folder)


def test_other_columns_are_a_clear_error(folder):
    file = folder / "recovery.parquet"
    table = parquet.read_table(file)
    parquet.write_table(table.drop_columns(["reward"]), file)
    with pytest.raises(InvalidTrace, match=r"recovery\.parquet: other columns \(reward\)"):
        read_trace(folder)
    odd = table.set_column(3, "reward", pa.array(["much"] * table.num_rows))
    parquet.write_table(odd.replace_schema_metadata(table.schema.metadata), file)
    with pytest.raises(InvalidTrace, match="their types"):
        read_trace(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"kind": "x", "schema_version": 1, "modes": []}', '"kind"', "\xff"])
def test_other_metadata_is_a_clear_error(folder, text):
    (folder / "metadata.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidTrace, match=r"metadata\.json"):
        read_trace(folder)


@pytest.mark.parametrize("odd", [{"starts": "noon"}, {"starts": None}, {"slice_seconds": 0}, {"slice_seconds": "x"}])
def test_metadata_without_a_clock_is_a_clear_error(folder, odd):
    file = folder / "metadata.json"
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(whole | odd))
    with pytest.raises(InvalidTrace, match="no such clock"):
        read_trace(folder)
    file.write_text(json.dumps({key: value for key, value in whole.items() if key != "seed"}))
    with pytest.raises(InvalidTrace, match="nothing about seed"):
        read_trace(folder)


def test_a_place_without_a_trace_is_a_clear_error(tmp_path):
    with pytest.raises(InvalidTrace, match="nowhere: no folder"):
        read_trace(tmp_path / "nowhere")
    shutil.rmtree(tmp_path)


def test_importing_the_environment_loads_no_pyarrow():
    modules = ["recorder", "tables", "delivery", "replaying", "whatif", "cluster", "vector"]
    names = ", ".join(f"clusterorch.environment.{name}" for name in modules)
    script = f"import sys, clusterorch.environment, {names}; print('pyarrow' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
