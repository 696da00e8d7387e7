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
