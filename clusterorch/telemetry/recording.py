"""Here lives the step from a matched line to records: readings, samples, phase marks, limits, places."""

from __future__ import annotations

import re
from typing import NamedTuple

from clusterorch.telemetry.entities import pci_name, refer, speaker_of, uuid_name
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.readings import EntityRef, LimitMark, PhaseMark, Place, Reading, Sample
from clusterorch.telemetry.rows import UNITS, Pattern
from clusterorch.telemetry.starts import MOST_STARTS, Start

_MOST_PLACES = 100_000
_MOST_OCCURRENCES = 10**9
_LONGEST_HOST = 128
_DEVICE_PARTS = {"uuid", "index", "driver", "port", "bus", "device", "netdev", "guid"}


class Line(NamedTuple):
    """Where and when a line was written, and what its prefix and its section say."""

    file: str
    number: int
    time: float | None
    clock: str
    after: float | None
    order: int
    text: str
    context: dict[str, str]

    def reading(
        self,
        stream: str,
        signal: str,
        value: float | str,
        entity: EntityRef,
        pattern: str,
        speaker: EntityRef | None = None,
    ) -> Reading:
        """A reading of this line."""
        return Reading(
            self.file, self.number, self.time, self.order, stream, signal, value, entity,
            self.text, pattern, self.clock, self.after, speaker,
        )  # fmt: skip


class Recorder:
    """Writes down what the lines of one file say."""

    def __init__(self, gathering: Gathering) -> None:
        self.section: dict[str, str] = {}
        self.streams: set[str] = set()
        self.readings = 0
        self._gathering = gathering
        self._result = gathering.result
        self._phase: str | None = None
        self._limits: set[tuple[str, float]] = set()

    def count(self, row: Pattern) -> None:
        """Note that a line of a row's stream was recognised."""
        self.streams.add(row.stream)
        streams = self._result.coverage.streams
        streams[row.stream] = streams.get(row.stream, 0) + 1

    def take(self, row: Pattern, found: re.Match[str], line: Line, said: set[tuple[str, EntityRef]]) -> None:
        """Record what a matched row says; `said` keeps one line from saying one thing twice."""
        groups = found.groupdict()
        self._meet(groups.get("host") or line.context.get("host"))
        for name in row.section:
            self.section.pop(name, None)
            if groups.get(name):
                self.section[name] = groups[name] or ""
        if row.place and len(self._result.places) < _MOST_PLACES:
            self._result.places.append(_place(row, groups, line.context))
        if row.start and len(self._gathering.starts) < MOST_STARTS:
            self._gathering.starts.append(Start(line.file, line.time, line.clock, line.order))
        if row.phase is not None:
            self._mark(row, line)
        if row.limit is not None:
            self._limit(row, groups, line)
        if row.entity is not None:
            self._say(row, groups, line, said)

    def keep(self, reading: Reading) -> None:
        """Add a reading."""
        self._result.readings.append(reading)
        self.streams.add(reading.stream)
        self.readings += 1

    def _meet(self, host: str | None) -> None:
        if host and len(self._result.hosts) < _MOST_PLACES:
            self._result.hosts.add(host[:_LONGEST_HOST])

    def _mark(self, row: Pattern, line: Line) -> None:
        if row.phase is None or row.phase == self._phase or not self._gathering.room(row.name):
            return
        self._phase = row.phase
        self._result.phases.append(
            PhaseMark(
                line.file,
                line.number,
                line.time,
                line.order + row.closes,
                row.phase,
                line.text,
                row.name,
                line.clock,
                line.after,
            )
        )

    def _limit(self, row: Pattern, groups: dict[str, str | None], line: Line) -> None:
        assert row.limit is not None
        try:
            seconds = float(groups.get(row.limit.field) or "") * UNITS[row.limit.unit]
        except ValueError:
            return
        if (row.limit.timer, seconds) in self._limits or not self._gathering.room(row.name):
            return
        self._limits.add((row.limit.timer, seconds))
        self._result.limits.append(
            LimitMark(line.file, line.number, line.time, line.order, row.limit.timer, seconds, line.text, row.name)
        )

    def _say(self, row: Pattern, groups: dict[str, str | None], line: Line, said: set[tuple[str, EntityRef]]) -> None:
        assert row.entity is not None
        value = _value(row, groups, line.context)
        if value is None:
            return
        entity = refer(row.entity, groups, line.context)
        self._meet(entity.host)
        about = (row.signal or row.measure or "", entity)
        if about in said or not self._gathering.room(row.name):
            return
        said.add(about)
        named = row.complaint and entity.kind == "rank" and entity.index is not None
        speaker = entity if named else speaker_of(line.context)
        reading = line.reading(row.stream, about[0], value, entity, row.name, speaker)
        if row.signal is not None:
            self.keep(reading)
            if row.complaint:
                self._gathering.complaints.append(reading)
        elif not isinstance(value, str):
            said_here = {"group": line.context.get("group"), **groups, "pattern": row.name}
            fields = {name: word for name, word in said_here.items() if word is not None}
            self._gathering.samples.append(Sample(about[0], float(value), fields, reading))


def _value(row: Pattern, groups: dict[str, str | None], context: dict[str, str]) -> float | str | None:
    if row.field is not None:
        return row.of(groups.get(row.field) or "")
    if row.count is not None:
        return min(int(groups.get(row.count) or 0), _MOST_OCCURRENCES) or None
    if row.value is not None:
        return row.value
    return min(int(context["repeated"]), _MOST_OCCURRENCES) if "repeated" in context else 1


def _place(row: Pattern, groups: dict[str, str | None], context: dict[str, str]) -> Place:
    said = {part: groups.get(name) or context.get(name) for part, name in row.place.items()}

    def whole(part: str) -> int | None:
        text = said.get(part) or ""  # type: ignore[call-overload]
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    pci = pci_name(said["pci"] or "") if said.get("pci") else None
    place = Place(said.get("host"), whole("rank"), whole("local"), pci, said.get("address"), whole("ranks"))
    if not row.place.keys() & _DEVICE_PARTS:
        return place
    port = pci_name(said["port"] or "") if said.get("port") else None
    return place._replace(
        host=place.host or context.get("host"), uuid=uuid_name(said.get("uuid") or ""), index=whole("index"), port=port,
        driver=said.get("driver"), bus=said.get("bus"), device=said.get("device"), netdev=said.get("netdev"),
        guid=said.get("guid"),
    )  # fmt: skip
