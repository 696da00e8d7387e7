import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())
SEVERAL = "kt3:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
SINGLE = "kt3:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"


def error(near, far, status="12"):
    return (
        "kt3:1:2 [0] transport/net_ib.cc:2245 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<41162> "
        f"with status={status} opcode=0 len=0 vendor err 129 (Recv) localGid {near} remoteGids{far} hca mlx5_1"
    )


def on_one_path(lines, tmp_path):
    (tmp_path / "some.log").write_text("\n".join(lines) + "\n")
    return "one_path" in {reading.signal for reading in read_paths([tmp_path], FORMATS).readings}


ONE, BACK, ANOTHER = ("fd00::1", "fd00::2"), ("fd00::2", "fd00::1"), ("fd00::1", "fd00::3")


@pytest.mark.parametrize(
    "lines",
    [
        [SEVERAL, error(*ONE), error(*ONE), error(*ONE, status="5")],
        [error("::ffff:10.1.0.1", "::ffff:10.1.1.1")] * 3,
        [error(*ONE), error(*BACK), error(*ONE)],
    ],
    ids=["a flushed request counts", "no list of devices", "told from both ends"],
)
def test_all_errors_lie_between_two_addresses(lines, tmp_path):
    assert on_one_path(lines, tmp_path)


@pytest.mark.parametrize(
    "lines",
    [[error(*ONE)] * 2, [error(*ONE)] * 3 + [error(*ANOTHER)], [SINGLE, *[error(*ONE)] * 4]],
    ids=["too few", "two paths", "a host with one device"],
)
def test_errors_that_are_not_concentrated(lines, tmp_path):
    assert not on_one_path(lines, tmp_path)


UNREACHABLE = [
    "n5:240:240 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to"
    " host) errno 115(Operation now in progress)",
    "n5:2:2 [6] misc/socket.cc:486 NCCL WARN socketStartConnect: Connect to 10.7.3.1<38277> failed : No route to host",
    "n5:240:240 [6] include/socket.h:409 NCCL WARN Net : Connect to 192.168.1.9<54263> failed : Connection timed out",
    "From 10.101.16.1 icmp_seq=1 Destination Host Unreachable",
    "2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1021ms",
]


@pytest.mark.parametrize("line", UNREACHABLE)
def test_an_address_that_cannot_be_reached(line, tmp_path):
    (tmp_path / "some.log").write_text(line + "\n")
    assert "connect_failed" in {reading.signal for reading in read_paths([tmp_path], FORMATS).readings}


@pytest.mark.parametrize(
    "line",
    [
        "n5:240:240 [6] NCCL INFO Call to connect returned Connection refused, retrying",
        "64 bytes from 10.101.16.4: icmp_seq=1 ttl=64 time=0.09 ms",
        "2 packets transmitted, 2 received, 0% packet loss, time 1001ms",
        "n5:240:240 [6] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer n6<44380>",
    ],
)
def test_what_answers_or_closes_is_reachable(line, tmp_path):
    (tmp_path / "some.log").write_text(line + "\n")
    assert "connect_failed" not in {reading.signal for reading in read_paths([tmp_path], FORMATS).readings}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (5_000, "small"),
        (100_000, "small"),
        (215_000, "small"),
        (216_000, "usual"),
        (600_000, "usual"),
        (3_600_000, "long"),
    ],
)
def test_a_limit_shorter_than_a_save_is_small(limit, expected, tmp_path):
    line = (
        "[E ProcessGroupNCCL.cpp:828] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, "
        f"OpType=ALLREDUCE, NumelIn=99, NumelOut=99, Timeout(ms)={limit}) ran for {limit + 61} milliseconds before"
        " timing out."
    )
    (tmp_path / "some.log").write_text(line + "\n")
    readings = read_paths([tmp_path], FORMATS).readings
    assert [reading.value for reading in readings if reading.signal == "limit_class"] == [expected]
