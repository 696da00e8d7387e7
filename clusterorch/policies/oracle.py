"""Here lives the oracle: it knows the failure, its place and the poisoned copies, and plans with the model's means.

It is an upper reference and not the optimum: it looks at one move and at waiting for the next copy, no further.
"""

from __future__ import annotations

import numpy as np

from clusterorch.causal.slices import DOWN, HALTED
from clusterorch.environment.moves import NOTHING
from clusterorch.models import Model
from clusterorch.models.spec import PHASES
from clusterorch.policies.prospects import move_costs, prospects_of
from clusterorch.policies.view import NO_NODE, Choice, View, nothing_stated

_STEP = PHASES.index("step")
_MARGIN = 3.0  # slices by which a move must be better: the means it rests on are no surer


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
        world = view.world
        assert world is not None
        batch = len(view.time)
        moves = np.zeros(batch, dtype=np.int64)
        modes, nodes = nothing_stated(batch)
        for b in range(batch):
            v = int(world.state.variant[b])
            if v < 0 or view.network.blocks[v].variant.benign or world.books.lost[b]:
                continue
            spec = view.network.blocks[v].variant.spec
            modes[b] = view.network.blocks[v].variant.mode
            node = int(view.network.layout.node_of(spec.site)[world.state.site[b]])
            nodes[b] = node if node >= 0 else NO_NODE
            moves[b] = self._best(view, b, v)
        return Choice(moves, modes, nodes)

    def _best(self, view: View, b: int, v: int) -> int:
        world = view.world
        assert world is not None
        state, books, table = world.state, world.books, view.moves.table
        left = float(view.horizon - view.time[b])
        kind, poisoned = int(state.job_class[b]), int(state.poisoned[b])
        lost_anyway = kind == DOWN
        work = np.maximum(books.good[b] - books.copy_good[b], 0.0)
        spares = int(books.spares[b] + books.frail_spares[b])
        costs = move_costs(self.model, view.moves, left, work, spares)
        ahead = float(self.prospects.ahead(np.array(left))[v])
        site = int(world.site_start[v] + state.site[b])
        clears = np.where(table.discards[:-1] >= poisoned, table.clears[:-1, site], 0.0)
        # What is not ended goes on: a restart that does not help costs its time and loses nothing more.
        value = np.where(view.masks[b] == 1, clears * ahead - costs, -np.inf)
        wait = 0.0
        if lost_anyway:
            wait = -(self.prospects.start + world.rules.requeue - self._cleared_by_start(view, v, site) * ahead)
        elif kind == HALTED:
            goes_on = max(self._limit - float(state.age[b]), 0.0)
            timed_out = goes_on + work[0] + self.prospects.start - self._cleared_by_start(view, v, site) * ahead
            wait = -min(timed_out, ahead)  # many halts end before a limit is reached
        value[table.does[:-1] == NOTHING] = min(wait, 0.0) if (lost_anyway or kind == HALTED) else 0.0
        best = int(value.argmax())
        if best == 0 or value[best] < value[0] + _MARGIN:
            return 0
        if kind in (DOWN, HALTED):
            return best
        return best if value[best] > self._later(view, b, v, float(value[best]), work) else 0

    def _cleared_by_start(self, view: View, v: int, site: int) -> float:
        """Chance that the scheduler's own start ends the failure."""
        return float(view.moves.table.clears[view.moves.requeue, site])

    def _later(self, view: View, b: int, v: int, now: float, work: np.ndarray) -> float:
        """The same move right after the next copy: the work since the last one is saved, if the job lives so long."""
        world = view.world
        assert world is not None
        state = world.state
        every = world.simulator.plan.duration[_STEP]
        if state.phase[b] != _STEP or state.poisoned[b] or self._poisons(v):
            return -np.inf
        wait = float(every - state.clock[b]) + float(world.simulator.plan.duration[PHASES.index("save")])
        survives = (1.0 - self.prospects.breaks[v]) ** wait
        lost = self.prospects.rate[v] * wait
        broken = (1.0 - survives) * (work[0] + self.prospects.start + world.rules.requeue)
        return now + work[0] * survives - lost - broken

    def _poisons(self, v: int) -> bool:
        """Whether a variant poisons the weights, so that waiting makes it worse."""
        block = self.model.network.blocks[v]
        return bool(max(c.poisoned for c in block.chain.configurations) > 0)
