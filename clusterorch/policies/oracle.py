"""Here lives the oracle: it knows the failure, its place and the poisoned copies, and plans with the model's means.

It is an upper reference and not the optimum: it looks at one move and at waiting for the next copy, no further.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.causal.slices import DOWN, HALTED
from clusterorch.environment.moves import NOTHING
from clusterorch.models import Model
from clusterorch.models.spec import PHASES
from clusterorch.policies.prospects import move_costs, prospects_of
from clusterorch.policies.view import NO_NODE, Choice, View, nothing_stated

_STEP = PHASES.index("step")
_MARGIN = 3.0  # slices by which a move must be better: the means it rests on are no surer


class Plan(NamedTuple):
    """What the oracle makes of B instances."""

    choice: Choice
    worth: np.ndarray  # [B, M] value of each legal move, at most 0: healthy training is 0; of an illegal one -inf
    value: np.ndarray  # [B] value of the true state under its own moves


class Oracle:
    """Ends every failure with the best move, at the best time.

    Args:
        model: of the world.
        decision: slices between two decisions.
    """

    name, needs = "oracle", "truth"

    def __init__(self, model: Model, decision: int) -> None:
        self.model, self.decision = model, decision
        self.prospects = prospects_of(model)
        self._limit = max((timer.seconds for timer in model.spec.timer), default=0.0) / model.spec.model.slice_seconds

    def decide(self, view: View) -> Choice:
        """The best move for the true state."""
        return self.plan(view).choice

    def plan(self, view: View) -> Plan:
        """The best moves, and what every move is worth in the true state."""
        world = view.world
        assert world is not None
        batch, books, false = len(view.time), world.books, world.rules.false_intervention
        modes, nodes = nothing_stated(batch)
        left = (view.horizon - view.time).astype(np.float64)
        work = np.maximum(books.good[:, None] - books.copy_good, 0.0)
        costs = move_costs(self.model, view.moves, left, work, books.spares + books.frail_spares)
        down = world.state.job_class == DOWN
        worth = -costs - np.where(down, 0.0, false)[:, None]
        until = np.maximum(books.requeue_at - view.time, 0.0) + self.prospects.start
        worth[:, 0] = np.where(down, -until, 0.0)
        worth[books.lost == 1] = -left[books.lost == 1, None]
        moves, value = np.zeros(batch, dtype=np.int64), worth[:, 0].copy()
        for b in np.flatnonzero((world.state.variant >= 0) & (books.lost == 0)):
            block = view.network.blocks[world.state.variant[b]]
            if not block.variant.benign:
                node = int(view.network.layout.node_of(block.variant.spec.site)[world.state.site[b]])
                modes[b], nodes[b] = block.variant.mode, node if node >= 0 else NO_NODE
                worth[b], moves[b], value[b] = self._weigh(view, int(b), costs[b], work[b], left[b])
        return Plan(Choice(moves, modes, nodes), np.where(view.masks == 1, worth, -np.inf), value)

    def _weigh(
        self, view: View, b: int, costs: np.ndarray, work: np.ndarray, left: float
    ) -> tuple[np.ndarray, int, float]:
        """[M] what each move is worth against a failure, the best one, and the value of the state."""
        world = view.world
        assert world is not None
        state, table = world.state, view.moves.table
        v, kind, poisoned = int(state.variant[b]), int(state.job_class[b]), int(state.poisoned[b])
        ahead = float(self.prospects.ahead(np.array(left))[v])
        site = int(world.site_start[v] + state.site[b])
        clears = np.where(table.discards[:-1] >= poisoned, table.clears[:-1, site], 0.0)
        # What is not ended goes on: a restart that does not help costs its time and loses nothing more.
        value = clears * ahead - costs
        wait = 0.0
        if kind == DOWN:
            wait = -(self.prospects.start + world.rules.requeue - self._cleared_by_start(view, v, site) * ahead)
        elif kind == HALTED:
            goes_on = max(self._limit - float(state.age[b]), 0.0)
            timed_out = goes_on + work[0] + self.prospects.start - self._cleared_by_start(view, v, site) * ahead
            wait = -min(timed_out, ahead)  # many halts end before a limit is reached
        value[table.does[:-1] == NOTHING] = min(wait, 0.0)
        legal = np.where(view.masks[b] == 1, value, -np.inf)
        best, stays = int(legal.argmax()), float(value[0])
        later = stays if kind in (DOWN, HALTED) else self._later(view, b, v, legal, work[0], left)
        acts = best != 0 and legal[best] >= stays + _MARGIN and (kind in (DOWN, HALTED) or legal[best] > later)
        # One that waits may act at the next decision, and pays for the delay.
        slow = 1.0 if kind in (DOWN, HALTED) else float(self.prospects.rate[v])
        risk = 0.0 if kind in (DOWN, HALTED) else float(self.prospects.breaks[v]) * (work[0] + self.prospects.start)
        value[0] = max(stays, later, float(legal[best]) - self.decision * (slow + risk))
        reached = float(legal[best]) if acts else max(stays, later)
        return value - ahead, best if acts else 0, reached - ahead

    def _cleared_by_start(self, view: View, v: int, site: int) -> float:
        """Chance that the scheduler's own start ends the failure."""
        return float(view.moves.table.clears[view.moves.requeue, site])

    def _later(self, view: View, b: int, v: int, legal: np.ndarray, work: float, left: float) -> float:
        """The best move right after the next copy: a restart then loses no work, if the job lives so long."""
        world, table = view.world, view.moves.table
        assert world is not None
        state = world.state
        every = world.simulator.plan.duration[_STEP]
        if state.phase[b] != _STEP or state.poisoned[b] or self._poisons(v):
            return -np.inf
        wait = float(every - state.clock[b]) + float(world.simulator.plan.duration[PHASES.index("save")])
        if wait >= left:
            return -np.inf
        survives = (1.0 - self.prospects.breaks[v]) ** wait
        loads = (table.restarts[:-1] != 0) & (table.discards[:-1] == 0)  # the newest copy: only they are spared work
        lost = self.prospects.rate[v] * wait
        broken = (1.0 - survives) * (work + self.prospects.start + world.rules.requeue)
        return float((legal + np.where(loads, work * survives, 0.0))[1:].max()) - lost - broken

    def _poisons(self, v: int) -> bool:
        """Whether a variant poisons the weights, so that waiting makes it worse."""
        block = self.model.network.blocks[v]
        return bool(max(c.poisoned for c in block.chain.configurations) > 0)
