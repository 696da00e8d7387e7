import pytest

from clusterorch.telemetry.timestamps import FileClock, find_stamp, in_year, time_fields, year_of

BASE = find_stamp("2026-11-29 11:56:57").seconds

SAME_MOMENT = [
    "2026-11-29 11:56:57",
    "[2026-11-29 11:56:57] x",
    "[2026-11-29 11:56:57,000] [INFO] x",
    "2026-11-29T11:56:57.000Z x",
    "2026-11-29T11:56:57+01:00 x",
    "2026/11/29 11:56:57.000, 0, 00000000:01:00.0",
    "[save.py:70] 11/29/2026 11:56:57 >> x",
    "[INFO|trainer] 11/29/2026 - 11:56:57 - x",
    "[Sun Nov 29 11:56:57 2026] NVRM: x",
    "Sun Nov 29 11:56:57 2026] NVRM: a bracket was lost",
    "Sun Nov 29 11:56:57 2026[1,4]<stdout>:x",
    "I20261129 11:56:57.000 checkpoint.py:318] x",
]
SAME_YEARLESS = [
    "E1129 11:56:57.000000000 x",
    "W1129 11:56:57.000000 139807001610048 torch/distributed/x.py:851] x",
    "[rank3]:[E1129 11:56:57.000000000 ProcessGroupNCCL.cpp:629] x",
    "Nov 29 11:56:57 n17 kernel: x",
    "Nov 29 11:56:57 554120 [A1B2C700] 0x01 -> x",
    "INFO 11-29 11:56:57 x",
]


@pytest.mark.parametrize("line", SAME_MOMENT)
def test_every_shape_with_a_year_tells_the_same_moment(line):
    stamp = find_stamp(line)
    assert stamp.seconds == BASE
    assert (stamp.clock, stamp.yearless) == ("wall", False)


@pytest.mark.parametrize("line", SAME_YEARLESS)
def test_every_shape_without_a_year_tells_the_same_moment_in_the_year_that_others_give(line):
    stamp = find_stamp(line)
    assert stamp.yearless
    assert in_year(stamp.seconds, 2026) == BASE


@pytest.mark.parametrize(
    ("line", "seconds"),
    [("[172816.440219] NVRM: x", 172816.440219), ("<6>[    5.125000] x", 5.125), ("[    0.000000] x", 0)],
)
def test_kernel_seconds_run_on_the_boot_clock(line, seconds):
    stamp = find_stamp(line)
    assert (stamp.clock, stamp.seconds) == ("boot", seconds)


def test_pytorch_prints_months_of_one_digit():
    june, december = (
        find_stamp("[rank1]:[E611 08:14:55.12 x.cpp:1]"),
        find_stamp("[rank1]:[E1204 08:14:55.12 x.cpp:1]"),
    )
    assert in_year(june.seconds, 2026) == find_stamp("2026-06-11 08:14:55.12").seconds
    assert in_year(december.seconds, 2026) == find_stamp("2026-12-04 08:14:55.12").seconds


def test_minutes_without_seconds_are_a_time():
    assert in_year(find_stamp("02-22 08:52 x").seconds, 2026) == find_stamp("2026-02-22 08:52:00").seconds


@pytest.mark.parametrize(
    "line",
    [
        "iteration 17 of 2026-13-41 99:99:99",
        "ratio 12:30 and nothing else",
        "frame #6: clone + 0x43 (0x14f5953d0dc3 in /lib64/libc.so.6)",
        "E1399 11:56:57.0 x",
        "",
        "[1,17]<stderr>:x",
        "x" * 200 + " 2026-11-29 11:56:57",
    ],
)
def test_what_is_no_time_is_none(line):
    assert find_stamp(line) is None


def test_deltas_add_up_from_line_to_line():
    clock = FileClock("dmesg")
    times = [clock.read(line)[0] for line in ("[  +0.5] x", "[  +0.000316] x", "[ +10.250000] x", "[  +0.250000] x")]
    assert times == pytest.approx([None, 0.000316, 10.250316, 10.500316]) or times[1:] == pytest.approx(
        [0.000316, 10.250316, 10.500316]
    )
    assert clock.clock == "delta:dmesg"


def test_deltas_start_from_the_minute_that_dmesg_prints():
    clock = FileClock("dmesg")
    start = clock.read("[Mar11 02:58] x")[0]
    assert clock.read("[  +1.500000] x")[:2] == (start + 1.5, "wall")


def test_a_year_turns_within_a_file_that_prints_none():
    clock = FileClock("log")
    before, after = clock.read("E1231 23:59:59.0 x")[0], clock.read("E0101 00:00:01.0 x")[0]
    assert after - before == 2


def test_a_time_with_a_year_before_one_without_turns_no_year():
    clock = FileClock("log")
    first, second = clock.read("2024-08-12 23:09:41 x")[0], clock.read("W0812 23:21:02.0 1 x")[0]
    assert in_year(second, 2024) - first == 681


@pytest.mark.parametrize("year", [2023, 2024, 2025])
def test_moving_a_day_into_a_year_keeps_the_calendar(year):
    for day in ("01-01", "02-28", "03-01", "12-31"):
        bare = find_stamp(f"{day} 06:00:00 x").seconds
        assert in_year(bare, year) == find_stamp(f"{year}-{day} 06:00:00").seconds


def test_printed_times_are_read_back():
    seconds = find_stamp("2026-06-01 08:14:55.204").seconds
    fields = time_fields(seconds)
    assert find_stamp(fields["stamp"]).seconds == pytest.approx(seconds)
    assert find_stamp(fields["smi"]).seconds == pytest.approx(seconds)
    assert find_stamp(f"[{fields['ctime']}] x").seconds == int(seconds)
    for name in ("glog", "pytorch"):
        assert in_year(find_stamp(f"[E{fields[name]} x").seconds, 2026) == pytest.approx(seconds)
    assert in_year(find_stamp(f"{fields['syslog']} n17 kernel:").seconds, 2026) == int(seconds)
    assert year_of(seconds) == 2026
