"""Lines of the kernel and of file systems, three of each kind, and three that look alike and are not of the kind."""

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def read(text, tmp_path):
    file = tmp_path / "some.log"
    file.write_text(text + "\n")
    return read_paths([file], FORMATS)


def said(text, tmp_path):
    return {(reading.signal, reading.value, str(reading.entity)) for reading in read(text, tmp_path).readings}


XID = [
    (
        "[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:cb:00): 109, pid=17, name=pt_main_thread, Ch 00000008",
        "engine",
        "cb",
    ),
    ("Jun 11 08:04:31 hx-07 kernel: NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=1, Contained: SM", "memory", "9b"),
    (
        "2025-12-08T10:00:01.250000+00:00 hx-07 kernel: NVRM: Xid (PCI:0000:19:00): 149, NETIR_LINK_EVT Fatal",
        "nvlink",
        "19",
    ),
    ("[91.220118] NVRM: Xid (0000:06:00): 62, 0a72(1e6c) 00000000 00000000", "engine", "06"),
    ("<3>[ 9021.1] NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.", "lost", "44"),
    ("health-check: found Xid (PCI:0000:87:00): 48 in syslog", "memory", "87"),
    ("[ 77.100200] NVRM: Xid (PCI:0000:87:00): 45, pid=9, Ch 00000001 caused by previous Xid 149", "follow_on", "87"),
    (
        "[ 77.100200] NVRM: Xid (PCI:0000:87:00): 31, pid=9, name=python, MMU Fault: ENGINE GRAPHICS",
        "application",
        "87",
    ),
]


@pytest.mark.parametrize(("line", "value", "bus"), XID)
def test_an_xid_is_read_in_every_spelling(line, value, bus, tmp_path):
    found = {(signal, word) for signal, word, entity in said(line, tmp_path) if f"0000:{bus}:00" in entity}
    assert ("xid", value) in found


@pytest.mark.parametrize(
    "line",
    [
        "the runbook says: on an Xid 79 drain the node",
        "[131453.740743] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "[ 10.000001] NVRM: Xid (PCI:0000:44:00): 999, something that no catalogue has",
    ],
)
def test_what_only_speaks_of_an_xid_is_none(line, tmp_path):
    assert not [one for one in said(line, tmp_path) if one[0] == "xid"]


KINDS = {
    "bus_lost_text": (
        [
            "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5)"
            " installed in this"
            " system has\n               NVRM: fallen off the bus and is not responding to commands.",
            "Oct 25 01:02:03 n4 kernel: NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.",
            "[ 9021.337110] amdgpu 0000:c3:00.0: amdgpu: device lost from bus!",
        ],
        [
            "[ 1.1] NVRM: GPU 0000:44:00.0: GPU serial number is 1.",
            "a bird has fallen off the bus",
            "[ 1.100000] NVRM: Xid (PCI:0000:44:00): 43, pid=1",
        ],
    ),
    "aer_corrected": (
        [
            "[1086487.613065] pcieport 0000:00:01.1: AER: Corrected error received: 0000:00:00.0",
            "Sep 19 16:18:02 b kernel: [6.6] pcieport 0000:00:03.1: AER: Correctable error message received"
            " from 0000:00:00.0",
            "Jun 11 08:04:31 n1 kernel: pcieport 0000:00:1d.0: AER: Multiple Corrected error received: 0000:21:01.0",
            "[74785.660366] pcieport 0000:00:02.0: AER: Corrected error received: id=0010",
            "[  +0.000005] nvidia 0000:5d:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        ],
        [
            "[ 1.220118] pcieport 0000:00:1d.0: AER: enabled with IRQ 122",
            "[ 5.100200] nvme 0000:81:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "[ 5.100200] pcieport 0000:00:1d.0:    [12] Timeout",
        ],
    ),
    "aer_uncorrected": (
        [
            "[74889.542031] pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
            "[  +0.000004] pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal),"
            " type=Transaction Layer",
            "[52011.771204] pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000",
            "[52011.771310] pcieport 0000:15:01.0: pciehp: Slot(12): Link Down",
            "[  +0.000889] pcieport 0000:00:03.0:    [14] CmpltTO                (First)",
        ],
        [
            "[ 1.220118] pcieport 0000:15:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+",
            "[ 5.100200] pcieport 0000:00:1d.0: AER: Corrected error received: 0000:00:1d.0",
            "[ 5.100200] ata3: SATA link down (SStatus 0 SControl 300)",
        ],
    ),
    "pcie_limited": (
        [
            "[    8.4] nvidia 0000:3b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at"
            " 0000:3a:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
            "Jun 11 08:04:31 n1 kernel: pci 0000:61:00.0: 7.876 Gb/s available PCIe bandwidth, limited by 8.0"
            " GT/s PCIe x1"
            " link at 0000:60:01.0 (capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)",
            "[ 3.3] pci 0000:c1:00.0: 15.752 Gb/s available PCIe bandwidth, limited by 8 GT/s x2 link at 0000:c0:01.1"
            " (capable of 126.016 Gb/s with 8 GT/s x16 link)",
        ],
        [
            "[   10.6] mlx5_core 0004:01:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
            "[   10.6] mlx5_core 0004:01:00.0: 31.5 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4"
            " link at 0004:00:00.0",
            "throughput is limited by PCIe bandwidth",
        ],
    ),
    "api_mismatch": (
        [
            "[ 60.1] NVRM: API mismatch: the client has the version 535.183.01, but\n               NVRM: this"
            " kernel module has"
            " the version 535.161.08.  Please\n               NVRM: make sure that this kernel module and all"
            " NVIDIA driver\n"
            "               NVRM: components have the same version.",
            "Jun 11 08:04:31 n1 kernel: NVRM: API mismatch: the client 'python' (pid 5120) has the version"
            " 570.1, but this",
            "[Wed Jun 11 08:04:31 2025] NVRM: API mismatch: the client has the version 470.1, but this kernel"
            " module has 460",
        ],
        [
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.216.01",
            "docs: an API mismatch between client and server is logged",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06",
        ],
    ),
    "nic_link_down": (
        [
            "[ 12.4] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
            "Jun 11 08:04:31 n1 kernel: bnxt_en 0000:3b:00.0 ens1f0np0: NIC Link is Down",
            "Jun 11 08:04:31 n1 kernel: bond0: link status definitely down for interface ens2f0, disabling it",
            "Jun 11 08:04:31 n1 systemd-networkd[812]: ens5f0np0: Lost carrier",
        ],
        [
            "Jun 11 08:04:31 n1 kernel: veth91c2b1f: link down",
            "[ 12.4] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
            "[ 5.1] ata3: SATA link down (SStatus 0 SControl 300)",
        ],
    ),
    "nic_fault": (
        [
            "[ 8.4] mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            "Jun 11 08:04:31 n1 kernel: mlx5_core 0000:d2:00.0: print_health_info:431:(pid 0): Health issue"
            " observed, firmware"
            " internal error, severity(3) ERROR:",
            "[ 9.1] NETDEV WATCHDOG: ens5f0np0 (mlx5_core): transmit queue 11 timed out",
            "[ 9.1] bnxt_en 0000:3b:00.0 ens1f0np0: Firmware not responding, status: 0x8001",
        ],
        [
            "[ 1.1] mlx5_core 0000:12:00.0: Port module event: module 0, Cable plugged",
            "[ 1.1] mlx5_core 0000:12:00.0: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot (27W).",
            "[ 1.1] mlx5_core 0000:12:00.0: firmware version: 28.39.1002",
        ],
    ),
    "host_oom_kill": (
        [
            "[8.1] Out of memory: Kill process 6120 (python) score 912 or sacrifice child",
            "[8.1] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            "slurmstepd: error: Detected 2 oom_kill events in StepId=4417.0. Some of the step tasks have been"
            " OOM Killed.",
        ],
        [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
            "[8.1] Tasks state (memory values in pages):",
            "the OOM killed my cat",
        ],
    ),
}
CASES = [(kind, line, True) for kind, (lines, _) in KINDS.items() for line in lines]
CASES += [(kind, line, False) for kind, (_, lines) in KINDS.items() for line in lines]


@pytest.mark.parametrize(("kind", "text", "holds"), CASES)
def test_a_line_is_of_its_kind_and_its_likes_are_not(kind, text, holds, tmp_path):
    assert (kind in {signal for signal, _, _ in said(text, tmp_path)}) is holds


STORAGE = [
    ("[81223.110022] nfs: server 10.60.0.9 not responding, timed out", "not_responding"),
    ("Jun 11 08:04:31 n1 kernel: nfs: server filer2 OK", "restored"),
    (
        "[8130.1] LustreError: 167-0: s-MDT0000-mdc-ff: This client was evicted by s-MDT0000; in progress operations",
        "lost",
    ),
    ("[8130.1] Lustre: s-OST0003-osc-ff: Connection restored to s-OST0003 (at 10.1.1.1@tcp)", "restored"),
    ("[8130.1] LustreError: 11-0: s-OST1-osc: operation ost_write to node 10.1.1.1@o2ib failed: rc = -5", "io_error"),
    ("[5110.1] libceph: mon1 (1)10.0.0.2:6789 session lost, hunting for new mon", "lost"),
    ("[5110.1] libceph: mon2 (1)10.0.0.3:6789 session established", "restored"),
    ("2025-06-11_08:04:31.114+0200: [E] This node is being expelled from the cluster. Reason: lease", "lost"),
    ("[ 7712.0] Buffer I/O error on dev dm-3, logical block 1, lost async page write", "io_error"),
    ('[ 7712.0] XFS (nvme1n1): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x1 len 8', "io_error"),
    ("[ 7711.8] nvme nvme2: I/O 322 QID 14 timeout, aborting", "io_error"),
    ("[441.5] CIFS: VFS: \\\\filer02 has not responded in 180 seconds. Reconnecting...", "not_responding"),
]


@pytest.mark.parametrize(("line", "value"), STORAGE)
def test_a_client_of_a_file_system_says_how_its_server_is(line, value, tmp_path):
    assert [r.value for r in read(line, tmp_path).readings if r.signal == "storage_client"] == [value]


@pytest.mark.parametrize(
    "line",
    [
        "[  22.1] Lustre: Mounted scratch-client",
        "[   3.1] nvme nvme0: 48/0/0 default/read/poll queues",
        "[   3.1] EXT4-fs (md127p3): re-mounted 0f3c r/w. Quota mode: none.",
        "server started, OK",
    ],
)
def test_ordinary_words_of_file_systems_say_nothing(line, tmp_path):
    assert not [r for r in read(line, tmp_path).readings if r.signal == "storage_client"]


HEADS = {
    "[172816.440226] ": None,
    "[Sat Mar 11 02:58:40 2023] ": None,
    "[  +0.000316] ": None,
    "2023-03-11T02:58:40,123456+01:00 ": None,
    "kern  :err   : [172816.440226] ": None,
    "Mar 11 02:58:40 n17 kernel: ": "n17",
    "Mar 11 02:58:40.123456 n17 kernel: ": "n17",
    "Sat 2023-03-11 02:58:40 CET n17 kernel: ": "n17",
    "2023-03-11T02:58:40+0100 n17 kernel: ": "n17",
    "2023-03-11T02:58:40.123456+01:00 n17 kernel: [172816.440226] ": "n17",
    "1678503520.123456 n17 kernel: ": "n17",
    "[172816.440226] n17 kernel: ": "n17",
    "<3>1 2023-03-11T02:58:40.5Z n17 kernel - - - ": "n17",
    "<3>Mar 11 02:58:40 n17 kernel: ": "n17",
}


@pytest.mark.parametrize("head", HEADS)
def test_every_style_of_time_gives_time_and_host(head, tmp_path):
    (reading,) = read(head + "NVRM: Xid (PCI:0000:5d:00): 63, pid=7, name=python, Row Remapper", tmp_path).readings
    assert (reading.signal, reading.value, reading.entity.host) == ("xid", "memory", HEADS[head])
    assert reading.time is not None


def test_seconds_since_1970_are_the_same_clock(tmp_path):
    xid = "kernel: NVRM: Xid (PCI:0000:5d:00): 63, pid=7"
    unix, iso = read(f"1678503520.250000 n17 {xid}\n2023-03-11T02:58:40.750000Z n17 {xid}", tmp_path).readings
    assert iso.time - unix.time == pytest.approx(0.5)


def test_a_record_of_the_journal_is_read_as_the_line_that_it_holds(tmp_path):
    text = (
        '{"__REALTIME_TIMESTAMP":"1749629071123456","_HOSTNAME":"n17","SYSLOG_IDENTIFIER":"kernel",'
        '"MESSAGE":"NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."}\n'
        '{"log":"[rank3]: NVRM: Xid (PCI:0000:5e:00): 94, Contained ECC'
        ' error\\n","stream":"stderr","time":"2025-06-11T08:04:31.5Z"}\n'
        '{"@timestamp":"2025-06-11T08:04:32.5Z","message":"nfs: server fs1 not responding, still'
        ' trying","host":{"name":"n19"}}\n'
        '{"step": 100, "message": {"not": "a line"}}\n{"broken": '
    )
    result = read(text, tmp_path)
    assert [(r.signal, r.value, str(r.entity)) for r in result.readings] == [
        ("xid", "lost", "gpu 0000:5d:00 on n17"),
        ("xid", "memory", "gpu 0000:5e:00"),
        ("storage_client", "not_responding", "node n19"),
    ]
    assert result.readings[0].time == pytest.approx(result.readings[1].time - 0.376544)


@pytest.mark.parametrize(
    ("line", "entity"),
    [
        (
            '{"time":"2025-06-11T04:10:23Z","data_source":"dmesg","device_uuid":"GPU-e3038df4-dc48","xid":119}',
            "gpu-e3038df4-dc48",
        ),
        (
            "2025/06/11 08:04:31 XidCriticalError: Xid=119 on Device=GPU-0a6b1c5e-77d1, the device will go unhealthy.",
            "gpu-0a6b1c5e-77d1",
        ),
        ("Detected XID 119 for GPU 5 Please consult the documentation", "5"),
        ("XID 119 (err status 0x0) GSP_RPC_TIMEOUT detected on GPU PCI:0000:9b:00", "0000:9b:00"),
    ],
)
def test_agents_report_an_xid_in_their_own_words(line, entity, tmp_path):
    assert said(line, tmp_path) == {("xid", "gsp", f"gpu {entity}")}
