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


NATIVE = (
    "    pthread_cond_wait@@GLIBC_2.3.2 (libpthread-2.31.so)\n"
    "    c10d::TCPStore::wait(std::string const&, long) (libtorch_cpu.so)\n"
    "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n"
    "        Arguments:\n            tensor: <Tensor at 0x7f>\n"
    "    main (train.py:12)\n    <module> (train.py:40)\n"
)


def test_native_frames_and_locals_are_read(tmp_path):
    found, result = minority(dump(NATIVE, NATIVE, LOADER, NATIVE), tmp_path)
    assert found == ["pid 7002 on gx-48"]
    assert result.coverage.unrecognised == 0


def fault(*frames, thread="0x00007f3a1c0b4740", head="Thread"):
    lines = "".join(f'  File "{file}", line {at + 10} in {function}\n' for at, (function, file) in enumerate(frames))
    return f"{head} {thread} (most recent call first):\n{lines}\n"


WAITS = (("all_reduce", "/opt/torch/distributed/distributed_c10d.py"), ("step", "/w/t.py"), ("<module>", "/w/t.py"))
LOADS = (
    ("get", "/usr/lib/python3.10/queue.py"),
    ("_next_data", "/opt/torch/utils/data/dataloader.py"),
    ("<module>", "/w/t.py"),
)
HELPER = (("wait", "/usr/lib/python3.10/threading.py"), ("_bootstrap", "/usr/lib/python3.10/threading.py"))


def test_dumps_of_faulthandler_one_rank_a_file(tmp_path):
    for rank, frames in enumerate([WAITS, LOADS, WAITS, WAITS]):
        text = f"Timeout (0:10:00)!\n{fault(*HELPER)}{fault(*frames, thread='0x00007f3a1c0b5000')}"
        (tmp_path / f"faulthandler_rank{rank}.txt").write_text(text)
    result = read_paths([tmp_path], FORMATS)
    assert [str(r.entity) for r in result.readings if r.signal == "stack_minority"] == ["rank 1"]


def test_dumps_of_faulthandler_under_a_launchers_prefix(tmp_path):
    text = ""
    for rank, frames in enumerate([WAITS, WAITS, WAITS, LOADS]):
        dumped = "Fatal Python error: Aborted\n\n" + fault(*frames, head="Current thread")
        text += "".join(f"[rank{rank}]: {line}\n" if line else "\n" for line in dumped.splitlines())
    (tmp_path / "all.log").write_text(text)
    result = read_paths([tmp_path], FORMATS)
    assert [str(r.entity) for r in result.readings if r.signal == "stack_minority"] == ["rank 3"]


def backtrace(pid, *frames):
    lines = "".join(
        f"#{at}  0x00007f12 in {function} () from /usr/lib/{file}\n" for at, (function, file) in enumerate(frames)
    )
    return f'Thread 1 (Thread 0x7f12 (LWP {pid}) "python"):\n{lines}\n'


def test_backtraces_of_gdb(tmp_path):
    stuck = (("sched_yield", "libc.so.6"), ("ncclGroupEnd", "libnccl.so.2"), ("main", "python3"))
    elsewhere = (("__libc_pwrite64", "libpthread.so.0"), ("_PyEval_EvalFrameDefault", "python3"), ("main", "python3"))
    text = backtrace(411, *stuck) + backtrace(412, *stuck) + backtrace(413, *elsewhere) + backtrace(414, *stuck)
    found, result = minority(text, tmp_path, "gdb-gx-48.txt")
    assert found == ["pid 413 on gx-48"]
    assert "io" in next(r for r in result.readings if r.signal == "stack_minority").text


def test_one_process_a_file_over_several_hosts(tmp_path):
    for number, stack in enumerate([COLLECTIVE, COLLECTIVE, LOADER, COLLECTIVE, COLLECTIVE]):
        text = f"Process {500 + number}: python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\n{dump(stack)}"
        (tmp_path / f"pyspy-qh{number}.log").write_text(text)
    result = read_paths([tmp_path], FORMATS)
    assert [str(r.entity) for r in result.readings if r.signal == "stack_minority"] == ["pid 502 on qh2"]


DEVICE = "    synchronize (torch/cuda/__init__.py:688)\n    train_step (train.py:80)\n"


@pytest.mark.parametrize(
    "text",
    [
        dump(COLLECTIVE, COLLECTIVE, COLLECTIVE, DEVICE),
        dump(DEVICE, DEVICE, DEVICE, LOADER),
        dump(UNKNOWN, UNKNOWN, UNKNOWN, COLLECTIVE),
    ],
    ids=["who waits for the device waits with the others", "nobody stands in a collective", "the one in it is the few"],
)
def test_stacks_that_single_nobody_out(text, tmp_path):
    assert not minority(text, tmp_path)[0]


RECEIVES = "    synchronize (torch/cuda/__init__.py:892)\n    recv_forward (megatron/p2p_communication.py:427)\n"
GATHERS = "    all_gather (torch/distributed/distributed_c10d.py:2308)\n    gather_metrics (core/reduce.py:88)\n"
SENDS = "    isend (torch/distributed/distributed_c10d.py:1508)\n    send_backward (megatron/p2p_comm.py:440)\n"


@pytest.mark.parametrize("other", [RECEIVES, GATHERS, SENDS])
def test_the_one_in_another_exchange_than_all_its_peers_is_named(other, tmp_path):
    assert minority(dump(COLLECTIVE, COLLECTIVE, other, COLLECTIVE), tmp_path)[0] == ["pid 7002 on gx-48"]


@pytest.mark.parametrize(
    "stacks",
    [(COLLECTIVE, COLLECTIVE, RECEIVES, GATHERS), (COLLECTIVE, COLLECTIVE, RECEIVES), (*[DEVICE] * 3, GATHERS)],
    ids=["two of them elsewhere", "two peers only", "peers that only compute"],
)
def test_exchanges_of_several_kinds_single_nobody_out(stacks, tmp_path):
    assert not minority(dump(*stacks), tmp_path)[0]
