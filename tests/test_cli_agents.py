"""The command line with trained agents: one plays, one is asked about logs, and what is no agent is one line."""

import json
import re
import sys

import pytest
import torch

from clusterorch import cli
from clusterorch.environment.tables import read_trace
from clusterorch.learning.playing import agent_observes, agent_policy
from clusterorch.policies.running import run_policy
from tests.learning.made_agents import ending_most, kept, made, restless

SMALL = ("--layout", "2x2", "--hours", "1", "--seed", "3")  # a failure enters in slice 168
ARGUMENTS = {"layout": "2x2", "hours": 1.0, "seed": 3}
KINDS = ("raw", "belief", "both", "truth")
LINE = "May  6 21:03:26 n7 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1234, GPU has fallen off the bus.\n"


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """By what they observe, one that acts now and then."""
    folder = tmp_path_factory.mktemp("agents")
    return {observe: kept(folder / f"of_{observe}", restless(observe, 2.0), observe) for observe in KINDS}


@pytest.fixture(scope="module")
def ender(tmp_path_factory):
    return kept(tmp_path_factory.mktemp("agents") / "ender", ending_most())


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "kernel.log"
    file.write_text(LINE)
    return file


def done(capsys, *words):
    assert cli.main([str(word) for word in words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def failing(capsys, *words):
    """The one line on standard error of a command that cannot be done."""
    assert cli.main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"clusterorch: error: [^\n]+\n", err)
    return err


# ---------------------------------------------------------------- play


@pytest.mark.parametrize("observe", KINDS)
def test_an_agent_plays_and_is_told_what_the_harness_finds(capsys, agents, observe):
    folder = agents[observe]
    out = done(capsys, "play", "--policy", folder, *SMALL)
    (found,) = run_policy(
        "of", [0], observe=agent_observes(folder), make=lambda episodes: agent_policy(folder, episodes), **ARGUMENTS
    )
    known = " (told the truth)" if observe == "truth" else ""
    assert out.startswith(f"of_{observe}{known} on 2x2, episode 0 of seed 3\n")
    assert f"kept         {found['kept']:.1f} of 240 slices" in out
    assert re.search(rf"^moves +{found['moves']}", out, re.MULTILINE)


@pytest.mark.parametrize("observe", KINDS)
def test_views_change_nothing_of_what_an_agent_plays(capsys, agents, observe, tmp_path):
    play = ("play", "--policy", agents[observe], *SMALL)
    plain = done(capsys, *play)
    picture = tmp_path / "racks.png"
    viewed = done(capsys, *play, "--live", "--picture", picture)
    assert viewed.endswith(plain)
    view = viewed.removesuffix(plain)
    assert ("told truth " in view) == (observe == "truth")
    assert ("belief " in view) == (observe != "truth")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_moves_are_drawn_if_asked(capsys, agents):
    likeliest = done(capsys, "play", "--policy", agents["belief"], *SMALL)
    drawn = done(capsys, "play", "--policy", agents["belief"], *SMALL, "--sampled")
    assert drawn == done(capsys, "play", "--policy", agents["belief"], *SMALL, "--sampled")
    assert drawn != likeliest


def test_the_trace_of_an_agent_is_kept(capsys, ender, tmp_path):
    out = done(capsys, "play", "--policy", ender, *SMALL, "--out", tmp_path / "trace")
    rows = [row for row in read_trace(tmp_path / "trace").rows("recovery") if row["move"] != "wait"]
    assert rows
    assert all(row["move"] in out for row in rows)


def test_a_folder_beside_is_found_by_its_name_and_names_of_policies_come_first(capsys, tmp_path, monkeypatch):
    kept(tmp_path / "mine", made())
    kept(tmp_path / "wait", ending_most())
    monkeypatch.chdir(tmp_path)
    short = ("--layout", "1x1", "--hours", "0.1")
    assert done(capsys, "play", "--policy", "mine", *short).startswith("mine on 1x1")
    wait = done(capsys, "play", "--policy", "wait", *short)
    agent = done(capsys, "play", "--policy", "./wait", *short)
    assert wait.startswith("wait on 1x1")
    assert agent.startswith("wait on 1x1")


# ---------------------------------------------------------------- diagnose --advise


def test_advice_of_an_agent_stands_apart_from_the_diagnosis(capsys, ender, log):
    plain, told = done(capsys, "diagnose", log), done(capsys, "diagnose", log, "--advise", ender)
    own = re.search(r"^What agent ender would do next *\n(?:.*\S.*\n)+", told, re.MULTILINE)
    assert own is not None
    assert told.replace(own[0], "").split() == plain.split()
    assert re.search(r"^ +\d+\.\d % isolate_node, node n7: ends gpu_xid on node n7 ", own[0], re.MULTILINE)
    assert "because" in own[0]
    assert "assumed" in own[0]


def test_advice_in_json_and_on_the_page(capsys, ender, log, tmp_path):
    before = json.loads(done(capsys, "diagnose", log, "--json"))
    page = tmp_path / "page.html"
    said = json.loads(done(capsys, "diagnose", log, "--json", "--advise", ender, "--spares", "2", "--html", page))
    told = said.pop("advice_of_agent")
    assert before.pop("advice_of_agent") is None
    assert said == before
    assert told["agent"] == "ender"
    assert len(told["moves"]) == 3
    first = told["moves"][0]
    assert first["target"] == first["aim"]["place"] == "node n7"
    assert first["ends"] == told["ends_most"]["ends"] == max(move["ends"] for move in told["moves"])
    assert first["minutes"] > 0
    assert f"{first['aim']['mode']} on node n7" in told["because"]
    assert "2 spares (as given)" in told["assumptions"]
    assert "What an agent would do next" in page.read_text(encoding="utf-8")


def test_following_asks_again(capsys, ender, log, monkeypatch):
    import clusterorch.telemetry.following as module
    from clusterorch.telemetry.reading import read_paths

    monkeypatch.setattr(module, "follow", lambda paths, formats: iter([read_paths(paths, formats)] * 2))
    lines = done(capsys, "diagnose", log, "--advise", ender, "--follow", "--json").splitlines()
    assert len(lines) == 2
    assert all(json.loads(line)["advice_of_agent"]["moves"][0]["target"] == "node n7" for line in lines)


# ---------------------------------------------------------------- what cannot be done


@pytest.mark.parametrize("command", [("play", "--policy"), ("diagnose", "{log}", "--advise")])
def test_what_is_no_agent_is_one_line_that_names_it(capsys, command, log, tmp_path):
    words = [word.format(log=log) for word in command]
    assert "there is no such folder" in failing(capsys, *words, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "config.json: No such file" in failing(capsys, *words, tmp_path / "empty")
    broken = kept(tmp_path / "broken", made())
    (broken / "model.safetensors").write_bytes(b"none")
    assert f"{broken}/model.safetensors" in failing(capsys, *words, broken)
    kept(tmp_path / "run" / "best", made())
    assert "its best agent is" in failing(capsys, *words, tmp_path / "run")


@pytest.mark.parametrize("command", [("play", "--policy"), ("diagnose", "{log}", "--advise")])
@pytest.mark.parametrize("library", ["torch", "safetensors"])
def test_without_what_agents_need_it_is_said_how_to_get_it(capsys, monkeypatch, ender, command, library, log):
    monkeypatch.setitem(sys.modules, library, None)
    said = failing(capsys, *[word.format(log=log) for word in command], ender)
    assert f"agents need {library}: pip install 'clusterorch[train]'" in said


@pytest.mark.parametrize("observe", ["raw", "both", "truth"])
def test_logs_hold_no_telemetry_for_an_agent(capsys, agents, observe, log):
    said = failing(capsys, "diagnose", log, "--advise", agents[observe])
    assert f"{agents[observe]}: the agent observes {observe}, and of logs there is only a belief" in said


def test_options_that_say_nothing_are_refused(capsys, ender, log):
    assert "'wait' is not the folder of one" in failing(capsys, "play", "--policy", "wait", "--sampled")
    assert "agents (models/policies)" in failing(capsys, "play", "--policy", "nobody")
    assert "--advise FOLDER" in failing(capsys, "diagnose", log, "--spares", "2")
    assert "--spares -1" in failing(capsys, "diagnose", log, "--advise", ender, "--spares", "-1")
