# ruff: noqa: E501
"""Logs of training programs as they print them, invented for the test, and lines that only look alike."""

import math

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

MINE = ("training", "checkpoints", "loaders", "schedulers")
FORMATS = load_formats([file for file in shipped_formats() if file.stem in MINE])


def read(text, tmp_path, name="train.log"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_paths([tmp_path], FORMATS)


def said(result, signal):
    return [(reading.value, str(reading.entity)) for reading in result.readings if reading.signal == signal]


PROGRAMS = {
    "megatron": """
 [2025-11-02 01:02:03] iteration      100/   50000 | consumed samples:       102400 | elapsed time per iteration (ms): 5010.2 | throughput per GPU (TFLOP/s/GPU): 412.0 | learning rate: 1.0E-04 | global batch size:  1024 | lm loss: 2.812000E+00 | loss scale: 1.0 | grad norm: 0.512 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2025-11-02 01:02:08] iteration      101/   50000 | consumed samples:       103424 | elapsed time per iteration (ms): 10020.4 | throughput per GPU (TFLOP/s/GPU): 412.0 | learning rate: 1.0E-04 | global batch size:  1024 | lm loss: 2.801000E+00 | loss scale: 1.0 | grad norm: 1.024 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
    "torchtitan": """
[rank0]:\x1b[31m[titan] 2026-01-18 16:04:46,338 - root - INFO - step: 10  \x1b[32mloss:  3.2440  \x1b[38;2;180;60;0mgrad_norm:  0.8000  \x1b[34mmemory: 60.11GiB(75.02%)  \x1b[36mtps: 8,000  tflops: 401.2  \x1b[35mmfu: 40.57%\x1b[39m
[rank0]:\x1b[31m[titan] 2026-01-18 16:05:06,338 - root - INFO - step: 20  \x1b[32mloss:  3.1440  \x1b[38;2;180;60;0mgrad_norm:  1.6000  \x1b[34mmemory: 60.11GiB(75.02%)  \x1b[36mtps: 4,000  tflops: 401.2  \x1b[35mmfu: 40.57%\x1b[39m
""",
    "nemo": """
0: Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: 28 | reduced_train_loss: 2.778 | train_step_timing in s: 0.189 | consumed_samples: 928 | val_loss: 2.861
0: Training epoch 0, iteration 29/99 | lr: 5.8e-06 | global_batch_size: 32 | global_step: 29 | reduced_train_loss: 2.760 | train_step_timing in s: 0.378 | consumed_samples: 960 | val_loss: 2.861
""",
    "maxtext": """
completed step: 12, seconds: 8.000, TFLOP/s/device: 401.2, Tokens/s/device: 9120.1, total_weights: 1048576, loss: 6.120
completed step: 13, seconds: 16.000, TFLOP/s/device: 201.2, Tokens/s/device: 4560.1, total_weights: 1048576, loss: 6.100
""",
    "megatron-deepspeed": """
steps: 100 loss: 2.3121 iter time (s): 5.000 samples/sec: 400.010
steps: 110 loss: 2.3001 iter time (s): 10.000 samples/sec: 200.010
""",
    "fairseq": """
2021-05-01 10:11:12 | INFO | train_inner | epoch 001:    100 / 1250 loss=9.2, ppl=588.1, wps=20000, ups=1.02, wpb=12103, bsz=512, num_updates=100, lr=1e-05, gnorm=1.2, clip=0, loss_scale=128, train_wall=97, wall=110
2021-05-01 10:13:12 | INFO | train_inner | epoch 001:    200 / 1250 loss=9.1, ppl=548.7, wps=10000, ups=0.51, wpb=12103, bsz=512, num_updates=200, lr=2e-05, gnorm=2.4, clip=0, loss_scale=128, train_wall=97, wall=210
""",
    "metaseq": """
2022-06-01 10:11:12 | INFO | train_inner | {"epoch": 1, "update": 0.42, "loss": "3.221", "ppl": "9.1", "wps": "48000", "ups": "0.2", "num_updates": "8841", "lr": "0.0002", "gnorm": "0.4", "loss_scale": "4"}
2022-06-01 10:11:42 | INFO | train_inner | {"epoch": 1, "update": 0.43, "loss": "3.211", "ppl": "9.0", "wps": "24000", "ups": "0.1", "num_updates": "8842", "lr": "0.0002", "gnorm": "0.8", "loss_scale": "4"}
""",
    "nanogpt": """
iter 100: loss 3.2011, time 120.00ms, mfu 12.31%
iter 110: loss 3.1800, time 240.00ms, mfu 6.31%
""",
    "lightning": """
Epoch 3:  41%|####      | 512/1250 [06:02<08:41,  0.50it/s, v_num=7, train_loss=0.412]
Epoch 3:  41%|####      | 513/1250 [06:04<08:41,  0.25it/s, v_num=7, train_loss=0.409]
""",
    "levanter": """
I20260303 23:38:40.902 progress.py:51] Progress on:train 120it/10.0kit rate:2.0s/it remaining:6:18:44 elapsed:04:36 postfix:loss=3.12
I20260303 23:39:40.902 progress.py:51] Progress on:train 150it/10.0kit rate:4.0s/it remaining:9:18:44 elapsed:05:36 postfix:loss=3.10
""",
    "mmengine": """
2023/05/02 10:11:12 - mmengine - INFO - Epoch(train)  [3][ 450/5005]  lr: 1.0000e-02  eta: 1:02:11  time: 0.5000  data_time: 0.0120  memory: 4021  loss: 4.8123
2023/05/02 10:12:12 - mmengine - INFO - Epoch(train)  [3][ 500/5005]  lr: 1.0000e-02  eta: 1:02:11  time: 1.0000  data_time: 0.0120  memory: 4021  loss: 4.8023
""",
    "timm": """
Train: 3 [ 450/1251 ( 36%)]  Loss: 4.812 (5.01)  Time: 0.500s, 2000.12/s  (0.520s, 1969.01/s)  LR: 1.000e-03  Data: 0.012 (0.020)
Train: 3 [ 500/1251 ( 40%)]  Loss: 4.802 (5.00)  Time: 1.000s, 1000.12/s  (0.520s, 1969.01/s)  LR: 1.000e-03  Data: 0.012 (0.020)
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_says_that_it_moves_how_fast_and_with_which_loss(program, tmp_path):
    result = read(PROGRAMS[program], tmp_path)
    assert result.coverage.unrecognised == 0, result.coverage.samples
    assert said(result, "progress") == [(1, "job")] * 2
    assert said(result, "loss") == [("finite", "job")] * 2
    (step_time,) = [value for value, _ in said(result, "step_time")]
    assert math.isclose(step_time, math.log(2), abs_tol=0.02)
    (level,) = [value for value, _ in said(result, "loss_level")]
    assert abs(level) < 0.04
    for value, _ in said(result, "grad_norm"):
        assert math.isclose(value, math.log(2), abs_tol=0.01)
    assert {mark.phase for mark in result.phases} == {"step"}


@pytest.mark.parametrize(
    ("line", "signal", "value", "entity"),
    [
        ("[titan] 2026-01-18 16:04:46,338 - root - INFO - step: 12  loss:      nan  grad_norm:      nan", "loss", "nan", "job"),
        ('{"epoch": 1, "loss": "nan", "ppl": "nan", "num_updates": "8841", "gnorm": "nan"}', "loss", "nan", "job"),
        ("Epoch 1:  10%|#  | 12/120 [00:12<01:48,  1.00s/it, loss=nan]", "loss", "nan", "job"),
        ("ERROR - Non-finite loss at step 812, aborting", "loss", "nan", "job"),
        ("[rank6]: AssertionError: Rank 6: found NaN in local grad norm for bucket #3 in backward pass before data-parallel communication collective. Device: 6, node: w-1", "nan_named", 1, "rank 6 on w-1"),
        ("[2025-01-01 10:00:00,100] [INFO] [stage3.py:2080] rank 9 detected overflow nan in tensor 3:1 shape torch.Size([4])", "nan_named", 1, "rank 9"),
        ("RuntimeError: NaN found in activations of block 11 on rank 21 at iteration 90", "nan_named", 1, "rank 21"),
        ("[rank4]: FloatingPointError: invalid value (nan) encountered in jit(train_step)", "nan_named", 1, "rank 4"),
        ("2022-06-01 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0", "overflow_skip", 1, "job"),
        ("Found overflow. Skip step", "overflow_skip", 1, "job"),
        ("W0602 trainer.py:88] skipping optimizer step 91 because of non-finite gradients", "overflow_skip", 1, "job"),
        ('{"loss": "3.2", "num_updates": "8", "loss_scale": "0.0625"}', "loss_scale", "at_floor", "job"),
        ("[exiting program after receiving SIGTERM.] datetime: 2025-01-02 10:11:12", "clean_end", 1, "job"),
        ("2022-06-01 10:11:12 | INFO | metaseq_cli.train | done training in 90211.2 seconds", "clean_end", 1, "job"),
        ("100 epochs completed in 1.211 hours.", "clean_end", 1, "job"),
    ],
)  # fmt: skip
def test_lines_of_other_programs(line, signal, value, entity, tmp_path):
    assert (value, entity) in said(read(line + "\n", tmp_path), signal)


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ("iteration 8 | number of skipped iterations:   0 | number of nan iterations:   0 |", "overflow_skip"),
        (" iteration  8/ 90 | lm loss: 1.1E+00 | grad norm: 0.000 | number of nan iterations:   0 |", "nan_named"),
        ("valid loss at iteration 900 | lm loss value: nan | lm loss PPL: nan |", "loss"),
        ("[rank0]: nothing with nanoseconds to see in rank 3 timings", "nan_named"),
        ("checking gradients for NaN is enabled (check_for_nan_in_loss_and_grad)", "loss"),
        ("rank 3: no NaN found in 2048 tensors", "nan_named"),
        (" iteration  8/ 90 | lm loss: 1.1E+00 | loss scale: 1.0 | number of nan iterations:   0 |", "loss_scale"),
        ('{"loss": "3.2", "num_updates": "8", "loss_scale": "1"}', "loss_scale"),
        ("Map (num_proc=8):  12%|#  | 1200/10000 [00:12<01:48, 100.00 examples/s]", "progress"),
        ("Loading checkpoint shards:  33%|###3      | 1/3 [00:05<00:11,  5.81s/it]", "progress"),
        ("Capturing batch sizes (bs=1 avail_mem=12.1 GB):  41%|####  | 212/512 [01:02<01:41,  7.31it/s]", "progress"),
        ("Validation DataLoader 0:  41%|####      | 512/1250 [06:02<08:41,  1.41it/s]", "progress"),
        ("saving at the end of training completed steps only", "clean_end"),
        ("resume when training is not completed", "clean_end"),
    ],
)
def test_lines_that_only_look_alike(line, signal, tmp_path):
    assert said(read(line + "\n", tmp_path), signal) == []


def megatron(step, loss):
    return f" iteration {step:8d}/   90000 | consumed samples: 8 | lm loss: {loss:.6E} | loss scale: 1.0 |\n"


def trainer(epoch, loss):
    return f"{{'loss': {loss:.4f}, 'grad_norm': 0.9, 'learning_rate': 9.8e-06, 'epoch': {epoch:.2f}}}\n"


def titan(step, loss):
    return f"[titan] step: {step:2d}  loss: {loss:8.5f}  grad_norm:  0.8  memory: 9.1GiB(12.1%)  tps: 7,282\n"


CALM = [2.21, 2.2, 2.22, 2.19, 2.2]


@pytest.mark.parametrize(("line", "load"), [
    (megatron, " loading distributed checkpoint from /ck/a at iteration 105\n"),
    (titan, "[titan] Loading the checkpoint at step 105.\n"),
    (trainer, "Continuing training from checkpoint, will skip to saved global_step\n"),
])  # fmt: skip
@pytest.mark.parametrize("apart", [False, True])
def test_a_loss_far_above_the_last_ones_before_a_load_is_a_jump(line, load, apart, tmp_path):
    before = "".join(line(101 + i, loss) for i, loss in enumerate(CALM))
    after = load + "".join(line(106 + i, loss) for i, loss in enumerate([7.9, 7.1, 6.2]))
    if apart:
        read(before, tmp_path, "b.log")
        result = read(after, tmp_path, "a.log")  # the later file is read first
    else:
        result = read(before + after, tmp_path)
    assert said(result, "loss_jump") == [(1, "job")]


@pytest.mark.parametrize(
    "text",
    [
        # no load between
        "".join(megatron(101 + i, loss) for i, loss in enumerate([*CALM, 7.9, 7.1])),
        # a load that continues where it was
        "".join(megatron(101 + i, x) for i, x in enumerate(CALM))
        + " loading checkpoint from /ck/a at iteration 105\n"
        + "".join(megatron(106 + i, x) for i, x in enumerate(CALM)),
        # one odd batch after the load
        "".join(megatron(101 + i, x) for i, x in enumerate(CALM))
        + " loading checkpoint from /ck/a at iteration 105\n"
        + "".join(megatron(106 + i, x) for i, x in enumerate([4.9, 2.2, 2.19, 2.2])),
        # another model begins
        "".join(megatron(101 + i, x) for i, x in enumerate(CALM))
        + " loading checkpoint from /ck/base at iteration 0\n"
        + "".join(megatron(1 + i, x) for i, x in enumerate([10.9, 10.2, 9.9])),
        # a fresh run falls by itself
        "Loading model from /hub/base.\n" + "".join(megatron(1 + i, 10.0 / (1 + i)) for i in range(20)),
    ],
)
def test_other_rises_of_the_loss_are_no_jump(text, tmp_path):
    assert said(read(text, tmp_path), "loss_jump") == []


def test_without_a_run_before_the_losses_after_are_the_measure(tmp_path):
    losses = [9.8, 9.1, 6.0, 4.1, 3.0, 2.4, 2.2, 2.2, 2.2, 2.2, 2.2, 2.2]
    text = " loading checkpoint from /ck/a at iteration 105\n"
    text += "".join(megatron(106 + i, loss) for i, loss in enumerate(losses))
    assert said(read(text, tmp_path), "loss_jump") == [(1, "job")]


def test_the_end_of_a_save_begins_none(tmp_path):
    begun = "[titan] 2025-05-21 17:49:12,100 - root - INFO - Saving the checkpoint (or staging if async is enabled).\n"
    ended = "[titan] 2025-05-21 17:50:12,100 - root - INFO - Finished saving the checkpoint in 49.27 seconds.\n"
    assert [mark.phase for mark in read(begun + ended, tmp_path).phases] == ["save", "step"]
    assert [mark.phase for mark in read(ended, tmp_path).phases] == ["step"]


def test_the_line_that_ends_a_phase_is_its_last(tmp_path):
    step = "step: 20  loss:  3.14400  grad_norm:  1.6000  memory: 60.11GiB(75.02%)  tps: 4,000  tflops: 401.2  mfu: 40.57%\n"
    saved = "[titan] 2025-05-21 17:50:12,100 - root - INFO - Finished saving the checkpoint in 49.27 seconds.\n"
    begun = "[titan] 2025-05-21 17:49:12,100 - root - INFO - Saving the checkpoint (or staging if async is enabled).\n"
    result = read(begun + saved + step, tmp_path)
    orders = {reading.signal: reading.order for reading in result.readings}
    back = next(mark for mark in result.phases if mark.phase == "step")
    assert orders["copy_saved"] < back.order <= orders["progress"]
