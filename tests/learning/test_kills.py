"""A run that is killed at any moment, again and again, goes on to the same weights."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from clusterorch.learning.agents import WEIGHTS, load_agent, newest
from clusterorch.learning.ppo import Schedule
from clusterorch.learning.training import Run, Trainer, read_curve

RUN = Run(
    layouts=("1x2",), steps=4 * 8 * 400, instances=4, hours=0.1, width=32, evaluate_every=10**9, save_every=1,
    evaluated=2, schedule=Schedule(length=8, epochs=1, minibatches=1),
)  # fmt: skip


def live(run, folder, begun):
    """Train to the end in a process of its own.  Returns its number; what is worked out once is inherited."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1)
        trainer = Trainer.resume(folder) if newest(folder / "last").exists() else Trainer(run, folder)
        begun.touch()
        trainer.go(lambda told: None)
        status = 0
    finally:
        os._exit(status)


def killed_after(run, folder, begun, seconds):
    """Whether a life ended by being killed, so many seconds after it had begun to train."""
    begun.unlink(missing_ok=True)
    child = live(run, folder, begun)
    while not begun.exists():
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            raise AssertionError("the run ended before it began to train")
        time.sleep(0.002)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def hash_of(folder):
    return hashlib.sha256((newest(folder / "last") / WEIGHTS).read_bytes()).hexdigest()


def check(tmp_path, run, kills, longest):
    whole, killed, begun = tmp_path / "whole", tmp_path / "killed", tmp_path / "begun"
    Trainer(replace(run, steps=1), tmp_path / "first").step()  # works out what the lives inherit
    assert os.waitpid(live(run, whole, begun), 0)[1] == 0
    rng, count = np.random.default_rng(0), 0
    for seconds in rng.uniform(0.0, longest, size=kills):
        count += killed_after(run, killed, begun, float(seconds))
        if (killed / "best").exists():
            load_agent(killed / "best")
    assert count == kills, "the run came to its end between the kills: make it longer"
    assert os.waitpid(live(run, killed, begun), 0)[1] == 0
    assert hash_of(killed) == hash_of(whole)
    updates = [one["update"] for one in read_curve(killed)]
    assert updates == list(range(1, len(updates) + 1))
    assert len(updates) == -(-run.steps // (run.instances * run.schedule.length))
    assert {path.name for path in killed.iterdir()} == {"best", "final", "last", "curve.jsonl"}


def test_a_run_that_is_killed_goes_on_to_the_same_weights(tmp_path):
    check(tmp_path, replace(RUN, steps=4 * 8 * 60), kills=4, longest=0.5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_saves_the_update_it_is_at(tmp_path, number):
    run, begun = replace(RUN, save_every=10**9), tmp_path / "begun"
    Trainer(replace(run, steps=1), tmp_path / "first").step()
    child = live(run, tmp_path / "stopped", begun)
    while len(read_curve(tmp_path / "stopped")) < 3:
        time.sleep(0.01)
    os.kill(child, number)
    assert os.waitpid(child, 0)[1] == 0
    again = Trainer.resume(tmp_path / "stopped")
    assert 3 <= again.update == len(read_curve(tmp_path / "stopped")) < again.updates


@pytest.mark.long
def test_a_run_that_is_killed_at_thirty_moments_goes_on_to_the_same_weights(tmp_path):
    check(tmp_path, RUN, kills=30, longest=1.2)
