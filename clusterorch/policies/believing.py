"""Here live the policies that decide on the exact belief: the most likely cause, and QMDP."""

from __future__ import annotations

import numpy as np

from clusterorch.environment.believer import Believer
from clusterorch.models import Model
from clusterorch.models.ground import HEALTHY
from clusterorch.policies.prospects import FAR, move_costs, prospects_of
from clusterorch.policies.view import NO_NODE, Choice, View, copy_ages

ENOUGH = 0.5  # probability of a failure from which one acts on it


def likeliest(view: View, b: int) -> tuple[str, int]:
    """Mode and node of the most likely failure of an instance; healthy if none is likelier."""
    assert view.outlook is not None
    blocks, p = view.network.blocks, view.outlook.variants[b]
    by_mode: dict[str, float] = {HEALTHY: float(p[0])}
    for v, block in enumerate(blocks):
        name = block.variant.mode
        by_mode[name] = by_mode.get(name, 0.0) + float(p[v + 1])
    mode = max(by_mode, key=lambda name: by_mode[name])
    if mode == HEALTHY:
        return mode, NO_NODE
    number = [m.name for m in view.network.spec.mode].index(mode)
    at = view.outlook.nodes[b, :, number]
    return mode, int(at.argmax()) if at.max() > 0.0 else NO_NODE


def poisoned_copies(view: View, b: int) -> int:
    """How many of the newest copies are probably poisoned."""
    assert view.outlook is not None
    return int((view.outlook.copies[b] > ENOUGH).sum())


class MostLikelyCause:
    """Does what best ends the most likely failure, once one is likely enough, whatever it costs.

    Args:
        believer: whose belief it is.
        enough: probability of a failure from which it acts.
    """

    name, needs = "most_likely_cause", "belief"

    def __init__(self, model: Model, believer: Believer, enough: float = ENOUGH) -> None:
        self.model, self.believer, self.enough = model, believer, enough

    def decide(self, view: View) -> Choice:
        """The move that most probably ends the likeliest variant where it is likeliest."""
        assert view.outlook is not None
        batch = len(view.time)
        moves, modes, nodes = np.zeros(batch, dtype=np.int64), [], np.full(batch, NO_NODE, dtype=np.int64)
        failing = np.array([not block.variant.benign for block in view.network.blocks])
        work = copy_ages(view)
        for b in range(batch):
            mode, nodes[b] = likeliest(view, b)
            modes.append(mode)
            p = view.outlook.variants[b, 1:] * failing
            if p.sum() >= self.enough:
                moves[b] = self._best(view, b, int(p.argmax()), work[b])
        return Choice(moves, modes, nodes)

    def _best(self, view: View, b: int, v: int, work: np.ndarray) -> int:
        network, table = view.network, view.moves.table
        block = network.blocks[v]
        at = self.believer.current.vector[b, block.offset : block.offset + block.size].reshape(block.shape())
        start = sum(other.sites for other in network.blocks[:v])
        site = start + int(at.sum(axis=(0, 1)).argmax())
        clears = np.where(table.discards[:-1] >= poisoned_copies(view, b), table.clears[:-1, site], 0.0)
        clears = np.where(view.masks[b] == 1, clears, 0.0)
        costs = move_costs(self.model, view.moves, view.horizon - view.time[b], work, 1)
        best = clears.max()
        if best < ENOUGH / 2:
            return 0
        able = np.flatnonzero(clears >= best - 0.05)
        return int(able[costs[able].argmin()])


class QMDP:
    """Weighs every move by the belief, as if the truth were known from the next decision on.

    Source: Littman, Cassandra, Kaelbling 1995; the values of the known truth are `clusterorch.policies.prospects`.
    """

    name, needs = "qmdp", "belief"

    def __init__(self, model: Model, believer: Believer, decision: int) -> None:
        self.model, self.believer, self.decision = model, believer, decision
        self.prospects = prospects_of(model)
        table, ends = believer.moves.table, np.cumsum([block.sites for block in model.network.blocks])
        # [V, M] the best that each move can do against each variant, wherever it is
        self._able = np.maximum.reduceat(table.clears[:-1], np.concatenate([[0], ends[:-1]]), axis=1).T

    def worth(self) -> np.ndarray:
        """[V] what the end of each variant is worth, for `outlook.gains`."""
        failing = np.array([not block.variant.benign for block in self.model.network.blocks])
        return np.where(failing, self.prospects.loss[:, FAR], 0.0)

    def decide(self, view: View) -> Choice:
        """The move of the largest expected value; waiting is worth what is known later, less the delay."""
        assert view.outlook is not None
        batch = len(view.time)
        moves, modes, nodes = np.zeros(batch, dtype=np.int64), [], np.full(batch, NO_NODE, dtype=np.int64)
        worth, prospects, ages = self.worth(), self.prospects, copy_ages(view)
        down = view.job[:, view.job_names.index("class.down")] > 0.5
        halted = view.job[:, view.job_names.index("class.halted")] > 0.5
        for b in range(batch):
            mode, nodes[b] = likeliest(view, b)
            modes.append(mode)
            p = view.outlook.variants[b, 1:]
            at_stake = float((p * worth).sum())
            if at_stake < 1.0:
                continue
            left = float(view.horizon - view.time[b])
            scale, work = min(left, FAR) / FAR, ages[b]
            lost_anyway = down[b]
            costs = move_costs(self.model, view.moves, left, work - (work[0] if lost_anyway else 0.0), 1)
            gains = view.outlook.gains[b] * scale
            value = np.where(view.masks[b] == 1, gains - costs, -np.inf)
            value[0] = 0.0
            knowing = self._knowing(p, worth * scale, costs)
            delay = self.decision * float((p * (prospects.rate + prospects.breaks * (work[0] + prospects.start))).sum())
            delay += float(self.decision) if halted[b] else 0.0
            best = int(value.argmax())
            if value[best] > knowing - delay:
                moves[b] = best
        return Choice(moves, modes, nodes)

    def _knowing(self, p: np.ndarray, worth: np.ndarray, costs: np.ndarray) -> float:
        """Expected value of the best move if the truth is known."""
        return float((p * np.maximum(worth[:, None] * self._able - costs[None, :], 0.0).max(axis=1)).sum())
