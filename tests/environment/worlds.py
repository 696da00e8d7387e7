"""Small hot worlds for the tests of the environment, and players who pick legal moves at random."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache

import numpy as np

from clusterorch.environment.believer import Believer
from clusterorch.environment.episodes import Episodes, Settings
from clusterorch.environment.making import model_of
from clusterorch.environment.world import World
from clusterorch.models import Model
from clusterorch.models.layout import Layout
from clusterorch.models.spec import ModelSpec
from tests.inference.episodes import DURATION, KEPT, quick_delays
from tests.inference.worlds import LIMITS

ECONOMY = {
    "requeue_seconds": 60, "repair_seconds": 150, "dwell_seconds": 30, "dark": 0.02, "dark_seconds": 60, "frail": 5,
    "retries": 40,
}  # fmt: skip


@cache
def cold(layout: str = "1x2", spares: int = 1, leaves: int = 0) -> Model:
    """The reference model with the episode prior."""
    return model_of(layout, spares, leaves, None)


@cache
def hot(
    layout: str = "1x2", spares: int = 1, per_hour: float = 20.0, brings: float = 0.5, benign: float = 1.5e5,
    **economy: float,
) -> Model:  # fmt: skip
    """Incidents in one slice of twelve, quick delays and repairs, late and lost cells, and few signals."""
    base = cold("1x2")
    raw = copy.deepcopy(base.raw)
    raw["prior"]["incidents_per_hour"] = per_hour
    raw["job"] |= {f"{phase}_seconds": 15 * DURATION[phase] for phase in ("launch", "init_comm", "load", "save")}
    raw["job"]["save_every_seconds"] = 15 * DURATION["step"]
    raw["signal"] = [s for s in raw["signal"] if s["name"] in KEPT]
    for root in raw["benign"]:
        if root["name"] not in ("clean_exit", "stopped_by_user"):  # after these a job is over
            root["rate_per_1000_node_days"] = benign
    for variant in (v for mode in raw["mode"] for v in mode["variant"] if "recovers_per_hour" in v):
        variant["recovers_per_hour"] = 40
    for stream in raw["stream"]:
        stream |= {"lost": 0.1, "delay": 0.8, "max_delay": 3}
    for action in raw["action"]:
        if "brings" in action:
            action["brings"] |= {"probability": brings}
    for name, value in (ECONOMY | economy).items():
        raw["economy"][name] = {"value": value, "assumed": "hot"}
    quick_delays(raw)
    grounded = Layout.parse(layout, spares=spares)
    return Model(ModelSpec.model_validate(raw), grounded, base.path, base.overlays, raw, tuple(sorted(LIMITS.items())))


def calm(layout: str = "2x2", **options: float) -> Model:
    """The same without faults, but for those that come with a spare."""
    return hot(layout, per_hour=1e-9, benign=1e-9, **options)  # type: ignore[arg-type]


def world_of(model: Model, batch: int = 1, seed: int = 0, *, blackouts: bool = True) -> World:
    """A world in its first episodes."""
    world = World(model, batch, seed=seed, blackouts=blackouts)
    world.begin(np.arange(batch), np.zeros(batch, dtype=np.int64))
    return world


def episodes_in(model: Model, batch: int = 1, seed: int = 0, **settings: object) -> Episodes:
    """First episodes under settings."""
    made = Episodes(model, batch, Settings(**settings), seed=seed)  # type: ignore[arg-type]
    made.begin(np.arange(batch), np.zeros(batch, dtype=np.int64))
    return made


def random_moves(rng: np.random.Generator, masks: np.ndarray, busy: float = 0.3) -> np.ndarray:
    """[B] legal moves: with probability `busy` any legal one, else waiting."""
    drawn = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
    return np.where(rng.random(len(masks)) < busy, drawn, 0)


def play(world: World, slices: int, seed: int = 0, busy: float = 0.3) -> Iterator[np.ndarray]:
    """Play random legal moves; yields the moves of each slice after it."""
    rng, running = np.random.default_rng(seed), np.ones(world.batch, dtype=bool)
    for _ in range(slices):
        moves = random_moves(rng, world.masks(), busy)
        world.step(moves, running)
        yield moves


def record(believer: Believer, world: World, running: np.ndarray | None = None) -> None:
    """Show the newest slice of a world to a believer."""
    state, everybody = world.state, np.ones(world.batch, dtype=bool)
    believer.record(
        everybody if running is None else running, state.values, state.arrival, state.phase, state.job_class,
        state.age_before, state.save_ends, world.taken, state.proneness, state.share,
    )  # fmt: skip
