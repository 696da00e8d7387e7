"""Here lives what learning costs: decisions a second, where the time goes, and what other learners make of the same.

Decisions are those of training: played, judged and learned from.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from clusterorch.learning.memory import MEMORIES
from clusterorch.learning.ppo import Schedule
from clusterorch.learning.training import Run, Trainer, read_curve, use_threads

_PROCESSES = 2


class TrainingCosts(NamedTuple):
    """Of one kind of observation and memory, on one core."""

    decisions: float  # a second
    shares: dict[str, float]  # of the time: simulator, filter, acting, update, teacher


class OtherLearner(NamedTuple):
    """Decisions a second of a learner of others, on one core; None if it is not installed."""

    ppo: float | None
    recurrent: float | None


class _Clock:
    """Seconds by name, of calls that are made through it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def on(self, name: str, owner: Any, method: str) -> None:
        """From now on time a method of an object."""
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*given: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            found = inner(*given, **named)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
            return found

        setattr(owner, method, timed)


def training_costs(observe: str, memory: str, layout: str, *, instances: int, updates: int) -> TrainingCosts:
    """Train a little, and see where the time goes."""
    use_threads(1)
    run = Run(
        observe=observe, layouts=(layout,), memory=memory, instances=instances, evaluate_every=10**9,
        steps=10**9, schedule=Schedule(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(run, Path(folder))
        trainer.step()
        clock, cluster = _Clock(), trainer.clusters[0]
        clock.on("decide", cluster, "decide")
        clock.on("teacher", cluster, "lesson")
        clock.on("begin", cluster, "again")
        if cluster.episodes.believer is not None:
            for method in ("record", "believe"):
                clock.on("filter", cluster.episodes.believer, method)
        clock.on("learning", trainer, "improve")
        begun = time.perf_counter()
        for _ in range(updates):
            trainer.step()
        seconds = time.perf_counter() - begun
    spent = {"filter": 0.0} | clock.seconds
    parts = {
        "simulator": spent["decide"] + spent.get("begin", 0.0) - spent["filter"], "filter": spent["filter"],
        "teacher": spent["teacher"], "update": spent["learning"],
    }  # fmt: skip
    parts["acting"] = seconds - sum(parts.values())
    return TrainingCosts(updates * trainer.held / seconds, {name: part / seconds for name, part in parts.items()})


def all_costs(layout: str, *, instances: int, updates: int) -> dict[tuple[str, str], TrainingCosts]:
    """Of every memory with beliefs, and of attention without."""
    wanted = [("raw", "attention"), *(("belief", memory) for memory in MEMORIES)]
    return {pair: training_costs(*pair, layout, instances=instances, updates=updates) for pair in wanted}


def two_processes(observe: str, layout: str, *, instances: int, updates: int) -> float:
    """Decisions a second of two processes that learn together, a core each: the median of their updates."""
    steps = instances * Schedule().length * updates
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_PROCESSES}", "-m",
            "clusterorch", "train", "--out", folder, "--observe", observe, "--layout", layout, "--steps", str(steps),
            "--instances", str(instances), "--evaluated", str(_PROCESSES),
        ]  # fmt: skip
        alone = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, capture_output=True, env=alone)
        return statistics.median(one["per_second"] for one in read_curve(Path(folder))[1:])


def others(observe: str, layout: str, *, instances: int, length: int, segments: int) -> OtherLearner:
    """PPO of Stable-Baselines3 and RecurrentPPO of sb3-contrib on the same environment, with as many epochs."""
    use_threads(1)
    try:
        import sb3_contrib
        import stable_baselines3
    except ModuleNotFoundError:
        return OtherLearner(None, None)
    found = []
    for learner, policy in (
        (stable_baselines3.PPO, "MultiInputPolicy"), (sb3_contrib.RecurrentPPO, "MultiInputLstmPolicy"),
    ):  # fmt: skip
        made = [lambda i=i: _one(layout, observe, i) for i in range(instances)]
        many = stable_baselines3.common.vec_env.DummyVecEnv(made)
        batch = instances * length // Schedule().minibatches
        agent = learner(
            policy, many, n_steps=length, batch_size=batch, n_epochs=Schedule().epochs, device="cpu", seed=0,
        )  # fmt: skip
        agent.learn(instances * length)
        begun = time.perf_counter()
        agent.learn(instances * length * segments, reset_num_timesteps=False)
        found.append(instances * length * segments / (time.perf_counter() - begun))
        many.close()
    return OtherLearner(*found)


def _one(layout: str, observe: str, number: int) -> gym.Env[Any, Any]:
    return gym.make("clusterorch/GPUCluster-v0", layout=layout, observe=observe, first_instance=number)
