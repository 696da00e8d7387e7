"""Incidents of machines and of the network as operators paste them: the cause first, the place near, health let be."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from clusterorch.diagnosis.diagnose import Diagnosis, default_incident_model, diagnose
from clusterorch.models import compile as compiling
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths

INCIDENTS = Path(__file__).parents[1] / "data" / "incidents"
MODES = (
    "gpu_xid", "pcie_degradation", "ecc_pressure", "thermal_throttling", "ib_link_flap", "incast_congestion",
    "routing_failure", "nccl_watchdog_timeout",
)  # fmt: skip
# What looks like one of them and is none.
ALIKE = (
    "cuda_oom-behind-completion-errors", "stuck_collective-one-rank-behind", "version_mismatch-smi-fails",
)  # fmt: skip
WELL = (
    "boot-messages", "cancelled-by-user", "clean-end", "corrected-on-a-disk", "dcgm-passes", "downed-since-boot",
    "first-steps-port-scan", "idle-link-gen1", "lossless-pauses", "mce-corrected", "memory-report-clean",
    "power-capped", "retrans-few", "socket-only-test", "sr-iov-boot", "warm-but-well",
)  # fmt: skip
MOST_OF_A_FAULT = 0.5


@functools.cache
def told(name: str) -> Diagnosis:
    model = default_incident_model()
    return diagnose(model, read_paths([INCIDENTS / name / "logs"], load_formats(model.format_files)))


@functools.cache
def truth(name: str) -> dict[str, Any]:
    return json.loads((INCIDENTS / name / "truth.json").read_text(encoding="utf-8"))


def faults() -> list[str]:
    mine = {folder.name for folder in INCIDENTS.iterdir() if folder.name.startswith(tuple(f"{m}-" for m in MODES))}
    return sorted(mine | set(ALIKE))


def placed() -> list[str]:
    return [name for name in faults() if truth(name)["truth_site"] is not None]


@pytest.fixture(autouse=True, scope="module")
def compiled_once():
    """A model on a layout is compiled once for all incidents that have it."""
    compile_network, known = compiling.compile_network, {}

    def remembered(spec, layout, *, limits, hidden_age):
        key = (layout, tuple(sorted(limits.items())), hidden_age)
        if key not in known:
            known[key] = compile_network(spec, layout, limits=limits, hidden_age=hidden_age)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_network", remembered)
        yield


@pytest.mark.parametrize("name", faults())
def test_the_cause_comes_first(name):
    said = truth(name)
    assert told(name).leading in {said["truth_mode"], said["alt_mode"]} - {None}, told(name).modes


@pytest.mark.parametrize("name", placed())
def test_the_place_is_among_the_first_three(name):
    first = [place.lower() for _, place, p in told(name).sites[:3] if p > 0.0]
    names = [part.lower() for part in truth(name)["truth_site"]["names"]]
    assert any(part in place for part in names for place in first), first


@pytest.mark.parametrize("name", [f"healthy-{name}" for name in WELL])
def test_what_is_no_failure_is_not_taken_for_one(name):
    assert truth(name)["truth_mode"] == "healthy"
    failing = {mode: p for mode, p in told(name).modes.items() if mode != "healthy"}
    assert max(failing.values()) <= MOST_OF_A_FAULT, failing


def test_every_mode_has_several_incidents_and_many_show_one_stream():
    for mode in MODES:
        assert sum(name.startswith(f"{mode}-") for name in faults()) >= 4
    alone = [name for name in faults() if len(list((INCIDENTS / name / "logs").iterdir())) == 1]
    assert len(alone) >= len(faults()) / 3


@pytest.mark.parametrize("name", [*faults(), *(f"healthy-{name}" for name in WELL)])
def test_an_incident_says_where_it_comes_from(name):
    said = truth(name)
    assert said["source"]
    assert said["why"]
