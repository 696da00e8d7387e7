"""The demonstration, from its choices in data/demo.toml to its picture."""

import re
import tomllib
from pathlib import Path

import pytest

from clusterorch import cli, demo, models
from clusterorch.simulation.trace import simulate

ROOT = Path(__file__).resolve().parents[1]
CHOSEN = tomllib.loads((ROOT / "data/demo.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the demonstration prints, and its folder."""
    out = tmp_path_factory.mktemp("demo") / "deep"
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        terminal = demo.terminal(width=100)
        terminal.record = True
        patch.setattr(demo, "terminal", lambda: terminal)
        assert cli.main(["demo", "--out", str(out)]) == 0
        lines = terminal.export_text().splitlines()
    return lines, out


def test_it_shows_the_cascade_the_belief_and_a_real_diagnosis(shown):
    lines, _ = shown
    text = "\n".join(lines)
    assert [line[:2] for line in lines if re.match(r"\d\. ", line)] == ["1.", "2.", "3."]
    model = models.load("reference")
    mode, _, name = CHOSEN["incident"]["fault"].partition(".")
    title = next(v.title for v in model.modes[mode].variant if v.name == name)
    first = next(line for line in lines if "◆" in line)
    assert title in first
    assert re.search(rf"^00:\d\d:\d\d  A+ {mode} >99.9 %", text, re.MULTILINE)
    assert "Diagnosis: " in text
    assert "sha256" in text


def test_no_row_is_wider_than_a_hundred_columns(shown):
    assert max(map(len, shown[0])) <= 100


def test_it_writes_one_picture(shown):
    _, out = shown
    assert [file.name for file in out.iterdir()] == [demo.PICTURE]
    assert (out / demo.PICTURE).read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_is_there_stays(shown, capsys):
    _, out = shown
    before = (out / demo.PICTURE).read_bytes()
    assert cli.main(["demo", "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert (out / demo.PICTURE).read_bytes() == before


def test_without_the_data_folder_it_says_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(demo, "_DATA", tmp_path / "none")
    assert cli.main(["demo", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "the data folder of a checkout" in error


@pytest.fixture(scope="module")
def played():
    model = models.load("reference", layout="2x2", overlays=["episode"])
    return model, simulate(model, 40, seed=3, fault=CHOSEN["incident"]["fault"], at=10)


def test_a_belief_uses_nothing_that_has_not_arrived_yet(played):
    model, trace = played
    arrival = demo.arrivals(model.network, trace)
    whole = demo.watch(model, trace)
    for end in (12, 20):
        # Everything that comes after `end` is set to something else: what was believed by then must stand.
        changed = trace.values.copy()
        later = (arrival > end - 1) | (arrival < 0)
        changed[later] = 0.0
        other = type(trace)(
            changed, trace.arrival, trace.published, trace.truth, trace.faults, trace.events, trace.metadata
        )
        assert demo.watch(model, other)[: end + 1] == whole[: end + 1]


def test_cells_arrive_in_their_slice_or_later_and_lost_ones_never(played):
    model, trace = played
    arrival = demo.arrivals(model.network, trace)
    given = ~(trace.values != trace.values)
    slices = range(trace.slices)
    assert all((arrival[t][given[t]] >= t).all() for t in slices)
    assert arrival.shape == trace.values.shape
    assert {int(a) for t in slices for a in arrival[t][~given[t]]} <= {-1}


def test_the_first_belief_is_that_the_job_is_healthy(played):
    first = demo.watch(*played)[0]
    assert first.time == 0.0
    assert first.modes["healthy"] == 1.0
