"""Here lives the relation between what starts and what comes up beside it: ports come up whenever their host does."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clusterorch.telemetry.readings import EntityRef, Reading
from clusterorch.telemetry.rows import Operator

_LINES_BESIDE = 8  # how far a start reaches where no clock tells
MOST_STARTS = 10_000


class Start(NamedTuple):
    """A line by which a host, a driver or a port starts."""

    file: str
    time: float | None
    clock: str
    order: int


def told_beside_starts(operator: Operator, readings: Sequence[Reading], starts: Iterable[Start]) -> list[Reading]:
    """All readings but those of the operator's signal that a start explains.

    What comes up after it was seen to go down comes back, whatever starts beside it.  In files without times a
    start reaches over a few lines.

    Args:
        operator: the row; `after` is the signal that says that something went down, `seconds` the reach of a start.
        readings: in any order.
        starts: the lines of all files by which something starts.
    """
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    orders: dict[str, list[int]] = defaultdict(list)
    for start in starts:
        orders[start.file].append(start.order)
        if start.time is not None:
            times[start.file, start.clock].append(start.time)
    if not orders:
        return list(readings)
    for known in (*times.values(), *orders.values()):
        known.sort()
    went_down: dict[tuple[str, EntityRef], int] = {}
    for reading in readings:
        if reading.signal == operator.after:
            key = reading.file, reading.entity
            went_down[key] = min(reading.order, went_down.get(key, reading.order))

    def explained(reading: Reading) -> bool:
        if went_down.get((reading.file, reading.entity), reading.order) < reading.order:
            return False
        if reading.time is not None:
            return _near(times.get((reading.file, reading.clock), ()), reading.time, operator.seconds)
        return _near(orders.get(reading.file, ()), reading.order, _LINES_BESIDE)

    return [reading for reading in readings if reading.signal != operator.signal or not explained(reading)]


def _near(places: Sequence[float], place: float, reach: float) -> bool:
    at = bisect.bisect_left(places, place - reach)
    return at < len(places) and places[at] <= place + reach
