"""Here lives a batch of episodes as plain arrays by name, so that training goes on to the same bits after a stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from clusterorch.environment.episodes import Episodes


def arrays_of(episodes: Episodes) -> dict[str, np.ndarray]:
    """Every array that the next decision depends on; not copies."""
    return dict(_named(episodes))


def put_back(episodes: Episodes, arrays: dict[str, np.ndarray]) -> None:
    """Set every array to what it was.

    Raises:
        ValueError: an array is missing, or of another shape or type: the episodes are not like those that were kept.
    """
    for name, here in _named(episodes):
        kept = arrays.get(name)
        if kept is None or kept.shape != here.shape or kept.dtype != here.dtype:
            raise ValueError(
                f"{name}: {None if kept is None else (kept.shape, kept.dtype)} for {here.shape, here.dtype}"
            )
        here[...] = kept


def _named(episodes: Episodes) -> Iterator[tuple[str, np.ndarray]]:
    world, totals = episodes.world, episodes.totals
    tuples: dict[str, Any] = {
        "state": world.state, "books": world.books, "window": episodes.window, "outlook": episodes.outlook,
    }  # fmt: skip
    if episodes.believer is not None:
        believer = episodes.believer
        tuples |= {"settled": believer.settled, "current": believer.current, "ring": believer.ring}
        yield "believer.time", believer.time
        yield "believer.set_aside", believer.set_aside
    for group, columns in tuples.items():
        for name, column in zip(columns._fields, columns, strict=True):
            yield f"{group}.{name}", column
    for name in ("heads", "discarded", "false_moves", "moves"):
        yield f"totals.{name}", getattr(totals, name)
    yield "world.episode", world.episode
    yield "world.taken", world.taken
    yield "moved", episodes.moved
