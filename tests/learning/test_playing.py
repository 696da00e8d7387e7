"""Agents of folders as policies: they see what they were made for, and what cannot be played is one clear error."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clusterorch.environment.making import episodes_of
from clusterorch.errors import InvalidAgent
from clusterorch.learning.agents import CONFIG, WEIGHTS
from clusterorch.learning.playing import agent_name, agent_observes, agent_policy
from clusterorch.policies.running import run_policy
from clusterorch.policies.view import view_of
from tests.learning.made_agents import ending_most, kept, made, restless

ARGUMENTS = {"layout": "2x2", "hours": 1.0, "seed": 3}  # a failure enters in slice 168
KINDS = ("raw", "belief", "both", "truth")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def run(folder, observe=None, **options):
    """An episode as the harness plays it."""
    shown = observe or agent_observes(folder)
    return run_policy(
        "learned", [0], observe=shown, make=lambda episodes: agent_policy(folder, episodes, **options), **ARGUMENTS
    )[0]


@pytest.mark.parametrize("observe", KINDS)
def test_an_agent_plays_episodes_that_show_what_it_observes(tmp_path, observe):
    folder = kept(tmp_path / "mine", restless(observe), observe)
    assert agent_observes(folder) == observe
    told = run(folder)
    assert told["slices"] == 240
    assert told["moves"] > 0


@pytest.mark.parametrize("observe", ["raw", "belief"])
def test_what_else_is_shown_changes_nothing(tmp_path, observe):
    folder = kept(tmp_path / "mine", restless(observe), observe)
    alone, beside = run(folder), run(folder, "both")
    assert alone["moves"] > 0
    assert {**alone, "recovery_latency": 0} == {**beside, "recovery_latency": 0}


def test_an_agent_that_ends_most_acts_on_the_failure(tmp_path):
    folder = kept(tmp_path / "mine", ending_most("truth"), "truth")
    told = run(folder)
    assert told["moves"] >= 1
    assert told["false_moves"] == 0
    assert told["incidents"][0]["recovered"] is not None


def test_moves_are_drawn_from_the_policy_by_seed(tmp_path):
    folder = kept(tmp_path / "mine", restless(patience=5.0))
    first, again, other = (run(folder, sampled=True, seed=seed)["kept"] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    likeliest = run(folder)
    assert likeliest["moves"] == 0  # waiting always is the likeliest
    assert likeliest["kept"] != first


def test_draws_follow_the_shares(tmp_path):
    folder = kept(tmp_path / "mine", ending_most())
    episodes = episodes_of(4000, layout="1x2", hours=0.2, observe="belief")
    episodes.begin(np.arange(4000), np.zeros(4000, dtype=np.int64))
    view = view_of(episodes)
    shares = agent_policy(folder, episodes).read(view).logits.softmax(-1).mean(0).numpy()
    drawn = np.bincount(agent_policy(folder, episodes, sampled=True).decide(view).moves, minlength=len(shares))
    assert drawn / 4000 == pytest.approx(shares, abs=0.03)
    assert (agent_policy(folder, episodes).decide(view).moves == shares.argmax()).all()


def test_who_is_told_the_truth_is_called_so(tmp_path):
    names = {observe: agent_name(kept(tmp_path / f"of_{observe}", made(observe), observe)) for observe in KINDS}
    assert names.pop("truth") == "of_truth (told the truth)"
    assert names == {observe: f"of_{observe}" for observe in names}
    assert agent_name(kept(tmp_path / "run" / "best", made())) == "run/best"


def test_episodes_that_do_not_show_it_are_refused(tmp_path):
    folder = kept(tmp_path / "mine", made("truth"), "truth")
    with pytest.raises(InvalidAgent, match="observes truth, and the episodes show both"):
        agent_policy(folder, episodes_of(1, layout="1x2", observe="both"))


@pytest.mark.parametrize(
    ("observe", "other", "named"), [("raw", "belief", "columns of a node"), ("belief", "both", "columns of a node")]
)
def test_another_model_than_it_was_made_for_is_refused(tmp_path, observe, other, named):
    folder = kept(tmp_path / "mine", made(observe), other)
    with pytest.raises(InvalidAgent, match=f"made for .* {named}, and model reference has") as error:
        agent_policy(folder, episodes_of(1, layout="1x2", observe=other))
    assert str(folder) in str(error.value)


def without(folder):
    (folder / WEIGHTS).unlink()


def cut_off(folder):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])


def not_finite(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["value.0.bias"][0] = torch.nan
    save_file(tensors, folder / WEIGHTS)


def changed(change):
    def spoil(folder):
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        change(config)
        (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without, "model.safetensors: no such file; give the folder of an agent"),
        (cut_off, "model.safetensors: .*; take an earlier checkpoint"),
        (not_finite, "value.0.bias is not finite"),
        (lambda folder: (folder / CONFIG).unlink(), "config.json: No such file"),
        (lambda folder: (folder / CONFIG).write_text("{", encoding="utf-8"), "config.json: not JSON"),
        (changed(lambda config: config.pop("shape")), "a checkpoint of a training run"),
        (changed(lambda config: config.pop("run")), "run.observe is None"),
        (changed(lambda config: config["run"].update(observe="all")), "run.observe is 'all', and one of raw, belief"),
        (changed(lambda config: config["shape"].update(memory="perfect")), "shape makes no network"),
        (changed(lambda config: config["shape"].update(width="wide")), "shape makes no network"),
        (changed(lambda config: config["shape"].pop("modes")), "shape has other keys than this version: modes"),
        (changed(lambda config: config.update(version=0)), "version 0, and this program reads"),
    ],
)
def test_a_broken_agent_is_one_clear_line(tmp_path, spoil, said):
    folder = kept(tmp_path / "mine", made())
    spoil(folder)
    with pytest.raises(InvalidAgent, match=said) as error:
        agent_policy(folder, episodes_of(1, layout="1x2", observe="belief"))
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_folder_and_the_folder_of_a_run_are_told(tmp_path):
    with pytest.raises(InvalidAgent, match="there is no such folder; give the folder of an agent"):
        agent_observes(tmp_path / "nothing")
    kept(tmp_path / "run" / "best", made())
    with pytest.raises(InvalidAgent, match=r"the folder of a training run; its best agent is .*best"):
        agent_observes(tmp_path / "run")
