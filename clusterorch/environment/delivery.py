"""Here lives the telemetry table of a trace: from the arrays of a world to rows, and back.

A row stands for a delivered value that says something; the rows of `cells` tell which values without a row were
delivered too, and said nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterorch.environment.believer import cells_of
from clusterorch.environment.tables import CELLS, EpisodeTrace
from clusterorch.models.compile import Network
from clusterorch.models.rows import CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import STREAMS

if TYPE_CHECKING:
    import pyarrow as pa


def background(network: Network) -> np.ndarray:
    """[width] the value of each signal that says nothing: class 0, nobody, no sample (inf)."""
    nothing = np.zeros(network.width)
    for s, signal in enumerate(network.spec.signal):
        kind = KIND_OF_FAMILY[signal.family]
        nothing[network.slice_of(s)] = np.inf if kind == CONTINUOUS else -1.0 if kind == FIRST else 0.0
    return nothing


def to_columns(network: Network, values: Sequence[np.ndarray], arrival: Sequence[np.ndarray]) -> dict[str, Any]:
    """Columns of the table `telemetry`: what has arrived by the end, in order of slice, cells before values.

    values: of each slice [width].  arrival: of each slice [streams, nodes + 1], -1 never.
    """
    slices, collectors, dt = len(values), network.layout.nodes + 1, float(network.spec.model.slice_seconds)
    cells, signals = cells_of(network), network.spec.signal
    found = np.array(values).reshape(slices, network.width)
    arrives = np.array(arrival, dtype=np.int64).reshape(slices, len(STREAMS) * collectors)
    arrived = (arrives >= 0) & (arrives < slices)
    told = arrived[:, cells] & ~np.isnan(found) & (found != background(network)[None, :])
    (cell_slice, cell), (value_slice, place) = np.nonzero(arrived), np.nonzero(told)
    at_job = cell % collectors == network.layout.nodes
    of = np.searchsorted(network.signal_offset, place, side="right") - 1
    slice_of = np.concatenate([cell_slice, value_slice])
    order = np.argsort(slice_of, kind="stable")
    when = np.concatenate([arrives[cell_slice, cell], arrives[value_slice, cells[place]]])
    columns = {
        "time": (slice_of + 1) * dt,
        "arrival": (when + 1) * dt,
        "slice": slice_of,
        "stream": [STREAMS[i] for i in cell // collectors] + [signals[s].stream for s in of],
        "entity": ["job" if job else "node" for job in at_job] + [signals[s].entity for s in of],
        "number": np.concatenate([np.where(at_job, 0, cell % collectors), place - network.signal_offset[of]]),
        "signal": [CELLS] * len(cell) + [signals[s].name for s in of],
        "value": [None] * len(cell) + found[value_slice, place].tolist(),
    }
    return {key: np.asarray(column, dtype=object)[order].tolist() for key, column in columns.items()}


def delivered(trace: EpisodeTrace, network: Network) -> tuple[np.ndarray, np.ndarray]:
    """What the table `telemetry` tells, as a world's arrays: [T, width] values, [T, streams, nodes + 1] arrival.

    Values are NaN and arrivals -1 where nothing was delivered by the end.
    """
    collectors, cells = network.layout.nodes + 1, cells_of(network)
    dt, table = trace.slice_seconds, trace.tables["telemetry"]
    column = {name: table.column(name).to_numpy(zero_copy_only=False) for name in ("slice", "number", "arrival")}
    name, entity, stream = (table.column(key).to_pylist() for key in ("signal", "entity", "stream"))
    marks = np.array([one == CELLS for one in name], dtype=bool)
    at = np.where(np.array(entity, dtype=object) == "job", network.layout.nodes, column["number"]).astype(np.int64)
    arrival = np.full((trace.slices, len(STREAMS) * collectors), -1, dtype=np.int32)
    numbers = np.array([STREAMS.index(one) for one in stream], dtype=np.int64)
    mark_slice = column["slice"][marks]
    arrival[mark_slice, numbers[marks] * collectors + at[marks]] = np.rint(column["arrival"][marks] / dt) - 1
    values = np.where(arrival[:, cells] >= 0, background(network)[None, :], np.nan)
    offset = {signal.name: int(network.signal_offset[s]) for s, signal in enumerate(network.spec.signal)}
    place = np.array([offset.get(one, 0) for one in name], dtype=np.int64) + column["number"]
    values[column["slice"][~marks], place[~marks]] = _numbers(table)[~marks]
    return values, arrival.reshape(trace.slices, len(STREAMS), collectors)


def _numbers(table: pa.Table) -> np.ndarray:
    """[rows] the column of values, NaN for none."""
    return table.column("value").to_numpy(zero_copy_only=False).astype(np.float64)
