# ruff: noqa: E501
"""What storage, loaders and schedulers say, invented for the test, and lines that only look alike."""

import pytest

from clusterorch.telemetry.copies import checkpoint_name
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

MINE = ("training", "checkpoints", "loaders", "schedulers")
FORMATS = load_formats([file for file in shipped_formats() if file.stem in MINE])


def said(text, signal, tmp_path):
    (tmp_path / "some.log").write_text(text, encoding="utf-8")
    result = read_paths([tmp_path], FORMATS)
    return [(reading.value, str(reading.entity)) for reading in result.readings if reading.signal == signal]


LINES = [
    # copies
    ("[titan] 2026-01-18 16:04:46,338 - root - INFO - Finished saving the checkpoint in 27.11 seconds.", "copy_saved", "job"),
    ("I0101 10:11:12.123456 812 async_checkpointer.py:412] Finished asynchronous save (blocking + background) in 192.92 seconds to /ck/99999", "copy_saved", "job"),
    ("[NeMo I 2025-05-22 20:09:41 model_checkpoint:522] Async checkpoint save for step 19 finalized successfully.", "copy_saved", "job"),
    ("2021-05-01 10:11:12 | INFO | fairseq.checkpoint_utils | Saved checkpoint ck/checkpoint_1_1000.pt (epoch 1 @ 1000 updates, score None) (writing took 12.3 seconds)", "copy_saved", "job"),
    ("[rank0]: Gathering full state dict on rank 0 ...", "single_rank_write", "rank 0"),
    ("INFO:torchtune.utils: Saving checkpoint. This may take some time. Retrieving full model state dict...", "single_rank_write", "rank 0"),
    ("[Rank 4] Consolidating shards into 12 files", "single_rank_write", "rank 4"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/lus/run/iter_0002000/__3_1.distcp'", "load_failed", "checkpoint iter_0002000"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "load_failed", "checkpoint ?"),
    ("Loading checkpoint from s3://b/run/step-812\n_pickle.UnpicklingError: pickle data was truncated", "load_failed", "checkpoint step-812"),
    ("ERROR: checkpoint /ck/run/step-500 is corrupt: 3 of 64 shards missing", "load_failed", "checkpoint ?"),
    ("ValueError: Checkpoint at /ck/run/400 not found.", "load_failed", "checkpoint 400"),
    # room
    ("/dev/nvme0n1      3.5T  3.5T  2.1G 100% /scratch", "storage_full", "storage /scratch"),
    ("10.0.0.3@tcp:/fs1   18200000 17900000   300000   99% /fsx", "storage_full", "storage /fsx"),
    ("scratch-OST0003_UUID          55.2T       54.6T      612.0G  99% /scratch[OST:3]", "storage_full", "storage /scratch[OST:3]"),
    ("          /home  1024.1G*   1024G   1100G  6d23h  40112 0 0 -", "storage_full", "storage /home"),
    # loaders and hosts
    ("W0303 root Data loading is taking a long time: 20.0 seconds. Waiting for 256 items.", "loader_starved", "rank ?"),
    ("[rank5]: Data loader stalled for 61.2s, queue_size=0", "loader_starved", "rank 5"),
    ("step 40 | data_loading(%): 71.3 | mfu 8%", "loader_starved", "rank ?"),
    ("Train: 3 [ 450/1251 ( 36%)]  Loss: 4.812 (5.01)  Time: 2.500s, 200.12/s  (2.520s, 169.01/s)  LR: 1.000e-03  Data: 2.112 (2.020)", "loader_starved", "rank ?"),
    ("[rank0]:Grouping texts in chunks of 4096 (num_proc=32):   8%|#    | 8000/100000 [01:02<11:01, 139.1 examples/s]", "host_work", "rank 0"),
    ("Map:  41%|####      | 41000/100000 [12:01<17:19, 56.77 examples/s]", "host_work", "rank 0"),
    (" > elasped time to build and save shuffle-idx mapping (seconds): 412.120012", "host_work", "rank 0"),
    ("| decoder.layers.3.mlp.linear_fc1.weight | [4096, 1024] | ok |", "host_work", "rank 0"),
    ("[2025-02-03 10:11:12] rank 2: verifying weights of 64 files", "host_work", "rank 2"),
    ("STRAGGLER DETECTION WARNING: Some GPUs performance dropped. Affected ranks: {StragglerId(rank=7, node='n1')}", "straggler_named", "rank 7"),
    ("  Rank=31 Node=n04 Score=0.62", "straggler_named", "rank 31 on n04"),
    ("[2024-10-23 01:29:30] [INFO] | MnRtt/Rnk: 1446.49ms/13 | MxRtt/Rnk: 2570.32ms/30 | MnPwr/Rnk: 617923.00W/0", "straggler_named", "rank 30"),
    ("[monitor] slow rank detected: 17", "straggler_named", "rank 17"),
    # schedulers
    ("[2025-03-02T10:11:12.120] update_node: node gpu-204 state set to DRAINED", "node_down", "node gpu-204"),
    ("Killing JobId=812 on failed node gpu-204", "node_down", "node gpu-204"),
    ("NodeName=gx9 Arch=x86_64 CoresPerSocket=56\n   State=DOWN*+DRAIN ThreadsPerCore=2 TmpDisk=0", "node_down", "node gx9"),
    ("Not responding       slurm     2025-10-19T12:56:19 c023", "node_down", "node c023"),
    ("ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: 5ad7, ip: 10.1.3.9", "node_down", "node ?"),
    ("p4d-17   Ready,SchedulingDisabled   worker   91d   v1.30.2", "node_down", "node p4d-17"),
    ("srun: job 91 queued and waiting for resources", "queue_notice", "job"),
    ("slurmstepd: error: *** JOB 15 ON n2 CANCELLED AT 2026-06-11T17:03:03 DUE TO PREEMPTION ***", "queue_notice", "job"),
    ("0/12 nodes are available: 12 Insufficient nvidia.com/gpu.", "queue_notice", "job"),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "clean_end", "job"),
    ("91203              run-7        gpu      team1        128  COMPLETED      0:0", "clean_end", "job"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "signal", "entity"), LINES, ids=range(len(LINES)))
def test_a_line_names_the_signal_and_its_entity(text, signal, entity, tmp_path):
    assert (1, entity) in said(text + "\n", signal, tmp_path)


ALIKE = [
    ("saved checkpoint interval: 500", "copy_saved"),
    ("dcp save failed step=2000 elapsed=282.1s; keeping step_00001500", "copy_saved"),
    ("will resume from the last saved checkpoint", "copy_saved"),
    ("[save.py:94] >> [Rank 3] Shard write took 2.81s", "single_rank_write"),
    ("[Rank 0] Consolidation finished in 48.1s", "single_rank_write"),
    ("Merging datasets train and extra", "single_rank_write"),
    ("WARNING: could not find the metadata file /ck/latest_checkpointed_iteration.txt", "load_failed"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/etc/hostlist'", "load_failed"),
    ("RuntimeError: [enforce fail at inline_container.cc:668] . unexpected pos 704 vs 598", "load_failed"),
    ("10.1.3.9@tcp:/abcd1bev     4.5T  4.1T  459G  90% /fsx", "storage_full"),
    ("/dev/loop3          64M   64M     0 100% /snap/core20/2015", "storage_full"),
    ("Loading: 100% /home/model.bin", "storage_full"),
    ("The 'train_dataloader' does not have many workers which may be a bottleneck.", "loader_starved"),
    ("step 40 | data_loading(%): 1.3 | mfu 41%", "loader_starved"),
    ("Train: 3 [ 450/1251 ( 36%)]  Loss: 4.812  Time: 0.500s, 2000.12/s (0.5s)  Data: 0.012 (0.020)", "loader_starved"),
    ("waiting for rank 3 to join", "loader_starved"),
    ("| grad_norm     | 0.0411    |", "host_work"),
    ("Epoch 3:  41%|####      | 512/1250 [06:02<08:41,  1.41it/s, train_loss=0.4]", "host_work"),
    ("generating config report", "straggler_named"),
    ("Straggler report: none found", "straggler_named"),
    ("  Rank=76 Node=h100-001-253-012 Score=0.98", "straggler_named"),
    ("| MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | MnPwr/Rnk: 601796W/8", "straggler_named"),
    ("[2025-03-02T10:41:12.120] node gpu-204 returned to service", "node_down"),
    ("NodeName=gx9 Arch=x86_64\n   State=MIXED ThreadsPerCore=2 TmpDisk=0", "node_down"),
    ("gpu-17   Ready   worker   91d   v1.30.2", "node_down"),
    ("srun: error: gx-iam21: task 20: Exited with exit code 1", "node_down"),
    ("#SBATCH --requeue", "queue_notice"),
    ("slurmstepd: error: *** STEP 640118.0 ON n7 CANCELLED AT 2024-05-03T11:20:17 ***", "clean_end"),
]


@pytest.mark.parametrize(("text", "signal"), ALIKE, ids=range(len(ALIKE)))
def test_a_line_that_only_looks_alike_says_nothing(text, signal, tmp_path):
    assert said(text + "\n", signal, tmp_path) == []


LISTINGS = [
    ("".join(f"-rw-r--r-- 1 u g {size} Oct  2 08:1{i} iter_{i:07d}.pt\n" for i, size in enumerate([900, 905, 300, 902])), "checkpoint iter_0000002.pt"),
    ("4.5G\t/ck/iter_0010000\n4.5G\t/ck/iter_0020000\n812M\t/ck/iter_0030000\n", "checkpoint iter_0030000"),
    ("".join(f"  {size}  2025-10-02T08:11:07Z  gs://b/run/step-{step}/opt.pt\n" for step, size in ((100, 4000000), (200, 4000100), (300, 90))), "checkpoint step-300"),
    ("".join(f"-rw-r--r-- 1 u g {size}G Oct  2 2025 /ck/global_step9/zero_pp_rank_{r}_mp_rank_00_optim_states.pt\n" for r, size in enumerate(["4.1", "4.1", "4.1", "1.2"])), "checkpoint global_step9"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "entity"), LISTINGS, ids=range(len(LISTINGS)))
def test_a_copy_that_was_cut_short_is_smaller_than_its_siblings(text, entity, tmp_path):
    assert said(text, "copy_undersized", tmp_path) == [(1, entity)]


@pytest.mark.parametrize(
    "text",
    [
        # the last piece of a state that is cut at a size
        "".join(f"-rw-r--r-- 1 u g {s}G Oct  2 08:11 model-0000{i}-of-00004.safetensors\n" for i, s in ((1, 4.9), (2, 4.9), (3, 4.9), (4, 1.1))),
        # files of other kinds
        "4.5G\t/ck/iter_0010000\n12K\t/ck/iter_0010000.log\n1.1M\t/ck/tokenizer.model\n",
        # members that differ by nature
        "".join(f"-rw-r--r-- 1 u g {s} Oct  2 08:11 __{i}_0.distcp\n" for i, s in enumerate([900, 400, 120, 700, 250])),
        # two that are near each other
        "-rw-r--r-- 1 u g 900 Oct  2 08:11 step-1.ckpt\n-rw-r--r-- 1 u g 520 Oct  2 08:11 step-2.ckpt\n",
    ],
)  # fmt: skip
def test_other_differences_of_size_say_nothing(text, tmp_path):
    assert said(text, "copy_undersized", tmp_path) == []


def test_save_times_are_held_to_their_own_level(tmp_path):
    text = "".join(f"[titan] Finished saving the checkpoint in {s} seconds.\n" for s in (20.0, 20.0, 80.0))
    values = [value for value, _ in said(text, "save_time", tmp_path)]
    assert values == pytest.approx([0.0, 1.386], abs=0.01)


@pytest.mark.parametrize(
    ("path", "name"), [("", None), ("///", None), ("a/b", "b"), ("/c/step_12/x.pt", "step_12"), ("x" * 900, "x" * 128)]
)
def test_a_copy_is_called_by_its_step(path, name):
    assert checkpoint_name(path) == name
