"""Here lives what a policy sees of the telemetry: a rolling window of rows, one a decision, in order of arrival.

A row holds what has arrived since the row before and nothing else, so rows never change once written.  For every node:
of signals with classes the highest over its entities, or of unordered ones whether each was told; of continuous ones
the least, mean and largest newest sample, standardised by the declared background.  A cell that came late lands in the
row of its arrival, and the age of what a row tells stands beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.models.compile import Network
from clusterorch.models.rows import CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import STREAMS

MOST_DEVIATIONS = 8.0  # of a standardised sample
OLDEST = 40  # slices, age at which a cell counts as forgotten
_CLASSES = {"presence": 2, "chorus": 2, "count": 5}


class Columns(NamedTuple):
    """Where each signal goes.  S signals."""

    stream: np.ndarray  # [S]
    offset: np.ndarray  # [S + 1] in the flat values
    per_node: np.ndarray  # [S] values in the cell of a node; 0: the cell of the job carries it
    continuous: np.ndarray  # [S]
    unordered: np.ndarray  # [S] whether every class has a column of its own
    first: np.ndarray  # [S] ranks on a node for a first speaker, else 0
    column: np.ndarray  # [S] first column, of the node rows or of the job rows
    shift: np.ndarray  # [S] subtracted
    scale: np.ndarray  # [S] divided by


class Window(NamedTuple):
    """What has arrived.  W rows, N nodes, F features of a node, J of the job, R slices that may be late."""

    values: np.ndarray  # [B, R, width]
    arrival: np.ndarray  # [B, R, streams, N + 1]
    node: np.ndarray  # [B, N, F] the row that is being filled
    job: np.ndarray  # [B, J]
    node_slice: np.ndarray  # [B, N, S] slice of the sample that a continuous column holds, -1 none
    job_slice: np.ndarray  # [B, S]
    newest: np.ndarray  # [B, streams, N + 1] newest slice that has arrived, -1 none
    node_rows: np.ndarray  # [B, W, N, F + 2 streams + published]
    job_rows: np.ndarray  # [B, W, J + 2 streams + published]
    real: np.ndarray  # [B, W] 1 for a row, 0 for padding before the first


class Names(NamedTuple):
    """Names of the columns of a row; the first `told_...` of them come from signals."""

    node: list[str]
    job: list[str]
    told_node: int
    told_job: int


def columns_of(network: Network) -> tuple[Columns, Names]:
    """Columns of a network's signals, and their names."""
    layout, node, job, rows = network.layout, [], [], []
    for signal in network.spec.signal:
        kind = KIND_OF_FAMILY[signal.family]
        hosted = layout.node_of(signal.entity)[0] >= 0
        names = node if hosted else job
        many = hosted and kind == CONTINUOUS
        at = len(names)
        unordered = signal.family == "categorical"
        parts = ("min", "mean", "max") if many else signal.values[1:] if unordered else ()
        names += [f"{signal.name}.{part}" for part in parts] or [signal.name]
        mean, sd = (_middle(signal.mean), _middle(signal.sd)) if kind == CONTINUOUS else (0.0, 1.0)
        classes = _CLASSES.get(signal.family, len(signal.values) or 2)
        per_node = layout.count(signal.entity) // layout.nodes if hosted else 0
        first = kind == FIRST
        rows.append(
            (
                STREAMS.index(signal.stream), 0 if first else per_node, kind == CONTINUOUS, unordered,
                per_node if first else 0, at, mean, sd if kind == CONTINUOUS else classes - 1.0,
            )
        )  # fmt: skip
    table = np.array(rows, dtype=np.float64)
    whole = [table[:, i].astype(np.int64) for i in range(6)]
    offset = network.signal_offset.astype(np.int64)
    return Columns(whole[0], offset, *whole[1:], table[:, 6].copy(), table[:, 7].copy()), Names(
        [*node, *_ages()], [*job, *_ages()], len(node), len(job)
    )


def _ages() -> list[str]:
    return [f"{stream}.{what}" for stream in STREAMS for what in ("arrived", "age")]


def _middle(number: float | list[float] | None) -> float:
    """A parameter at the middle severity."""
    return float(number[1] if isinstance(number, list) else number or 0.0)


def new_window(network: Network, names: Names, batch: int, rows: int) -> Window:
    """An empty window."""
    nodes, streams, lag = network.layout.nodes, len(STREAMS), max(s.max_delay for s in network.spec.stream)
    signals, told_node, told_job = len(network.spec.signal), names.told_node, names.told_job
    return Window(
        np.full((batch, lag + 1, network.width), np.nan),
        np.full((batch, lag + 1, streams, nodes + 1), -1, dtype=np.int32),
        np.zeros((batch, nodes, told_node), dtype=np.float32), np.zeros((batch, told_job), dtype=np.float32),
        np.full((batch, nodes, signals), -1, dtype=np.int32), np.full((batch, signals), -1, dtype=np.int32),
        np.full((batch, streams, nodes + 1), -1, dtype=np.int32),
        np.zeros((batch, rows, nodes, len(names.node)), dtype=np.float32),
        np.zeros((batch, rows, len(names.job)), dtype=np.float32), np.zeros((batch, rows), dtype=np.float32),
    )  # fmt: skip


def empty_rows(window: Window, rows: np.ndarray) -> None:
    """Begin some instances again.  [n] rows"""
    for name, column in zip(window._fields, window, strict=True):
        column[rows] = (
            np.nan if name == "values" else -1 if name in ("arrival", "node_slice", "job_slice", "newest") else 0
        )


@njit(cache=True, error_model="numpy")
def gather(columns: Columns, window: Window, times: np.ndarray, values: np.ndarray, arrival: np.ndarray) -> None:
    """Take in the newest slice of the instances that run: what arrives in it, of any slice.  times: [B], -1 rests

    To hand a tuple of arrays to a function counts a reference to each, so the loops pass arrays one by one.
    """
    slots, nodes, streams = window.values.shape[1], window.node.shape[1], arrival.shape[1]
    some = np.zeros(streams, dtype=np.bool_)
    kept, came, newest = window.values, window.arrival, window.newest
    node, job, node_slice, job_slice = window.node, window.job, window.node_slice, window.job_slice
    for b in range(times.shape[0]):
        t = times[b]
        if t < 0:
            continue
        kept[b, t % slots, :] = values[b]
        came[b, t % slots, :, :] = arrival[b]
        for back in range(min(slots - 1, t), -1, -1):
            measured, at, any_came = t - back, (t - back) % slots, False
            for stream in range(streams):
                some[stream] = False
                for c in range(nodes + 1):
                    if came[b, at, stream, c] == t:
                        some[stream] = any_came = True
                        newest[b, stream, c] = max(newest[b, stream, c], measured)
            if not any_came:
                continue
            for s in range(columns.stream.shape[0]):
                stream = columns.stream[s]
                if not some[stream]:
                    continue
                lo, hi, per_node, first = (
                    columns.offset[s],
                    columns.offset[s + 1],
                    columns.per_node[s],
                    columns.first[s],
                )
                column, shift, scale = columns.column[s], columns.shift[s], columns.scale[s]
                kind = 2 if columns.continuous[s] else 1 if columns.unordered[s] else 0
                if per_node > 0:
                    for n in range(nodes):
                        if came[b, at, stream, n] == t:
                            lowest = lo + n * per_node
                            if kind == 2:
                                if measured >= node_slice[b, n, s]:
                                    _spread(
                                        kept[b, at], lowest, lowest + per_node, node[b, n], column, shift, scale,
                                        node_slice[b, n], s, measured,
                                    )  # fmt: skip
                            elif kind == 1:
                                for i in range(lowest, lowest + per_node):
                                    x = kept[b, at, i]
                                    if x >= 1.0:
                                        node[b, n, column + int(x) - 1] = 1.0
                            else:
                                highest = 0.0
                                for i in range(lowest, lowest + per_node):
                                    highest = max(highest, kept[b, at, i])
                                node[b, n, column] = max(node[b, n, column], np.float32(highest / scale))
                elif came[b, at, stream, nodes] == t:
                    if first > 0:
                        if kept[b, at, lo] >= 0.0:
                            node[b, int(kept[b, at, lo]) // first, column] = 1.0
                        continue
                    for i in range(lo, hi):
                        x = kept[b, at, i]
                        if not (x == x and x != np.inf):
                            continue
                        if kind == 1:
                            if x >= 1.0:
                                job[b, column + int(x) - 1] = 1.0
                        elif kind == 0:
                            job[b, column] = max(job[b, column], np.float32(x / scale))
                        elif measured >= job_slice[b, s]:
                            job_slice[b, s] = measured
                            job[b, column] = _standard(x, shift, scale)


@njit(cache=True, error_model="numpy")
def _spread(values, lo, hi, out, column, shift, scale, slices, s, measured):
    """Least, mean and largest of the samples of a cell that holds any."""
    least, most, total, taken = np.inf, -np.inf, 0.0, 0
    for i in range(lo, hi):
        x = values[i]
        if x == x and x != np.inf:
            least, most, total, taken = min(least, x), max(most, x), total + x, taken + 1
    if taken > 0:
        slices[s] = measured
        out[column] = _standard(least, shift, scale)
        out[column + 1] = _standard(total / taken, shift, scale)
        out[column + 2] = _standard(most, shift, scale)


@njit(cache=True, error_model="numpy")
def _standard(x, shift, scale):
    return np.float32(min(max((x - shift) / scale, -MOST_DEVIATIONS), MOST_DEVIATIONS))


@njit(cache=True, error_model="numpy")
def write_rows(
    window: Window, times: np.ndarray, since: np.ndarray, rows: np.ndarray, of_node: np.ndarray, of_job: np.ndarray
) -> None:
    """Close the row of some instances.

    times: [B] slices played; since: [B] those of the row before; rows: [n]; of_node, of_job: [B, N, ...], [B, ...]
    published, the last columns of a row.
    """
    streams, nodes = window.newest.shape[1], window.node.shape[1]
    features, job_features = window.node.shape[2], window.job.shape[1]
    published, job_published = features + 2 * streams, job_features + 2 * streams
    for i in range(rows.shape[0]):
        b = rows[i]
        for w in range(window.node_rows.shape[1] - 1):
            window.node_rows[b, w, :, :] = window.node_rows[b, w + 1]
            window.job_rows[b, w, :] = window.job_rows[b, w + 1]
            window.real[b, w] = window.real[b, w + 1]
        window.real[b, -1] = 1.0
        for n in range(nodes):
            window.node_rows[b, -1, n, :features] = window.node[b, n]
            window.node_rows[b, -1, n, published:] = of_node[b, n]
            for stream in range(streams):
                _tell_age(window, b, n, stream, times[b], since[b], window.node_rows[b, -1, n], features + 2 * stream)
        window.job_rows[b, -1, :job_features] = window.job[b]
        window.job_rows[b, -1, job_published:] = of_job[b]
        for stream in range(streams):
            _tell_age(window, b, nodes, stream, times[b], since[b], window.job_rows[b, -1], job_features + 2 * stream)
        window.node[b, :, :] = 0.0
        window.job[b, :] = 0.0
        window.node_slice[b, :, :] = -1
        window.job_slice[b, :] = -1


@njit(cache=True, error_model="numpy")
def _tell_age(window, b, c, stream, time, since, out, at):
    """Whether a cell of a slice after the row before has arrived, and the age of the newest, 1 the oldest."""
    newest = window.newest[b, stream, c]
    out[at] = 1.0 if newest >= since else 0.0
    out[at + 1] = min(time - 1 - newest, OLDEST) / OLDEST if newest >= 0 else 1.0
