from pathlib import Path

import pytest

from clusterorch.errors import InvalidModel
from clusterorch.models.reading import read_whole
from clusterorch.telemetry.patterns import Formats, check_signals, load_formats, merge, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.rows import Expect, Pattern
from clusterorch.telemetry.timestamps import time_fields

FILES = shipped_formats()
FORMATS = load_formats(FILES)
ROWS = list(FORMATS.pattern.values())
TEMPLATES = [
    (row, value)
    for row in ROWS
    if row.template is not None
    for value in ([*row.template] if isinstance(row.template, dict) else [*(row.values or [None])])
]
FIELDS = {
    **time_fields(834_567_890.25),
    **{"host": "n17", "peer": "n04", "pci": "0000:5d:00", "bus_id": "5d000", "pid": 41207, "tid": 41377},
    **{"rank": 12, "other_rank": 40, "ranks": 64, "local_rank": 4, "device": "mlx5_3", "device_index": 3},
    **{"step": 8841, "steps": 200000, "samples": 18106368, "seconds": 5.12, "ms": 5120.4, "minutes": 1190.03},
    **{
        "loss": 2.2421,
        "grad_norm": 0.171,
        "scale": 4096.0,
        "scale_before": 8192.0,
        "value": 2,
        "skipped": 6,
        "nans": 0,
    },
    **{
        "sequence": 8841,
        "elements": 1024,
        "limit_ms": 600000,
        "ran_ms": 600042,
        "enqueued": 8843,
        "completed": 8840,
    },
    **{"path": "/ckpt/run7", "size": 4294967296, "microseconds": 23011, "bandwidth": 349.97},
    **{"storage": "fsx", "checkpoint": "step-8841", "node": "n17"},
    **{"algorithm_bandwidth": 186.65, "pieces": "", "error": "unknown error", "event": "port error"},
}


def read_text(text, tmp_path, formats=FORMATS):
    file = tmp_path / "some.log"
    file.write_text(text, encoding="utf-8")
    return read_paths([file], formats)


def alone(row):
    """Formats with that one row, so that its measures show and no other row helps."""
    formats = Formats()
    formats.pattern[row.name] = row
    return formats


def satisfied(expected: Expect, result, row) -> bool:
    if expected.known:
        return result.coverage.recognised == 1 and not result.readings
    held = True
    if expected.phase is not None:
        held = expected.phase in {mark.phase for mark in result.phases}
    if expected.seconds is not None:
        held = held and expected.seconds in {mark.seconds for mark in result.limits}
    if expected.signal is not None:
        held = held and any(
            reading.signal == expected.signal
            and reading.value == expected.value
            and str(reading.entity) == expected.entity
            for reading in result.readings
        )
    return held


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_example_of_a_row_is_read_as_it_says(row, tmp_path):
    result = read_text(row.example + "\n", tmp_path)
    assert result.coverage.recognised == 1
    for expected in row.expectations:
        assert satisfied(expected, result, row), result


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_recognises_its_own_example_without_help(row, tmp_path):
    assert read_text(row.example + "\n", tmp_path, alone(row)).coverage.recognised == 1


@pytest.mark.parametrize("row", [row for row in ROWS if row.measure], ids=lambda row: row.name)
def test_the_example_of_a_measure_gives_its_number(row, tmp_path, monkeypatch):
    samples = []
    monkeypatch.setattr(
        "clusterorch.telemetry.gathering.Gathering.finish",
        lambda self: (samples.extend(self.samples), self.result)[1],
    )
    read_text(row.example + "\n", tmp_path)
    numbers = [expected for expected in row.expectations if expected.measure]
    assert numbers
    for expected in numbers:
        assert [
            sample
            for sample in samples
            if sample.measure == expected.measure
            and sample.number == pytest.approx(expected.value)
            and str(sample.base.entity) == expected.entity
        ]


def rendered(row: Pattern, value: str | None) -> str:
    line = row.render(FIELDS, value)
    if row.within is not None:
        line = FORMATS.pattern[row.within].render({**FIELDS, "pieces": f" learning rate: 2.990000E-04 |{line}"})
    return line


@pytest.mark.parametrize(("row", "value"), TEMPLATES, ids=lambda part: getattr(part, "name", str(part)))
def test_a_printed_line_is_read_back_as_what_it_was_printed_for(row, value, tmp_path):
    result = read_text(rendered(row, value) + "\n", tmp_path)
    assert result.coverage.unrecognised == 0
    if row.phase is not None:
        assert row.phase in {mark.phase for mark in result.phases}
    if row.signal is None:
        return
    mine = [reading for reading in result.readings if reading.signal == row.signal]
    assert len(mine) == 1 or mine[0].pattern == row.name, result.readings
    expected = value or row.value
    if expected is not None:
        assert mine[0].value == expected
    assert mine[0].entity.kind == row.entity.kind
    places = {"gpu": ["gpu 0000:5d:00 on n17", "gpu 4 on n17"], "link": ["link n17 mlx5_3", "link n17 device 3"]}
    places |= {"node": ["node n17", "node n04"], "job": ["job"]}
    places["rank"] = ["rank 0", "rank 12", "rank 12 on n17", "local rank 4 on n17"]
    places["checkpoint"] = ["checkpoint step-8841", "checkpoint step-8841.ckpt", "checkpoint ?"]
    places["storage"] = ["storage /fsx", "storage ?"]
    assert str(mine[0].entity) in places[row.entity.kind]


@pytest.mark.parametrize("counter", [row for row in FORMATS.counter.values() if row.template], ids=lambda row: row.name)
def test_a_printed_counter_pair_is_read_back(counter, tmp_path):
    header = "# n17 mlx5_3/ports/1/counters before -> after\n"
    result = read_text(header + counter.template.format(before=3, after=7) + "\n", tmp_path)
    assert [(r.signal, r.value, str(r.entity)) for r in result.readings] == [(counter.signal, 4, "link n17 mlx5_3")]


def test_the_rows_name_signals_and_values_of_the_reference_model():
    model = read_whole(FILES[0].parents[1] / "reference.toml")
    check_signals(FORMATS, {row["name"]: (row["entity"], row.get("values", [])) for row in model["signal"]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signal": "no_such_signal"}, "not declared"),
        ({"value": "no_such_class", "field": None}, "has no value"),
        ({"entity": {"kind": "node"}}, "is of a gpu"),
    ],
)
def test_a_row_beside_the_model_is_refused(change, words):
    row = FORMATS.pattern["xid"]
    other = Pattern.model_validate({**row.model_dump(), **({"values": {}} if "value" in change else {}), **change})
    with pytest.raises(InvalidModel, match=words):
        check_signals(alone(other), {"xid": ("gpu", ["none", *row.values])})


def test_a_later_file_replaces_a_row_by_name():
    formats = load_formats(FILES)
    row = formats.pattern["nccl_version"].model_dump(exclude_none=True)
    before = list(formats.pattern)
    merge(
        formats,
        {"pattern": [{**row, "regex": "^NCCL version 9", "example": "NCCL version 9"}]},
        "overlay.toml",
    )
    assert list(formats.pattern) == before
    assert formats.pattern["nccl_version"].regex == "^NCCL version 9"


GOOD = {
    "name": "a_row",
    "stream": "nccl",
    "known": True,
    "prefilter": "some text",
    "regex": "some text",
    "example": "some text",
    "expect": {"known": True},
    "assumed": "a test",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"regex": "some text(a+)+b"}, "nests"),
        ({"regex": r"some (text) \1"}, "needs memory"),
        ({"regex": "some (?=text)"}, "looks around"),
        ({"regex": r"\d+ some text"}, "begins with an open repeat"),
        ({"regex": "some .*text.*x"}, "may backtrack"),
        ({"regex": "(some"}, "no regular expression"),
        ({"prefilter": "abc"}, "at least 4"),
        ({"assumed": None}, "source or assumed"),
        ({"known": False}, "says nothing"),
        ({"signal": "xid"}, "needs an entity"),
        ({"phase": "dance"}, "none of"),
        ({"place": {"rank": "nowhere"}}, "no group named nowhere"),
        ({"surprise": 1}, "Extra inputs"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(change, words):
    with pytest.raises(InvalidModel, match=words) as caught:
        merge(Formats(), {"pattern": [{**GOOD, **change}]}, "mine.toml")
    assert "mine.toml: pattern.0(a_row)" in str(caught.value)


def test_a_file_that_is_missing_or_no_toml_is_refused(tmp_path):
    with pytest.raises(InvalidModel, match="cannot be read"):
        load_formats([tmp_path / "absent.toml"])
    (tmp_path / "broken.toml").write_text("[[pattern]\n")
    with pytest.raises(InvalidModel, match="is no TOML"):
        load_formats([tmp_path / "broken.toml"])
    with pytest.raises(InvalidModel, match="no table of a format file"):
        merge(Formats(), {"patterns": []}, "mine.toml")
    with pytest.raises(InvalidModel, match="not a list"):
        merge(Formats(), {"pattern": {}}, "mine.toml")


def test_formats_ship_with_the_package():
    assert {"torch", "nccl", "kernel", "training", "smi", "network", "stacks"} <= {Path(file).stem for file in FILES}
