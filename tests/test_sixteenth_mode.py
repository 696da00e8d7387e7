"""A sixteenth failure mode, added by two files of tables and no line of Python, from the check to the explanation."""

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
from clusterorch.inference.priors import OnsetPrior
from clusterorch.models.spec import PHASES
from clusterorch.simulation import Simulator, simulate
from clusterorch.simulation.command import run
from clusterorch.simulation.trace import Trace
from clusterorch.telemetry.patterns import check_signals, load_formats
from clusterorch.telemetry.reading import read_paths
from tests.inference.worlds import LIMITS, Pair, as_states, assert_same, walked_states
from tests.reference.walk import walk_filter

OVERLAY = Path(__file__).parent / "data" / "sixteenth" / "overlay.toml"
MODE = "nvlink_degradation"
LINK, SWITCH = f"{MODE}.replaying_link", f"{MODE}.switch_fault"
GPUS = 2
EPISODES = range(12)

KERNEL_LOG = """\
Mar 12 08:14:07 gn04 kernel: nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
Mar 12 08:14:07 gn04 kernel: NVRM: Xid (PCI:0000:5d:00): 74, pid=31877, name=python, NVLink: fatal error detected on \
link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)
Mar 12 08:14:09 gn04 kernel: NVRM: Xid (PCI:0000:5d:00): 45, pid=31877, name=python, Ch 00000008
"""
LINK_COUNTERS = """\
user@gn04:~$ nvidia-smi nvlink -e
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a6b1c5e-77d1-9d3c-10a1-1f2e3d4c5b6a)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1a6b1c5e-77d1-9d3c-10a1-1f2e3d4c5b6b)
\t Link 0: Replay Errors: 40213
\t Link 0: Recovery Errors: 2
\t Link 0: CRC Errors: 0
"""


@functools.cache
def model():
    return models.load("reference", layout=f"2x{GPUS}", overlays=[OVERLAY])


@functools.cache
def incident_model():
    return default_incident_model(overlays=[OVERLAY])


@functools.cache
def formats():
    return load_formats(incident_model().format_files)


@functools.cache
def trace(seed: int) -> Trace:
    return simulate(model(), 90, seed=seed, fault=f"{LINK}/3", at=6)


@functools.cache
def hot():
    """On one node, with limits of two to four slices."""
    return models.load("reference", layout="1x2", overlays=[OVERLAY]).with_limits(LIMITS).network


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for each episode, written by the simulate command: pasted lines, and of the first the whole logs."""
    root, silent = tmp_path_factory.mktemp("sixteenth"), Console(file=io.StringIO())
    for seed in EPISODES:
        protocol = "excerpt" if seed else "complete"
        run(
            SWITCH if seed % 2 else LINK, f"2x{GPUS}", seed, root / str(seed), logs=True, protocol=protocol, slices=90,
            at=6, overlays=[OVERLAY], console=silent,
        )  # fmt: skip
    return root


@pytest.fixture(scope="module")
def excerpts(folder):
    """(host of the fault, diagnosis) of every excerpt that holds a line of the mode."""
    found = []
    for seed in EPISODES[1:]:
        read = read_paths([folder / str(seed) / "logs"], formats())
        if any(reading.signal == "sxid" or reading.value == "nvlink" for reading in read.readings):
            fault = Trace.load(folder / str(seed)).faults[0]
            node = fault["site"] // (GPUS if fault["variant"] == LINK else 1)
            found.append((f"node-{node:04d}", diagnose(incident_model(), read)))
    assert len(found) > len(EPISODES) // 3
    return found


def test_it_is_loaded_and_checked_beside_the_modes_that_were_there():
    before = models.load("reference")
    assert set(model().modes) == {*before.modes, MODE}
    assert len(model().modes) == 16
    assert {LINK, SWITCH} <= set(model().variants)
    declared = {s.name: (s.entity, s.values) for s in model().spec.signal}
    check_signals(load_formats(model().format_files), declared)
    assert model().format_files == [*before.format_files, OVERLAY.parent / "lines.toml"]


def test_rules_of_the_overlay_come_before_those_of_the_signal():
    rules = model().signals["xid"].when
    assert [r.mechanism for r in rules[:2]] == ["nvlink_reported", "switch_reported"]
    assert [r.mechanism for r in rules[2:]] == [r.mechanism for r in models.load("reference").signals["xid"].when]


def test_a_row_of_the_overlay_replaces_that_of_its_name():
    before = load_formats(models.load("reference").format_files)
    assert before.pattern["sxid"].signal is None
    assert formats().pattern["sxid"].signal == "sxid"
    assert list(formats().pattern)[: len(before.pattern)] == list(before.pattern)


@pytest.mark.parametrize("variant", [LINK, SWITCH])
@pytest.mark.parametrize("seed", range(2))
def test_its_filter_equals_the_walk(variant, seed):
    net = hot()
    onset = np.outer(np.ones(len(PHASES)), [0.4 * (b.variant.name == variant) for b in net.blocks])
    pair = Pair(net, seed, 8, classes=seed == 0, actions=seed == 1, prior=OnsetPrior(onset), missing=0.8)
    walked = walk_filter(net.spec, net.layout, pair.slices, pair.timers, ([0.4] * 8, {variant: 1.0}), variant)
    f = Filter(net, prior=OnsetPrior(onset))
    for evidence, reference in zip(pair.evidence, walked, strict=True):
        assert f.step(evidence)[0] == pytest.approx(reference.log_evidence, rel=1e-12, abs=1e-10)
        assert_same(as_states(net, f.belief[0]), walked_states(net.spec, reference.posterior, hidden_age=False), 1e-12)


def test_the_filter_of_all_modes_equals_the_walk():
    pair = Pair(hot(), 0, 5, classes=False)
    f = Filter(hot())
    for evidence, reference in zip(
        pair.evidence, walk_filter(hot().spec, hot().layout, pair.slices, pair.timers), strict=True
    ):
        f.step(evidence)
        mine = as_states(hot(), f.belief[0])
        assert_same(mine, walked_states(hot().spec, reference.posterior, hidden_age=False), 1e-12)
        assert any(key[0] in (LINK, SWITCH) for key in mine)


def test_it_is_sampled_as_declared():
    simulator = Simulator(model(), 4000, seed=1, fault=f"{LINK}/3", at=0, start="step")
    at = model().network.slice_of(model().network.signal_index("xid"))
    nvlink = model().signals["xid"].values.index("nvlink")
    told = np.zeros((4000, at.stop - at.start), dtype=bool)
    down = np.zeros(4000, dtype=bool)
    for _ in range(21):
        record = simulator.step()
        told |= record.values[:, at] == nvlink
        down |= record.job_class == 2
    # After 21 slices, 20 of which the delay may end in: geometric of mean 30 slices, behind a gate.
    failed = 0.8 * (1.0 - (29 / 30) ** 20)
    assert down.mean() == pytest.approx(failed * 0.7, abs=0.04)
    assert told[:, 3].mean() == pytest.approx(failed * 0.97 * 0.88, abs=0.04)
    assert told[:, :3].mean() < 0.01


def test_its_cascade_ends_in_its_line():
    told = next(
        event for seed in range(8) for event in trace(seed).events
        if event.kind == "xid" and event.payload["value"] == "nvlink"
    )  # fmt: skip
    events = next(trace(seed).events for seed in range(8) if told in trace(seed).events)
    behind = {e.id: e for e in events}[told.causes[0]]
    assert "nvlink_reported" in behind.payload.values()


def test_the_filter_finds_it_in_complete_telemetry():
    f, one = Filter(model().network), trace(1)
    published = [one.published[k] for k in ("phase", "save_ends", "job_class", "age_before")]
    for values, phase, ends, job_class, age in zip(one.values, *published, strict=True):
        f.step(SliceEvidence(values, int(phase), bool(ends), int(job_class), int(age)))
    belief = f.posterior()
    assert belief.modes[MODE] > 0.99
    assert belief.sites()["gpu", 3] > 0.99


def test_its_lines_are_read_back_as_they_were_meant(folder):
    meant = [e for e in Trace.load(folder / "0").events if (e.kind, e.payload.get("value")) == ("xid", "nvlink")]
    read = read_paths([folder / "0" / "logs"], formats())
    said = [r for r in read.readings if (r.signal, r.value) == ("xid", "nvlink")]
    assert len(said) == len(meant)
    replays = [r for r in read.readings if r.signal == "nvlink_replays"]
    assert sum(r.value >= 10 for r in replays) > 10  # out of the counters of the sheet


def test_it_comes_first_on_its_own_logs(folder, excerpts):
    whole = diagnose(incident_model(), read_paths([folder / "0" / "logs"], formats()))
    assert whole.modes[MODE] > 0.99
    for host, diagnosis in excerpts:
        assert diagnosis.leading == MODE
        assert diagnosis.modes[MODE] > 0.4
        assert diagnosis.sites[0][1].endswith(host)


def test_its_line_is_named_as_evidence_for_it(excerpts):
    for _, diagnosis in excerpts:
        mine = [w for w in ranked_weights(diagnosis) if w.reading.signal == "sxid" or w.reading.value == "nvlink"]
        assert mine[0] in ranked_weights(diagnosis)[:3]
        assert mine[0].favours == MODE
        assert mine[0].change[MODE] > 2.0


def test_what_the_logs_shout_is_named(excerpts):
    assert {diagnosis.proximate[0] for _, diagnosis in excerpts if diagnosis.proximate} >= {"rank_crashed"}


@pytest.fixture
def report(tmp_path):
    """A kernel log as such a failure leaves it."""
    (tmp_path / "messages").write_text(KERNEL_LOG, encoding="utf-8")
    return tmp_path


def test_a_kernel_log_tells_it_and_where(report):
    told = diagnose(incident_model(), read_paths([report], formats()))
    assert told.modes[MODE] > 0.9
    assert told.sites[0][1].endswith("gn04")


def test_the_counters_of_the_links_tell_it_and_where(tmp_path):
    (tmp_path / "links.txt").write_text(LINK_COUNTERS, encoding="utf-8")
    told = diagnose(incident_model(), read_paths([tmp_path], formats()))
    assert told.leading == MODE
    assert told.sites[0][1] == "gpu gpu-1a6b1c5e-77d1-9d3c-10a1-1f2e3d4c5b6b on gn04"


def test_the_diagnose_command_reads_it(report, capsys):
    assert main(["diagnose", str(report), "--json", "--overlay", str(OVERLAY)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert max(told["modes"], key=told["modes"].get) == MODE
    assert told["evidence"][0]["signal"] in ("sxid", "xid")


def test_a_known_incident_stays_what_it_was():
    case = Path(__file__).parents[1] / "data" / "cases" / "case-001" / "logs"
    told = diagnose(incident_model(), read_paths([case], formats()))
    assert told.leading == "gpu_xid"
    assert told.modes[MODE] < 0.2  # a crash whose own line was lost is not ruled out


def test_its_actions_clear_it():
    network = model().network
    at = np.cumsum([0, *(b.sites for b in network.blocks)])
    v = [b.variant.name for b in network.blocks].index(SWITCH)
    for name, chance in (("reset_fabric", 0.7), ("isolate_node", 0.99)):
        kernel = action_kernel(network, name, 1)
        assert kernel.clears[at[v] : at[v + 1]].tolist() == [0.0, chance]
        assert kernel.restarts


def test_it_is_drawn(tmp_path):
    assert {MODE, LINK, "nvlink_failed", "sxid"} <= set(model().graph)
    assert draw_causal_graph(model().graph, tmp_path / "graph.png").stat().st_size > 10_000


def test_no_python_of_the_library_knows_its_names():
    package = Path(models.__file__).parents[1]
    words = (MODE, "nvlink_", "switch_failed", "switch_reported", "sxid", "SXid", "reset_fabric")
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not [word for word in words if word in text], file
