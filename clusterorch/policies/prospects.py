"""Here lives what a failure costs if nobody acts, and what a move costs: the numbers that planning rests on.

Both come from the model alone: losses are means over episodes played with one failure each and no move, costs are the
rules of `[economy]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.causal.slices import MOVING
from clusterorch.environment.books import USEFUL
from clusterorch.environment.moves import AROUND, ISOLATE, SWAP, USE_TREE, Moves
from clusterorch.environment.rules import rules_of
from clusterorch.environment.world import World
from clusterorch.models import Layout, Model
from clusterorch.models.reading import fingerprint
from clusterorch.models.spec import PHASES

PLAYED, FAR = 48, 480  # episodes a variant, and slices of each
_NODES = 2  # of the cluster that they are played on: what one failure costs depends on its size but little
_SPARE = 60.0  # slices, what the last spare is kept for
_STARTS = ("launch", "init_comm", "load")


class Prospects(NamedTuple):
    """By variant, in slices of healthy training.  [V, ...]"""

    loss: np.ndarray  # [V, FAR + 1] lost within so many slices of its beginning, if nobody acts
    rate: np.ndarray  # [V] lost a slice while the job moves
    breaks: np.ndarray  # [V] chance a slice that a moving job stops moving
    start: float  # slices that a start takes

    def ahead(self, left: np.ndarray) -> np.ndarray:
        """[..., V] loss within the slices that are left.  [...] slices"""
        within = np.minimum(np.asarray(left, dtype=np.int64), FAR)
        slope = (self.loss[:, FAR] - self.loss[:, FAR // 2]) / (FAR - FAR // 2)
        beyond = np.maximum(np.asarray(left) - FAR, 0)
        return np.moveaxis(self.loss[:, within], 0, -1) + beyond[..., None] * slope


_KNOWN: dict[tuple[str, Layout], Prospects] = {}


def prospects_of(model: Model) -> Prospects:
    """Those of a model on its layout; they are worked out once."""
    key = (fingerprint(model.raw), model.layout)
    if key not in _KNOWN:
        _KNOWN[key] = _played(model)
    return _KNOWN[key]


def _played(model: Model, seed: int = 0) -> Prospects:
    """Play every variant of a model some times, all that begin in one phase at once, and keep the means."""
    if model.layout.nodes > _NODES:
        model = model.with_layout(Layout(_NODES, model.layout.gpus, model.layout.rails, spares=1, leaves=1))
    blocks, step, save = model.network.blocks, PHASES.index("step"), PHASES.index("save")
    duration = World(model, telemetry=False).simulator.plan.duration
    healthy = float(duration[step] / (duration[step] + duration[save]))
    loss, rate, breaks = np.zeros((len(blocks), FAR + 1)), np.zeros(len(blocks)), np.zeros(len(blocks))
    begins = [_beginning(block.variant.spec.phases) for block in blocks]
    for phase in dict.fromkeys(begins):
        mine = np.repeat([v for v, begin in enumerate(begins) if begin == phase], PLAYED)
        faults = [blocks[v].variant.name for v in mine]
        world = World(model, len(mine), seed=seed, domain="prospects", fault=faults, at=1, start=phase, telemetry=False)
        running, nothing = np.ones(len(mine), dtype=bool), np.zeros(len(mine), dtype=np.int64)
        lost, moving, slow, broke = (np.zeros(len(mine)) for _ in range(4))
        world.step(nothing, running)
        for t in range(1, FAR + 1):
            before = world.state.job_class == MOVING
            world.step(nothing, running)
            books, state = world.books, world.state
            lost += healthy - books.heads[:, USEFUL] + books.discarded
            here, goes = state.variant == mine, state.job_class == MOVING
            steps = here & goes & (state.phase == step)
            slow += np.where(steps, 1.0 - books.heads[:, USEFUL], 0.0)
            moving += steps
            broke += here & before & ~goes
            loss[:, t] += np.bincount(mine, weights=lost, minlength=len(blocks)) / PLAYED
        sums = [np.bincount(mine, weights=column, minlength=len(blocks)) for column in (slow, moving, broke)]
        played = np.unique(mine)
        rate[played] = (sums[0] / np.maximum(sums[1], 1.0))[played]
        breaks[played] = (sums[2] / np.maximum(sums[1] + sums[2], 1.0))[played]
    return Prospects(np.maximum(loss, 0.0), rate, np.minimum(breaks, 1.0), start_slices(model))


def _beginning(phases: list[str] | None) -> str:
    """The phase that a job begins in so that a variant of these phases can follow."""
    return "step" if phases is None or "step" in phases else next((p for p in _STARTS if p in phases), "step")


def move_costs(model: Model, moves: Moves, left: np.ndarray, work: np.ndarray, spares: np.ndarray) -> np.ndarray:
    """[..., M] what each move costs in itself, in slices of healthy training, if nothing is wrong.

    Args:
        model: with its rules.
        moves: of the model.
        left: [...] slices until the end.
        work: [..., C] what is lost by loading the k-th newest copy.
        spares: [...] ready.
    """
    rules, table, nodes = rules_of(model), moves.table, model.layout.nodes
    left, spares = np.asarray(left, dtype=np.float64), np.asarray(spares)
    away = np.minimum(left, rules.repair_stages / rules.repair)
    costs = np.zeros((*left.shape, moves.count))
    for m in range(moves.count):
        does = table.does[m]
        if table.restarts[m]:
            costs[..., m] = start_slices(model) + work[..., min(int(table.discards[m]), work.shape[-1] - 1)]
        elif table.action[m] >= 0:
            costs[..., m] = init_slices(model)
        if does == ISOLATE:
            costs[..., m] += away / nodes
        elif does == SWAP:
            costs[..., m] += np.where(spares <= 1, _SPARE, 0.5 * _SPARE)
        elif does == AROUND:
            costs[..., m] += away * (1.0 - 1.0 / rules.around)
        elif does == USE_TREE:
            costs[..., m] += left * (1.0 - 1.0 / rules.tree)
    return costs


def start_slices(model: Model) -> float:
    """Slices that a start takes, from launch to the first step."""
    job, dt = model.spec.job, model.spec.model.slice_seconds
    return (job.launch_seconds + job.init_comm_seconds + job.load_seconds) / dt


def init_slices(model: Model) -> float:
    """Slices that a re-initialisation takes."""
    return model.spec.job.init_comm_seconds / model.spec.model.slice_seconds
