"""Here lives what a policy sees at a decision, and what it answers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from clusterorch.environment.episodes import Episodes
from clusterorch.environment.moves import Moves
from clusterorch.environment.outlook import Outlook
from clusterorch.environment.published import COPY_AGE
from clusterorch.environment.world import World
from clusterorch.models.compile import Network

NO_MODE, NO_NODE = "healthy", -1


class View(NamedTuple):
    """A decision of B instances.  What has arrived since the decision before, what is published, and beliefs.

    nodes, job: [B, N, F] and [B, J] the newest row of the window; names of the columns in `node_names`, `job_names`.
    masks: [B, M] legal moves.  time: [B] slices played.  begun: [B] the episode begins with this decision.
    outlook: the belief, None without.  world: the truth; for the oracle alone.
    """

    nodes: np.ndarray
    job: np.ndarray
    node_names: list[str]
    job_names: list[str]
    masks: np.ndarray
    time: np.ndarray
    begun: np.ndarray
    horizon: int
    moves: Moves
    network: Network
    outlook: Outlook | None
    world: World | None


class Choice(NamedTuple):
    """[B] moves by number, and the diagnosis that the policy states: a mode and a node (-1: none) for each."""

    moves: np.ndarray
    modes: list[str]
    nodes: np.ndarray


class Policy(Protocol):
    """Something that decides.  `needs` is what it must be shown: raw, belief or truth."""

    name: str
    needs: str

    def decide(self, view: View) -> Choice:
        """A legal move for every instance, and what is believed to be the matter."""


def view_of(episodes: Episodes, *, truth: bool = False) -> View:
    """What the episodes show now."""
    world, window = episodes.world, episodes.window
    return View(
        window.node_rows[:, -1], window.job_rows[:, -1], episodes.names.node, episodes.names.job, world.masks(),
        world.books.time.copy(), world.books.time == 0, episodes.horizon, world.moves, world.network,
        episodes.outlook if episodes.believes else None, world if truth else None,
    )  # fmt: skip


def copy_ages(view: View) -> np.ndarray:
    """[B, C] slices since each copy was made, newest first; of one that is not held as many as of the one before."""
    copies, job = view.network.layout.copies, view.network.spec.job
    first = view.job_names.index("copy_0.age")
    every = COPY_AGE * job.save_every_seconds / view.network.spec.model.slice_seconds
    return np.maximum.accumulate(view.job[:, first : first + copies].astype(np.float64) * every, axis=1)


def nothing_stated(batch: int) -> tuple[list[str], np.ndarray]:
    """No failure, nowhere."""
    return [NO_MODE] * batch, np.full(batch, NO_NODE, dtype=np.int64)
