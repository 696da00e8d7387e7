"""Here lives a job as others describe it: an episode that stands where a job is said to stand, to be looked at.

A policy that decides on beliefs can so be asked about a job that no simulator plays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.causal.slices import DOWN
from clusterorch.environment.episodes import Episodes, Settings
from clusterorch.environment.outlook import look, places_of
from clusterorch.inference.plan import make_plan
from clusterorch.models import Model
from clusterorch.models.compile import Network
from clusterorch.models.spec import PHASES


class Standing(NamedTuple):
    """What is published of a job at one moment.  Ages and times in slices."""

    phase: str
    job_class: int  # MOVING, HALTED, DOWN
    halted: int  # age of a halt, 0 if there is none
    copy_ages: tuple[int, ...]  # newest first, one for each copy that is held
    spares: int
    played: int  # since the episode began; more than 0, for at 0 nothing is remembered
    hours: float  # that the episode lasts


def stand(model: Model, standing: Standing) -> Episodes:
    """One instance that stands so, all of its nodes at work on a ring, all collectors heard in the newest slice.

    A job that is down has just gone down.  It shows no belief before `believe`.

    Args:
        model: on its layout, with a table `[economy]`.
        standing: where.

    Raises:
        InvalidModel: the model has no such table.
    """
    episodes = Episodes(model, 1, Settings(observe="belief", hours=standing.hours))
    state, books, now = episodes.world.state, episodes.world.books, standing.played
    held = min(len(standing.copy_ages), model.layout.copies)
    state.phase[:], state.job_class[:] = PHASES.index(standing.phase), standing.job_class
    state.age[:], state.held[:] = standing.halted, held
    books.time[:], books.spares[:] = now, standing.spares
    books.copy_time[0, :held] = now - np.array(standing.copy_ages[:held])
    if standing.job_class == DOWN:
        books.failures[:], books.was_down[:] = 1, 1
        books.requeue_at[:] = now + episodes.world.rules.requeue
    episodes.window.newest[:] = now - 1
    episodes.tell(np.array([0]), books.time - episodes.settings.decision)
    return episodes


def believe(episodes: Episodes, network: Network, vector: np.ndarray) -> None:
    """Show a belief of somebody else's filter.

    Args:
        episodes: one instance.
        network: the same model on the same layout; it may hide the age of a halt in its states.
        vector: [states] of that network.
    """
    look(
        make_plan(network), episodes.world.moves.table, places_of(network), vector[None, :], np.array([0]),
        episodes.worth, episodes.outlook,
    )  # fmt: skip
