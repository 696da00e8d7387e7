"""Lines among their neighbours, read again."""

import os

import pytest

from clusterorch.diagnosis.contexts import AROUND, LONGEST, contexts_of
from tests.reports.made import reading


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.log").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    return tmp_path


def test_a_line_stands_between_its_neighbours(folder):
    [context] = contexts_of([reading(5, "line 5", file="a.log")], [folder])
    assert context.before == [(3, "line 3"), (4, "line 4")]
    assert context.after == [(6, "line 6"), (7, "line 7")]
    assert len(context.before) == AROUND


def test_the_first_and_the_last_line_have_neighbours_on_one_side(folder):
    first, last = contexts_of([reading(1, "line 1", file="a.log"), reading(10, "line 10", file="a.log")], [folder])
    assert (first.before, first.after[0]) == ([], (2, "line 2"))
    assert (last.before[-1], last.after) == ((9, "line 9"), [])


def test_a_line_that_says_something_else_by_now_stands_alone(folder):
    [context] = contexts_of([reading(5, "line five", file="a.log")], [folder])
    assert (context.text, context.before, context.after) == ("line five", [], [])


@pytest.mark.parametrize("given", ["gone", "-", "a.log", "pipe"])
def test_what_cannot_be_read_again_leaves_the_line_alone(folder, given):
    os.mkfifo(folder / "pipe")
    path = folder / given if given != "-" else type(folder)("-")
    label = {"a.log": "b.log", "pipe": "pipe"}.get(given, "a.log")
    [context] = contexts_of([reading(5, "line 5", file=label)], [path])
    assert (context.before, context.after) == ([], [])


def test_a_line_is_told_once_and_cut(folder):
    (folder / "b.log").write_text("short\n" + "x" * 9000 + "\nshort\n")
    twice = [reading(1, "short", file="b.log"), reading(1, "short", file="b.log", signal="nic_link_up")]
    [context] = contexts_of(twice, [folder])
    assert context.after[0][1] == "x" * LONGEST
