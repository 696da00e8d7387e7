"""Here live the policies that look at nothing: they say how much of a score is luck or patience."""

from __future__ import annotations

import numpy as np

from clusterorch.policies.view import Choice, View, nothing_stated
from clusterorch.probability.noise import causal_uniform, stream_key


class Wait:
    """Never acts: the scheduler starts the job again by itself."""

    name, needs = "wait", "raw"

    def decide(self, view: View) -> Choice:
        """Waits."""
        return Choice(np.zeros(len(view.time), dtype=np.int64), *nothing_stated(len(view.time)))


class Random:
    """Acts at random, seldom, so that the job lives.

    Args:
        chance: of a move at a decision.
        seed: of the draws.
    """

    name, needs = "random", "raw"

    def __init__(self, chance: float = 0.02, seed: int = 0) -> None:
        self.chance, self._key, self._turn = chance, stream_key(seed, "random policy", 0, 0), 0

    def decide(self, view: View) -> Choice:
        """Any legal move, all alike."""
        moves = np.zeros(len(view.time), dtype=np.int64)
        for b in range(len(moves)):
            if causal_uniform(self._turn, b, 0, *map(np.uint64, self._key)) < self.chance:
                legal = np.flatnonzero(view.masks[b])
                u = causal_uniform(self._turn, b, 1, *map(np.uint64, self._key))
                moves[b] = legal[min(int(u * len(legal)), len(legal) - 1)]
        self._turn += 1
        return Choice(moves, *nothing_stated(len(moves)))
