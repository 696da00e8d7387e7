"""Here live the instances that learning plays on: what it sees of them, what it plays, and what a teacher knows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from clusterorch.environment.episodes import Episodes
from clusterorch.learning.network import Inputs, MoveIndex
from clusterorch.learning.seeing import inputs_of, move_index
from clusterorch.policies.oracle import Oracle
from clusterorch.policies.view import view_of

REWARD_UNIT = 20.0  # slices that count as one in the loss
NO_MOVE = -1


class Played(NamedTuple):
    """What a decision brought.  [B]"""

    reward: np.ndarray
    slices: np.ndarray
    ended: np.ndarray  # cut off by the limit of time
    over: np.ndarray  # ended for good: nothing follows that could be worth anything
    struck: np.ndarray  # a failure began, which no move brought about


class Lesson(NamedTuple):
    """What one who knows the truth says of the state, in training only."""

    moves: Tensor  # [B] the best move, NO_MOVE without one
    worth: Tensor  # [B, M] of every move against the best one, at most 0; of an illegal one 0
    value: np.ndarray  # [B] of the state, in units of reward
    modes: Tensor  # [B] the true mode, the last one if healthy


class Instances(Protocol):
    """A batch of running episodes."""

    batch: int
    index: MoveIndex

    def inputs(self, *, critic: bool) -> Inputs:
        """What is seen now."""

    def decide(self, moves: np.ndarray) -> Played:
        """Play a move of every instance."""

    def again(self, rows: np.ndarray) -> list[tuple[float, int]]:
        """Begin the next episodes of some instances.  Returns return and length in slices of those that ended."""

    def lesson(self) -> Lesson:
        """What the truth teaches."""


class Cluster:
    """Episodes of the environment; rewards are losses against a healthy job, so that they are mostly near zero."""

    def __init__(self, episodes: Episodes) -> None:
        self.episodes, self.batch, self.index = episodes, episodes.batch, move_index(episodes)
        self._struck = episodes.world.books.incident.copy()
        self._oracle = Oracle(episodes.model, episodes.settings.decision)
        modes = [mode.name for mode in episodes.world.network.spec.mode]
        self._healthy, self._everybody = len(modes), np.ones(self.batch, dtype=bool)
        blocks = episodes.world.network.blocks
        numbers = [len(modes) if b.variant.benign else modes.index(b.variant.mode) for b in blocks]
        self._mode_of = np.array([*numbers, len(modes)], dtype=np.int64)  # the last one for an empty slot
        episodes.begin(np.arange(self.batch), np.zeros(self.batch, dtype=np.int64))

    def inputs(self, *, critic: bool) -> Inputs:
        """What is seen now."""
        return inputs_of(self.episodes, critic=critic)

    def decide(self, moves: np.ndarray) -> Played:
        """Play a move of every instance."""
        played, books = self.episodes.decide(moves, self._everybody), self.episodes.world.books
        over = (books.lost == 1) & ~played.ended
        # A job that is given up earns nothing to the end, so the rest of its episode need not be played.
        rest = np.where(over, self.episodes.horizon - books.time, 0)
        reward = (played.reward - played.slices - rest) / REWARD_UNIT
        struck = (books.incident >= 0) & (books.incident != self._struck)
        self._struck = books.incident.copy()
        return Played(reward, played.slices.astype(float), played.ended.copy(), over, struck)

    def again(self, rows: np.ndarray) -> list[tuple[float, int]]:
        """Begin the next episodes.  Returns what the last ones were worth in slices, and their length."""
        false = self.episodes.world.rules.false_intervention
        told = [self.episodes.incident(int(b)) for b in rows]
        self.episodes.begin(rows, self.episodes.world.episode[rows] + 1)
        self._struck = self.episodes.world.books.incident.copy()
        return [(one["kept"] - one["false_moves"] * false, one["slices"]) for one in told]

    def lesson(self) -> Lesson:
        """What the oracle says."""
        plan = self._oracle.plan(view_of(self.episodes, truth=True))
        worth = plan.worth - np.max(plan.worth, axis=1, keepdims=True)
        worth = np.where(np.isfinite(worth), worth, 0.0) / REWARD_UNIT
        return Lesson(
            torch.from_numpy(plan.choice.moves), torch.from_numpy(worth.astype(np.float32)), plan.value / REWARD_UNIT,
            torch.from_numpy(self._mode_of[self.episodes.world.state.variant]),
        )  # fmt: skip
