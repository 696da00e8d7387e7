"""Here lives what a step of the environment costs, beside Gymnasium's own smallest environment in the same run."""

from __future__ import annotations

import time
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from clusterorch.environment.episodes import Episodes, Settings
from clusterorch.environment.making import model_of
from clusterorch.environment.spaces import observation_space, observe
from clusterorch.models import Model

GROWTH = ("1x8", "2x8", "4x8", "8x8", "16x8")
HOURS = 8.0


class EnvironmentCosts(NamedTuple):
    """Steps are slices of instances, on one core."""

    raw: float  # slices a second
    raw_decisions: float
    belief: float
    belief_decisions: float
    raw_prompt: float  # without late cells
    belief_prompt: float
    growth: dict[str, float]  # seconds a slice by layout, raw
    exponent: float
    cartpole: float  # steps a second
    cartpole_vector: float


def prompt(model: Model) -> Model:
    """The same model with collectors that are never late."""
    streams = [stream.model_copy(update={"delay": 0.0, "max_delay": 0}) for stream in model.spec.stream]
    spec = model.spec.model_copy(update={"stream": streams})
    return Model(spec, model.layout, model.path, model.overlays, model.raw, model.limits)


def slices_per_second(model: Model, batch: int, observed: str, decisions: int) -> tuple[float, float]:
    """(slices, decisions) a second of a batch that waits, observations made."""
    episodes = Episodes(model, batch, Settings(observe=observed, hours=HOURS))
    space, rows = observation_space(episodes), np.arange(batch)
    episodes.begin(rows, np.zeros(batch, dtype=np.int64))
    waiting, deciding = np.zeros(batch, dtype=np.int64), np.ones(batch, dtype=bool)

    def play(count: int) -> int:
        played = 0
        for _ in range(count):
            played += int(episodes.decide(waiting, deciding).slices.sum())
            observe(episodes, space)
        return played

    play(4)
    costs = []
    for _ in range(3):
        begun = time.perf_counter()
        played = play(decisions)
        costs.append((time.perf_counter() - begun) / played)
    cost = float(np.median(costs))
    return 1.0 / cost, 1.0 / (cost * played / (decisions * batch))


def cartpole_steps_per_second(batch: int, steps: int = 2000) -> float:
    """Gymnasium's CartPole, alone (batch 0) or as a vector of its own kind."""
    begun = time.perf_counter()
    if batch == 0:
        alone = gym.make("CartPole-v1")
        alone.reset(seed=0)
        for i in range(steps):
            ended = alone.step(i % 2)
            if ended[2] or ended[3]:
                alone.reset()
        alone.close()
        return steps / (time.perf_counter() - begun)
    many = gym.make_vec("CartPole-v1", num_envs=batch, vectorization_mode="vector_entry_point")
    many.reset(seed=0)
    actions = np.arange(batch) % 2
    begun = time.perf_counter()
    for _ in range(steps // 10):
        many.step(actions)
    many.close()
    return batch * (steps // 10) / (time.perf_counter() - begun)


def environment_costs(*, quick: bool = False) -> EnvironmentCosts:
    """Measure.  `quick` takes fewer instances, for tests."""
    batch, decisions = (8, 2) if quick else (256, 6)
    model = model_of("8x8", 1, 0, None)
    raw, raw_decisions = slices_per_second(model, batch, "raw", decisions)
    belief, belief_decisions = slices_per_second(model, batch, "both", decisions)
    raw_prompt = slices_per_second(prompt(model), batch, "raw", decisions)[0]
    belief_prompt = slices_per_second(prompt(model), batch, "both", decisions)[0]
    layouts = GROWTH[:3] if quick else GROWTH
    growth = {
        layout: 1.0 / slices_per_second(model_of(layout, 1, 0, None), max(4, batch // 8), "raw", decisions)[0]
        for layout in layouts
    }
    nodes = [int(layout.split("x")[0]) for layout in layouts]
    exponent = float(np.polyfit(np.log(nodes[-3:]), np.log(list(growth.values())[-3:]), 1)[0])
    return EnvironmentCosts(
        raw, raw_decisions, belief, belief_decisions, raw_prompt, belief_prompt, growth, exponent,
        cartpole_steps_per_second(0), cartpole_steps_per_second(batch),
    )  # fmt: skip
