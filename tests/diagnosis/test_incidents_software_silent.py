"""Incidents of software and silent ones as operators paste them: the cause first, the place near, health let be."""

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
    "cuda_oom", "version_mismatch", "stuck_collective", "checkpoint_io_hang", "nan_injection", "straggler",
    "corrupted_state",
)  # fmt: skip
# Those are held where the causes lie that they are taken for.
ELSEWHERE = {
    "cuda_oom-behind-completion-errors", "stuck_collective-one-rank-behind", "version_mismatch-smi-fails",
}  # fmt: skip
WELL = (
    "autotune", "batch-finder", "early-stop", "eval-on-main", "fairseq-overflow", "first-batch", "hf-overflow-start",
    "launch-noise", "long-compile", "long-eval", "lustre-blip", "nan-norm-skipped", "nfs-ok", "oom-caught", "queue",
    "requeue", "s3-retry", "spike-recovered", "straggler-report", "time-limit", "user-cancel",
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
    return sorted(mine - ELSEWHERE)


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


def test_there_are_incidents_of_every_mode():
    assert all(sum(name.startswith(f"{mode}-") for name in faults()) >= 4 for mode in MODES)


@pytest.mark.parametrize("name", faults())
def test_the_cause_or_its_near_miss_comes_first(name):
    counts = {truth(name)["truth_mode"], truth(name)["alt_mode"]}
    first, *_ = sorted(told(name).modes, key=lambda mode: -told(name).modes[mode])
    assert first in counts


@pytest.mark.parametrize("name", faults())
def test_the_cause_is_among_the_first_three(name):
    modes = sorted(told(name).modes, key=lambda mode: -told(name).modes[mode])
    assert truth(name)["truth_mode"] in modes[:3]


@pytest.mark.parametrize("name", placed())
def test_the_place_is_among_the_first_three(name):
    named = [word.lower() for word in truth(name)["truth_site"]["names"]]
    places = [place.lower() for _, place, _ in told(name).sites[:3]]
    assert any(word in place for word in named for place in places)


@pytest.mark.parametrize("name", [f"healthy-{what}" for what in WELL])
def test_health_is_not_called_a_fault(name):
    modes = told(name).modes
    assert max(p for mode, p in modes.items() if mode != "healthy") <= MOST_OF_A_FAULT
