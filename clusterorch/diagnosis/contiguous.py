"""Here lives the reading of contiguous logs: in them what is not printed counts as well as what is.

A stream is contiguous if its files keep talking: informational lines or samples in a fair share of the
slices of a long enough span.  Its signals are then laid out slice by slice as the filter reads telemetry.  A
signal that is merely informational counts as absent only once the stream has shown it: until then
nobody knows whether it is logged at all.  Samples are taken as they come.

Complete logs hold everything, from the first line to the last: then every stream counts, to the end, for whoever
there is, named or not, and what a sample does not show is not so.  Nobody can see that of logs; it must be said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from clusterorch.diagnosis.universe import Universe
from clusterorch.models.compile import Network
from clusterorch.models.rows import CHORUS, CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import PHASES
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.readings import FileSummary, PhaseMark, Reading

LEAST_SLICES, LEAST_LINES, LEAST_SHARE = 20, 15, 0.2
MOST_SLICES = 20_000
COUNT_EDGES = (1, 2, 10, 100)


@dataclass(frozen=True)
class Laid:
    """Logs laid out in slices: values [slices, width], the phase of each, and the readings in each.

    undated: readings of files that tell no time; their signals are in no slice, and nobody knows of their absence.
    """

    values: np.ndarray
    phases: list[int]
    readings: list[list[Reading]]
    streams: frozenset[str]
    undated: list[Reading] = field(default_factory=list)


def wall_clock(readings: Iterable[Reading]) -> list[Reading]:
    """Readings with a time on the common clock."""
    return [r for r in readings if r.clock == "wall" and r.time is not None]


def dated(readings: Iterable[Reading], files: Iterable[FileSummary]) -> list[Reading]:
    """The same readings; a line without a time, in a file on the common clock, has that of the line before it."""
    clocked = {file.file for file in files if file.clock == "wall"}
    return [
        r._replace(time=r.after, clock="wall") if r.time is None and r.after is not None and r.file in clocked else r
        for r in readings
    ]


@cache
def gathered_by_hand(format_files: tuple[Path, ...]) -> frozenset[str]:
    """Signals that only a dump or a listing tells, made when somebody asks: without one nobody knows."""
    templates = load_formats(format_files).template.values()
    return frozenset(template.signal for template in templates if template.once)


def contiguous_streams(network: Network, readings: Sequence[Reading]) -> frozenset[str]:
    """Streams whose informational lines or samples fill most slices of a span of at least five minutes."""
    declared = {s.name: s for s in network.spec.signal}
    dt = network.spec.model.slice_seconds
    found = set()
    for stream in {s.stream for s in network.spec.signal}:
        regular = {
            int((r.time or 0.0) // dt)
            for r in wall_clock(readings)
            if r.signal in declared
            and declared[r.signal].stream == stream
            and (declared[r.signal].verbosity == "info" or not declared[r.signal].lines)
        }
        if regular:
            span = max(regular) - min(regular) + 1
            if span >= LEAST_SLICES and len(regular) >= max(LEAST_LINES, LEAST_SHARE * span):
                found.add(stream)
    return frozenset(found)


def lay_out(
    network: Network,
    universe: Universe,
    readings: Sequence[Reading],
    marks: Sequence[PhaseMark],
    streams: frozenset[str],
    *,
    asked_for: frozenset[str] | None = None,
) -> Laid:
    """Readings of contiguous streams in slices, from the first timed line of all to the last.

    Args:
        network: compiled.
        universe: of what the readings name.
        readings: without copies.
        marks: of the phases.
        streams: the contiguous ones.
        asked_for: the logs are said to hold everything but these signals; None: nobody says so.
    """
    dt = network.spec.model.slice_seconds
    timed = sorted(wall_clock(readings), key=lambda r: (r.time, r.file, r.order))
    first = float(timed[0].time or 0.0)
    count = min(int((float(timed[-1].time or 0.0) - first) // dt) + 1, MOST_SLICES)
    values = np.full((count, network.width), np.nan)
    grouped: list[list[Reading]] = [[] for _ in range(count)]
    index = {s.name: i for i, s in enumerate(network.spec.signal)}
    for reading in timed:
        at = int((float(reading.time or 0.0) - first) // dt)
        if at < count and reading.signal in index:
            grouped[at].append(reading)
    undated = [r for r in readings if r.time is None and r.signal in index]
    if asked_for is not None:
        _fill_all(network, universe, values)
        _fill_samples(network, universe, timed, values, first)
    else:
        _fill_silence(network, universe, timed, values, streams, first)
    for signal in ({r.signal for r in undated} | (asked_for or frozenset())) & index.keys():
        values[:, network.slice_of(index[signal])] = np.nan
    if asked_for is None:
        grouped = _slipped(network, grouped)
    for at, group in enumerate(grouped):
        _fill_readings(network, universe, group, values[at], index, streams)
    return Laid(values, _phases(marks, first, dt, count), grouped, streams, undated)


def _slipped(network: Network, grouped: list[list[Reading]]) -> list[list[Reading]]:
    """Slices that begin with what happened in them.

    A job that steps and dies within one slice is down in it.  Where borders lie in a log is for us to say: what is
    merely sampled or informational and comes before the first line of trouble belongs to the slice before.
    """
    everyday = {s.name for s in network.spec.signal if s.verbosity == "info" or not s.lines}
    slipped: list[list[Reading]] = [list(group) for group in grouped]
    for at in range(1, len(slipped)):
        first = next((i for i, r in enumerate(slipped[at]) if r.signal not in everyday), None)
        if first:
            slipped[at - 1].extend(slipped[at][:first])
            del slipped[at][:first]
    return slipped


def _fill_all(network: Network, universe: Universe, values: np.ndarray) -> None:
    """Zero, nobody and nothing of every kind of line, for all that there is."""
    for s, signal in enumerate(network.spec.signal):
        if not signal.lines or KIND_OF_FAMILY[signal.family] == CONTINUOUS:
            continue
        at = network.slice_of(s)
        if KIND_OF_FAMILY[signal.family] == FIRST:
            values[:, at] = -1.0
        else:
            values[:, at.start + np.flatnonzero(universe.present[signal.entity])] = 0.0


def _fill_samples(network: Network, universe: Universe, timed: list[Reading], values: np.ndarray, first: float) -> None:
    """What is sampled and not said: the first class, or, of numbers that were there before, that there is none."""
    dt, count = network.spec.model.slice_seconds, len(values)
    sampled = {s.name: s for s in network.spec.signal if not s.lines or KIND_OF_FAMILY[s.family] == CONTINUOUS}
    there: dict[tuple[str, str], np.ndarray] = {}
    since: dict[tuple[str, int], int] = {}
    for reading in timed:
        signal = sampled.get(reading.signal)
        at, entity = int((float(reading.time or 0.0) - first) // dt), universe.entity(reading.entity)
        if signal is not None and at < count and entity >= 0:
            size = network.layout.count(signal.entity)
            there.setdefault((signal.stream, signal.entity), np.zeros((count, size), dtype=bool))[at, entity] = True
            since.setdefault((signal.name, entity), at)
    measured = {(s.stream, s.entity) for s in sampled.values() if KIND_OF_FAMILY[s.family] == CONTINUOUS}
    for s, signal in enumerate(network.spec.signal):
        kin = (signal.stream, signal.entity)
        if signal.name not in sampled:
            continue
        block = values[:, network.slice_of(s)]
        if kin not in measured:  # a counter that stands still is not printed
            block[:, universe.present[signal.entity]] = 0.0
            continue
        if (seen := there.get(kin)) is None:
            continue
        if KIND_OF_FAMILY[signal.family] != CONTINUOUS:
            block[seen] = 0.0
            continue
        for entity in range(block.shape[1]):
            # Before the first one nobody knows whether it is told, or what the usual level is.
            from_then_on = np.arange(count) > since.get((signal.name, entity), count)
            # The stream of a job is there all along; the row of a device may be missing.
            block[from_then_on & (seen[:, entity] | (signal.entity == "job")), entity] = np.inf


def _fill_silence(
    network: Network,
    universe: Universe,
    timed: list[Reading],
    values: np.ndarray,
    streams: frozenset[str],
    first: float,
) -> None:
    """Zero, nobody and nothing, wherever a contiguous stream was alive and printed none of a kind."""
    dt = network.spec.model.slice_seconds
    seen = {r.signal for r in timed}
    for s, signal in enumerate(network.spec.signal):
        if signal.stream not in streams or not signal.lines or KIND_OF_FAMILY[signal.family] == CONTINUOUS:
            continue
        if signal.verbosity == "info" and signal.name not in seen:
            continue
        alive = [r for r in timed if r.stream == signal.stream]
        start = int((float(alive[0].time or 0.0) - first) // dt)
        stop = int((float(alive[-1].time or 0.0) - first) // dt) + 1
        at = network.slice_of(s)
        if KIND_OF_FAMILY[signal.family] == FIRST:
            values[start:stop, at] = -1.0
        else:
            named = [n for (kind, n) in universe.names if kind == signal.entity] if signal.entity != "job" else [0]
            values[start:stop, at.start + np.array(sorted(named), dtype=np.int64)] = 0.0


def _fill_readings(
    network: Network,
    universe: Universe,
    group: list[Reading],
    row: np.ndarray,
    index: dict[str, int],
    streams: frozenset[str],
) -> None:
    counts: dict[int, float] = {}
    for reading in group:
        s = index[reading.signal]
        signal = network.spec.signal[s]
        kind = KIND_OF_FAMILY[signal.family]
        if signal.stream not in streams and signal.lines:
            continue
        entity = 0 if kind == FIRST else universe.entity(reading.entity)
        if entity < 0:
            continue
        at = int(network.signal_offset[s]) + entity
        if kind == FIRST:
            row[at] = universe.entity(reading.entity) if row[at] < 0 else row[at]
        elif kind == CONTINUOUS:
            if isinstance(reading.value, int | float):
                row[at] = float(reading.value)
        elif signal.values:
            if reading.value in signal.values:
                row[at] = float(signal.values.index(str(reading.value)))
        elif signal.family == "count":
            counts[at] = counts.get(at, 0.0) + (float(reading.value) if isinstance(reading.value, int | float) else 1.0)
            row[at] = float(np.searchsorted(COUNT_EDGES, counts[at], side="right"))
        elif kind == CHORUS or reading.value:
            row[at] = 1.0


def _phases(marks: Sequence[PhaseMark], first: float, dt: float, count: int) -> list[int]:
    """Of each slice the phase that most of it was in; a job is taken to be stepping before any mark."""
    timed = sorted((m for m in marks if m.time is not None and m.clock == "wall"), key=lambda m: (m.time, m.order))
    starts = [(0.0, "step"), *((max(0.0, float(m.time or 0.0) - first) / dt, m.phase) for m in timed)]
    spent = np.zeros((count, len(PHASES)))
    for (start, phase), (stop, _) in pairwise([*starts, (float(count), "")]):
        for t in range(int(start), min(int(np.ceil(stop)), count)):
            spent[t, PHASES.index(phase)] += min(stop, t + 1.0) - max(start, float(t))
    return [int(phase) for phase in spent.argmax(axis=1)]
