"""Lines that need care before they are compared: glued to a bar, behind a time, in a series that jumps about."""

import math

import pytest

from clusterorch.telemetry.glued_lines import unglued
from clusterorch.telemetry.operators import ratio_to_own_baseline
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.readings import JOB, Reading, Sample
from clusterorch.telemetry.timestamps import find_stamp

FORMATS = load_formats(shipped_formats())
BAR = " 41%|####1     | 512/1250 [08:11<11:48,  1.04it/s, v_num=7]"


def read(text, tmp_path, name="a.log"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_paths([tmp_path], FORMATS)


@pytest.mark.parametrize(
    "behind",
    ["Traceback (most recent call last):", "[rank3]: RuntimeError: x", "{'loss': 2.1}", "[2023-06-06 08:16:00] INFO x"],
)
def test_what_stands_behind_a_bar_is_a_line_of_its_own(behind):
    assert list(unglued([(7, BAR + behind)])) == [(7, BAR), (7, behind)]


@pytest.mark.parametrize(
    "line",
    [
        BAR,
        BAR + " done",
        "512/1250 [08:11<11:48,  1.04it/s]Traceback",
        "a table | 12%| of [x]Total",
        BAR + ", loss 2.1",
    ],
)
def test_other_lines_stay_whole(line):
    assert list(unglued([(7, line)])) == [(7, line)]


def test_many_bars_on_a_line_come_apart():
    assert [text for _, text in unglued([(1, f"{BAR}{{'loss': 1.0}} {BAR}^CW0616 stop")])] == [
        BAR, f"{{'loss': 1.0}} {BAR}", "W0616 stop",
    ]  # fmt: skip


def test_a_rank_behind_a_bar_keeps_its_name(tmp_path):
    result = read(BAR + "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n", tmp_path)
    told = [reading for reading in result.readings if reading.signal == "python_error"]
    assert [(str(reading.entity), reading.line) for reading in told] == [("rank 3", 1)]


@pytest.mark.parametrize(
    ("listing", "sizes"),
    [
        ("2026-07-02 11:02:13 2415919104 mp_rank_00_model_states.pt", 2415919104),
        ("2026-07-02 11:02:13  603979776 mp_rank_03_model_states.pt", 603979776),
        ("2026-07-02 11:02:13        812 step-30000/metadata.json", 812),
    ],
)
def test_a_number_behind_a_time_is_the_size_of_what_is_listed(listing, sizes, tmp_path):
    one = listing.replace("_0", "_1").replace("30000", "40000")
    two = listing.replace("_0", "_2").replace("30000", "50000")
    small = listing.replace(str(sizes), str(sizes // 4)).replace("_0", "_4").replace("30000", "60000")
    result = read("\n".join((listing, one, two, small)) + "\n", tmp_path)
    assert result.coverage.unrecognised == 0
    assert [reading.line for reading in result.readings if reading.signal == "copy_undersized"] == [4]


@pytest.mark.parametrize(
    "line",
    [
        "W0812 23:21:02.886410 13520 torch/distributed/run.py:793] Setting OMP_NUM_THREADS",
        "2026-08-14 09:12:40.118203 139951 metric_logger.py:226] Setting OMP_NUM_THREADS",
        "I0814 09:12:40.118203 139951234 metric_logger.py:226] Setting OMP_NUM_THREADS",
    ],
)
def test_a_thread_behind_a_time_is_still_none_of_the_message(line):
    assert peel(line, find_stamp(line)).text == "Setting OMP_NUM_THREADS"


def ratios(values):
    operator = FORMATS.operator["grad_norm_ratio"]
    base = Reading("a", 1, None, 0, "checkpoint", "grad_norm", 0.0, JOB, "", "x")
    samples = [Sample("grad_norm", value, {"pattern": "x"}, base._replace(order=n)) for n, value in enumerate(values)]
    return [reading.value for reading in ratio_to_own_baseline(operator, samples, [])]


@pytest.mark.parametrize(
    "values",
    [(0.40, 0.41, 0.40, 40.0, 41.0), (0.41, 14.9, 2.02, 0.50, 0.42), (0.91, 0.87, 38.1, 35.9)],
    ids=["a level that is left", "a spike that decays", "a jump"],
)
def test_a_calm_series_is_measured_against_its_level(values):
    assert 0.6 < max(ratios(values)) / math.log(max(values) / values[0]) < 1.01


@pytest.mark.parametrize(
    "values",
    [(0.19, 1.02, 0.70, 0.49), (0.3, 0.9, 0.2, 1.1, 0.4, 0.8), (1.0, 3.0, 1.2, 4.1, 1.1)],
)
def test_a_series_that_jumps_about_is_measured_in_its_own_steps(values):
    assert max(map(abs, ratios(values))) < 0.7


def test_a_loss_that_jumps_between_two_files_of_one_epoch(tmp_path):
    row = "Epoch: [83][{n}/10010]\tTime 0.4 (0.4)\tData 0.00 (0.00)\tLoss {loss} ({loss})\n"
    (tmp_path / "b.log").write_text("".join(row.format(n=n, loss=1.6) for n in (600, 800, 1000)))
    loaded = "=> loading checkpoint './snap/checkpoint.pth.tar'\n"
    result = read(loaded + row.format(n=0, loss=6.9) + row.format(n=20, loss=6.8), tmp_path)
    assert [(r.file, r.line) for r in result.readings if r.signal == "loss_jump"] == [("a.log", 2)]
    (tmp_path / "a.log").unlink()
    calm = read(loaded + row.format(n=0, loss=1.7) + row.format(n=20, loss=1.6), tmp_path)
    assert not [r for r in calm.readings if r.signal == "loss_jump"]
