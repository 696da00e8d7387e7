"""A team of processes learns what one process with the same instances learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from clusterorch.errors import InvalidAgent
from clusterorch.learning.agents import CONFIG, WEIGHTS, read_tensors
from clusterorch.learning.ppo import Schedule
from clusterorch.learning.team import Team
from clusterorch.learning.training import Run, Trainer

RUN = Run(
    layouts=("1x2",), steps=4 * 8 * 4, instances=4, hours=0.1, width=32, evaluate_every=4, evaluated=2,
    save_every=2, schedule=Schedule(length=8, epochs=2, minibatches=2, rate=2e-3),
)  # fmt: skip


def trained_together(run, folder, processes=2):
    """Train as a user does who has torchrun."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(asdict(run)))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m",
        "clusterorch", "train", "--out", str(folder / "out"), "--config", str(folder / "run.json"),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "out"


def test_two_processes_learn_what_one_learns(tmp_path):
    torch.set_num_threads(1)
    trainer = Trainer(RUN, tmp_path / "alone")
    begun = {name: value.clone() for name, value in trainer.policy.state_dict().items()}
    trainer.go(lambda told: None)
    together = trained_together(RUN, tmp_path / "together")
    mine, theirs = (read_tensors(out / "last" / WEIGHTS) for out in (trainer.folder, together))
    moved = max(float((value - begun[name]).abs().max()) for name, value in mine.items())
    apart = max(float((value - theirs[name]).abs().max()) for name, value in mine.items())
    assert moved > 1e-2
    assert apart < 1e-5
    told = [json.loads((out / "last" / CONFIG).read_text()) for out in (trainer.folder, together)]
    assert [one["processes"] for one in told] == [1, 2]
    assert told[0]["decisions"] == told[1]["decisions"] == RUN.steps
    kept = [json.loads((out / "best" / CONFIG).read_text())["shares"] for out in (trainer.folder, together)]
    assert kept[0] == pytest.approx(kept[1], abs=1e-6)
    with pytest.raises(InvalidAgent, match="written by 2 processes, and these are 1"):
        Trainer.resume(together)
    # Each process finds in the checkpoint what its own instances were at.
    for rank in range(2):
        half = Trainer.resume(together, Team(rank, 2))
        episodes = trainer.clusters[0].episodes
        mine_of_it = slice(2 * rank, 2 * rank + 2)
        assert (half.clusters[0].episodes.world.state.clock == episodes.world.state.clock[mine_of_it]).all()
        assert (half.groups[0].begun == trainer.groups[0].begun[mine_of_it]).all()


def test_instances_are_shared_evenly():
    assert [Team(rank, 3).share(6) for rank in range(3)] == [slice(0, 2), slice(2, 4), slice(4, 6)]
    with pytest.raises(InvalidAgent, match="5 instances for 2 processes: give a multiple of 2"):
        Team(0, 2).share(5)


def test_moves_are_drawn_alike_however_the_instances_are_shared(tmp_path):
    whole = Trainer(replace(RUN, seed=3), tmp_path / "whole")
    halves = [Trainer(replace(RUN, seed=3), tmp_path / str(rank), Team(rank, 2)) for rank in range(2)]
    for number, group in enumerate(whole.groups):
        parts = [half.groups[number] for half in halves]
        seen = [one.instances.inputs(critic=True) for one in (group, *parts)]
        for name in ("nodes", "job", "moves", "masks"):
            together = torch.cat([getattr(one, name) for one in seen[1:]])
            assert torch.equal(together, getattr(seen[0], name))
