from collections import defaultdict

import numpy as np
import pytest

from clusterorch import models
from clusterorch.errors import OutputExists
from clusterorch.models.spec import STREAMS
from clusterorch.probability.families import count_class
from clusterorch.simulation import simulate
from clusterorch.telemetry.naming import START
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.writing import write_logs

LAYOUT, SLICES = "2x4", 120
# Signals that are relations between the lines of others, or written once where they are seen again and again.
UNPRINTED = {"first_error", "lagging_rank", "stack_minority", "unstarted_rank", "version_conflict"}
UNPRINTED |= {"copy_undersized", "one_path"}
# What the lines of a timeout, of a transport error or of a counter that stands high say beside their own signal, and
# what follows from lines that come again, wherever these were drawn.
BESIDE = {
    "nan_stays",
    "loader_dry",
    "limit_class",
    "barrier_waited",
    "completion_error",
    "watchdog_timeout",
    "discards_standing",
    "link_standing",
    "pause_standing",
    "retransmissions_standing",
}
FAULTS = ["gpu_xid.lost_from_bus", "gpu_xid.gsp_hang", "ib_link_flap.beyond_limit", "nan_injection.overflow_forever"]
FORMATS = load_formats(shipped_formats())


@pytest.fixture(scope="module")
def model():
    return models.load("reference", layout=LAYOUT)


@pytest.fixture(scope="module")
def formats(model):
    return FORMATS


def traced(model, fault, seed=4):
    do = ["device_lost=1@40:60"] if "bus" in fault else []
    return simulate(model, SLICES, seed=seed, fault=fault, at=20, do=do)


def written(model, trace, folder, **options):
    options.setdefault("formats", FORMATS)
    return write_logs(model, trace.values, trace.published, trace.events, folder, **options)


def entity_of(model, reading):
    """Number of the entity that a reading names, from nothing but the names."""
    ref, layout = reading.entity, model.layout
    node = int(ref.host.rsplit("-", 1)[1]) if ref.host else 0
    if ref.kind == "gpu":
        place = ref.index if ref.index is not None else (int(ref.name.split(":")[1], 16) - 0x18) // 8
        return node * layout.gpus + place
    if ref.kind == "link":
        place = ref.index if ref.index is not None else int(ref.name.removeprefix("mlx5_"))
        return node * layout.rails + place
    if ref.kind == "rank":
        return node * layout.gpus + ref.index if ref.name else ref.index
    return node if ref.kind == "node" else 0


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_written_is_read_back(model, formats, fault, tmp_path):
    trace = traced(model, fault)
    written(model, trace, tmp_path)
    result = read_paths([tmp_path], formats)
    assert result.coverage.unrecognised == 0, result.coverage.samples
    dt = model.spec.model.slice_seconds
    read = defaultdict(list)
    for reading in result.readings:
        time = reading.time if reading.time is not None else reading.after
        if time is None:  # dumps tell no time
            continue
        t = int((time - START) / dt + 1e-6)
        read[reading.signal, entity_of(model, reading)].append((t, reading.value))
    compared, steps = set(), trace.signal("progress")[:, 0]
    for signal in model.spec.signal:
        if signal.name in UNPRINTED | BESIDE or signal.family == "log_ratio":
            continue
        for e, column in enumerate(trace.signal(signal.name).T):
            found = read[signal.name, e]
            compared |= {signal.name} if found else set()
            if signal.family in ("presence", "chorus"):
                assert sum(v > 0 for v in column) == len(found), (signal.name, e)
            elif signal.family == "count" and signal.name in ("aer_corrected", "link_errors", "hung_task"):
                for t, value in enumerate(column):
                    number = sum(v for at, v in found if at == t)
                    assert count_class(number) == (0 if np.isnan(value) else value), (signal.name, e, t)
            elif signal.family == "categorical" and signal.name != "loss_scale":
                told = [True] * len(column)
                if signal.name == "loss":  # a field that is left out is seen where there is a line to leave it out of
                    told = [
                        step > 0 or np.isnan(v) or signal.values[int(v)] != "field_absent"
                        for v, step in zip(column, steps, strict=True)
                    ]
                wanted = [
                    signal.values[int(v)] for v, seen in zip(column, told, strict=True) if seen and not np.isnan(v)
                ]
                if signal.lines:  # silence is the first value of what is printed by the line
                    wanted = [v for v in wanted if v != signal.values[0]]
                assert [v for _, v in found] == wanted, (signal.name, e)
            elif signal.name in ("temperature", "memory_fraction"):
                wanted = column[np.isfinite(column)]
                np.testing.assert_allclose([v for _, v in found], np.maximum(wanted, 0), atol=0.51)
    assert len(compared) >= 12


def test_an_excerpt_has_the_first_line_of_each_kind_in_order(model, formats, tmp_path):
    trace = traced(model, "gpu_xid.engine_fault")
    file, *_ = sorted(written(model, trace, tmp_path, protocol="excerpt"), key=lambda path: path.name != "excerpt.log")
    lines = file.read_text().splitlines()
    assert file.name == "excerpt.log"
    assert len(lines) < 60
    result = read_paths([file], formats)
    assert result.coverage.unrecognised == 0
    times = [r.time for r in result.readings if r.time is not None]
    assert times == sorted(times)
    kinds = [
        (r.signal, r.value) for r in result.readings if r.pattern not in ("megatron_iteration",) and r.signal == "xid"
    ]
    assert len(kinds) == len(set(kinds))


def test_covered_streams_leave_out_informational_lines_or_none(model, tmp_path):
    trace = traced(model, "gpu_xid.engine_fault")
    info = {s.name for s in model.spec.signal if s.verbosity == "info"}
    share, seeds = next(p.info_share for p in model.spec.protocol if p.name == "covered"), 60
    kept = 0
    complete = written(model, trace, tmp_path / "complete")
    text = {f.relative_to(tmp_path / "complete"): f.read_text() for f in complete}
    for seed in range(seeds):
        covered = written(model, trace, tmp_path / str(seed), protocol="covered", seed=seed)
        kept += any(f.name == "checkpoint.log" and "iteration " in f.read_text() for f in covered)
    assert info
    assert any("iteration " in t for t in text.values())
    assert abs(kept / seeds - share) < 4.9 * (share * (1 - share) / seeds) ** 0.5


def test_logs_are_by_host_and_stream_and_not_replaced_unless_forced(model, tmp_path):
    trace = traced(model, "gpu_xid.engine_fault")
    files = written(model, trace, tmp_path)
    for file in files:
        host, name, *_ = file.relative_to(tmp_path).parts
        assert host in ("node-0000", "node-0001")
        dump = name.startswith(("pyspy-", "env-", "listing-", "flight-"))
        assert dump or name == "smi.csv" or name.removesuffix(".log") in STREAMS
    with pytest.raises(OutputExists):
        written(model, trace, tmp_path)
    assert written(model, trace, tmp_path, force=True) == files


def test_the_same_episode_is_written_in_the_same_bytes(model, tmp_path):
    trace = traced(model, "ib_link_flap.beyond_limit")
    first, second = (written(model, trace, tmp_path / name) for name in "ab")
    assert [f.read_bytes() for f in first] == [f.read_bytes() for f in second]
