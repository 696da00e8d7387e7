"""Scores of policies: shares are ratios of sums, intervals hold the truth, and the command keeps what it has played."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from clusterorch.errors import InvalidIntervention
from clusterorch.evaluation.__main__ import main
from clusterorch.evaluation.policy_report import markdown, terminal_tables
from clusterorch.evaluation.policy_scores import CHUNK, keys, play, summary

POLICIES = ("wait", "rule", "oracle")


def episode(number, kept, first=None, understood=None):
    told = dict.fromkeys(
        ("rolled_back", "false_moves", "moves", "useful", "slow", "stalled", "down", "shrunk", "poisoned", "lost"), 0.0
    )
    return told | {
        "number": number, "kept": kept, "first": first, "incidents": int(first is not None), "understood": understood,
        "latency": None,
    }  # fmt: skip


def records(count=200, seed=0):
    rng = np.random.default_rng(seed)
    wait = rng.normal(500, 100, count)
    room = rng.exponential(80, count)
    rule = wait + 0.4 * room + rng.normal(0, 20, count)
    first = [("gpu_xid.gsp_hang", "cuda_oom.leak", None)[i % 3] for i in range(count)]
    runs = {"wait": wait, "rule": rule, "oracle": wait + room}
    return runs, [
        {"key": f"2x2/{start}-{stop}/{policy}", "episodes": [episode(i, kept[i], first[i]) for i in range(start, stop)]}
        for start, stop in ((100, 200), (0, 100))
        for policy, kept in runs.items()
    ]


def test_the_share_is_a_ratio_of_sums_of_pairs():
    runs, found = records()
    scores = summary(found, ["2x2"], POLICIES)["layouts"]["2x2"]
    rows = scores["rows"]
    share = (runs["rule"] - runs["wait"]).sum() / (runs["oracle"] - runs["wait"]).sum()
    assert rows["rule"]["share"] == pytest.approx(share)
    assert (rows["wait"]["share"], rows["oracle"]["share"]) == (0.0, 1.0)
    assert rows["rule"]["low"] < share < rows["rule"]["high"]
    assert 0.3 < rows["rule"]["low"] < 0.4 < rows["rule"]["high"] < 0.5
    assert scores["episodes"] == 200
    assert scores["empty"] == 66


def test_groups_go_by_the_first_failure():
    runs, found = records()
    scores = summary(found, ["2x2"], POLICIES)["layouts"]["2x2"]
    rows = np.arange(0, 200, 3)
    assert scores["by_mode"]["gpu_xid"]["episodes"] == len(rows)
    gap = scores["by_variant"]["gpu_xid.gsp_hang"]["gap"]["rule"]
    assert gap == pytest.approx((runs["oracle"] - runs["rule"])[rows].mean())
    assert set(scores["by_variant"]) == {"gpu_xid.gsp_hang", "cuda_oom.leak"}


def test_the_number_of_pairs_has_the_power_it_says():
    runs, found = records(seed=3)
    needed = summary(found, ["2x2"], POLICIES)["layouts"]["2x2"]["needed"]["wait < rule"]
    difference = runs["rule"] - runs["wait"]
    draws = np.random.default_rng(1).choice(difference, size=(4000, needed))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / np.sqrt(needed))
    assert 0.65 < (np.abs(t) > 1.96).mean() < 0.95


def test_keys_keep_what_is_done_paired():
    found = keys(["1x2"], ["wait", "oracle"], CHUNK + 1)
    chunks = (f"0-{CHUNK}", f"{CHUNK}-{CHUNK + 1}")
    assert found == [f"1x2/{chunk}/{policy}" for chunk in chunks for policy in ("wait", "oracle")]
    assert [len(play(key, 0.05, None, 0)["episodes"]) for key in found[2:]] == [1, 1]
    with pytest.raises(InvalidIntervention, match="2 or more"):
        keys(["1x2"], ["wait"], 1)


def test_the_command_writes_its_page_and_goes_on_where_it_stopped(tmp_path):
    words = ["policies", "--layouts", "1x2", "--hours", "0.2", "--policies", "restart", "--out", str(tmp_path)]
    assert main([*words, "--episodes", "4"], Console(file=io.StringIO())) == 0
    first = (tmp_path / "episodes.jsonl").read_text()
    result = json.loads((tmp_path / "policies.json").read_text())
    assert result["policies"] == ["wait", "restart", "oracle"]
    assert result["layouts"]["1x2"]["episodes"] == 4
    assert "| restart |" in (tmp_path / "policies.md").read_text()
    assert main([*words, "--episodes", "4"], Console(file=io.StringIO())) == 0
    assert (tmp_path / "episodes.jsonl").read_text() == first
    assert main([*words, "--episodes", "0"], Console(file=io.StringIO())) == 2


def test_the_page_has_every_policy_and_mode():
    _, found = records()
    result = summary(found, ["2x2"], POLICIES)
    made = {"command": ["x"], "commit": None, "model": "m", "sha256": "0" * 64, "hours": 4.0}
    result["made"] = made | {"profile": None, "seed": 0}
    page = markdown(result)
    assert all(f"| {policy} |" in page for policy in POLICIES)
    assert "| gpu_xid |" in page
    console = Console(file=io.StringIO(), width=80)
    console.print(*terminal_tables(result))
    assert max(map(len, console.file.getvalue().splitlines())) <= 80
