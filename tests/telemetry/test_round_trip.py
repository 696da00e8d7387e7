"""Every signal of the model is written and read back: what a simulator prints is what a reader knows."""

import numpy as np
import pytest

from clusterorch import models
from clusterorch.models.spec import PHASES
from clusterorch.simulation.lines import describe
from clusterorch.telemetry.events import Event
from clusterorch.telemetry.naming import START
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.writing import write_logs

SLICES, AT = 16, 10
MODEL = models.load("reference", layout="2x4")
FORMATS = load_formats(shipped_formats())
NAMES = [signal.name for signal in MODEL.spec.signal]
OF_A_STEP = ("step_time", "grad_norm", "loss_level", "loss")  # what the line of a step carries
# A relation between the lines of several ranks: whoever complains first, has spoken first.
FOLLOWS = {"first_error"}
# That lines come again, and none between.  Whole logs hold these lines, which are signals of their own: the relation
# follows from them, wherever the simulator has drawn it.  An excerpt may show it alone, as two of them.
PASTED = {"nan_stays", "loader_dry"}
FOLLOWS |= PASTED
UNDER_LOAD = {"power_ratio", "clock_ratio"}  # against the level under load, so they only fall
# A copy that is named in its file's listing, a rank by its process, the storage of a job by its mount.
CASES = [
    (signal.name, value)
    for signal in MODEL.spec.signal
    if signal.name not in FOLLOWS
    for value in (
        range(1 if signal.lines else 0, len(signal.values))
        if signal.family == "categorical"
        else (-0.7 if signal.name in UNDER_LOAD else 0.7,)
        if signal.family in ("log_ratio", "gaussian")
        else (1,)
    )
]


def entity_of(ref):
    """Number of the entity that a reading names, from nothing but the names; None if it names none."""
    layout = MODEL.layout
    node = int(ref.host.rsplit("-", 1)[1]) if ref.host else 0
    if ref.kind == "gpu":
        place = ref.index if ref.index is not None else (int(ref.name.split(":")[1], 16) - 0x18) // 8
        return node * layout.gpus + place
    if ref.kind == "link":
        return node * layout.rails + (ref.index if ref.index is not None else int(ref.name.removeprefix("mlx5_")))
    if ref.kind == "rank":
        if ref.name and ref.name.startswith("pid "):
            return node * layout.gpus + (int(ref.name[4:]) - 41_001) // 10
        return node * layout.gpus + ref.index if ref.name else ref.index
    if ref.kind == "checkpoint":
        names = {f"step-{8500 + 500 * i}": i for i in range(layout.count("checkpoint"))}
        return names.get((ref.name or "").removesuffix(".ckpt"))
    return node if ref.kind == "node" else 0


def written(name, value, folder, seed, **options):
    """The readings of an episode in which one entity shows one value once, or from the middle on."""
    signal, dt = MODEL.signals[name], MODEL.spec.model.slice_seconds
    block = MODEL.network.slice_of(NAMES.index(name))
    entity = min(block.stop - block.start - 1, 2)
    values, events = np.full((SLICES, MODEL.network.width), np.nan), []
    values[:, block] = 0.0
    if name in OF_A_STEP:
        values[:, MODEL.network.slice_of(NAMES.index("progress"))] = 1.0
        if name != "loss":
            values[:, MODEL.network.slice_of(NAMES.index("loss"))] = 1.0
        events = [
            Event((t + 0.3) * dt, 0.0, "checkpoint", "job 0", "progress", {"class": 1}, (), t) for t in range(SLICES)
        ]
    if signal.family in ("log_ratio", "gaussian"):
        values[SLICES // 2 :, block.start + entity] = value
    else:
        values[AT, block.start + entity] = value
    if signal.lines:
        payload = describe(signal, float(value))
        events.append(Event((AT + 0.5) * dt, 0.0, signal.stream, f"{signal.entity} {entity}", name, payload, (), 500))
    published = {"phase": np.full(SLICES, PHASES.index("step")), "job_class": np.zeros(SLICES, dtype=int)}
    events.sort(key=lambda event: event.time)
    write_logs(MODEL, values, published, events, folder, seed=seed, formats=FORMATS, **options)
    result = read_paths([folder], FORMATS)
    assert result.coverage.unrecognised == 0, result.coverage.samples
    return entity, [reading for reading in result.readings if reading.signal == name]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda part: str(part))
def test_a_signal_that_is_written_is_read_back_for_its_entity(name, value, seed, tmp_path):
    signal = MODEL.signals[name]
    entity, readings = written(name, value, tmp_path, seed)
    mine = [reading for reading in readings if entity_of(reading.entity) == entity]
    assert mine, readings
    if signal.family == "categorical":
        assert signal.values[value] in {reading.value for reading in mine}
    elif signal.family in ("log_ratio", "gaussian"):
        rounded = 0.51 if signal.unit == "C" else 0.02
        assert any(abs(reading.value - value) < rounded for reading in mine)


def test_every_signal_is_written_by_something():
    assert {name for name, _ in CASES} == set(NAMES) - FOLLOWS


def test_nobody_else_shows_what_one_entity_showed(tmp_path):
    for number, name in enumerate(("straggler_named", "host_work", "nan_named", "node_down", "nic_link_down", "xid")):
        entity, readings = written(name, 1, tmp_path / str(number), 3)
        assert {entity_of(reading.entity) for reading in readings} == {entity}, name


def test_runs_are_written_in_several_dialects(tmp_path):
    heads = set()
    for seed in range(12):
        _, readings = written("loss", 1, tmp_path / str(seed), seed)
        heads.add(readings[0].pattern)
    assert len(heads) >= 2


@pytest.mark.parametrize("name", ["step_time", "grad_norm", "loss_level"])
def test_each_dialect_of_a_step_says_the_same(name, tmp_path):
    patterns = set()
    for seed in range(12):
        _, readings = written(name, 0.7, tmp_path / str(seed), seed)
        patterns |= {reading.pattern for reading in readings}
        assert max(reading.value for reading in readings) == pytest.approx(0.7, abs=0.02)
    assert len(patterns) >= 2


def test_clocks_of_hosts_may_be_wrong_by_seconds_and_by_zones(tmp_path):
    times = {}
    for label, options in (("true", {}), ("skewed", {"skew": 3.0}), ("zoned", {"zones": True})):
        _, readings = written("hung_task", 1, tmp_path / label, 5, **options)
        times[label] = readings[0].time
    assert 0.0 < abs(times["skewed"] - times["true"]) <= 3.0
    assert (times["zoned"] - times["true"]) % 3600.0 == pytest.approx(0.0, abs=1.0)


def test_ordinary_chatter_is_known_and_says_nothing(tmp_path):
    values = np.full((400, MODEL.network.width), np.nan)
    published = {"phase": np.full(400, PHASES.index("step")), "job_class": np.zeros(400, dtype=int)}
    lines = 0
    for seed in range(4):
        files = write_logs(MODEL, values, published, [], tmp_path / str(seed), seed=seed, formats=FORMATS)
        result = read_paths(files, FORMATS)
        assert result.coverage.unrecognised == 0, result.coverage.samples
        assert not result.readings
        lines += result.coverage.lines
    assert lines > 20


def test_kernel_lines_come_from_the_system_log_or_from_dmesg(tmp_path):
    heads = set()
    for seed in range(8):
        entity, readings = written("xid", 1, tmp_path / str(seed), seed)
        assert {entity_of(reading.entity) for reading in readings} == {entity}
        heads.add("kernel:" in readings[0].text)
    assert heads == {True, False}


def episode(phase, *events):
    """Readings and phase marks of a job that stays in a phase while single lines of its signals are printed."""
    dt, values = MODEL.spec.model.slice_seconds, np.full((SLICES, MODEL.network.width), np.nan)
    said = []
    for number, (name, entity, share) in enumerate(events):
        signal = MODEL.signals[name]
        value = float(entity) if signal.family == "first_speaker" else 1.0
        values[AT, MODEL.network.slice_of(NAMES.index(name)).start + entity] = value
        time, payload = (AT + share) * dt, describe(signal, value)
        said.append(Event(time, time, signal.stream, f"{signal.entity} {entity}", name, payload, (), number))
    published = {"phase": np.full(SLICES, PHASES.index(phase)), "job_class": np.zeros(SLICES, dtype=int)}
    return values, published, sorted(said, key=lambda event: event.time)


STRAY = ["copy_saved", "progress", "stopped_by_hand", "queue_notice", "clean_end"]


@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("phase", ["launch", "load", "save"])
def test_a_stray_line_ends_no_phase(phase, stray, tmp_path):
    write_logs(MODEL, *episode(phase, (stray, 0, 0.1)), tmp_path, formats=FORMATS)
    result = read_paths([tmp_path], FORMATS)
    assert stray in {reading.signal for reading in result.readings}
    marks = sorted(result.phases, key=lambda mark: (mark.time, mark.order))
    assert [mark.phase for mark in marks][::2] == [phase, phase]
    assert marks[-1].time - marks[-2].time < 1.1  # some programs print whole seconds


def test_whoever_speaks_first_is_first_however_wrong_the_clocks_are(tmp_path):
    told = ("first_error", 6, 0.9995), ("heartbeat_stuck", 6, 0.9995), ("heartbeat_stuck", 1, 0.9999)
    for seed in range(8):
        folder = tmp_path / str(seed)
        write_logs(MODEL, *episode("step", *told), folder, formats=FORMATS, skew=0.05, seed=seed)
        readings = read_paths([folder], FORMATS).readings
        assert [entity_of(reading.entity) for reading in readings if reading.signal == "first_error"] == [6]
        times = [reading.time for reading in readings if reading.signal == "heartbeat_stuck"]
        assert len(times) == 2
        assert len({int((time - START) // MODEL.spec.model.slice_seconds) for time in times}) == 1


@pytest.mark.parametrize("name", sorted(PASTED))
def test_what_comes_again_is_pasted_as_two_lines(name, tmp_path):
    write_logs(MODEL, *episode("step", (name, 0, 0.5)), tmp_path, protocol="excerpt", formats=FORMATS, pasted=True)
    result = read_paths([tmp_path], FORMATS)
    assert name in {reading.signal for reading in result.readings}
    assert result.coverage.unrecognised == 0


def test_an_excerpt_has_all_that_was_pasted(tmp_path):
    told = (
        ("loss", 0, 0.1),
        ("progress", 0, 0.1),
        ("link_errors", 5, 0.5),
        ("progress", 0, 0.6),
        ("lagging_rank", 3, 0.7),
    )
    values, published, events = episode("step", *told)
    write_logs(MODEL, values, published, events, tmp_path, protocol="excerpt", formats=FORMATS, pasted=True)
    signals = [reading.signal for reading in read_paths([tmp_path], FORMATS).readings]
    assert signals.count("progress") == 2
    assert {"loss", "link_errors", "lagging_rank"} <= set(signals)
