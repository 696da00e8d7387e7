"""Here lives the reader of log files: `read_paths` turns whatever lies in a folder into readings.

A file's name says nothing; each line is recognised by itself.  Lines that no pattern knows are counted and
shown, and are never an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from clusterorch.errors import IngestError
from clusterorch.telemetry.archives import leaves
from clusterorch.telemetry.budgets import Intake, Limits, Meter, bounded
from clusterorch.telemetry.counters import Counters
from clusterorch.telemetry.device_tables import DeviceTables, Found
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.glued_lines import unglued
from clusterorch.telemetry.linearity import LONGEST_MATCHED
from clusterorch.telemetry.lines import Damage, Joining, clean_lines, not_text
from clusterorch.telemetry.patterns import Compiled, Formats
from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.readings import FileSummary, Ingested, Sample, Unrecognised
from clusterorch.telemetry.recording import Line, Recorder
from clusterorch.telemetry.rows import Pattern
from clusterorch.telemetry.screening import batches
from clusterorch.telemetry.sources import opened
from clusterorch.telemetry.stacks import Stacks
from clusterorch.telemetry.streams import Guarded, Readable, Stopped, Stream, encoding_of, recoded
from clusterorch.telemetry.timestamps import FileClock, Stamp, find_stamp
from clusterorch.telemetry.walking import shown, walk
from clusterorch.telemetry.whole_files import WholeFileReader, whole_file_reader
from clusterorch.telemetry.wrapped_lines import unwrapped

KEPT_TEXT = 400  # characters of a line kept with its readings
MOST_SAMPLES = 200  # unrecognised lines shown
_SAMPLES_OF_A_FILE = 20
_LOOKED_BACK = 512  # lines kept to find the time before an untimed one
_Stamped = tuple[float | None, str, Stamp | None]


def read_paths(paths: Sequence[Path | str], formats: Formats, limits: Limits | None = None) -> Ingested:
    """Read files, and folders and archives of files, into readings.

    Memory is bounded, whatever the files hold: they are read once, forwards, and nothing is unpacked to disk.

    Args:
        paths: what a user named: files, folders, which are read whole and in sorted order, patterns that the
            shell left alone, `-` for standard input.
        formats: the patterns, from `load_formats`.
        limits: what reading may cost; as they stand if not given.

    Raises:
        IngestError: a path that was given is missing; or nothing could be read, and the fault lies with a file
            that was given by name.  In folders and archives, and beside other files, the same is a finding.
    """
    gathering = Gathering(formats)
    intake = Intake(gathering, limits or Limits())
    result = gathering.result
    named = set(map(Path, paths))
    refused: list[str] = []
    for label, path in walk(paths, result.findings):
        if not intake.admits():
            break
        before = len(result.files), len(result.findings)
        read_file(label, path, gathering, intake)
        if path in named and len(result.files) == before[0]:
            why = result.findings[before[1]].text if len(result.findings) > before[1] else "holds no logs"
            refused.append(f"{shown(path)}: {why}; give text logs, or folders or archives of them")
    if refused and not result.files:
        raise IngestError(refused[0])
    ingested = gathering.finish()
    ingested.findings = bounded(ingested.findings, intake.limits.findings_of_a_kind)
    return ingested


def read_file(label: str, path: Path, gathering: Gathering, intake: Intake) -> None:
    """Read a file, and the files in it; what cannot be read is a finding.

    Raises:
        IngestError: standard input is asked for, and there is none.
    """
    meter = Meter(intake)
    try:
        with opened(path, meter) as source:
            for name, stream in leaves(label, source, intake, meter):
                try:
                    _read_leaf(name, stream, gathering, intake)
                except Stopped as stopped:
                    intake.tell(name, stopped)
    except OSError as error:
        intake.note(label, "unreadable", f"cannot be opened: {error.strerror or error}")


def _read_leaf(label: str, stream: Stream, gathering: Gathering, intake: Intake) -> None:
    """Read a file that holds no others.

    Raises:
        Stopped: it is damaged, or a limit was met, and nothing of it counts.
    """
    head = stream.head()
    if not head:
        intake.note(label, "empty", "is empty")
        return
    if reader := whole_file_reader(head):
        _read_whole(label, stream, reader, gathering, intake)
        return
    if encoding := encoding_of(head):
        stream = recoded(stream, encoding)
        head = stream.head()
    if problem := not_text(head):
        intake.note(label, "binary", f"is {problem}, and not read")
        return
    FileReader(label, gathering).read(Guarded(stream, partial(intake.tell, label)))


def _read_whole(label: str, stream: Stream, reader: WholeFileReader, gathering: Gathering, intake: Intake) -> None:
    most = intake.limits.whole_file_bytes
    data = stream.exactly(most + 1)
    if len(data) > most:
        intake.note(label, "too_large", f"is read whole, and so only up to {most >> 20} MiB: not read")
        return
    try:
        reader.read(label, data, gathering)
    except IngestError as error:
        intake.note(label, "unreadable", str(error))


class FileReader:
    """Reads the lines of one file into a gathering, at once or as they come."""

    def __init__(self, label: str, gathering: Gathering) -> None:
        self.summary = FileSummary(label)
        self._gathering = gathering
        self._formats = gathering.formats
        self._groups = list(self._formats.groups.values())
        self._coverage = gathering.result.coverage
        self._recorder = Recorder(gathering)
        self._clock = FileClock(label)
        self._devices = DeviceTables(self._formats)
        self._stacks = Stacks(self._formats)
        self._counters = Counters(self._formats)
        self._damage = Damage()
        self._joining = Joining(self._formats.wraps)
        self._before: deque[str] = deque(maxlen=_LOOKED_BACK)
        self._tail = False  # the lines of a traceback or a kernel trace follow their head, indented

    def read(self, stream: Readable) -> None:
        """Read all lines."""
        self.feed(stream)
        self.end()
        self.settle(self._gathering)

    def feed(self, stream: Readable, first: int = 1) -> None:
        """Read more lines, numbered from `first`; a record that may go on is held back until `flush`."""
        self._take(self._joining.lines(unglued(unwrapped(clean_lines(stream, self._damage, first)))))
        self._settle_lines()

    def flush(self) -> bool:
        """Read what was held back for more to come; whether anything was."""
        before = self.summary.lines
        self._take(self._joining.rest())
        self._settle_lines()
        return self.summary.lines > before

    def end(self) -> None:
        """Read what was held back, and end the tables that are open: no more lines will come."""
        self.flush()
        self._sampled(0, "", self._devices.ends())
        self._settle_lines()

    def _settle_lines(self) -> None:
        self._gathering.result.places += self._devices.taken_places()
        self._time_before()

    def _take(self, lines: Iterable[tuple[int, str]]) -> None:
        screen, summary = self._formats.screen, self.summary
        for batch in batches(lines):
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

    @property
    def _watching(self) -> bool:
        """Whether the next line may belong to something that began before it."""
        return self._tail or self._devices.inside or self._stacks.inside or self._counters.waiting

    def _known(self, number: int, text: str, words: list[int], stamped: _Stamped | None) -> bool:
        if self._devices.inside and self._table_row(number, text):
            return True
        if words and "--query-gpu" in text:
            self._devices.command(text)
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
        if not self._devices.inside and self._table_row(number, text):
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
        """Whether a line belongs to a table of device samples; any other line ends the table before it."""
        found = self._devices.read(number, text, self._recorder.section.get("host"))
        self._sampled(number, text, self._devices.ends() if found is None else found)
        return found is not None

    def _sampled(self, number: int, text: str, found: Sequence[Found]) -> None:
        line: Line | None = None
        for cell, at, words in found:
            if not self._gathering.room(cell.row):
                continue
            line = line or self._line(number, text, *self._clock.read(text)[:2], {})
            there = line if at is None else line._replace(number=at, text=(words or "")[:KEPT_TEXT])
            reading = there.reading("smi", cell.signal or cell.measure or "", cell.value, cell.entity, cell.row)
            if cell.signal is not None:
                self._recorder.keep(reading)
            elif not isinstance(cell.value, str):
                self._gathering.samples.append(Sample(cell.measure or "", float(cell.value), {}, reading))

    def _show(self, number: int, text: str) -> None:
        samples = self._coverage.samples
        if len(samples) < MOST_SAMPLES:
            samples.append(Unrecognised(self.summary.file, number, text[:KEPT_TEXT]))

    def settle(self, gathering: Gathering) -> None:
        """Add what the file as a whole says to a gathering: its own, or a copy of it as it stands."""
        coverage, summary, damage = gathering.result.coverage, replace(self.summary), self._damage
        summary.clock, summary.first, summary.last = self._clock.clock, self._clock.first, self._clock.last
        summary.readings, summary.streams = self._recorder.readings, set(self._recorder.streams)
        coverage.lines += summary.lines
        coverage.recognised += summary.recognised
        coverage.unrecognised += summary.lines - summary.recognised
        coverage.truncated += damage.truncated
        coverage.undecodable += damage.undecodable
        gathering.result.files.append(summary)
        gathering.keep_stacks(summary.file, self._stacks)
        if damage.truncated:
            gathering.note(summary.file, "truncated", f"{damage.truncated} lines were too long and cut")
        if damage.nul or damage.undecodable:
            text = f"{damage.nul} NUL and {damage.undecodable} undecodable characters"
            gathering.note(summary.file, "damaged", text)


def _spared(row: Pattern, text: str) -> bool:
    return bool(row.unless) and any(word in text for word in row.unless)
