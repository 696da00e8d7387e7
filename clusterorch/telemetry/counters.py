"""Here lives the reader of counter dumps: what a counter rose by, never where it stood."""

from __future__ import annotations

import re
from typing import NamedTuple

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef

_COUNTER = re.compile(
    r"\s*(?:\S{0,120}/)?(?P<name>[a-z][a-z0-9_]{2,80})(?::|=|\s)\s*(?P<before>\d{1,20})(?:\s*->\s*(?P<after>\d{1,20}))?\s*$"
)
_MOST_REMEMBERED = 100_000


class Rise(NamedTuple):
    """A counter of a device that rose."""

    signal: str
    by: int
    entity: EntityRef
    row: str


class Counters:
    """Counters of one file; a dump that comes twice gives the difference."""

    def __init__(self, formats: Formats) -> None:
        self._known = formats.counters
        self._seen: dict[tuple[str | None, str | None, str], int] = {}

    def read(self, text: str, host: str | None, device: str | None) -> list[Rise] | None:
        """What a line says, or None if it is no counter that the formats know.

        A number that stands alone says nothing: the counter may have stood there for months.
        """
        found = _COUNTER.match(text, 0, 400)
        if found is None or found["name"] not in self._known:
            return None
        name, before = found["name"], int(found["before"])
        key = (host, device, name)
        if found["after"]:
            after = int(found["after"])
        else:
            after, before = before, self._seen.get(key, before)
        if len(self._seen) < _MOST_REMEMBERED or key in self._seen:
            self._seen[key] = after
        row = self._known[name]
        if row.signal is None or after <= before:
            return []
        return [Rise(row.signal, after - before, EntityRef("link", host, device), row.name)]
