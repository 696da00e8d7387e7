"""A fifth failure mode, added by two files of tables and no line of Python, from the check to the explanation."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from clusterorch import models
from clusterorch.cli import main
from clusterorch.diagnosis.diagnose import default_incident_model, diagnose, ranked_weights
from clusterorch.figures.causal_graph import draw_causal_graph
from clusterorch.inference.actions import action_kernel
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.simulation import Simulator, simulate
from clusterorch.simulation.command import run
from clusterorch.simulation.trace import Trace
from clusterorch.telemetry.patterns import check_signals, load_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.rows import Pattern

OVERLAY = Path(__file__).parent / "data" / "fifth" / "overlay.toml"
MODE, VARIANT = "cuda_oom", "cuda_oom.growing"
GPUS = 2
EPISODES = range(6)


@functools.cache
def model():
    return models.load("reference", layout=f"2x{GPUS}", overlays=[OVERLAY])


@functools.cache
def formats():
    return load_formats(default_incident_model(overlays=[OVERLAY]).format_files)


@functools.cache
def trace(seed: int) -> Trace:
    return simulate(model(), 90, seed=seed, fault=f"{VARIANT}/3", at=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for each episode, written by the simulate command: pasted lines, and of the first the whole logs."""
    root, silent = tmp_path_factory.mktemp("fifth"), Console(file=io.StringIO())
    for seed in EPISODES:
        protocol = "excerpt" if seed else "complete"
        run(
            MODE, f"2x{GPUS}", seed, root / str(seed), logs=True, protocol=protocol, slices=90, at=6,
            overlays=[OVERLAY], console=silent,
        )  # fmt: skip
    return root


@pytest.fixture(scope="module")
def excerpts(folder):
    """(place of the fault, diagnosis) of every excerpt that holds the mode's line."""
    incident, found = default_incident_model(overlays=[OVERLAY]), []
    for seed in EPISODES[1:]:
        read = read_paths([folder / str(seed) / "logs"], formats())
        if any(reading.signal == "python_error" for reading in read.readings):
            found.append((f"rank {Trace.load(folder / str(seed)).faults[0]['site']}", diagnose(incident, read)))
    assert len(found) > len(EPISODES) // 2
    return found


def test_it_is_loaded_and_checked_beside_the_modes_that_were_there():
    before = models.load("reference")
    assert set(model().modes) == {*before.modes, MODE}
    assert VARIANT in model().variants
    declared = {s.name: (s.entity, s.values) for s in model().spec.signal}
    check_signals(load_formats(model().format_files), declared)
    assert model().format_files == [*before.format_files, OVERLAY.parent / "lines.toml"]


def test_a_rule_of_the_overlay_comes_before_those_of_the_signal():
    rules = model().signals["cuda_error"].when
    assert rules[0].mechanism == "exhaustion_reported"
    assert [r.mechanism for r in rules[1:]] == [
        r.mechanism for r in models.load("reference").signals["cuda_error"].when
    ]


def test_it_is_sampled_as_declared():
    simulator = Simulator(model(), 4000, seed=1, fault=f"{VARIANT}/3", at=0, start="step")
    start, stop = model().network.signal_offset[model().network.signal_index("python_error") :][:2]
    told = np.zeros((4000, stop - start), dtype=bool)
    down = np.zeros(4000, dtype=bool)
    for _ in range(21):
        record = simulator.step()
        told |= record.values[:, start:stop] == 1
        down |= record.job_class == 2
    # After 21 slices, 20 of which the delay may end in: geometric of mean 20 slices.
    expected = 1.0 - 0.95**20
    assert down.mean() == pytest.approx(expected, abs=0.04)
    assert told[:, 3].mean() == pytest.approx(expected * 0.97 * 0.96, abs=0.04)
    assert told[:, :3].mean() < 0.01


def test_its_cascade_ends_in_its_line():
    kinds = [e.kind for e in trace(0).events]
    assert "python_error" in kinds
    told = next(e for e in trace(0).events if e.kind == "python_error" and e.payload["value"] == "out_of_memory")
    behind = {e.id: e for e in trace(0).events}[told.causes[0]]
    assert "exhaustion_reported" in behind.payload.values()


def test_the_filter_finds_it_in_complete_telemetry():
    f, one = Filter(model().network), trace(1)
    published = [one.published[k] for k in ("phase", "save_ends", "job_class", "age_before")]
    for values, phase, ends, job_class, age in zip(one.values, *published, strict=True):
        f.step(SliceEvidence(values, int(phase), bool(ends), int(job_class), int(age)))
    belief = f.posterior()
    assert belief.modes[MODE] > 0.99
    assert belief.sites()["rank", 3] > 0.99


def test_its_lines_are_read_back_as_they_were_meant(folder):
    read = read_paths([folder / "0" / "logs"], formats())
    meant = [(e.entity, e.payload["value"]) for e in Trace.load(folder / "0").events if e.kind == "python_error"]
    said = [(str(r.entity), r.value) for r in read.readings if r.signal == "python_error"]
    assert [x for x in said if x[1] == "out_of_memory"] == [x for x in meant if x[1] == "out_of_memory"]
    assert said


def test_it_comes_first_on_its_own_logs(excerpts):
    for place, diagnosis in excerpts:
        assert diagnosis.leading == MODE
        assert diagnosis.modes[MODE] > 0.95
        assert diagnosis.sites[0][1].split(" on ")[0] == place


def test_its_line_is_named_as_evidence_for_it(excerpts):
    for _, diagnosis in excerpts:
        mine = [w for w in ranked_weights(diagnosis) if w.reading.pattern == "allocation_failed"]
        assert mine[0] in ranked_weights(diagnosis)[:3]
        assert mine[0].favours == MODE
        assert mine[0].change[MODE] > 5.0
        assert "CUDA out of memory" in mine[0].reading.text


def test_what_the_logs_shout_is_named(excerpts):
    for _, diagnosis in excerpts:
        assert diagnosis.proximate is not None
        assert diagnosis.proximate[0] == "rank_crashed"


def test_the_line_alone_tells_it(tmp_path):
    row: Pattern = formats().pattern["allocation_failed"]
    (tmp_path / "a.log").write_text(row.example + "\n", encoding="utf-8")
    told = diagnose(default_incident_model(overlays=[OVERLAY]), read_paths([tmp_path], formats()))
    assert told.leading == MODE
    assert told.sites[0][1] == "rank 3"


def test_the_diagnose_command_reads_its_line(tmp_path, capsys):
    (tmp_path / "a.log").write_text(formats().pattern["allocation_failed"].example + "\n", encoding="utf-8")
    assert main(["diagnose", str(tmp_path), "--json", "--overlay", str(OVERLAY)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert max(told["modes"], key=told["modes"].get) == MODE
    assert told["evidence"][0]["signal"] == "python_error"


def test_a_known_incident_stays_what_it_was():
    case = Path(__file__).parents[1] / "data" / "cases" / "case-001" / "logs"
    told = diagnose(default_incident_model(overlays=[OVERLAY]), read_paths([case], formats()))
    assert told.leading == "gpu_xid"
    assert told.modes[MODE] < 0.1  # a crash whose own line was lost is not ruled out


def test_its_action_clears_it():
    network = model().network
    kernel = action_kernel(network, "smaller_buckets")
    at = np.cumsum([0, *(b.sites for b in network.blocks)])
    v = [b.variant.name for b in network.blocks].index(VARIANT)
    assert (kernel.clears[at[v] : at[v + 1]] == 0.95).all()
    assert kernel.restarts


def test_it_is_drawn(tmp_path):
    assert {MODE, VARIANT, "memory_exhausted", "python_error"} <= set(model().graph)
    assert draw_causal_graph(model().graph, tmp_path / "graph.png").stat().st_size > 10_000


def test_no_python_of_the_library_knows_its_names():
    package = Path(models.__file__).parents[1]
    words = (MODE, "memory_growing", "memory_exhausted", "exhaustion_reported", "python_error", "smaller_buckets")
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not [word for word in words if word in text], file
