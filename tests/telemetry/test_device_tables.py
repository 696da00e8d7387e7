"""Samples of GPUs in every clothing: full report, printed table, monitors, CSV without a header, metrics."""

from pathlib import Path

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def read(text, tmp_path: Path):
    file = tmp_path / "x.txt"
    file.write_text(text)
    return read_paths([file], FORMATS)


def said(text, tmp_path):
    return {(r.signal, r.value, r.entity.place) for r in read(text, tmp_path).readings}


REPORT = """\
==============NVSMI LOG==============

Timestamp                                 : Wed Jun 11 08:04:31 2025
Attached GPUs                             : 2
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU UUID                              : GPU-0a6b1c5e-77d1-9d3c
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : {generation}
            Link Width
                Max                       : 16x
                Current                   : {width}x
        Replays Since Reset               : {replays}
    Performance State                     : {state}
    Clocks {reasons} Reasons
        SW Power Cap                      : {cap}
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : {hot}
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 80000 MiB
        Used                              : 60000 MiB
    Utilization
        Gpu                               : 100 %
    ECC Errors
        Volatile
            DRAM Correctable              : {corrected}
            DRAM Uncorrectable            : {uncorrected}
        Aggregate
            DRAM Correctable              : 99999
            DRAM Uncorrectable            : 9
    Remapped Rows
        Pending                           : {pending}
        Remapping Failure Occurred        : {failed}
    Temperature
        GPU Current Temp                  : {celsius} C

GPU 00000000:2A:00.0
    Temperature
        GPU Current Temp                  : 33 C
"""
WELL = {
    **{"generation": 5, "width": 16, "replays": 0, "state": "P0", "reasons": "Event", "cap": "Not Active"},
    **{"hot": "Not Active", "corrected": 0, "uncorrected": 0, "pending": "No", "failed": "No", "celsius": 61},
}


@pytest.mark.parametrize(
    ("change", "signal", "value"),
    [
        ({"generation": 3}, "pcie_below_max", 1),
        ({"width": 8, "state": "P8"}, "pcie_below_max", 1),
        ({"replays": 12044}, "pcie_replay", 12044),
        ({"cap": "Active"}, "power_capped", 1),
        ({"hot": "Active"}, "thermal_flag", "hardware"),
        ({"hot": "Active", "reasons": "Throttle"}, "thermal_flag", "hardware"),
        ({"corrected": 14322}, "ecc_corrected", 14322),
        ({"uncorrected": 2}, "ecc_uncorrected", 2),
        ({"pending": "Yes"}, "row_remap", "pending"),
        ({"failed": "Yes"}, "row_remap", "failed"),
        ({"celsius": 88}, "temperature", 88.0),
    ],
)
def test_a_full_report_tells_each_trouble_of_its_device(change, signal, value, tmp_path):
    found = said(REPORT.format(**{**WELL, **change}), tmp_path)
    assert (signal, value, "0000:18:00") in found
    assert not [one for one in found if one[2] == "0000:2a:00" and one[0] != "temperature"]


def test_a_report_of_a_healthy_device_tells_no_trouble(tmp_path):
    result = read(REPORT.format(**WELL), tmp_path)
    calm = {"temperature", "utilization", "memory_fraction", "thermal_flag", "row_remap"}
    assert {r.signal for r in result.readings} == calm
    assert {r.value for r in result.readings if r.signal in ("thermal_flag", "row_remap")} == {"none"}
    assert result.coverage.unrecognised == 0
    (after,) = {r.after for r in result.readings}
    assert after is not None


@pytest.mark.parametrize("change", [{"generation": 1, "state": "P8", "width": 16}, {"replays": 12}, {"corrected": 7}])
def test_what_rests_or_stands_low_is_no_trouble(change, tmp_path):
    text = REPORT.format(**{**WELL, **change}).replace(": 100 %", ": 0 %")
    found = {signal for signal, _, _ in said(text, tmp_path)}
    assert not found & {"pcie_below_max", "pcie_replay", "ecc_corrected"}


def test_two_reports_give_what_a_counter_rose_by(tmp_path):
    twice = REPORT.format(**{**WELL, "corrected": 5}) + REPORT.format(**{**WELL, "corrected": 9})
    assert ("ecc_corrected", 4, "0000:18:00") in said(twice, tmp_path)


def test_a_piece_of_a_report_is_read_without_its_head(tmp_path):
    text = "    Clocks Event Reasons\n        SW Thermal Slowdown               : Active\n"
    assert said(text, tmp_path) == {("thermal_flag", "software", "?")}
    counters = "    Clocks Event Reasons Counters\n        SW Thermal Slowdown               : 0 us\n"
    assert said(text + counters, tmp_path) == {("thermal_flag", "software", "?")}
    cut = "ECC Errors\n    Volatile\n        DRAM Uncorrectable            : 3\n"
    assert said(cut, tmp_path) == {("ecc_uncorrected", 3, "?")}


BOX = """\
ops@hx-07:~$ nvidia-smi
Wed Jun 11 08:39:21 2025
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 450.51.05    Driver Version: 450.51.05    CUDA Version: 11.0     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100S-PCI...  Off  | 00000000:00:07.0 Off |                    0 |
| N/A   50C    P0   219W / 250W |   4617MiB / 32510MiB |    100%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3  On| 00000000:5D:00.0 Off |                    3 |
| N/A   86C    P0   402W / 700W |  40000MiB / 80000MiB |      0%      Default |
|   2  NVIDIA H100 80GB HBM3  On| 00000000:6D:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81559MiB |    ERR!         ERR! |
+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|    0   N/A  N/A   1204117      C   python                           4617MiB |
+-----------------------------------------------------------------------------+
"""


def test_the_table_that_people_paste_is_read(tmp_path):
    result = read(BOX, tmp_path)
    found = {(r.signal, r.value, str(r.entity)) for r in result.readings}
    first, second, third = (f"gpu 0000:{bus}:00 on hx-07" for bus in ("00", "5d", "6d"))
    assert {("temperature", 50.0, first.replace("0000:00:00", "0000:00:07"))} <= found
    assert {("utilization", "zero", second), ("ecc_uncorrected", 3, second)} <= found
    assert ("memory_fraction", 0.5, second) in found
    assert ("device_missing", 1, third) in found
    assert not [one for one in found if one[0] == "device_missing" and one[2] != third]


def test_an_index_and_an_address_are_one_device_where_the_table_gives_both(tmp_path):
    text = BOX + "index, temperature.gpu\n1, 87\n[ 7.100200] NVRM: Xid (PCI:0000:5d:00): 79, pid=0\n"
    places = {r.entity for r in read(text, tmp_path).readings if r.value in (87.0, "lost", "zero")}
    assert len(places) == 1


MONITOR = """\
#Date       Time        gpu    pwr  gtemp     sm   pclk  tviol  dbecc    pci
#YYYYMMDD   HH:MM:SS    Idx      W      C      %    MHz   bool   errs   errs
 20250611   08:04:31      0    652     61    100   1980      0      0      0
 20250611   08:04:31      1    301     87    100    900      1      0      5
 20250611   08:04:46      1    300     88    100    450      1      1     95
"""


def test_a_monitor_is_read_row_by_row(tmp_path):
    result = read(MONITOR, tmp_path)
    found = {(r.signal, r.value, r.entity.place) for r in result.readings}
    assert {("thermal_flag", "software", "1"), ("thermal_flag", "none", "0"), ("temperature", 88.0, "1")} <= found
    assert {("pcie_replay", 90, "1"), ("ecc_uncorrected", 1, "1")} <= found
    assert [r.value for r in result.readings if r.signal == "clock_ratio"] == [0.0, pytest.approx(-0.693, abs=1e-3)]
    times = sorted({r.time for r in result.readings})
    assert times[-1] - times[0] == 15
    assert result.coverage.unrecognised == 0


def test_the_monitor_of_dcgm_is_read(tmp_path):
    text = (
        "#Entity   TMPTR          POWER          GPUTL          XIDER\n"
        "ID        C              W              %\n"
        "GPU 0     61             652.112        100            0\n"
        "GPU 1     87             300.110        2              79\n"
        "GPU 1     87             300.110        2              79\n"
    )
    assert [(r.value, r.entity.place) for r in read(text, tmp_path).readings if r.signal == "xid"] == [("lost", "1")]
    assert ("utilization", "zero", "1") in said(text, tmp_path)


def test_rows_without_a_header_take_their_names_from_the_command(tmp_path):
    text = (
        "root@n21:~# nvidia-smi"
        " --query-gpu=timestamp,index,pci.bus_id,pstate,pcie.link.gen.current,pcie.link.gen.max,"
        "clocks_throttle_reasons.active --format=csv,noheader,nounits -l 15\n"
        "2025/06/11 08:04:31.204, 0, 00000000:18:00.0, P0, 5, 5, 0x0000000000000004\n"
        "2025/06/11 08:04:31.204, 1, 00000000:2A:00.0, P0, 1, 5, 0x0000000000000040\n"
        "2025/06/11 08:04:31.204, 2, 00000000:3A:00.0, P8, 1, 5, 0x0000000000000001\n"
        "2025/06/11 08:04:31.204, 3, 00000000:4A:00.0, [Unknown Error], [GPU is lost], 5, [N/A]\n"
    )
    found = {(r.signal, r.value, str(r.entity)) for r in read(text, tmp_path).readings}
    assert {(s, e) for s, v, e in found if v != "none"} == {
        ("power_capped", "gpu 0000:18:00 on n21"),
        ("pcie_below_max", "gpu 0000:2a:00 on n21"),
        ("thermal_flag", "gpu 0000:2a:00 on n21"),
        ("device_missing", "gpu 0000:4a:00 on n21"),
    }


METRICS = """\
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1f2e3d4c-01",pci_bus_id="00000000:18:00.0",Hostname="n17"} 61
DCGM_FI_DEV_GPU_TEMP{Hostname="n17",UUID="GPU-1f2e3d4c-02",gpu="1"} 2147483632
DCGM_FI_DEV_GPU_TEMP{Hostname="n17",gpu="2"} 140737488355328.0
DCGM_FI_DEV_GPU_TEMP{Hostname="n17",gpu="2"} 9223372036854775794
DCGM_FI_DEV_XID_ERRORS{UUID="GPU-1f2e3d4c-01",gpu="0",err_code="79",Hostname="n17"} 79
DCGM_FI_DEV_XID_ERRORS{UUID="GPU-1f2e3d4c-02",gpu="1",Hostname="n17"} 0
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0",Hostname="n17"} 5 1749629071000
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0",Hostname="n17"} 105 1749629086000
DCGM_FI_DEV_XID_ERRORS{UUID="GPU-1f2e3d4c-01",gpu="0",err_code="79",Hostname="n17"} 79
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="3",Hostname="n17"} 1
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="3",Hostname="n17"} 1
DCGM_EXP_XID_ERRORS_COUNT{gpu="5",Hostname="n17",xid="119"} 2
DCGM_EXP_XID_ERRORS_COUNT{gpu="5",Hostname="n17",xid="31"} 0
"""


def test_metrics_are_read_whatever_the_order_of_their_labels(tmp_path):
    result = read(METRICS, tmp_path)
    assert [(r.signal, r.value, str(r.entity)) for r in result.readings] == [
        ("temperature", 61.0, "gpu 0000:18:00 on n17"),
        ("xid", "lost", "gpu 0000:18:00 on n17"),
        ("pcie_replay", 100, "gpu 0000:18:00 on n17"),
        ("row_remap", "failed", "gpu 3 on n17"),
        ("ecc_uncorrected", 1, "gpu 3 on n17"),
        ("xid", "gsp", "gpu 5 on n17"),
    ]
    assert result.coverage.unrecognised == 0


@pytest.mark.parametrize(
    "line",
    ['up{job="dcgm"} 1', 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} NaN', '{"gpu": 3, "temp": 61}', "#Entity of the year"],
)
def test_what_looks_like_a_sample_and_is_none_says_nothing(line, tmp_path):
    assert not read(line + "\n", tmp_path).readings


SENTENCES = [
    ("Unable to determine the device handle for GPU 0000:AF:00.0: GPU is lost.", "device_missing", "0000:af:00"),
    ("Unable to determine the device handle for gpu 0000:1A:00.0: Unknown Error", "device_missing", "0000:1a:00"),
    ("No devices were found", "device_missing", "?"),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure", "device_missing", "?"),
    ("Failed to initialize NVML: Driver/library version mismatch", "nvml_mismatch", "?"),
    ("E0611 nvml: initialization failed: RM has detected an NVML/RM version mismatch.", "nvml_mismatch", "?"),
    ("GPU 1 has pending page retirements. Reboot the system", "row_remap", "1"),
    ("Detected clocks event due to thermal violation in GPU 2. Verify that the cooling", "thermal_flag", "2"),
]


@pytest.mark.parametrize(("line", "signal", "place"), SENTENCES)
def test_a_sentence_of_a_tool_says_what_is_wrong(line, signal, place, tmp_path):
    (reading,) = [r for r in read(line + "\n", tmp_path).readings if r.signal == signal]
    assert reading.entity.place == place


@pytest.mark.parametrize(
    "line",
    ["NVML library version: 535.183", "Failed to initialize NVML: Unknown Error", "no devices were found guilty"],
)
def test_sentences_that_only_sound_so_say_nothing(line, tmp_path):
    assert not read(line + "\n", tmp_path).readings
