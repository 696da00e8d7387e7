"""Here lives the order of evidence: readings of several files on one line of slices.

Readings with a time on the same clock are merged by it.  Files without a common clock are
parallel lists of which only the order is known; how they interleave is a nuisance with a small
declared set of candidates, each as likely as another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clusterorch.diagnosis.universe import Universe
from clusterorch.inference.excerpts import Kind, Mark
from clusterorch.inference.marks import Item
from clusterorch.models.compile import Network
from clusterorch.models.rows import CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import PHASES
from clusterorch.telemetry.readings import PhaseMark, Reading

MOST_ALIGNMENTS = 6


@dataclass(frozen=True)
class Entry:
    """A reading on the line: its item, and where it came from."""

    reading: Reading
    item: Item


def tracks(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Readings grouped by what their order is known by: one track a clock, one an untimed file."""
    found: dict[str, list[Reading]] = {}
    for reading in readings:
        clock = reading.clock
        if clock == "none":
            # An untimed line after a timed one of its file belongs to that file's clock.
            clock = f"file:{reading.file}" if reading.after is None else f"after:{reading.file}"
        found.setdefault(clock, []).append(reading)
    clock_of_file = {r.file: r.clock for r in readings if r.clock != "none"}
    merged: dict[str, list[Reading]] = {}
    for clock, group in found.items():
        for reading in group:
            key = clock
            if clock.startswith(("after:", "file:")) and reading.file in clock_of_file:
                key = clock_of_file[reading.file]
            merged.setdefault(key, []).append(reading)
    return [_in_order(group) for group in merged.values()]


def _in_order(group: list[Reading]) -> list[Reading]:
    if len({reading.file for reading in group}) == 1:
        # Inside one file the order of its lines stands, whatever odd times it prints.
        return sorted(group, key=lambda r: r.order)
    return sorted(group, key=lambda r: (_when(r) if _when(r) is not None else -np.inf, r.file, r.order))


def _when(reading: Reading) -> float | None:
    return reading.time if reading.time is not None else reading.after


def alignments(groups: list[list[Reading]]) -> list[list[Reading]]:
    """Candidate interleavings: one after the other in a few orders, and spread evenly over each other."""
    if len(groups) == 1:
        return [list(groups[0])]
    orders = list(itertools.islice(itertools.permutations(groups), MOST_ALIGNMENTS))
    candidates = [list(itertools.chain(*order)) for order in orders]
    spread = [((i + 0.5) / len(group), g, r) for g, group in enumerate(groups) for i, r in enumerate(group)]
    candidates.append([r for _, _, r in sorted(spread, key=lambda x: (x[0], x[1]))])
    return candidates


def entries(order: Sequence[Reading], network: Network, universe: Universe, phases: Sequence[PhaseMark]) -> list[Entry]:
    """Items in order.  Gaps are known between readings of one clock, else unknown."""
    slice_seconds = network.spec.model.slice_seconds
    index = {signal.name: s for s, signal in enumerate(network.spec.signal)}
    result: list[Entry] = []
    previous: Reading | None = None
    seen: set[tuple[object, ...]] = set()
    for reading in order:
        # A line that a fan-out prints once more is no second observation.
        same = (reading.signal, reading.entity, reading.value, reading.time)
        if reading.signal not in index or (isinstance(reading.value, float) and same in seen):
            continue
        seen.add(same)
        made = _observation(reading, index[reading.signal], network, universe)
        if made is None:
            continue
        mark, values = made
        gap = _gap(previous, reading, slice_seconds)
        result.append(Entry(reading, Item(gap, mark, values, _phase(reading, phases))))
        previous = reading
    return result


def _gap(previous: Reading | None, reading: Reading, slice_seconds: float) -> int | None:
    if previous is None:
        return 0
    same_clock = previous.clock == reading.clock != "none"
    if same_clock and previous.time is not None and reading.time is not None:
        return max(0, int((reading.time - previous.time) // slice_seconds))
    return None


def _phase(reading: Reading, phases: Sequence[PhaseMark]) -> int:
    """The phase last marked in the same file; a job is taken to be stepping otherwise."""
    known = [p for p in phases if p.file == reading.file and p.order <= reading.order]
    return PHASES.index(max(known, key=lambda p: p.order).phase if known else "step")


def _observation(
    reading: Reading, signal: int, network: Network, universe: Universe
) -> tuple[Mark | None, np.ndarray | None] | None:
    declared = network.spec.signal[signal]
    entity = universe.entity(reading.entity)
    family = KIND_OF_FAMILY[declared.family]
    if family == FIRST:
        return None  # whose error came first is what the order of the marks says already
    if family == CONTINUOUS or not declared.lines:
        number = _number(reading, declared.values)
        if number is None or entity < 0:
            return None
        values = np.full(network.width, np.nan)
        values[network.signal_offset[signal] + entity] = number
        return None, values
    value = 1
    if declared.values:
        if reading.value not in declared.values:
            return None
        value = declared.values.index(str(reading.value))
    elif not reading.value:
        return None
    return Mark(Kind(signal, value), entity), None


def _number(reading: Reading, values: Sequence[str]) -> float | None:
    if values:
        return float(values.index(str(reading.value))) if reading.value in values else None
    return float(reading.value) if isinstance(reading.value, int | float) else None
