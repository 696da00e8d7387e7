"""Here lives the order of evidence: readings of several files on one line of slices.

Readings with a time on the same clock are merged by it.  Files without a common clock are
parallel lists of which only the order is known; how they interleave is a nuisance with a small
declared set of candidates, each as likely as another.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clusterorch.diagnosis.universe import Universe
from clusterorch.inference.excerpts import Kind, Mark, Shown, info_kinds, line_kinds
from clusterorch.inference.marks import Item
from clusterorch.models.compile import Network
from clusterorch.models.rows import CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import PHASES, Signal
from clusterorch.probability.families import count_class
from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.readings import PhaseMark, Reading
from clusterorch.telemetry.timestamps import find_stamp

_LEAST_SECONDS = 0.5  # between two lines whose clock tells the same time
MOST_ALIGNMENTS = 6
_COMPARED = 256  # characters of a line by which a copy of it is told


@dataclass(frozen=True)
class Entry:
    """A reading on the line: its item, and where it came from."""

    reading: Reading
    item: Item


def distinct(readings: Sequence[Reading]) -> list[Reading]:
    """Readings without copies: a line that a fan-out prints once more, perhaps under another rank, is one line."""
    kept: list[Reading] = []
    first: dict[tuple[object, ...], tuple[str, int]] = {}
    samples: set[tuple[object, ...]] = set()
    for reading in readings:
        body = peel(reading.text, find_stamp(reading.text)).text.strip()[:_COMPARED]
        line = (reading.file, reading.line)
        copy = first.setdefault((reading.entity, reading.time, body), line) != line
        # The same sample may come in lines that differ in what else they say.
        sample = (reading.signal, reading.entity, reading.value, reading.time)
        if not copy and not (isinstance(reading.value, float) and sample in samples):
            samples.add(sample)
            kept.append(reading)
    return kept


def tracks(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Readings grouped by what their order is known by: one track a clock, one an untimed file."""
    # An untimed line of a file with a clock belongs to that clock.
    clock_of_file = {r.file: r.clock for r in readings if r.clock != "none"}
    found: dict[str, list[Reading]] = {}
    for reading in readings:
        clock = reading.clock if reading.clock != "none" else clock_of_file.get(reading.file, f"file:{reading.file}")
        found.setdefault(clock, []).append(reading)
    return sorted((_in_order(group) for group in found.values()), key=_content)


def _content(group: list[Reading]) -> list[tuple[str, str]]:
    """What a track or a file says, whatever its files, hosts and times are called: an order for what has none."""
    return list(dict.fromkeys((reading.signal, str(reading.value)) for reading in group))


def _in_order(group: list[Reading]) -> list[Reading]:
    files: dict[str, list[Reading]] = {}
    for reading in group:
        files.setdefault(reading.file, []).append(reading)
    for lines in files.values():
        # Inside one file the order of its lines stands, whatever odd times it prints.
        lines.sort(key=lambda r: r.order)
    if len(files) == 1:
        return next(iter(files.values()))
    rank = {file: i for i, file in enumerate(sorted(files, key=lambda file: _content(files[file])))}
    return sorted(group, key=lambda r: (_when(r), rank[r.file], r.order))


def _when(reading: Reading) -> float:
    time = reading.time if reading.time is not None else reading.after
    return -np.inf if time is None else time


def alignments(groups: list[list[Reading]]) -> list[list[Reading]]:
    """Candidate interleavings: one after the other in a few orders, and spread evenly over each other.

    Up to three tracks come in every order; of more, each comes first once, and last once, as far as candidates go.
    """
    if len(groups) == 1:
        return [list(groups[0])]
    count = len(groups)
    if count < 4:
        orders = list(itertools.permutations(range(count)))
    else:
        first = [i * count // (MOST_ALIGNMENTS // 2) for i in range(MOST_ALIGNMENTS // 2)]
        turns = [tuple((i + k) % count for k in range(count)) for i in first]
        orders = [order for turn in turns for order in (turn, turn[::-1])]
    candidates = [[r for g in order for r in groups[g]] for order in orders]
    spread = [((i + 0.5) / len(group), g, r) for g, group in enumerate(groups) for i, r in enumerate(group)]
    candidates.append([r for _, _, r in sorted(spread, key=lambda x: (x[0], x[1]))])
    return candidates


def entries(order: Sequence[Reading], network: Network, universe: Universe, phases: Sequence[PhaseMark]) -> list[Entry]:
    """Items in order.  Gaps are known between readings of one clock, else unknown.

    A mark that names nobody new of a kind already shown is no evidence, and neither is when it was printed.
    """
    slice_seconds = network.spec.model.slice_seconds
    index = {signal.name: s for s, signal in enumerate(network.spec.signal)}
    number = {kind: i for i, kind in enumerate(line_kinds(network))}
    shown, info = Shown(), info_kinds(network)
    marked = _Marks(phases)
    result: list[Entry] = []
    previous: Reading | None = None
    phase: int | None = None
    for reading in order:
        made = observation(reading, index[reading.signal], network, universe) if reading.signal in index else None
        if made is None:
            continue
        mark, values = made
        if mark is not None and not shown.admit(number[mark.kind], mark.entities, info)[1]:
            continue
        gap = _gap(previous, reading, slice_seconds)
        # What tells no phase of its own is in that of what came before it.
        told = marked.phase(reading)
        phase = phase if told is None else told
        result.append(Entry(reading, Item(gap, mark, values, phase)))
        previous = reading
    return result


def thinned(order: Sequence[Reading], network: Network, most: int) -> list[Reading]:
    """At most about `most` samples, evenly spread over those that there are; marks all stay."""
    declared = {signal.name: signal for signal in network.spec.signal}
    samples = [
        i
        for i, r in enumerate(order)
        if (s := declared.get(r.signal)) and (KIND_OF_FAMILY[s.family] == CONTINUOUS or not s.lines)
    ]
    if len(samples) <= most:
        return list(order)
    kept = {samples[int(i)] for i in np.linspace(0, len(samples) - 1, most)}
    dropped = set(samples) - kept
    return [reading for i, reading in enumerate(order) if i not in dropped]


def _gap(previous: Reading | None, reading: Reading, slice_seconds: float) -> float | None:
    """Slices between two lines of one clock, with the part of a slice that is left; None if not known."""
    if previous is None:
        return 1.0  # the slice of the first line may be the one in which it began
    same_clock = previous.clock == reading.clock != "none"
    if same_clock and previous.time is not None and reading.time is not None:
        # Clocks count from far away, and most tell whole seconds only.
        return max(_LEAST_SECONDS, round(reading.time - previous.time, 5)) / slice_seconds
    return None


class _Marks:
    """Where phases are marked: in each file by order, and on the common clock by time."""

    def __init__(self, phases: Sequence[PhaseMark]) -> None:
        self.files: dict[str, tuple[list[int], list[str]]] = {}
        for mark in sorted(phases, key=lambda p: p.order):
            orders, names = self.files.setdefault(mark.file, ([], []))
            orders.append(mark.order)
            names.append(mark.phase)
        timed = sorted((m for m in phases if m.clock == "wall" and m.time is not None), key=lambda m: (m.time, m.order))
        self.times = [float(mark.time or 0.0) for mark in timed]
        self.names = [mark.phase for mark in timed]

    def phase(self, reading: Reading) -> int | None:
        """The phase last marked before a reading, in its own file first; None if none is."""
        orders, names = self.files.get(reading.file, ([], []))
        at = bisect.bisect_right(orders, reading.order)
        if at:
            return PHASES.index(names[at - 1])
        if reading.clock == "wall" and reading.time is not None and self.times:
            at = bisect.bisect_right(self.times, reading.time)
            return PHASES.index(self.names[at - 1]) if at else None
        return None


def observation(
    reading: Reading, signal: int, network: Network, universe: Universe
) -> tuple[Mark | None, np.ndarray | None] | None:
    """A reading as a mark or as values of a slice; None if it is no evidence."""
    declared = network.spec.signal[signal]
    family = KIND_OF_FAMILY[declared.family]
    if family == FIRST:
        return None  # whose error came first is what the order of the marks says already
    if family == CONTINUOUS or not declared.lines:
        number, entity = _number(reading, declared), universe.some(reading.entity)
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
    return Mark(Kind(signal, value), universe.entities(reading.entity)), None


def _number(reading: Reading, declared: Signal) -> float | None:
    """What stands for a value in a slice: a number as it is, of all else the number of its class."""
    if declared.values:
        return float(declared.values.index(str(reading.value))) if reading.value in declared.values else None
    if not isinstance(reading.value, int | float):
        return None
    if declared.family == "count":
        return float(count_class(reading.value))
    return float(reading.value > 0) if declared.family == "presence" else float(reading.value)
