"""What would have become of an episode: the question, the answer in tokens, and the commands."""

import io
import json

import pytest
from rich.console import Console

from clusterorch import cli
from clusterorch.environment.replaying import replay_exactly
from clusterorch.environment.tables import EpisodeTrace, read_trace, write_trace
from clusterorch.environment.whatif import clock_of, future_of, slice_at, what_if
from clusterorch.errors import InvalidIntervention
from clusterorch.reports.episode import show_episode
from clusterorch.reports.futures import difference, show_futures
from tests.environment.played import trace_of

MOVED = "move=restart_rank:1@40"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_trace(trace_of(MOVED), tmp_path_factory.mktemp("traces") / "one")


@pytest.fixture(scope="module")
def undone():
    return what_if(trace_of(MOVED), 40, "wait")


def printed(show, *told, width=80, **arguments):
    console = Console(width=width, file=io.StringIO())
    show(*told, console, **arguments)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("text", "at"),
    [("12:04", 16), ("12:00", 0), ("12:04:01", 17), ("12:59:45", 239), ("7", 7), (" 0 ", 0)],
)
def test_a_time_of_day_is_a_slice(text, at):
    assert slice_at(trace_of(MOVED), text) == at


def test_the_clock_goes_past_midnight():
    assert clock_of(trace_of(MOVED), 12 * 240 + 4) == "00:01:00"


@pytest.mark.parametrize("text", ["13:00", "11:59", "240", "noon", "12:60", "-3", "1:2", "", "12:00:00:00"])
def test_another_time_is_an_error(text):
    with pytest.raises(InvalidIntervention, match="time"):
        slice_at(trace_of(MOVED), text)


def test_the_difference_is_that_of_tokens_kept(undone):
    assert undone.was.kept == trace_of(MOVED).rows("truth")[-1]["kept"]
    assert undone.would_be.kept == trace_of().rows("truth")[-1]["kept"]
    assert undone.gained == undone.would_be.kept - undone.was.kept > 20
    assert undone.gained_hours == undone.gained * 15 / 3600
    assert (undone.at, undone.action, undone.instead_of) == (40, "wait", "restart_rank:1")
    assert undone.would_be.moves == []
    assert undone.was.moves == [(40, "restart_rank:1")]


def test_a_future_is_summed_up_from_its_tables():
    trace = trace_of(MOVED)
    future = future_of(trace)
    assert sum(future.heads.values()) == pytest.approx(future.slices)
    assert future.incidents[0].slice == next(row["slice"] for row in trace.rows("truth") if row["variant"])
    assert future.false_moves == 1


def test_the_same_move_makes_no_difference():
    told = what_if(trace_of(MOVED), 40, "restart_rank:1")
    assert told.gained == 0.0
    assert difference(told) == "No difference in tokens kept."


def test_both_futures_stand_side_by_side(undone):
    text = printed(show_futures, undone)
    assert "At 12:10:00 (slice 40): wait instead of restart_rank:1" in text
    assert f"Tokens kept: +{undone.gained:.1f} slices of healthy training, +{undone.gained_hours:.2f} hours" in text
    assert f"{undone.was.kept:.1f} slices" in text
    assert f"{undone.would_be.kept:.1f} slices" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_time_after_the_last_decision_is_an_error():
    with pytest.raises(InvalidIntervention, match="the last decision of the trace is at 2"):
        what_if(trace_of(MOVED), 239, "wait")


def test_the_timeline_keeps_the_truth_to_itself(folder):
    trace = read_trace(folder)
    told, whole = printed(show_episode, trace), printed(show_episode, trace, truth=True)
    table = trace.tables["truth"]
    hidden = {"kept": -5.0, "useful": 0.0, "variant": "other", "site": 1, "mode": "other", "poisoned_copies": 2}
    pylist = [row | hidden for row in table.to_pylist()]
    falsified = dict(trace.tables) | {"truth": type(table).from_pylist(pylist, schema=table.schema)}
    assert printed(show_episode, EpisodeTrace(falsified, [], trace.metadata)) == told
    entered = next(row for row in trace.rows("truth") if row["variant"])
    assert entered["variant"] in whole
    assert entered["variant"] not in told
    assert "restart_rank:1: 18 slices" in told
    for text in (told, whole):
        assert max(map(len, text.splitlines())) <= 80


def test_the_timeline_leaves_out_the_kinds_of_lines_that_come_most_often(folder):
    trace = read_trace(folder)
    few, many = (printed(show_episode, trace, most=most) for most in (0, 1000))
    assert "more rows of lines" in few
    assert "more rows of lines" not in many
    assert len(many.splitlines()) > len(few.splitlines())


def test_commands_record_show_and_ask(tmp_path, capsys):
    one, other = tmp_path / "one", tmp_path / "other"
    words = ["trace", "record", "--out", str(one), "--layout", "2x2", "--seed", "3", "--hours", "1", "--do", MOVED]
    assert cli.main(words) == 0
    assert read_trace(one).same_as(trace_of(MOVED))
    assert cli.main(["trace", "show", str(one), "--truth"]) == 0
    assert "restart_rank:1" in capsys.readouterr().out
    words = ["whatif", str(one), "--at", "12:10", "--action", "roll_back:2"]
    assert cli.main([*words, "--out", str(other)]) == 0
    assert "roll_back:2 instead of restart_rank:1" in capsys.readouterr().out
    assert replay_exactly(read_trace(other)).metadata["do"] == [MOVED, "move=roll_back:2@40"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["whatif", "{}", "--at", "15:00", "--action", "wait"], "the episode runs from 12:00:00 to 13:00:00"),
        (["whatif", "{}", "--at", "12:10", "--action", "fly"], "no move fly:0"),
        (["whatif", "{}", "--at", "12:10", "--action", "use_ring"], "not legal at slice 40"),
        (["whatif", "{}", "--at", "12:10", "--action", "wait", "--out", "{}"], "there already"),
        (["trace", "record", "--out", "{}", "--layout", "2x2"], "there already"),
        (["trace", "show", "{}/nowhere"], "no folder where"),
        (["trace", "show", "{}", "--lines", "-1"], "give 0 or more"),
        (["trace", "export", "{}"], "nothing to write"),
        (["trace", "export", "{}", "--perfetto", "a", "--openmetrics", "a"], "cannot be one file"),
        (["trace", "fly"], "clusterorch trace --help"),
    ],
)
def test_what_a_command_cannot_do_it_says_in_one_line(folder, words, said, capsys):
    assert cli.main([word.format(folder) for word in words]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.count("\n") == 1
    assert out == ""


def test_exports_are_whole_files_and_replace_nothing(folder, tmp_path, capsys):
    files = tmp_path / "a" / "trace.json", tmp_path / "metrics.txt"
    words = ["trace", "export", str(folder), "--perfetto", str(files[0]), "--openmetrics", str(files[1])]
    assert cli.main(words) == 0
    assert json.loads(files[0].read_text())["traceEvents"]
    assert files[1].read_text().endswith("# EOF\n")
    assert cli.main(words) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert cli.main([*words, "--force"]) == 0
