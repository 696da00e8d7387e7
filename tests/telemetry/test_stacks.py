import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())
COLLECTIVE = "    broadcast (torch/distributed/distributed_c10d.py:1191)\n    eval_batch (deepspeed/engine.py:455)\n"
LOADER = "    wait (threading.py:306)\n    get (queue.py:179)\n    _next (torch/utils/data/dataloader.py:1011)\n"
UNKNOWN = "    simulate (my/model.py:7)\n"


def dump(*stacks, name="MainThread"):
    return "".join(f'Thread {7000 + at} (idle): "{name}"\n{stack}' for at, stack in enumerate(stacks))


def minority(text, tmp_path, name="pyspy-gx-48.log", beside=""):
    (tmp_path / name).write_text(text)
    if beside:
        (tmp_path / "zz.log").write_text(beside)
    result = read_paths([tmp_path], FORMATS)
    return [str(reading.entity) for reading in result.readings if reading.signal == "stack_minority"], result


def test_the_one_that_waits_in_its_loader_is_named(tmp_path):
    found, result = minority(dump(COLLECTIVE, LOADER, COLLECTIVE, COLLECTIVE), tmp_path)
    assert found == ["pid 7001 on gx-48"]
    assert result.coverage.unrecognised == 0
    assert "loader" in result.readings[0].text


def test_a_stack_of_the_users_own_code_differs_too(tmp_path):
    assert minority(dump(COLLECTIVE, COLLECTIVE, UNKNOWN), tmp_path)[0] == ["pid 7002 on gx-48"]


@pytest.mark.parametrize(
    "text",
    [
        dump(COLLECTIVE, COLLECTIVE, COLLECTIVE),
        dump(LOADER),
        dump(LOADER, COLLECTIVE),
        dump(LOADER, LOADER, COLLECTIVE),
        dump(COLLECTIVE, COLLECTIVE, COLLECTIVE) + dump(LOADER, name="prefetch-0"),
    ],
    ids=["all alike", "one process", "one of two", "the majority", "a helper thread"],
)
def test_no_minority_no_reading(text, tmp_path):
    assert not minority(text, tmp_path)[0]


def test_the_process_line_gives_the_process_number(tmp_path):
    text = "".join(
        f"Process {9000 + at}: python train.py\nPython v3.10.4 (/usr/bin/python3.10)\n\n{dump(stack)}\n"
        for at, stack in enumerate([COLLECTIVE, COLLECTIVE, LOADER, COLLECTIVE])
    )
    found, result = minority(text, tmp_path)
    assert found == ["pid 9002 on gx-48"]
    assert result.coverage.unrecognised == 0


def test_a_host_seen_elsewhere_is_preferred_to_the_look_of_the_name(tmp_path):
    beside = "worker7:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE ; OOB eth0:10.0.0.1<0>\n"
    found, _ = minority(dump(COLLECTIVE, COLLECTIVE, LOADER), tmp_path, "stack_worker7_run-2.txt", beside)
    assert found == ["pid 7002 on worker7"]


def test_a_name_without_a_host_gives_none(tmp_path):
    assert minority(dump(COLLECTIVE, COLLECTIVE, LOADER), tmp_path, "stacks.txt")[0] == ["pid 7002"]
