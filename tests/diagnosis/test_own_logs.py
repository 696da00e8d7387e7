"""Logs that the simulator writes, read back and diagnosed: the mode first, and its place, under every protocol."""

from __future__ import annotations

import pytest

from clusterorch import models
from clusterorch.diagnosis.contiguous import contiguous_streams
from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
from clusterorch.errors import IngestError
from clusterorch.simulation.command import run
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths

MODEL = default_incident_model()
FORMATS = load_formats(MODEL.format_files)
FAULTS = ("gpu_xid.engine_fault", "ib_link_flap.beyond_limit", "stuck_collective.different_operation",
          "nan_injection.overflow_forever")  # fmt: skip


def logs_of(folder, fault: str, protocol: str, seed: int):
    run(fault=fault, layout="2x2", seed=seed, out=folder, logs=True, protocol=protocol, do=(), slices=100,
        model="reference", overlays=(), force=False)  # fmt: skip
    return read_paths([folder / "logs"], FORMATS)


@pytest.mark.parametrize("protocol", ["complete", "covered", "excerpt"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulated_mode_comes_first(tmp_path, fault, protocol):
    read = logs_of(tmp_path / "incident", fault, protocol, seed=3)
    said = diagnose(MODEL, read, protocol="complete" if protocol == "complete" else None)
    assert said.leading == fault.split(".")[0]
    assert sum(said.modes.values()) == pytest.approx(1.0, abs=1e-9)


def test_contiguous_logs_are_read_slice_by_slice_and_absence_counts(tmp_path):
    ingested = logs_of(tmp_path / "incident", FAULTS[1], "complete", seed=7)
    network = models.load("reference", layout="2x2").network
    streams = contiguous_streams(network, ingested.readings)
    assert {"kernel", "smi"} <= streams
    said = diagnose(MODEL, ingested)
    assert any(finding.kind == "contiguous" for finding in said.findings)
    assert said.onset.reading is not None
    assert len(said.onset.started_by) > 50
    assert said.sites[0][0] == "link"


def test_pasted_lines_are_not_contiguous(tmp_path):
    ingested = logs_of(tmp_path / "incident", FAULTS[0], "excerpt", seed=3)
    with pytest.raises(IngestError, match="no stream is contiguous"):
        diagnose(MODEL, ingested, protocol="covered")
