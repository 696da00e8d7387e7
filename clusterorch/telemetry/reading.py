"""Here lives the reader of log files: `read_paths` turns whatever lies in a folder into readings.

A file's name says nothing; each line is recognised by itself.  Lines that no pattern knows are counted and
shown, and are never an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from clusterorch.errors import IngestError
from clusterorch.telemetry.counters import Counters
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.linearity import LONGEST_MATCHED
from clusterorch.telemetry.lines import Damage, clean_lines, joined, not_text
from clusterorch.telemetry.patterns import Compiled, Formats
from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.readings import FileSummary, Ingested, Sample, Unrecognised
from clusterorch.telemetry.recording import Line, Recorder
from clusterorch.telemetry.rows import Pattern
from clusterorch.telemetry.screening import batches
from clusterorch.telemetry.smi_csv import Sheet, sheet_of
from clusterorch.telemetry.stacks import Stacks
from clusterorch.telemetry.timestamps import FileClock, Stamp, find_stamp
from clusterorch.telemetry.walking import shown, walk

KEPT_TEXT = 400  # characters of a line kept with its readings
MOST_SAMPLES = 200  # unrecognised lines shown
_SAMPLES_OF_A_FILE = 20
_LOOKED_BACK = 512  # lines kept to find the time before an untimed one
_HEAD = 8192  # bytes that tell text from the rest
_Stamped = tuple[float | None, str, Stamp | None]


def read_paths(paths: Sequence[Path | str], formats: Formats) -> Ingested:
    """Read files, and folders of files, into readings.

    Args:
        paths: what a user named; folders are read whole, in sorted order.
        formats: the patterns, from `load_formats`.

    Raises:
        IngestError: a path that was given is missing, empty, unreadable or no text; inside folders the
            same is a finding.
    """
    gathering = Gathering(formats)
    named = set(map(Path, paths))
    for label, path in walk(paths, gathering.result.findings):
        _read_file(label, path, gathering, given=path in named)
    return gathering.finish()


def _read_file(label: str, path: Path, gathering: Gathering, *, given: bool) -> None:
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
            problem = not_text(head) if head else "empty"
            if problem is None:
                stream.seek(0)
                FileReader(label, gathering).read(stream)
                return
    except (OSError, ValueError) as error:
        if given:
            raise IngestError(f"{shown(path)}: cannot be read: {error}") from error
        gathering.note(label, "unreadable", str(getattr(error, "strerror", None) or error))
        return
    if given:
        raise IngestError(f"{shown(path)}: is {problem}; give text logs")
    gathering.note(label, "empty" if not head else "binary", f"not read: {problem}")


class FileReader:
    """Reads the lines of one file into a gathering."""

    def __init__(self, label: str, gathering: Gathering) -> None:
        self.summary = FileSummary(label)
        self._gathering = gathering
        self._formats = gathering.formats
        self._groups = list(self._formats.groups.values())
        self._coverage = gathering.result.coverage
        self._recorder = Recorder(gathering)
        self._clock = FileClock(label)
        self._sheet: Sheet | None = None
        self._stacks = Stacks(self._formats)
        self._counters = Counters(self._formats)
        self._before: deque[str] = deque(maxlen=_LOOKED_BACK)
        self._tail = False  # the lines of a traceback or a kernel trace follow their head, indented

    def read(self, stream: BinaryIO) -> None:
        """Read all lines."""
        damage = Damage()
        screen, summary = self._formats.screen, self.summary
        for batch in batches(joined(clean_lines(stream, damage), self._formats.wraps)):
            hits = screen.hits([text for _, text in batch])
            for at, (number, text) in enumerate(batch):
                if not text or text.isspace():
                    continue
                summary.lines += 1
                self._gathering.order += 1
                # A delta counts from the line before, so none may be left out.
                stamped = self._clock.read(text) if text[0] == "[" and "+" in text[1:16] else None
                words = hits.get(at)
                if (words is not None or self._watching) and self._known(number, text, words or [], stamped):
                    summary.recognised += 1
                elif summary.lines - summary.recognised <= _SAMPLES_OF_A_FILE:
                    self._show(number, text)
                self._before.append(text)
        self._finish(damage)

    @property
    def _watching(self) -> bool:
        """Whether the next line may belong to something that began before it."""
        return self._tail or self._sheet is not None or self._stacks.inside

    def _known(self, number: int, text: str, words: list[int], stamped: _Stamped | None) -> bool:
        if self._sheet is not None and self._table_row(number, text):
            return True
        groups = self._groups
        rows = {id(row): (regex, row) for word in words if word < len(groups) for regex, row in groups[word]}
        if rows and self._match(number, text, list(rows.values()), stamped):
            return True
        special = self._watching or any(word >= len(groups) for word in words)
        return special and self._special(number, text)

    def _match(self, number: int, text: str, hits: list[Compiled], stamped: _Stamped | None) -> bool:
        if stamped is None and self._harmless(text, hits):
            return True
        time, clock, stamp = stamped or self._clock.read(text)
        body = peel(text[: 2 * LONGEST_MATCHED], stamp)
        head = body.text[:LONGEST_MATCHED]
        line: Line | None = None
        said: set = set()
        known = tail = False
        for regex, row in hits:
            if _spared(row, text):
                continue
            for column, part in enumerate(head.split(row.split) if row.split else (head,)):
                found = regex.search(part)
                if found is None:
                    continue
                known, tail = True, tail or row.indented_tail
                self._recorder.count(row)
                if row.silent:
                    continue
                line = line or self._line(number, text, time, clock, body.context)
                said_here = line._replace(context={**line.context, "column": str(column)}) if row.split else line
                self._recorder.take(row, found, said_here, said)
        self._tail = tail if known else self._tail
        return known

    def _harmless(self, text: str, hits: list[Compiled]) -> bool:
        """Whether a line is known to say nothing: most recognised lines are, and need not be taken apart."""
        if not all(row.silent for _, row in hits):
            return False
        for regex, row in hits:
            if not _spared(row, text) and regex.search(text, 0, LONGEST_MATCHED):
                self._recorder.count(row)
                self._tail = False
                return True
        return False

    def _line(self, number: int, text: str, time: float | None, clock: str, context: dict[str, str]) -> Line:
        after = self._time_before() if time is None else None
        kept = text if len(text) <= KEPT_TEXT else text[:KEPT_TEXT]
        context = {**self._recorder.section, **context}
        return Line(self.summary.file, number, time, clock, after, self._gathering.order, kept, context)

    def _time_before(self) -> float | None:
        """The last time that the file showed; each line is searched once at most."""
        for text in reversed(self._before):
            # Sums of deltas were read as they came; reading them again would count them twice.
            if not (text[0] == "[" and "+" in text[1:16]) and self._clock.read(text)[0] is not None:
                break
        self._before.clear()
        return self._clock.last

    def _special(self, number: int, text: str) -> bool:
        """Whether a line belongs to a table, a counter dump, a stack, or the tail of the line before."""
        section = self._recorder.section
        if "," in text and (sheet := sheet_of(text, self._formats)) is not None:
            self._sheet = sheet
            return True
        if (self._stacks.inside or self._stacks.starts(text)) and self._stacks.read(
            number, self._gathering.order, text
        ):
            return True
        rises = self._counters.read(text, section.get("host"), section.get("device"))
        if rises is not None:
            for rise in rises:
                if self._gathering.room(rise.row):
                    line = self._line(number, text, *self._clock.read(text)[:2], {})
                    self._recorder.keep(line.reading("network", rise.signal, rise.by, rise.entity, rise.row))
            return True
        if self._tail:
            self._tail = peel(text[:KEPT_TEXT], find_stamp(text)).text.startswith("    ")
        return self._tail

    def _table_row(self, number: int, text: str) -> bool:
        """Whether a line is a row of the table whose header came before; any other line ends the table."""
        assert self._sheet is not None
        cells = self._sheet.row(text, self._recorder.section.get("host"))
        if cells is None:
            self._sheet = None
            return False
        line = self._line(number, text, *self._clock.read(text)[:2], {})
        for cell in cells:
            if not self._gathering.room(cell.row):
                continue
            reading = line.reading("smi", cell.signal or cell.measure or "", cell.value, cell.entity, cell.row)
            if cell.signal is not None:
                self._recorder.keep(reading)
            elif not isinstance(cell.value, str):
                self._gathering.samples.append(Sample(cell.measure or "", float(cell.value), {}, reading))
        return True

    def _show(self, number: int, text: str) -> None:
        samples = self._coverage.samples
        if len(samples) < MOST_SAMPLES:
            samples.append(Unrecognised(self.summary.file, number, text[:KEPT_TEXT]))

    def _finish(self, damage: Damage) -> None:
        coverage, summary = self._coverage, self.summary
        self._time_before()
        summary.clock, summary.first, summary.last = self._clock.clock, self._clock.first, self._clock.last
        summary.readings, summary.streams = self._recorder.readings, self._recorder.streams
        coverage.lines += summary.lines
        coverage.recognised += summary.recognised
        coverage.unrecognised += summary.lines - summary.recognised
        coverage.truncated += damage.truncated
        coverage.undecodable += damage.undecodable
        self._gathering.result.files.append(summary)
        note = self._gathering.note
        if self._stacks.threads:
            self._gathering.stacks.append((summary.file, self._stacks))
        if damage.truncated:
            note(summary.file, "truncated", f"{damage.truncated} lines were too long and cut")
        if damage.nul or damage.undecodable:
            note(summary.file, "damaged", f"{damage.nul} NUL and {damage.undecodable} undecodable characters")


def _spared(row: Pattern, text: str) -> bool:
    return bool(row.unless) and any(word in text for word in row.unless)
