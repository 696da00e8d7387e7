"""Agents among the policies: played as they are now, on the same episodes, and told of in their cards."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch

from clusterorch.evaluation.__main__ import main
from clusterorch.learning.agents import save_agent
from clusterorch.learning.training import Run
from tests.learning.made_agents import ending_most, restless


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def written(folder, policy):
    told = {"run": asdict(Run()), "update": 3, "decisions": 12_345, "shares": None, "processes": 2}
    return save_agent(folder, policy, told, "an agent\n", force=True)


def study(tmp_path, *more):
    return main(
        [
            "policies", "--episodes", "2", "--layouts", "1x2", "--policies", "wait", "qmdp", "--hours", "0.2", "--out",
            str(tmp_path / "out"), *more,
        ]
    )  # fmt: skip


def test_agents_are_played_as_they_are_now_and_their_cards_say_how_well(tmp_path):
    agent = written(tmp_path / "ender", ending_most())
    assert study(tmp_path) == 0
    before = (tmp_path / "out" / "episodes.jsonl").read_text()
    given = ("--agents", str(agent), "--cards")
    assert study(tmp_path, *given) == 0
    journal = (tmp_path / "out" / "episodes.jsonl").read_text()
    assert journal.startswith(before)
    result = json.loads((tmp_path / "out" / "policies.json").read_text())
    names = [name for name in result["policies"] if name.startswith("ender@")]
    assert len(names) == 2
    assert names[1] == f"{names[0]}, sampled"
    card = (agent / "README.md").read_text()
    kept = result["layouts"]["1x2"]["rows"][names[0]]["kept"]
    assert f"| {names[0]} | {kept:.1f} |" in card
    assert "| qmdp |" in card
    assert "as training left it, after 12,345" in " ".join(card.split())
    assert f"--nproc-per-node=2 -m clusterorch train --config models/policies/{agent.name}/config.json" in card
    assert study(tmp_path, *given) == 0
    assert (tmp_path / "out" / "episodes.jsonl").read_text() == journal  # nothing is played twice
    written(agent, restless())
    assert study(tmp_path, *given) == 0
    again = json.loads((tmp_path / "out" / "policies.json").read_text())
    assert names[0] not in again["policies"]
    assert sum(name.startswith("ender@") for name in again["policies"]) == 2


def test_a_folder_without_an_agent_is_refused_before_anything_is_played(tmp_path, capsys):
    assert study(tmp_path, "--agents", str(tmp_path / "nobody")) == 2
    assert "no such folder" in capsys.readouterr().err
