"""`clusterorch play`: one policy, one episode, what it was worth, and its views."""

import io
import re

import pytest

from clusterorch import cli
from clusterorch.environment.tables import read_trace
from clusterorch.policies.running import POLICIES, run_policy
from clusterorch.reports import wording
from clusterorch.reports.played import Played, Stated, show_played
from clusterorch.reports.wording import Terminal

SMALL = ("--layout", "2x2", "--hours", "1", "--seed", "3")  # a failure enters in slice 168
LEGAL = True
ARGUMENTS = {"layout": "2x2", "hours": 1.0, "seed": 3}


def playing(capsys, *words):
    assert cli.main(["play", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    return out


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_plays_and_is_told_what_the_harness_finds(capsys, policy):
    out = playing(capsys, "--policy", policy, *SMALL)
    (found,) = run_policy(policy, [0], **ARGUMENTS)
    assert out.startswith(f"{policy} on 2x2, episode 0 of seed 3\n")
    assert f"kept         {found['kept']:.1f} of 240 slices" in out
    assert re.search(rf"^moves +{found['moves']}", out, re.MULTILINE)
    assert f"rolled back  {found['rolled_back']:.1f} slices" in out
    assert re.search(rf"0:42:00 [a-z0-9: ]+ {found['incidents'][0]['variant']}, ", out)
    if found["understood"] is not None:
        assert ("the first move was right" in out) == found["understood"]


def test_a_runbook_file_plays(capsys, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\ntitle = "mine"\npatience = 3\n[[rule]]\ncolumn = "class.down"\naction = "restart_rank"\n'
        'at = "first"\nstates = "straggler"\n',
        encoding="utf-8",
    )
    out = playing(capsys, "--policy", file, *SMALL)
    (found,) = run_policy(str(file), [0], **ARGUMENTS)
    assert f"kept         {found['kept']:.1f} of 240" in out


def test_another_episode_and_another_seed_are_others(capsys):
    told = {
        playing(capsys, "--policy", "wait", "--layout", "2x2", "--hours", "2", "--seed", seed, "--episode", episode)
        for seed, episode in ((3, 0), (3, 1), (5, 0))
    }
    assert len({one.split("\n", 1)[1] for one in told}) == 3


def test_a_run_without_failures_keeps_all_that_it_can(capsys):
    """Of this seed the first episode holds no incident."""
    out = playing(capsys, "--policy", "wait", "--layout", "2x2", "--hours", "1", "--seed", 1)
    assert "100.0 % of what a run without failures keeps" in out
    assert re.search(r"incidents +none", out)


def test_watching_elsewhere_than_on_a_terminal_prints_the_last_view_and_no_truth(capsys):
    out = playing(capsys, "--policy", "wait", *SMALL, "--live")
    view, account = out.split("wait on 2x2, episode 0 of seed 3\n")[1:]
    assert out.startswith("1:00:00 of 1:00:00  wait on 2x2, episode 0 of seed 3\n")
    assert "belief" in view
    assert "truth" not in view
    assert "incidents" in account
    assert "truth      " in playing(capsys, "--policy", "wait", *SMALL, "--live", "--truth")


def test_views_change_nothing_of_what_is_played(capsys, tmp_path):
    plain = playing(capsys, "--policy", "vendor", *SMALL)
    seen = playing(capsys, "--policy", "vendor", *SMALL, "--picture", tmp_path / "racks.png", "--out", tmp_path / "t")
    assert seen == plain
    assert (tmp_path / "racks.png").read_bytes().startswith(b"\x89PNG")


def test_watching_on_a_terminal_redraws_the_view(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        wording, "terminal",
        lambda: Terminal(file=screen, force_terminal=True, width=120, height=50, highlight=False, _environ={}),
    )  # fmt: skip
    assert cli.main(["play", "--policy", "wait", *SMALL, "--live", "--fps", "0"]) == 0
    out = screen.getvalue()
    assert "0:01:00 of 1:00:00" in out
    assert "0:31:00 of 1:00:00" in out
    assert "\x1b[2K" in out


def test_progress_is_shown_on_a_terminal_and_leaves_nothing(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(wording, "terminal", lambda: Terminal(file=screen, force_terminal=True, width=80, _environ={}))
    assert cli.main(["play", "--policy", "wait", *SMALL]) == 0
    assert "100 %" in screen.getvalue()


def test_out_keeps_the_trace_of_what_was_played_and_stated(capsys, tmp_path):
    out = playing(capsys, "--policy", "most_likely_cause", *SMALL, "--out", tmp_path / "trace")
    trace = read_trace(tmp_path / "trace")
    kept = trace.rows("truth")[-1]["kept"]
    assert f"{kept:.1f} of 240" in out
    assert trace.metadata["seed"] == 3
    moves = [row for row in trace.rows("recovery") if row["move"] != "wait"]
    assert moves
    assert all(row["stated_mode"] in out and row["move"] in out for row in moves)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--policy", "nobody"], "'nobody'"),
        (["--policy", "nothing.toml"], "there is none"),
        (["--policy", "wait", "--layout", "4by8"], "'4by8'"),
        (["--policy", "wait", "--profile", "mars"], "site_mars"),
        (["--policy", "wait", "--model", "mars"], "mars"),
        (["--policy", "wait", "--episode", "-1"], "--episode -1"),
        (["--policy", "wait", "--hours", "0"], "hours=0"),
        (["--policy", "wait", "--hours", "nan"], "hours=nan"),
        (["--policy", "wait", "--fps", "-1", "--live"], "--fps -1"),
        (["--policy", "wait", "--fps", "nan", "--live"], "--fps nan"),
        (["--policy", "wait", "--picture", "racks.gif"], ".png"),
        ([], "--policy"),
    ],
)
def test_what_cannot_be_played_is_one_line_that_names_it(capsys, words, named):
    assert cli.main(["play", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("clusterorch: error: ")
    assert err.count("\n") == 1
    assert named in err


def test_nothing_is_replaced_unless_forced(capsys, tmp_path):
    picture, trace = tmp_path / "a.png", tmp_path / "trace"
    picture.write_text("mine", encoding="utf-8")
    trace.mkdir()
    (trace / "mine.txt").write_text("mine", encoding="utf-8")
    short = ("--policy", "wait", "--layout", "1x1", "--hours", "0.1")
    for option, path in (("--picture", picture), ("--out", trace)):
        assert cli.main(["play", *short, option, str(path)]) == 2
        assert str(path) in capsys.readouterr().err
    assert picture.read_text(encoding="utf-8") == "mine"
    assert cli.main(["play", *short, "--picture", str(picture), "--force"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def told_of(moves, **others):
    told = {
        "kept": 100.0, "moves": len(moves), "false_moves": 1, "rolled_back": 4.0, "slices": 240, "lost": False,
        "useful": 104.0, "slow": 0.0, "stalled": 100.0, "down": 36.0, "shrunk": 0.0, "poisoned": 0.0,
        "incidents": [{"variant": "a.b", "site_kind": "gpu", "site": 3, "slice": 40, "recovered": 20}],
    }  # fmt: skip
    screen = io.StringIO()
    show_played(Played("mine", told | others, 200.0, 15.0, moves), Terminal(file=screen, width=80))
    return screen.getvalue()


def test_the_account_sets_what_was_stated_beside_the_truth():
    moves = [
        Stated(4, "move_to_spare:1", LEGAL, "a", 1, "a", 1), Stated(8, "move_to_spare:1", LEGAL, "a", 1, "a", 0),
        Stated(12, "wait", not LEGAL, "healthy", -1, "b", -1),
        *(Stated(20 + i, "use_tree", LEGAL, "b", -1, "healthy", -1) for i in range(12)),
    ]  # fmt: skip
    out = told_of(moves)
    lines = [re.sub(r"\s+", " ", line) for line in out.splitlines()]
    first = lines.index("0:01:00 move_to_spare:1 a at node 1: right")
    assert lines[first + 1 : first + 6] == [
        "0:02:00 move_to_spare:1 a at node 1: the place is wrong", " in truth a at node 0",
        "0:03:00 wait not legal: nothing was done", "0:05:00 use_tree b: wrong", " in truth no failure",
    ]  # fmt: skip
    assert "and 3 more" in out
    assert "the first move was right" in out
    assert "50.0 % of what a run without failures keeps" in out
    assert "0:10:00 for 0:05:00 a.b, gpu 3" in out


def test_a_quiet_episode_has_no_incident_and_nothing_stated():
    out = told_of([], incidents=[], lost=True)
    assert re.search(r"incidents +none", out)
    assert "given up" in out
    assert "stated" not in out
