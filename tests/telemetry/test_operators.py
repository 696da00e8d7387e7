import math

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def read(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.log").write_text(text)
    return read_paths([tmp_path], FORMATS)


def said(result, signal):
    return [(str(reading.entity), reading.value) for reading in result.readings if reading.signal == signal]


def steps(*times, first=100):
    return "".join(
        f" iteration {first + at:8d}/  200000 | elapsed time per iteration (ms): {time} | lm loss: 2.0E+00 | "
        f"grad norm: 0.2 | number of nan iterations:   0 |\n"
        for at, time in enumerate(times)
    )


def test_step_times_are_compared_with_the_first_quarter_of_their_file(tmp_path):
    found = said(read(tmp_path, a=steps(100, 100, 200, 100, 100, 100, 100, 300)), "step_time")
    assert len(found) == 6
    assert found[-1] == ("job", pytest.approx(math.log(3)))


def test_files_have_their_own_baselines(tmp_path):
    assert said(read(tmp_path, a=steps(100, 100), b=steps(900, 900)), "step_time") == [
        ("job", 0.0),
        ("job", 0.0),
    ]


@pytest.mark.parametrize(
    "start", ["> setting tensorboard ...\n", " loading distributed checkpoint from ./out at iteration 9\n"]
)
def test_the_first_step_after_a_start_is_no_measure(start, tmp_path):
    assert said(read(tmp_path, a=start + steps(900, 100, 100)), "step_time") == [("job", 0.0)]


def test_the_very_first_step_is_no_measure(tmp_path):
    assert said(read(tmp_path, a=steps(900, 100, 100, first=1)), "step_time") == [("job", 0.0)]


def test_a_gradient_norm_that_is_switched_off_is_no_measure(tmp_path):
    line = " iteration 5/ 9 | lm loss: 2.0E+00 | grad norm: 0.000 | number of nan iterations:   0 |\n"
    assert not said(read(tmp_path, a=line * 3), "grad_norm")


def test_bandwidth_is_compared_size_by_size(tmp_path):
    row = "  {}    1073741824     float     sum      -1    23011   186.65  {}      0\n"
    text = "".join(row.format(size, speed) for size, speed in [(1024, 1.0), (2048, 300.0), (1024, 1.0), (2048, 150.0)])
    assert said(read(tmp_path, a=text), "bandwidth") == [("job", 0.0), ("job", pytest.approx(math.log(0.5)))]


CALL = (
    "wk{host}:{pid}:812 [{dev}] NCCL INFO {op}: opCount {at} sendbuff 0x7f recvbuff 0x7f count {count} "
    "datatype 7 op 0 root 0 comm 0x7f5a [nranks={ranks}] stream 0x56\n"
)


def calls(*members, ranks=4):
    return "".join(
        CALL.format(host=at // 4, pid=812 + at, dev=at % 4, op=op, at="11c", count=count, ranks=ranks)
        for at, (op, count) in enumerate(members)
    )


def test_the_member_that_calls_something_else_is_named(tmp_path):
    same = ("AllGather", 480)
    assert said(read(tmp_path, a=calls(same, same, ("AllReduce", 1), same)), "collective_mismatch") == [
        ("local rank 2 on wk0", 1)
    ]
    assert said(read(tmp_path, a=calls(same, ("AllGather", 481), same, same)), "collective_mismatch") == [
        ("local rank 1 on wk0", 1)
    ]


@pytest.mark.parametrize(
    "text",
    [
        calls(*[("AllGather", 480)] * 4),
        calls(("AllGather", 480), ("AllGather", 480), ("AllReduce", 1), ("AllReduce", 1)),
        calls(("AllGather", 480), ("AllGather", 480), ("AllReduce", 1)),
        calls(*[("AllGather", 480)] * 4) + calls(*[("AllReduce", 1)] * 4),
    ],
    ids=["all alike", "half and half", "a member is missing", "two communicators count alike"],
)
def test_no_clear_minority_names_nobody(text, tmp_path):
    assert not said(read(tmp_path, a=text), "collective_mismatch")


def test_a_column_of_a_trace_is_a_rank(tmp_path):
    text = " | ".join(["AllGather: opCount 284 count 480"] * 5 + ["AllReduce: opCount 284 count 1"])
    assert said(read(tmp_path, a=text + "\n"), "collective_mismatch") == [("rank 5", 1)]


def test_a_rank_that_enqueued_less_than_the_others_lags(tmp_path):
    line = "[rank{}]: [PG 0 Rank {}] last enqueued NCCL work: {}, last completed NCCL work: 8.\n"
    behind = "".join(line.format(rank, rank, 7 if rank == 2 else 9) for rank in range(6))
    ahead = "".join(line.format(rank, rank, 12 if rank == 2 else 9) for rank in range(6))
    assert said(read(tmp_path, a=behind), "lagging_rank") == [("rank 2", 1)]
    assert not said(read(tmp_path, a=ahead), "lagging_rank")


TIMEOUT = (
    "[rank{rank}]:[E611 08:14:{second}.0 x.cpp:1] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
)


def test_the_first_to_complain_is_told_by_a_common_clock(tmp_path):
    result = read(tmp_path, a=TIMEOUT.format(rank=3, second=50), b=TIMEOUT.format(rank=9, second=40))
    assert said(result, "first_error") == [("rank 9", 1)]


def test_within_one_file_the_order_tells(tmp_path):
    text = "[rank{}]: RuntimeError: CUDA error: unspecified launch failure\n"
    assert said(read(tmp_path, a=text.format(3) + text.format(9)), "first_error") == [("rank 3", 1)]


def test_without_a_common_clock_nobody_was_first(tmp_path):
    text = "[rank{}]: RuntimeError: CUDA error: unspecified launch failure\n"
    assert not said(read(tmp_path, a=text.format(3), b=text.format(9)), "first_error")


WORK = (
    "[PG {group} Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=51, OpType={op}, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600033 milliseconds before timing out.\n"
)


def test_a_rank_that_timed_out_in_another_operation_of_one_group_is_named(tmp_path):
    text = "".join(WORK.format(group=0, rank=rank, op="BROADCAST" if rank == 2 else "ALLREDUCE") for rank in range(4))
    assert said(read(tmp_path, a=text), "collective_mismatch") == [("rank 2", 1)]


def test_operations_of_different_groups_are_not_compared(tmp_path):
    text = "".join(WORK.format(group=rank, rank=0, op="BROADCAST" if rank == 2 else "ALLREDUCE") for rank in range(4))
    assert not said(read(tmp_path, a=text), "collective_mismatch")
    assert not said(read(tmp_path, a=text.replace("PG 0 ", "").replace("PG 2 ", "")), "collective_mismatch")
