"""The study of learning: it trains, keeps, goes on where it stopped, and says what its episodes say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterorch.evaluation.__main__ import main
from clusterorch.evaluation.learning_study import keys, summary
from clusterorch.figures.__main__ import main as draw
from clusterorch.learning.training import Run

BASELINES = ("wait", "qmdp", "oracle")


def episode(number, kept, first="a.one", began=10, acted=None, stated=None):
    rest = dict.fromkeys(
        (
            "rolled_back", "false_moves", "moves", "useful", "slow", "stalled", "down", "shrunk", "poisoned", "lost",
        ),
        0.0,
    )  # fmt: skip
    return rest | {
        "number": number, "kept": kept, "first": first, "incidents": 1, "understood": None if acted is None else True,
        "stated": stated, "truth": None, "acted": acted, "began": began, "latency": None,
    }  # fmt: skip


def records():
    told = {
        "baseline/1x2/wait": [episode(0, 50.0), episode(1, 70.0, "b.one")],
        "baseline/1x2/qmdp": [episode(0, 80.0), episode(1, 90.0, "b.one")],
        "baseline/1x2/oracle": [episode(0, 100.0), episode(1, 100.0, "b.one")],
    }
    found = {key: {"key": key, "episodes": episodes} for key, episodes in told.items()}
    for seed, kept in enumerate((90.0, 70.0)):
        played = [episode(0, kept, acted=14 + 4 * seed, stated="a"), episode(1, 90.0, "b.one", acted=2, stated="a")]
        found[f"run/belief/{seed}"] = {
            "key": f"run/belief/{seed}", "seconds": 60.0, "decisions": 100,
            "curve": [{"decisions": 100, "argmax": 0.1, "sampled": 0.2}],
            "episodes": {"1x2": {"argmax": played, "sampled": played}},
        }  # fmt: skip
    return found


def test_what_arms_reach_is_the_mean_over_seeds_episode_by_episode():
    result = summary(records(), Run(layouts=("1x2",)), ["belief"], [0, 1], BASELINES)
    found = result["layouts"]["1x2"]
    assert found["rows"]["belief, argmax"]["kept"] == pytest.approx((80.0 + 90.0) / 2)
    assert found["by_seed"]["belief, sampled"] == pytest.approx([60.0 / 80.0, 40.0 / 80.0])
    against = found["against"]["belief, argmax"]
    assert against["qmdp"]["mean"] == 0.0
    assert against["wait"]["mean"] == pytest.approx(25.0)
    assert against["wait"]["low"] <= 25.0 <= against["wait"]["high"]
    assert result["references"] == pytest.approx({"wait": 0.0, "qmdp": 50.0 / 80.0, "oracle": 1.0})


def test_first_moves_are_told_by_mode():
    found = summary(records(), Run(layouts=("1x2",)), ["belief"], [0, 1], BASELINES)["layouts"]["1x2"]
    moves = found["first_moves"]["belief, argmax"]
    assert moves["a"] == {"episodes": 2, "before": 0, "acted": 2, "taken_for": {"a": 2}, "median_delay": 6.0}
    assert moves["b"] == {"episodes": 2, "before": 2, "acted": 0, "taken_for": {}, "median_delay": None}


def test_baselines_come_once_and_arms_with_every_seed():
    found = keys(["raw", "both"], [3, 4], ["wait"], ["1x2", "2x2"])
    assert found == [
        "baseline/1x2/wait", "baseline/2x2/wait", "run/raw/3", "run/both/3", "run/raw/4", "run/both/4",
    ]  # fmt: skip


def test_a_study_runs_end_to_end_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("clusterorch.evaluation.__main__.POLICIES", ("wait", "oracle"))
    run = {
        "hours": 0.2, "width": 32, "evaluate_every": 2, "evaluated": 2, "instances": 4, "layouts": ["1x2"],
        "schedule": {"length": 8},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    out = tmp_path / "out"

    def study(*more):
        return main(
            [
                "learning", "--run-file", str(tmp_path / "run.json"), "--steps", "128", "--episodes", "3",
                "--work", str(tmp_path / "work"), "--out", str(out), *more,
            ]
        )  # fmt: skip

    assert study("--arms", "raw", "--seeds", "1") == 0
    kept = (out / "runs.jsonl").read_text()
    assert (tmp_path / "work" / "raw-1" / "best" / "model.safetensors").exists()
    assert study("--arms", "raw", "prior", "--seeds", "1") == 0
    trained = json.loads((tmp_path / "work" / "prior-1" / "final" / "config.json").read_text())["run"]
    assert (trained["observe"], trained["prior"]) == ("belief", 1.0)
    assert (out / "runs.jsonl").read_text().startswith(kept)
    result = json.loads((out / "learning.json").read_text())
    assert set(result["arms"]) == {"raw", "prior"}
    curve = result["arms"]["prior"]["1"]["curve"]
    assert [one["decisions"] for one in curve if "argmax" in one] == [64, 128]
    page = (out / "learning.md").read_text()
    assert "| prior | 1 | 128 |" in page
    assert "## Layout 1x2" in page
    for name in ("curves.png", "curves.svg"):
        assert draw(["learning", "--result", str(out / "learning.json"), "--out", str(out / name)]) == 0
        assert (out / name).stat().st_size > 5000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--result", "nothing.json"], "No such file"),
        (["--out", "curves.gif"], "give a name that ends in .png or .svg"),
    ],
)
def test_a_picture_that_cannot_be_drawn_says_why(tmp_path, capsys, given, said):
    file = Path(tmp_path) / "learning.json"
    file.write_text(json.dumps({"arms": {}, "references": {}}))
    assert draw(["learning", "--result", str(file), *given]) == 2
    assert said in capsys.readouterr().err
