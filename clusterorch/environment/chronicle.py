"""Here lives what an onlooker remembers of a running episode: the job slice by slice, moves, lines, samples, belief.

Everything in it has been published, delivered or believed.  It listens to the episodes from when it is made; what the
window still holds of the time before is taken from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clusterorch.causal.slices import DOWN, MOVING
from clusterorch.environment.books import DETOUR, IN_JOB, STARTING, TREE
from clusterorch.environment.episodes import Decision, Episodes
from clusterorch.environment.notices import Notice, Notices
from clusterorch.environment.published import job_columns
from clusterorch.models.ground import HEALTHY
from clusterorch.models.rows import CONTINUOUS, KIND_OF_FAMILY
from clusterorch.models.spec import JOB_CLASSES, PHASES, STREAMS

# How a slice was spent as far as is published, the worst last.
UNKNOWN, STEPS, EVALUATES, SAVES, STARTS, HALTS, IS_DOWN, LOST = range(8)
_STEP, _EVAL, _SAVE = (PHASES.index(name) for name in ("step", "eval", "save"))


class Made(NamedTuple):
    """A move that was asked for."""

    slice: int
    label: str
    legal: bool


class Sampled(NamedTuple):
    """The newest delivered sample of a continuous signal of every GPU.  [GPUs]"""

    values: np.ndarray  # NaN: none came, or the cell that came held none
    slices: np.ndarray  # when it was taken, -1 never


class Chronicle:
    """What can be told of one instance of a batch of episodes.

    Args:
        episodes: to listen to.
        row: number of the instance.
    """

    def __init__(self, episodes: Episodes, row: int = 0) -> None:
        self.episodes, self.row = episodes, row
        self.signals = [
            s
            for s, signal in enumerate(episodes.world.network.spec.signal)
            if signal.entity == "gpu" and KIND_OF_FAMILY[signal.family] == CONTINUOUS
        ]
        self._afresh()
        self._catch_up()
        episodes.listeners.append(self)
        episodes.recorders.append(self)

    def close(self) -> None:
        """Listen no more; what is remembered stays."""
        if self in self.episodes.recorders:
            self.episodes.listeners.remove(self)
            self.episodes.recorders.remove(self)

    @property
    def time(self) -> int:
        """Slices played."""
        return int(self.episodes.world.books.time[self.row])

    @property
    def kept(self) -> float:
        """Slices of training that survive, as far as is published: slowness and poison are not."""
        return self._made[-1] if self._made else 0.0

    def _afresh(self) -> None:
        self.since = self.time
        self.spent: list[int] = [UNKNOWN] * self.since
        self.failing: list[tuple[int, float]] = []  # slice, probability that there is a failure
        self.moves: list[Made] = []
        self.notices = Notices(self.episodes)
        gpus = self.episodes.world.network.layout.count("gpu")
        self.samples = {s: Sampled(np.full(gpus, np.nan), np.full(gpus, -1)) for s in self.signals}
        self._made: list[float] = []
        self._was_down = False

    def _catch_up(self) -> None:
        """Take from the window what it still holds of the time before."""
        window, b, at = self.episodes.window, self.row, 0
        for w in np.flatnonzero(window.real[b]):
            job = window.job_rows[b, w]
            published = job[-len(job_columns(self.episodes.world.network.layout.copies)) :]
            now = round(float(job[-1]) * self.episodes.horizon)
            phase, kind = int(published[: len(PHASES)].argmax()), int(published[len(PHASES) :][:3].argmax())
            self.spent[at:now] = [_spent(phase, kind, lost=False) if at else UNKNOWN] * (now - at)
            self.notices.take_in(window.node_rows[b, w], job, now)
            at = now
        self._sample()
        self._believe()

    def begun(self, episodes: Episodes, rows: np.ndarray) -> None:
        """Start afresh if the instance begins an episode."""
        if self.row in rows:
            self._afresh()
            self._believe()

    def listen(self, episodes: Episodes, running: np.ndarray) -> None:
        """Take in a slice."""
        b = self.row
        if not running[b]:
            return
        world = episodes.world
        state, books, table = world.state, world.books, world.moves.table
        spent = _spent(int(state.phase[b]), int(state.job_class[b]), lost=bool(books.lost[b]))
        down = bool(state.job_class[b] == DOWN)
        kept = self.kept
        if table.restarts[world.taken[b]] or (down and not self._was_down):
            copied = int(books.copy_time[b, 0])
            kept = self._made[copied - self.since] if copied > self.since else float(copied - self.since)
        if spent == STEPS:
            share = float((books.place[b] == IN_JOB).mean())
            slower = {TREE: world.rules.tree, DETOUR: world.rules.around}.get(int(books.detour[b]), 1.0)
            kept += share / slower
        self._was_down = down
        self._made.append(kept)
        self.spent.append(spent)

    def decided(self, episodes: Episodes, moves: np.ndarray, deciding: np.ndarray, decision: Decision) -> None:
        """Take in a decision that has been played."""
        b = self.row
        if not deciding[b]:
            return
        if moves[b] != 0:
            label, legal = episodes.world.moves.label(int(moves[b])), not decision.illegal[b]
            self.moves.append(Made(self.time - int(decision.slices[b]), label, legal))
        window = episodes.window
        self.notices.take_in(window.node_rows[b, -1], window.job_rows[b, -1], self.time)
        self._sample()
        self._believe()

    def _believe(self) -> None:
        if self.episodes.believes:
            healthy = self.modes()[0][1]
            self.failing.append((self.time, 1.0 - healthy))

    @property
    def believed(self) -> str:
        """What the beliefs of views are called: who is told the truth infers nothing."""
        return "told truth" if self.episodes.settings.observe == "truth" else "belief"

    def modes(self) -> list[tuple[str, float]]:
        """Mode and probability, no failure first, then the failures, the likeliest first; empty without beliefs."""
        if not self.episodes.believes:
            return []
        network, p = self.episodes.world.network, self.episodes.outlook.variants[self.row]
        failures = {mode.name: 0.0 for mode in network.spec.mode}
        healthy = float(p[0])
        for v, block in enumerate(network.blocks):
            if block.variant.benign:
                healthy += float(p[v + 1])
            else:
                failures[block.variant.mode] += float(p[v + 1])
        ranked = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
        return [(HEALTHY, min(healthy, 1.0)), *ranked]

    def nodes(self) -> np.ndarray:
        """[N] probability that there is a failure at the node, of any mode; zeros without beliefs."""
        if not self.episodes.believes:
            return np.zeros(self.episodes.world.network.layout.nodes)
        return self.episodes.outlook.nodes[self.row].sum(axis=1).astype(np.float64)

    def _sample(self) -> None:
        """The newest samples that have been delivered."""
        episodes, b, now = self.episodes, self.row, self.time
        window, network = episodes.window, episodes.world.network
        nodes, slots = network.layout.nodes, window.values.shape[1]
        for back in range(min(slots, now) - 1, -1, -1):
            taken = now - 1 - back
            for s, sampled in self.samples.items():
                came = window.arrival[b, taken % slots, STREAMS.index(network.spec.signal[s].stream), :nodes]
                found = window.values[b, taken % slots, network.slice_of(s)]
                here = np.repeat((came >= 0) & (came < now), len(found) // nodes) & (taken >= sampled.slices)
                sampled.values[here] = np.where(np.isfinite(found), found, np.nan)[here]
                sampled.slices[here] = taken

    def told(self, most: int) -> list[Notice]:
        """The newest lines worth telling, oldest first."""
        return self.notices.newest(most)

    def job(self) -> dict[str, Any]:
        """What is published of the job now."""
        world, b = self.episodes.world, self.row
        state, books, now = world.state, world.books, self.time
        waits = bool(books.was_down[b]) and not books.lost[b]
        return {
            "phase": PHASES[state.phase[b]], "class": JOB_CLASSES[state.job_class[b]], "lost": bool(books.lost[b]),
            "halted": int(state.age[b]), "until_requeue": max(int(books.requeue_at[b]) - now, 0) if waits else None,
            "copies": [now - int(books.copy_time[b, k]) for k in range(int(state.held[b]))],
            "spares": int(books.spares[b] + books.frail_spares[b]), "failures": int(books.failures[b]),
            "detour": int(books.detour[b]), "place": books.place[b],
        }  # fmt: skip


def _spent(phase: int, kind: int, *, lost: bool) -> int:
    if lost or kind != MOVING:
        return LOST if lost else IS_DOWN if kind == DOWN else HALTS
    if phase in STARTING:
        return STARTS
    return {_STEP: STEPS, _EVAL: EVALUATES, _SAVE: SAVES}[phase]
