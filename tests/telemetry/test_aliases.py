"""One device under many names becomes one entity; what stands for two things stays as it is."""

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def read(tmp_path, **files):
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")
    return read_paths([folder], FORMATS)


def places(result, *signals):
    return {str(r.entity) for r in result.readings if not signals or r.signal in signals}


TELLS = {
    "mlx5_3 port 1 ==> ens5f0 (Up)": "ens5f0",
    "link mlx5_3/1 state ACTIVE physical_state LINK_UP netdev ens5f0": "ens5f0",
    "/sys/class/net/ens5f0/device/infiniband/mlx5_3": "ens5f0",
    "mlx5_3     1       2       0000:0000:0000:0000:0000:ffff:0a51:1411 10.81.20.17     v1      ens5f0": "ens5f0",
}


@pytest.mark.parametrize("line", TELLS)
def test_an_interface_is_called_by_its_device_where_a_line_gives_both(line, tmp_path):
    result = read(tmp_path, a__log=f"{line}\n[ 1.5] mlx5_core 0000:5e:00.0 ens5f0: Link down")
    assert places(result, "nic_link_down") == {"link ? mlx5_3"}


def test_a_name_that_stands_for_two_devices_is_left(tmp_path):
    text = (
        "mlx5_3 port 1 ==> ens5f0 (Up)\nmlx5_4 port 1 ==> ens5f0 (Up)\n[ 1.5] mlx5_core 0000:5e:00.0 ens5f0: Link down"
    )
    assert places(read(tmp_path, a__log=text), "nic_link_down") == {"link ? ens5f0"}


def test_an_address_is_called_by_its_device_over_two_steps(tmp_path):
    text = (
        "mlx5_3 port 1 ==> ens5f0 (Up)\n[ 1.5] mlx5_core 0000:5e:00.0 ens5f0: Link down\n"
        "[ 1.6] mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High Temperature"
    )
    assert places(read(tmp_path, a__log=text)) == {"link ? mlx5_3"}


def test_a_number_of_nccl_is_the_device_that_it_lists(tmp_path):
    text = (
        "n17:1234:1300 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/IB [1]mlx5_5:1/IB [RO]; OOB e0:10.0.4.17<0>\n"
        "n17:1234:1300 [1] transport/net_ib/p2p.cc:325 NCCL WARN NET/IB:"
        " ncclIbResiliencyHandleDeviceFailure: Device 1 marked as failed."
        " Initiating recovery? Yes (send comm=0x7fe1)"
    )
    assert places(read(tmp_path, a__log=text), "nic_failover") == {"link n17 mlx5_5"}


def test_the_only_interface_and_the_only_device_of_a_host_are_one_link(tmp_path):
    text = (
        "[ 1.5] mlx5_core 0000:5e:00.0 ens5f0: Link down\n# mlx5_3/ports/1/counters before -> after\nlink_downed 0 -> 1"
    )
    assert places(read(tmp_path, a__log=text)) == {"link ? mlx5_3"}
    other = text.replace("mlx5_core", "igb").replace("ens5f0", "eno1")
    third = text.replace("mlx5_3", "bnxt_re3")
    for name, logs in (("other", other), ("third", third)):
        (tmp_path / name).mkdir()
        assert len(places(read(tmp_path / name, a__log=logs))) == 2


def test_two_devices_are_not_taken_for_one(tmp_path):
    text = (
        "[ 1.5] mlx5_core 0000:5e:00.0 ens5f0: Link down\n[ 1.5] mlx5_core 0000:6e:00.0 ens6f0: Link down\n"
        "# mlx5_3/ports/1/counters before -> after\nlink_downed 0 -> 1"
    )
    assert places(read(tmp_path, a__log=text)) == {"link ? ens5f0", "link ? ens6f0", "link ? mlx5_3"}


def test_a_name_of_a_gpu_is_its_address_where_the_driver_gives_both(tmp_path):
    text = (
        "[ 1.400000] NVRM: GPU at PCI:0000:04:00: GPU-8d0ac9b1-7714-22f0\n"
        "XidCriticalError: Xid=79 on Device=GPU-8d0ac9b1-7714-22f0, the device will go unhealthy."
    )
    assert places(read(tmp_path, a__log=text), "xid") == {"gpu 0000:04:00"}


BELOW = [
    "[ 1.220118] pci 0000:15:01.0: PCI bridge to [bus 16]\n[ 1.2] pci 0000:16:00.0: PCI bridge to [bus 17-18]",
    "[ 8.4] nvidia 0000:17:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at"
    " 0000:15:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
    "[ 9.0] pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
    "[ 9.0] nvidia 0000:17:00.0: AER: can't recover (no error_detected callback)",
]


@pytest.mark.parametrize("tells", BELOW)
def test_an_error_of_a_port_is_one_of_the_gpu_below_it(tells, tmp_path):
    text = (
        f"{tells}\n[ 9.1] pcieport 0000:15:01.0: AER: Corrected error received: 0000:15:01.0\n"
        "[ 9.2] NVRM: Xid (PCI:0000:17:00): 79, pid=0\n[ 9.3] NVRM: Xid (PCI:0000:27:00): 45, pid=0"
    )
    assert places(read(tmp_path, a__log=text), "aer_corrected") == {"gpu 0000:17:00"}


def test_errors_of_the_only_port_are_those_of_the_only_gpu(tmp_path):
    text = "[ 9.1] pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0\n"
    lost = "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n"
    assert places(read(tmp_path, a__log=text + lost)) == {"gpu 0000:03:00"}
    (tmp_path / "two").mkdir()
    two = lost + lost.replace("03:00.0", "04:00.0")
    assert len(places(read(tmp_path / "two", a__log=text + two))) == 3


def test_a_port_above_two_gpus_stays_itself(tmp_path):
    text = (
        "[ 1.2] pci 0000:15:01.0: PCI bridge to [bus 16]\n[ 1.2] pci 0000:16:00.0: PCI bridge to [bus 17]\n"
        "[ 1.2] pci 0000:16:01.0: PCI bridge to [bus 18]\n"
        "[ 9.1] pcieport 0000:15:01.0: AER: Corrected error received: 0000:15:01.0\n"
        "[ 9.2] NVRM: Xid (PCI:0000:17:00): 79, pid=0\n[ 9.3] NVRM: Xid (PCI:0000:18:00): 79, pid=0"
    )
    assert places(read(tmp_path, a__log=text), "aer_corrected") == {"gpu 0000:15:01"}


def test_errors_of_other_cards_are_no_errors_of_gpus(tmp_path):
    text = (
        "[ 9.1] pcieport 0000:80:01.0: AER: Corrected error received: 0000:81:00.0\n"
        "[ 9.1] nvme 0000:81:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        "[ 9.2] snd_hda_intel 0000:17:00.1: AER: can't recover (no error_detected callback)\n"
        "[ 9.2] nvidia 0000:17:00.0: AER: can't recover (no error_detected callback)"
    )
    assert places(read(tmp_path, a__log=text)) == {"gpu 0000:17:00"}


def test_a_detail_counts_only_where_no_line_of_the_port_does(tmp_path):
    detail = "[ 9.1] nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
    head = "[ 9.1] pcieport 0000:16:00.0: AER: Corrected error received: 0000:17:00.0"
    result = read(tmp_path, a__log=f"{detail}\n{detail}", b__log=f"{head}\n{detail}")
    assert [r.file for r in result.readings] == ["a.log", "a.log", "b.log"]


def test_a_file_is_of_the_host_that_its_name_or_all_its_lines_give(tmp_path):
    xid, kernel = (
        "[ 9.2] NVRM: Xid (PCI:0000:17:00): 79, pid=0",
        "Jun 11 08:04:31 gx-0{} kernel: NVRM: loading NVIDIA UNIX",
    )
    lines = {"a.log": f"{kernel.format(2)}\n{xid}", "b.log": kernel.format(1), "dmesg-gx-01.log": xid, "dmesg.log": xid}
    for name, text in lines.items():
        (tmp_path / name).write_text(text + "\n")
    hosts = {r.file: r.entity.host for r in read_paths([tmp_path], FORMATS).readings if r.entity.kind == "gpu"}
    assert hosts == {"a.log": "gx-02", "dmesg-gx-01.log": "gx-01", "dmesg.log": None}


def test_logs_that_name_one_host_are_all_of_it(tmp_path):
    result = read(
        tmp_path,
        a__log="[ 9.2] NVRM: Xid (PCI:0000:17:00): 79, pid=0",
        b__log="ops@n4:~$ nvidia-smi\nNo devices were found",
    )
    assert places(result) == {"gpu 0000:17:00 on n4", "gpu ? on n4"}
