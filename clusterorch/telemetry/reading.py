"""Here lives the reader of log files: `read_paths` turns whatever lies in a folder into readings.

A file's name says nothing; each line is recognised by itself.  Lines that no pattern knows are counted and shown,
and are never an error.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from clusterorch.errors import IngestError
from clusterorch.telemetry.counters import Counters
from clusterorch.telemetry.entities import pci_name, refer, speaker_of
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.linearity import LONGEST_MATCHED
from clusterorch.telemetry.lines import Damage, clean_lines, joined, not_text
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.readings import (
    JOB,
    FileSummary,
    Ingested,
    LimitMark,
    PhaseMark,
    Place,
    Reading,
    Sample,
    Unrecognised,
)
from clusterorch.telemetry.rows import UNITS, Pattern
from clusterorch.telemetry.smi_csv import Cell, Sheet, sheet_of
from clusterorch.telemetry.stacks import Stacks
from clusterorch.telemetry.timestamps import FileClock
from clusterorch.telemetry.walking import shown, walk

KEPT_TEXT = 400  # characters of a line kept with its readings
MOST_SAMPLES = 200  # unrecognised lines shown
_SAMPLES_OF_A_FILE = 20
_LOOKED_BACK = 512  # lines kept to find the time before an untimed one
_MOST_PLACES = 100_000


def read_paths(paths: Sequence[Path | str], formats: Formats) -> Ingested:
    """Read files, and folders of files, into readings.

    Args:
        paths: what a user named; folders are read whole, in sorted order.
        formats: the patterns, from `load_formats`.

    Raises:
        IngestError: a path that was given is missing, unreadable or no text; inside folders that is a finding.
    """
    gathering = Gathering(formats)
    named = {shown(Path(path).name) for path in paths if Path(path).is_file()} if paths else set()
    for label, path in walk(paths, gathering.result.findings):
        _read_file(label, path, gathering, given=label in named)
    return gathering.finish()


def _read_file(label: str, path: Path, gathering: Gathering, *, given: bool) -> None:
    try:
        with path.open("rb") as stream:
            head = stream.read(8192)
            problem = "is empty" if not head else not_text(head)
            if problem is None:
                stream.seek(0)
                FileReader(label, gathering).read(stream)
                return
    except (OSError, ValueError) as error:
        if given:
            raise IngestError(f"{shown(path)}: cannot be read: {error}") from error
        gathering.note(label, "unreadable", str(getattr(error, "strerror", None) or error))
        return
    if given and problem != "is empty":
        raise IngestError(f"{shown(path)}: is {problem}, not a text log")
    gathering.note(label, "empty" if problem == "is empty" else "binary", f"not read: {problem}")


class FileReader:
    """Reads the lines of one file into a gathering."""

    def __init__(self, label: str, gathering: Gathering) -> None:
        self.summary = FileSummary(label)
        self._gathering = gathering
        self._result = gathering.result
        self._formats = gathering.formats
        self._clock = FileClock(label)
        self._section: dict[str, str] = {}
        self._sheet: Sheet | None = None
        self._stacks = Stacks(self._formats)
        self._counters = Counters(self._formats)
        self._before: deque[str] = deque(maxlen=_LOOKED_BACK)
        self._tail = False
        self._shown = 0

    def read(self, stream: BinaryIO) -> None:
        """Read all lines."""
        damage = Damage()
        tokens = self._formats.tokens
        blank = 0
        number = 0
        for number, text in joined(clean_lines(stream, damage), self._formats.wraps):
            if not text or text.isspace():
                blank += 1
                continue
            self._gathering.order += 1
            stamped = self._clock.read(text) if text[0] == "[" and "+" in text[1:16] else None
            hits = [rows for token, rows in tokens if token in text]
            if (hits and self._match(number, text, hits, stamped)) or self._special(number, text):
                self.summary.recognised += 1
            else:
                self._unrecognised(number, text)
            self._before.append(text)
            self.summary.lines += 1
        self._finish(damage)

    def _match(self, number: int, text: str, hits: list, stamped: tuple | None) -> bool:
        time, clock, stamp = stamped or self._clock.read(text)
        body = peel(text[: 2 * LONGEST_MATCHED], stamp)
        head = body.text[:LONGEST_MATCHED]
        said: set[tuple[str, object]] = set()
        known = tail = False
        for rows in hits:
            for regex, row in rows:
                if row.unless and any(word in text for word in row.unless):
                    continue
                for column, part in enumerate(head.split(row.split)) if row.split else ((None, head),):
                    found = regex.search(part)
                    if found is None:
                        continue
                    known, tail = True, tail or row.indented_tail
                    context = {**self._section, **body.context}
                    if column is not None:
                        context["column"] = str(column)
                    base = self._base(number, time, clock, text, row)
                    self._take(row, found, context, base, said)
        self._tail = tail if known else self._tail
        return known

    def _base(self, number: int, time: float | None, clock: str, text: str, row: Pattern) -> Reading:
        after = self._time_before() if time is None else None
        order = self._gathering.order
        kept = text if len(text) <= KEPT_TEXT else text[:KEPT_TEXT]
        return Reading(
            self.summary.file, number, time, order, row.stream, "", 1, JOB, kept, row.name, clock, after
        )

    def _time_before(self) -> float | None:
        """The last time that the file showed; each line is searched once at most."""
        for text in reversed(self._before):
            # Sums of deltas were read as they came; reading them again would count them twice.
            if not (text[0] == "[" and "+" in text[1:16]) and self._clock.read(text)[0] is not None:
                break
        self._before.clear()
        return self._clock.last

    def _take(self, row: Pattern, found: re.Match[str], context: dict[str, str], base: Reading, said: set) -> None:
        groups = found.groupdict()
        if host := groups.get("host") or context.get("host"):
            self._result.hosts.add(host[:128])
        self.summary.streams.add(row.stream)
        self._result.coverage.streams[row.stream] = self._result.coverage.streams.get(row.stream, 0) + 1
        for name in row.section:
            self._section.pop(name, None)
            if groups.get(name):
                self._section[name] = groups[name] or ""
        if row.place and len(self._result.places) < _MOST_PLACES:
            self._result.places.append(_place(row, groups, context))
        if row.phase and self._gathering.room(row.name):
            self._result.phases.append(
                PhaseMark(base.file, base.line, base.time, base.order, row.phase, base.text, row.name, base.clock, base.after)
            )
        if row.limit is not None and self._gathering.room(row.name):
            self._limit(row, groups, base)
        if row.entity is not None:
            self._say(row, groups, context, base, said)

    def _limit(self, row: Pattern, groups: dict, base: Reading) -> None:
        assert row.limit is not None
        try:
            seconds = float(groups.get(row.limit.field) or "") * UNITS[row.limit.unit]
        except ValueError:
            return
        self._result.limits.append(
            LimitMark(base.file, base.line, base.time, base.order, row.limit.timer, seconds, base.text, row.name)
        )

    def _say(self, row: Pattern, groups: dict, context: dict[str, str], base: Reading, said: set) -> None:
        assert row.entity is not None
        value: float | str | None = row.value or 1
        if row.field is not None:
            value = row.of(groups.get(row.field) or "")
        elif row.count is not None:
            value = min(int(groups.get(row.count) or 0), 10**9)
        elif row.value is None:
            value = int(context.get("repeated", 1))
        if value is None or (row.count is not None and value == 0):
            return
        entity = refer(row.entity, groups, context)
        if entity.host:
            self._result.hosts.add(entity.host)
        key = (row.signal or row.measure or "", entity)
        if key in said or not self._gathering.room(row.name):
            return
        said.add(key)
        speaker = speaker_of(context)
        if row.complaint and entity.kind == "rank" and entity.index is not None:
            speaker = entity
        reading = base._replace(signal=row.signal or row.measure or "", value=value, entity=entity, speaker=speaker)
        if row.signal is not None:
            self._result.readings.append(reading)
            self.summary.readings += 1
            if row.complaint:
                self._gathering.complaints.append(reading)
        elif not isinstance(value, str):
            fields = {name: word for name, word in groups.items() if word is not None}
            self._gathering.samples.append(Sample(row.measure or "", float(value), fields, reading))

    def _special(self, number: int, text: str) -> bool:
        """Whether a line belongs to a table, a counter dump, a stack, or the tail of the line before."""
        if self._sheet is not None:
            cells = self._sheet.row(text, self._section.get("host"))
            if cells is not None:
                self._cells(number, text, cells)
                return True
            self._sheet = None
        if "," in text and (sheet := sheet_of(text, self._formats)) is not None:
            self._sheet = sheet
            return True
        if (self._stacks.threads or self._stacks.starts(text)) and self._stacks.read(number, self._gathering.order, text):
            return True
        rises = self._counters.read(text, self._section.get("host"), self._section.get("device"))
        if rises is not None:
            for rise in rises:
                self._emit(number, text, "network", rise.signal, rise.by, rise.entity, rise.row)
            return True
        if self._tail:
            self._tail = peel(text[:KEPT_TEXT], None).text.startswith("    ")
            return self._tail
        return False

    def _cells(self, number: int, text: str, cells: list[Cell]) -> None:
        for cell in cells:
            reading = self._emit(number, text, "smi", cell.signal, cell.value, cell.entity, cell.row)
            if reading is not None and cell.measure is not None and not isinstance(cell.value, str):
                self._gathering.samples.append(Sample(cell.measure, float(cell.value), {}, reading))

    def _emit(self, number: int, text: str, stream: str, signal: str | None, value, entity, row: str) -> Reading | None:  # noqa: ANN001
        if not self._gathering.room(row):
            return None
        time, clock, _ = self._clock.read(text)
        after = self._time_before() if time is None else None
        order = self._gathering.order
        kept = text[:KEPT_TEXT]
        reading = Reading(
            self.summary.file, number, time, order, stream, signal or "", value, entity, kept, row, clock, after
        )
        self.summary.streams.add(stream)
        if signal is not None:
            self._result.readings.append(reading)
            self.summary.readings += 1
        return reading

    def _unrecognised(self, number: int, text: str) -> None:
        self._shown += 1
        samples = self._result.coverage.samples
        if self._shown <= _SAMPLES_OF_A_FILE and len(samples) < MOST_SAMPLES:
            samples.append(Unrecognised(self.summary.file, number, text[:KEPT_TEXT]))

    def _finish(self, damage: Damage) -> None:
        coverage, summary = self._result.coverage, self.summary
        self._time_before()
        summary.clock, summary.first, summary.last = self._clock.clock, self._clock.first, self._clock.last
        coverage.lines += summary.lines
        coverage.recognised += summary.recognised
        coverage.unrecognised += summary.lines - summary.recognised
        coverage.truncated += damage.truncated
        coverage.undecodable += damage.undecodable
        self._result.files.append(summary)
        if self._stacks.threads:
            self._gathering.stacks.append((summary.file, self._stacks))
        if damage.truncated:
            self._gathering.note(summary.file, "truncated", f"{damage.truncated} lines were too long and cut")
        if damage.nul or damage.undecodable:
            self._gathering.note(summary.file, "damaged", f"{damage.nul} NUL and {damage.undecodable} undecodable characters")


def _place(row: Pattern, groups: dict[str, str | None], context: dict[str, str]) -> Place:
    said = {part: groups.get(name) or context.get(name) for part, name in row.place.items()}
    whole = {part: int(said[part] or 0) if (said.get(part) or "").isdigit() else None for part in ("rank", "local", "ranks")}
    pci = pci_name(said["pci"] or "") if said.get("pci") else None
    return Place(said.get("host"), whole["rank"], whole["local"], pci, said.get("address"), whole["ranks"])
