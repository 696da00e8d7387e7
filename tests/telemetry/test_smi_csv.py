import math

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.smi_csv import sheet_of

FORMATS = load_formats(shipped_formats())


def read(text, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(text)
    return read_paths([file], FORMATS)


def values(result, signal):
    return [(str(reading.entity), reading.value) for reading in result.readings if reading.signal == signal]


def test_a_table_is_read_with_units_in_header_and_values(tmp_path):
    result = read(
        "some words before\n"
        "timestamp, index, pci.bus_id, temperature.gpu, power.draw [W], clocks.sm [MHz], "
        "utilization.gpu [%]\n"
        "2025/04/16 16:49:31.204, 0, 00000000:01:00.0, 62, 200.00 W, 1980 MHz, 98 %\n"
        "2025/04/16 16:49:31.206, 1, 00000000:02:00.0, 93, 200.00 W, 1980 MHz, 4 %\n"
        "2025/04/16 16:49:46.211, 0, 00000000:01:00.0, 62, 100.00 W, 990 MHz, 50 %\n"
        "words after\n",
        tmp_path,
    )
    assert values(result, "temperature") == [
        ("gpu 0000:01:00", 62),
        ("gpu 0000:02:00", 93),
        ("gpu 0000:01:00", 62),
    ]
    assert [value for _, value in values(result, "utilization")] == ["full", "zero", "mid"]
    assert values(result, "power_ratio") == [("gpu 0000:01:00", v) for v in (0.0, pytest.approx(math.log(0.5)))]
    assert values(result, "clock_ratio") == [("gpu 0000:01:00", v) for v in (0.0, pytest.approx(math.log(0.5)))]
    assert result.coverage.unrecognised == 2
    times = sorted({reading.time for reading in result.readings})
    assert times[-1] - times[0] == pytest.approx(15.007)


@pytest.mark.parametrize("key", ["clocks_throttle_reasons", "clocks_event_reasons"])
def test_slowdown_flags_keep_their_meaning_under_both_names(key, tmp_path):
    result = read(
        f"index, {key}.hw_thermal_slowdown, {key}.sw_thermal_slowdown, temperature.gpu\n"
        "0, Not Active, Not Active, 60\n1, Active, Active, 90\n2, Not Active, Active, 86\n"
        "3, [N/A], [N/A], [N/A]\n",
        tmp_path,
    )
    assert values(result, "thermal_flag") == [("gpu 0", "none"), ("gpu 1", "hardware"), ("gpu 2", "software")]
    assert len(values(result, "temperature")) == 3


def test_a_bitmask_of_reasons_is_taken_apart(tmp_path):
    result = read(
        "index, clocks_event_reasons.active, temperature.gpu\n"
        "0, 0x0000000000000001, 40\n1, 0x0000000000000068, 88\n2, 0x0000000000000024, 80\n3, [N/A], 50\n",
        tmp_path,
    )
    assert values(result, "thermal_flag") == [("gpu 0", "none"), ("gpu 1", "hardware"), ("gpu 2", "software")]


def test_memory_is_a_share_only_where_the_whole_is_known(tmp_path):
    whole = read("index, memory.used [MiB], memory.total [MiB]\n0, 20000 MiB, 80000 MiB\n", tmp_path)
    assert values(whole, "memory_fraction") == [("gpu 0", 0.25)]
    assert not values(
        read("index, memory.used [MiB], utilization.gpu [%]\n0, 20000 MiB, 1 %\n", tmp_path),
        "memory_fraction",
    )


def test_a_corrected_error_counter_shows_only_what_it_rose_by(tmp_path):
    rows = "".join(f"0, {count}, 60\n" for count in (900, 900, 907, 3))
    result = read("index, ecc.errors.corrected.volatile.total, temperature.gpu\n" + rows, tmp_path)
    assert values(result, "ecc_corrected") == [("gpu 0", 7)]


def test_an_error_sentence_in_place_of_a_row_names_the_lost_device(tmp_path):
    result = read(
        "timestamp, index, temperature.gpu, utilization.gpu [%]\n"
        "2025/04/16 16:49:46.211, 0, 62, 98 %\n"
        "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n",
        tmp_path,
    )
    (lost,) = [reading for reading in result.readings if reading.signal == "device_missing"]
    assert str(lost.entity) == "gpu 0000:02:00"
    assert lost.time is None
    assert lost.after == result.readings[0].time


def test_a_lost_device_in_the_cells_is_one_reading(tmp_path):
    result = read("index, temperature.gpu, power.draw [W]\n3, [GPU is lost], [GPU is lost]\n", tmp_path)
    assert values(result, "device_missing") == [("gpu 3", 1)]


def test_the_prompt_above_a_table_names_its_host(tmp_path):
    result = read("root@n17:~# nvidia-smi --query-gpu=index\nindex, temperature.gpu\n3, 61\n", tmp_path)
    assert values(result, "temperature") == [("gpu 3 on n17", 61)]


@pytest.mark.parametrize("line", ["a, b, c", "index, b, c, d, e", "a sentence, with index, in it", ",,,,", "x," * 600])
def test_other_lists_are_no_tables(line):
    assert sheet_of(line, FORMATS) is None
