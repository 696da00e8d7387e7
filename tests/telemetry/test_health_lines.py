"""What monitors of health say about devices: three of each kind, and three that look alike and are not of the kind."""

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())
EMPTY = "|                           | "


def read(text, tmp_path):
    file = tmp_path / "some.log"
    file.write_text(text + "\n")
    return read_paths([file], FORMATS)


def said(text, tmp_path):
    return {(reading.signal, reading.value, str(reading.entity)) for reading in read(text, tmp_path).readings}


def condition(code, rest="GPU:4 PCI:0000:c4:00.0 GPU_UUID:GPU-d1816eb1-2926-4fbc-13f6-1cf1ba1b921b"):
    when = "Wed, 18 Feb 2026 00:11:05 -0800   Wed, 18 Feb 2026 00:10:57 -0800"
    return f"  GpuWatch   True    {when}   GpuWatchIsNotHealthy   ErrorCode:{code} {rest} Recommended Action=NONE;"


def event(code, quote='"'):
    device = '{"entityType":"GPU","entityValue":"4"},{"entityType":"PCI","entityValue":"0000:c4:00.0"}'
    health = f'{{"HealthEvent":{{"errorCode":["{code}"],"entitiesImpacted":[{device}]}}}}'
    text = f'{{"time":"2026-03-06T09:34:56.5Z","level":"INFO","msg":"Handling event","event":{health}}}'
    return text.replace('"', quote) if quote != '"' else text


CODES = [
    ("DCGM_FR_UNCONTAINED_ERROR", "ecc_uncorrected", 1),
    ("DCGM_FR_PENDING_PAGE_RETIREMENTS", "row_remap", "pending"),
    ("DCGM_FR_ROW_REMAP_FAILURE", "row_remap", "failed"),
    ("DCGM_FR_CLOCKS_EVENT_THERMAL", "thermal_flag", "hardware"),
    ("DCGM_FR_GPU_FALLEN_OFF_BUS", "device_missing", 1),
    ("DCGM_FR_PCIE_WIDTH", "pcie_below_max", 1),
]


@pytest.mark.parametrize(("code", "signal", "value"), CODES)
def test_a_code_of_dcgm_is_read_in_a_condition_and_in_an_event(code, signal, value, tmp_path):
    for text in (condition(code), event(code), "gpu-monitor: " + event(code, '\\"')):
        assert said(text, tmp_path) == {(signal, value, "gpu 0000:c4:00")}, text


@pytest.mark.parametrize(
    "text",
    [
        condition("DCGM_FR_NVLINK_DOWN"),
        condition("DCGM_FR_UNCONTAINED_ERRORS_SEEN_BEFORE"),
        "  GpuMemWatch   False   Wed, 18 Feb 2026 00:11:05 -0800   GpuMemWatchIsHealthy   No Health Failures",
    ],
)
def test_other_codes_and_healthy_conditions_say_nothing(text, tmp_path):
    assert not said(text, tmp_path)


def test_a_described_node_names_the_host_of_its_conditions(tmp_path):
    text = "Name:               aks-gpu-12-vmss00000q\nConditions:\n" + condition("DCGM_FR_UNCONTAINED_ERROR")
    result = read(text, tmp_path)
    assert str(result.readings[0].entity) == "gpu 0000:c4:00 on aks-gpu-12-vmss00000q"
    assert result.coverage.unrecognised == 0


def test_a_shipper_that_keeps_an_event_beside_the_line_is_still_unwrapped(tmp_path):
    wrapped = (
        '{"@timestamp":"2026-03-06T09:34:56.5Z","message":"NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus."'
        ',"event":{"dataset":"system.syslog"},"host":{"name":"n17"}}'
    )
    assert ("xid", "lost", "gpu 0000:44:00 on n17") in said(wrapped, tmp_path)


BOXED = [
    (
        f"{EMPTY}Detected more than 8 PCIe replays per minute for GPU 5   |\n{EMPTY} : 331 Reconnect PCIe card.  |",
        ("pcie_replay", 331, "gpu 5"),
    ),
    (
        f"{EMPTY}Detected clocks event due to thermal             |\n{EMPTY}violation in GPU 2. Verify that the  |",
        ("thermal_flag", "hardware", "gpu 2"),
    ),
    (
        "| Warning: GPU3             | GPU 3 is running at PCI link width 8X, which   |\n"
        f"{EMPTY}is below the minimum allowed link width of 16  |",
        ("pcie_below_max", 1, "gpu 3"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), BOXED)
def test_sentences_that_a_box_broke_are_put_together(text, expected, tmp_path):
    result = read(text, tmp_path)
    assert [(r.signal, r.value, str(r.entity)) for r in result.readings] == [expected]
    assert result.coverage.unrecognised == 0


@pytest.mark.parametrize(
    "text",
    [
        f"{EMPTY}GPU0: Pass                         |\n{EMPTY}GPU1: Pass                         |",
        "| Overall Health            | Healthy                                        |",
        f"{EMPTY}Detected more than 8 PCIe replays per minute for |\n| memory                    | Pass           |",
    ],
)
def test_boxes_without_a_whole_finding_say_nothing(text, tmp_path):
    assert not said(text, tmp_path)


CHECKS = [
    ("Found XID errors: 63", "memory"),
    ("Found XID errors: 79", "lost"),
    ("2024-06-11T06:10:02Z n5 check: found Xid errors: 109", "engine"),
]


@pytest.mark.parametrize(("text", "value"), CHECKS)
def test_the_check_of_a_node_finds_a_code(text, value, tmp_path):
    assert ("xid", value) in {(signal, what) for signal, what, _ in said(text, tmp_path)}


@pytest.mark.parametrize(
    "text",
    [
        "ERROR:  nhc:  Health check failed:  Check check_xid_errors returned 1",
        "Found XID errors: none",
        "check_xid_errors: Found 0 XID errors",
    ],
)
def test_checks_that_name_no_code_say_nothing(text, tmp_path):
    assert not said(text, tmp_path)


ROW = "|   1  NVIDIA H100 80GB HBM3          On  |   00000000:41:00.0 Off |                    0 |"


@pytest.mark.parametrize(
    "body",
    [
        "| N/A   93C    P0    121W / 300W |  41203MiB / 49140MiB |    100%      Default |",
        "| N/A   93C    P0              121W / 700W |   41203MiB /  49140MiB |    100%      Default |",
        "| 30%   93C    P2             121W / 300W |   41203MiB /  49140MiB |    100%      Default |",
    ],
)
def test_the_table_of_nvidia_smi_is_read_at_any_width(body, tmp_path):
    assert ("temperature", 93.0, "gpu 0000:41:00") in said(f"{ROW}\n{body}", tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "|    0   N/A  N/A   1204117      C   python                          78998MiB |",
        "| N/A   hot    P0             121W / 300W |   41203MiB /  49140MiB |    100%      Default |",
        "  N/A   93C    P0             121W / 300W     41203MiB /  49140MiB      100%      Default",
    ],
)
def test_other_rows_give_no_temperature(body, tmp_path):
    assert "temperature" not in {signal for signal, _, _ in said(f"{ROW}\n{body}", tmp_path)}
