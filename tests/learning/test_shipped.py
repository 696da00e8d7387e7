"""Agents that ship: whole, playable on layouts they were not trained on, and as good as their cards say they were."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest
import torch

from clusterorch import cli
from clusterorch.cli.of_agents import shipped_agents
from clusterorch.environment.making import episodes_of
from clusterorch.learning.agents import CONFIG, WEIGHTS, load_agent
from clusterorch.learning.playing import agent_observes, agent_policy
from clusterorch.learning.training import Run
from clusterorch.policies.running import run_policy
from clusterorch.policies.view import view_of

AGENTS = shipped_agents()


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_there_is_one_with_beliefs_and_one_without():
    assert {agent_observes(folder) for folder in AGENTS.values()} >= {"belief", "raw"}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_whole_and_its_card_is_of_these_weights(name):
    folder = AGENTS[name]
    assert {file.name for file in folder.iterdir()} == {CONFIG, WEIGHTS, "README.md"}
    _, config = load_agent(folder)
    run = Run.parse(config["run"])
    assert len(run.layouts) > 1
    assert len(run.profiles) > 1
    assert config["decisions"] <= run.steps + 10_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    label = f"{name}@{hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()[:8]}"
    for layout in run.layouts:
        part = card.split(f"unseen episodes on {layout}")[1].split("##")[0]
        assert f"| {label} |" in part
        assert f"| {label}, sampled |" in part
        assert "| qmdp |" in part
    assert f"train --config models/policies/{name}/config.json" in card


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("layout", ["1x2", "3x4"])
def test_an_agent_plays_layouts_that_it_has_not_seen(name, layout):
    episodes = episodes_of(2, layout=layout, hours=0.2, observe=agent_observes(AGENTS[name]), seed=5)
    policy = agent_policy(AGENTS[name], episodes)
    episodes.begin(np.arange(2), np.zeros(2, dtype=np.int64))
    for _ in range(6):
        view = view_of(episodes)
        moves = policy.decide(view).moves
        assert (view.masks[np.arange(2), moves] == 1).all()
        episodes.decide(moves, np.ones(2, dtype=bool))


@pytest.mark.long
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_keeps_more_than_waiting_and_than_every_runbook(name):
    def kept(policy, **more):
        found = run_policy(policy, range(96), layout="1x8", hours=4.0, domain="shipped", seed=1, **more)
        return np.array([one["kept"] for one in found])

    folder = AGENTS[name]
    mine = kept(name, observe=agent_observes(folder), make=lambda episodes: agent_policy(folder, episodes))
    for rule in ("wait", "timeout", "vendor"):
        apart = mine - kept(rule)
        assert apart.mean() > 1.96 * apart.std() / np.sqrt(len(apart)), rule


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_played_by_its_name(name, capsys):
    assert cli.main(["play", "--policy", name, "--layout", "1x2", "--hours", "0.2"]) == 0
    assert re.search(rf"\b{name}\b", capsys.readouterr().out)
