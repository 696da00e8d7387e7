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


def trained_by(processes, run, folder, *more):
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(asdict(run)))
    python = [sys.executable, "-m"]
    if processes > 1:
        python += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    given = more or ("--config", str(folder / "run.json"))
    command = [*python, "clusterorch", "train", "--out", str(folder / "out"), *given]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "out"


def test_two_processes_learn_what_one_learns_and_go_on_after_a_stop(tmp_path):
    alone, together = (trained_by(n, RUN, tmp_path / str(n)) for n in (1, 2))
    mine, theirs = (read_tensors(out / "last" / WEIGHTS) for out in (alone, together))
    begun = Trainer(RUN, tmp_path / "new").policy.state_dict()
    moved = max(float((value - begun[name]).abs().max()) for name, value in mine.items())
    apart = max(float((value - theirs[name]).abs().max()) for name, value in mine.items())
    assert moved > 1e-2
    assert apart < 1e-5
    told = [json.loads((out / "last" / CONFIG).read_text()) for out in (alone, together)]
    assert [one["processes"] for one in told] == [1, 2]
    assert told[0]["decisions"] == told[1]["decisions"] == RUN.steps
    assert json.loads((alone / "best" / CONFIG).read_text())["shares"] == pytest.approx(
        json.loads((together / "best" / CONFIG).read_text())["shares"], abs=1e-6
    )
    with pytest.raises(InvalidAgent, match="written by 2 processes, and these are 1"):
        Trainer.resume(together)
    again = trained_by(2, RUN, tmp_path / "2", "--resume")
    assert read_tensors(again / "last" / WEIGHTS).keys() == mine.keys()


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
