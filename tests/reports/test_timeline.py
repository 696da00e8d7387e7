"""The timeline of an incident in text."""

import io
import re

import pytest

from clusterorch import models
from clusterorch.models import Layout
from clusterorch.reports.timeline import CAUSE, Belief, Mark, marks_of, place_of, show_beliefs, show_cascade
from clusterorch.reports.wording import Terminal
from clusterorch.telemetry.events import CASCADE, Event

MODEL = models.load("reference", layout="2x8")


def printed(show, given, **options):
    file = io.TextIOWrapper(io.BytesIO(), encoding=options.pop("encoding", "utf-8"), errors="replace")
    show(given, Terminal(file=file, width=options.pop("width", 100), markup=False, highlight=False), **options)
    file.seek(0)
    return file.read().splitlines()


def event(number, time, kind, source="nccl", entity="rank 3", causes=(0,), **payload):
    return Event(time, time, source, entity, kind, payload, causes, number)


FAULT = event(0, 300.0, "fault", CASCADE, "link 11", (), variant="ib_link_flap.beyond_limit", severity=None)
DOWN = event(1, 310.0, "mechanism_on", CASCADE, "link 11", name="link_down")
CARD = event(2, 311.0, "nic_link_down", "kernel", "link 11")
EVERYDAY = event(3, 312.0, "kernel_chatter", "kernel", "node 1", ())


def texts(events):
    return [mark.text for mark in marks_of(events, MODEL)]


def test_the_fault_its_mechanisms_and_their_lines_are_told_in_words():
    assert texts([CARD, FAULT, EVERYDAY, DOWN]) == [
        "link stays down beyond the transport limit, link 11 (node 1)",
        "link down",
        "kernel: link down, link 11 (node 1)",
    ]
    assert [mark.lane for mark in marks_of([FAULT, DOWN, CARD], MODEL)] == [CAUSE, CAUSE, "kernel"]


def test_everyday_lines_are_left_out():
    assert texts([EVERYDAY]) == []


def test_lines_of_a_kind_that_follow_each_other_are_one_row():
    lines = [event(n, 400.0 + 60 * n, "watchdog_timeout", entity=f"rank {n % 3}") for n in range(5)]
    [mark] = marks_of(lines, MODEL)
    assert (mark.time, mark.times, mark.until) == (400.0, 5, 640.0)
    assert mark.text.endswith(", 3 ranks")


def test_a_pause_begins_a_new_row():
    lines = [event(n, 400.0 + 121 * n, "watchdog_timeout") for n in range(2)]
    assert [mark.times for mark in marks_of(lines, MODEL)] == [1, 1]


def test_classes_of_a_signal_are_different_lines():
    lines = [event(n, 400.0, "loss", "checkpoint", "job 0", value=v) for n, v in enumerate(("nan", "finite"))]
    assert len(texts(lines)) == 2


def test_an_end_is_told_of_what_touched_the_job_only():
    ends = [event(n, 500.0, "mechanism_off", CASCADE, name=m) for n, m in enumerate(("link_down", "link_failing"))]
    assert texts(ends) == ["over: link down"]
    assert texts([event(1, 9.0, "fault_end", CASCADE)]) == ["the fault is over"]
    assert texts([event(1, 9.0, "action", CASCADE, name="wait", target=None)]) == ["action: wait"]


@pytest.mark.parametrize(
    ("entity", "said"),
    [("gpu 9", "gpu 9 (node 1)"), ("node 1", "node 1"), ("job 0", "the job"), ("storage 0", "the storage")],
)
def test_a_place_names_its_node(entity, said):
    assert place_of(entity, Layout(2, 8)) == said


def test_each_event_stands_in_its_lane_on_one_clock():
    marks = [Mark(3725.0, CAUSE, "root", 1, 0.0), Mark(3726.0, "kernel", "a line", 7, 3785.0)]
    head, root, line = printed(show_cascade, marks)
    assert root.index("◆") == head.index("why")
    assert line.index("●") == head.index("kern")
    assert root.startswith("01:02:05 ")
    assert line.endswith("a line  x 7, to 01:03:05")


def test_a_long_row_is_cut_and_a_hostile_one_is_spelt_out():
    rows = printed(show_cascade, [Mark(0.0, "smi", "y\x1b[31m" + "x" * 200, 1, 0.0)])
    assert max(map(len, rows)) == 100
    assert len(rows) == 2
    assert "\x1b" not in rows[1]


def test_how_often_stays_legible_where_the_words_are_cut():
    [_, row] = printed(show_cascade, [Mark(0.0, "smi", "x" * 200, 12, 60.0)])
    assert row.endswith("x…  x 12, to 00:01:00")


def test_no_more_rows_than_asked_for():
    rows = printed(show_cascade, [Mark(float(n), "smi", "x", 1, 0.0) for n in range(9)], most=4)
    assert rows[-1] == "and 5 more rows"
    assert len(rows) == 6


def beliefs(*shares):
    return [Belief(15.0 * n, {"a": a, "b": b, "healthy": 1.0 - a - b}) for n, (a, b) in enumerate(shares)]


def cells(row):
    return re.search(r"\s([AB.]{40})\s", row)[1]


def test_the_ribbon_is_shared_out_by_probability():
    key, row = printed(show_beliefs, beliefs((0.5, 0.25)))
    assert key.split() == [".", "healthy", "A", "a", "B", "b"]
    assert cells(row) == "A" * 20 + "B" * 10 + "." * 10
    assert row.rstrip().endswith("a 50.0 %, healthy 25.0 %") or row.rstrip().endswith("a 50.0 %, b 25.0 %")


def test_the_ribbon_is_always_full():
    for n in range(0, 101, 3):
        _, row = printed(show_beliefs, beliefs((0.009 * n, 0.001 * n)))
        assert len(cells(row)) == 40


def test_modes_too_small_for_a_cell_share_one_and_do_not_pass_for_healthy():
    small = {f"m{n}": 0.0124 for n in range(4)}
    key, row = printed(show_beliefs, [Belief(0.0, {"a": 0.95, **small, "healthy": 0.0004})])
    assert key.split() == [".", "healthy", "A", "a", "-", "others"]
    assert re.search(r"\s(A{38}--)\s", row)


def test_the_ribbon_stays_full_where_rounding_leaves_a_gap():
    _, row = printed(show_beliefs, [Belief(0.0, {"a": 0.98, "b": 0.007, "c": 0.005, "healthy": 0.008})])
    assert re.search(r"\s(A{39}\.)\s", row)
    _, row = printed(show_beliefs, [Belief(0.0, {"a": 0.97, "b": 0.012, "c": 0.0, "healthy": 0.0})])
    assert re.search(r"\s(A{39}\.)\s", row)


def test_slices_alike_are_told_once_and_changes_are_not():
    rows = printed(show_beliefs, beliefs(*[(0.0, 0.0)] * 10, (0.5, 0.1), (0.9, 0.05)))
    assert [row.split()[0] for row in rows[1:]] == ["00:00:00", "8", "00:02:15", "00:02:30", "00:02:45"]


def test_a_slow_drift_is_not_lost():
    rows = printed(show_beliefs, beliefs(*[(0.009 * n, 0.0) for n in range(100)]))
    clocks = [row for row in rows if row.startswith("00:")]
    assert len(clocks) > 40


def test_a_terminal_without_unicode_gets_letters():
    rows = printed(show_cascade, [Mark(0.0, CAUSE, "root", 1, 0.0)], encoding="ascii")
    assert rows[1].split() == ["00:00:00", "#", "root"]
