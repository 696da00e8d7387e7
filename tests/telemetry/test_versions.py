import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.versions import bare

FORMATS = load_formats(shipped_formats())


def told(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name.replace('_', '-')}.txt").write_text(text + "\n")
    result = read_paths([tmp_path], FORMATS)
    return sorted(str(r.entity) for r in result.readings if r.signal == "version_conflict")


def test_each_host_is_compared_with_itself(tmp_path):
    both = "nvidia-nccl-cu12==2.21.5\nNCCL version 2.18.3+cuda12.2"
    assert told(tmp_path, env_gx12=both, env_gx13="nvidia-nccl-cu12==2.21.5") == ["node gx12"]


def test_the_host_with_another_version_than_its_peers_is_named(tmp_path):
    newer, older = "nvidia-nccl-cu12==2.22.3", "nvidia-nccl-cu12==2.21.5"
    assert told(tmp_path, pip_gx1=older, pip_gx2=newer, pip_gx3=older) == ["node gx2"]


def test_of_two_hosts_that_differ_both_are_named(tmp_path):
    newer, older = "nvidia-nccl-cu12==2.22.3", "nvidia-nccl-cu12==2.21.5"
    assert told(tmp_path, pip_gx1=older, pip_gx2=newer) == ["node gx1", "node gx2"]


def test_hosts_with_the_same_versions_say_nothing(tmp_path):
    same = "nvidia-nccl-cu12==2.21.5"
    assert told(tmp_path, pip_gx1=same, pip_gx2=same) == []


@pytest.mark.parametrize(
    ("version", "core"),
    [("2.16.2-1+cuda11.8", "2.16.2"), ("22105", "2.21.5"), ("550.054.15", "550.54.15"), ("12", "12"), ("none", "none")],
)
def test_the_core_of_a_version(version, core):
    assert bare(version) == core
