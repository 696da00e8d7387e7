"""Ports come up whenever their host starts: that is no sign of a flap; one that went down before is."""

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())
HEAD = "Feb 14 05:{} n17 kernel: "


def signals(lines, tmp_path):
    file = tmp_path / "kern.log"
    file.write_text("\n".join(lines) + "\n")
    return [reading.signal for reading in read_paths([file], FORMATS).readings]


def line(time, text):
    return HEAD.format(time) + text


UP, DOWN = "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"


@pytest.mark.parametrize(
    "lines",
    [
        [line("03:41", "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT"), line("03:41", UP)],
        [line("03:41", UP), line("03:58", "nvidia-nvlink: Nvlink Core is being initialized, major device number 511")],
        [line("03:39", "mlx5_core 0000:ab:00.0: firmware version: 28.42.1000"), line("05:20", UP)],
        [
            "[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-6.8",
            "[   12.870014] mlx5_core 0000:18:00.0 ens1: Link up",
        ],
        ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54", "mlx5_core 0000:18:00.0 ens1f0np0: Link up"],
    ],
    ids=[
        "the port itself starts",
        "a driver loads after it",
        "firmware a minute before",
        "since the start",
        "no times",
    ],
)
def test_a_port_that_comes_up_beside_a_start_is_no_evidence(lines, tmp_path):
    assert "nic_link_up" not in signals(lines, tmp_path)


@pytest.mark.parametrize(
    "lines",
    [
        [line("03:41", UP)],
        [line("03:39", "mlx5_core 0000:ab:00.0: firmware version: 28.42.1000"), line("09:20", UP)],
        [
            line("03:40", DOWN),
            line("03:41", "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT"),
            line("03:41", UP),
        ],
        [
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54",
            *["INFO: task python:1 blocked for more than 120 seconds."] * 9,
            "mlx5_core 0000:18:00.0 ens1f0np0: Link up",
        ],
    ],
    ids=["nothing starts", "long after", "it went down before", "many lines after"],
)
def test_a_port_that_comes_back_is_evidence(lines, tmp_path):
    assert "nic_link_up" in signals(lines, tmp_path)


def test_a_start_in_another_file_explains_nothing(tmp_path):
    (tmp_path / "a.log").write_text(line("03:41", UP) + "\n")
    (tmp_path / "b.log").write_text(line("03:39", "mlx5_core 0000:ab:00.0: firmware version: 28.42.1000") + "\n")
    assert "nic_link_up" in [reading.signal for reading in read_paths([tmp_path], FORMATS).readings]


def test_another_port_that_went_down_does_not_count(tmp_path):
    lines = [
        line("03:40", DOWN.replace("mlx5_5", "mlx5_1")),
        line("03:41", "mlx5_core 0000:ab:00.0: firmware version: 28.42.1000"),
        line("03:41", UP),
    ]
    assert "nic_link_up" not in signals(lines, tmp_path)
