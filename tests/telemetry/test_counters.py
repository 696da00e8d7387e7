import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def read(text, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(text)
    return read_paths([file], FORMATS)


def said(result):
    return [(reading.signal, reading.value, str(reading.entity)) for reading in result.readings]


def test_a_pair_gives_what_the_counter_rose_by(tmp_path):
    result = read("# mlx5_0/ports/1/counters before -> after\nlink_downed 0 -> 1\nsymbol_error 5 -> 5\n", tmp_path)
    assert said(result) == [("link_downed", 1, "link ? mlx5_0")]
    assert result.coverage.unrecognised == 0


def test_a_number_that_stands_alone_says_nothing_and_is_known(tmp_path):
    result = read("# gb5f91d mlx5_3/ports/1/counters (after)\nlink_downed 12\nport_rcv_errors 400\n", tmp_path)
    assert not result.readings
    assert result.coverage.unrecognised == 0
    assert "gb5f91d" in result.hosts


def test_a_dump_that_comes_twice_gives_the_difference(tmp_path):
    dump = "# n17 mlx5_3/ports/1/counters\nlink_downed {}\nlocal_ack_timeout_err: {}\n"
    result = read(dump.format(12, 100) + dump.format(13, 150), tmp_path)
    assert said(result) == [("link_downed", 1, "link n17 mlx5_3"), ("ack_timeouts", 50, "link n17 mlx5_3")]


def test_devices_are_kept_apart_and_a_reset_counter_is_no_rise(tmp_path):
    text = "# n17 mlx5_0/ports/1/counters\nlink_downed 1\n# n17 mlx5_1/ports/1/counters\nlink_downed 7\n"
    assert not read(text + "link_downed 2\n", tmp_path).readings


@pytest.mark.parametrize(
    "line", ["     rx_prio0_discards: 18442", "rx_discards_phy=7", "mlx5_3/ports/1/counters/link_downed: 2"]
)
def test_every_spelling_of_a_counter_is_known(line, tmp_path):
    assert read(line + "\n", tmp_path).coverage.unrecognised == 0


def test_a_counter_that_nobody_declared_is_not_recognised(tmp_path):
    assert read("frobnications 0 -> 1\n", tmp_path).coverage.unrecognised == 1
