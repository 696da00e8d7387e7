"""Here lives what is worth telling of the delivered telemetry: lines that are seldom in health, nodes that differ.

How seldom is what the model declares of a healthy job.  Whether there is a fault is not asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from clusterorch.environment.episodes import Episodes
from clusterorch.environment.window import columns_of
from clusterorch.models.layout import Layout
from clusterorch.models.rows import CONTINUOUS, KIND_OF_FAMILY
from clusterorch.models.spec import Signal

_SELDOM = 0.003  # expected entities that speak in a slice of a healthy job, below which a line is worth telling
_PAUSE_SECONDS = 300.0  # without a line of its kind, after which it is told anew
_FAR = 4.0  # standard deviations from the median of the nodes
_OFTEN = 4  # rows in a row that must show it
_LEAST_NODES = 3  # from which on one can be told from the others
_COUNTS = ("", "1", "2-9", "10-99", "100+")


@dataclass
class Notice:
    """A line, or a run of lines of one kind."""

    first: int  # slice by which it had arrived
    last: int
    stream: str
    text: str
    nodes: set[int] = field(default_factory=set)  # empty: of the job
    times: int = 1  # decisions in which it came


@dataclass(frozen=True)
class _Column:
    """A column of a row and what it tells."""

    at: int
    signal: Signal
    value: str


class Notices:
    """What was worth telling of one instance.

    Args:
        episodes: whose rows are taken in.
    """

    def __init__(self, episodes: Episodes) -> None:
        self._network = episodes.world.network
        self._pause = _PAUSE_SECONDS / self._network.spec.model.slice_seconds
        self._of_node, self._of_job, self._samples = _told_columns(episodes)
        self._runs: list[Notice] = []
        self._open: dict[tuple[str, str], Notice] = {}
        self._differed: dict[tuple[str, int], int] = {}

    def take_in(self, nodes: np.ndarray, job: np.ndarray, now: int) -> None:
        """A row of the window that was closed after `now` slices.  [N, F], [J]"""
        for column in self._of_node:
            told = nodes[:, column.at]
            if told.any():
                self._tell(column, float(told.max()), now, {int(n) for n in np.flatnonzero(told)})
        for column in self._of_job:
            if job[column.at] > 0.0:
                self._tell(column, float(job[column.at]), now, set())
        self._compare(nodes, now)

    def newest(self, most: int) -> list[Notice]:
        """The runs that went on last, in order of their beginning."""
        found = sorted(self._runs, key=lambda notice: (notice.last, notice.first))[-most:] if most > 0 else []
        return sorted(found, key=lambda notice: (notice.first, notice.last))

    def _tell(self, column: _Column, level: float, now: int, nodes: set[int]) -> None:
        value = column.value
        if column.signal.family == "count":
            value = _COUNTS[min(max(round(level * (len(_COUNTS) - 1)), 1), len(_COUNTS) - 1)]
        text = f"{column.signal.title}: {value}" if value else column.signal.title
        self._add(column.signal.stream, column.signal.name + column.value, text, now, nodes)

    def _add(self, stream: str, kind: str, text: str, now: int, nodes: set[int]) -> None:
        run = self._open.get((stream, kind))
        if run is None or now - run.last > self._pause:
            run = self._open[stream, kind] = Notice(now, now, stream, text, set(nodes))
            self._runs.append(run)
        else:
            run.last, run.text, run.times = now, text, run.times + 1
            run.nodes |= nodes

    def _compare(self, nodes: np.ndarray, now: int) -> None:
        """Nodes whose samples lie far from those of the others, time after time: one outlier says nothing."""
        if len(nodes) < _LEAST_NODES:
            return
        differed: dict[tuple[str, int], int] = {}
        for column in self._samples:
            found = nodes[:, column.at]
            middle = np.median(found)
            for n in map(int, np.flatnonzero((np.abs(found - middle) >= _FAR) & (found != 0.0))):
                key = (column.signal.name, n)
                if key in differed:
                    continue
                differed[key] = self._differed.get(key, 0) + 1
                if differed[key] >= _OFTEN:
                    here, others = _worded(column.signal, found[n]), _worded(column.signal, middle)
                    text = f"{here} (others {others}): {column.signal.title}"
                    self._add(column.signal.stream, f"{column.signal.name}/{n}", text, now, {n})
        self._differed = differed


def _told_columns(episodes: Episodes) -> tuple[list[_Column], list[_Column], list[_Column]]:
    """Columns of nodes and of the job that are worth telling, and the extremes of samples of nodes."""
    network = episodes.world.network
    columns, _ = columns_of(network)
    of_node: list[_Column] = []
    of_job: list[_Column] = []
    samples: list[_Column] = []
    for s, signal in enumerate(network.spec.signal):
        hosted, at = bool(network.layout.node_of(signal.entity)[0] >= 0), int(columns.column[s])
        if KIND_OF_FAMILY[signal.family] == CONTINUOUS:
            if hosted:
                samples += [_Column(at, signal, "least"), _Column(at + 2, signal, "most")]
            continue
        values = signal.values[1:] if signal.family == "categorical" else [""]
        entities = network.layout.count(signal.entity)
        for i, value in enumerate(values):
            if _chance(signal, i + 1, entities) < _SELDOM:
                (of_node if hosted else of_job).append(_Column(at + i, signal, value))
    return of_node, of_job, samples


def _chance(signal: Signal, value: int, entities: int) -> float:
    """Expected number of entities that say it in a slice of a healthy job, in the phase that is worst for it."""
    healthy = [signal, *(rule for rule in signal.when if not rule.needs and rule.job in (None, "moving"))]
    found = []
    for given in healthy:
        if signal.family == "first_speaker":
            found.append(_most(given.speaks))
        elif signal.family == "chorus":
            rest = given.speak.rest if given.speak is not None else 0.0
            found.append(_most(given.told) * rest * entities + float(given.quiet or 0.0) * entities)
        elif signal.family == "presence":
            found.append(_most(given.probability) * entities)
        elif given.probabilities is not None:
            table = np.atleast_2d(np.asarray(given.probabilities, dtype=np.float64))
            said = table[:, 1:].sum(axis=1) if signal.family == "count" else table[:, value]
            found.append(float(said.max()) * entities)
    return max(found, default=0.0)


def _most(number: float | list[float] | None) -> float:
    return float(np.max(number)) if number is not None else 0.0


def _worded(signal: Signal, standardised: float) -> str:
    """A standardised sample in its own unit; of a ratio, in per cent."""
    mean, sd = (float(x[1] if isinstance(x, list) else x or 0.0) for x in (signal.mean, signal.sd))
    value = mean + sd * float(standardised)
    if signal.family == "log_ratio":
        return f"{100.0 * math.exp(value):.0f} %"
    return f"{value:.2f}" if abs(value) < 10.0 else f"{value:.0f}"


def place_of(nodes: set[int], layout: Layout) -> str:
    """Some nodes in words; of the job none."""
    if not nodes:
        return "job"
    if len(nodes) == 1:
        return f"node {min(nodes)}"
    return "all nodes" if len(nodes) == layout.nodes else f"{len(nodes)} nodes"
