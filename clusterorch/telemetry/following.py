"""Here lives the following of logs that are still being written: what has been read stays read, and only news is.

A file is known by its inode, so that a renamed one goes on under its old label; one that became shorter, or
begins with other bytes, is a new one.  The last line counts once it ends, or once nobody has gone on with it
for a while.  Archives, and files that are read whole, are read once, when they have stopped growing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterorch.errors import IngestError
from clusterorch.telemetry.archives import kind_of
from clusterorch.telemetry.budgets import Intake, Limits, bounded
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.lines import LONGEST_LINE, not_text
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.reading import FileReader, read_file
from clusterorch.telemetry.readings import Finding, Ingested
from clusterorch.telemetry.streams import HEAD, PIECE, Stream, encoding_of
from clusterorch.telemetry.walking import STDIN, is_pattern, shown, walk
from clusterorch.telemetry.whole_files import whole_file_reader

QUIET_POLLS = 30  # after which a last line without an end is taken as it stands
_KNOWN_BY = 1024  # first bytes by which a file is told from one that took its place
_MOST_SHORTENED = 100


def follow(
    paths: Sequence[Path | str],
    formats: Formats,
    *,
    poll_seconds: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
    limits: Limits | None = None,
) -> Iterator[Ingested]:
    """Everything read so far, first at once, then whenever there is news; without end.

    Args:
        paths: files, folders and patterns, as for `read_paths`; files that appear later in a folder or match a
            pattern are taken in.
        formats: the patterns, from `load_formats`.
        poll_seconds: between two looks at the files.
        sleep: called with `poll_seconds` between two looks.
        limits: what reading may cost; as they stand if not given.

    Raises:
        IngestError: a path is missing at the start, or is standard input or a pipe.
    """
    following = Following(paths, formats, limits)
    following.poll()
    yield following.snapshot()
    while True:
        sleep(poll_seconds)
        if following.poll():
            yield following.snapshot()


@dataclass(slots=True)
class _File:
    """How far a file has been read."""

    label: str
    path: Path
    reader: FileReader | None = None  # None: not known to be text
    head: bytes = b""
    at: int = 0
    line: int = 1
    size: int = -1  # when it was last looked at
    changed: int = 0
    quiet: int = 0
    done: bool = False  # read once, or not at all


@dataclass(slots=True)
class _Shortened:
    """A file that was cut back: whoever did it may have copied it before."""

    head: bytes
    at: int
    line: int
    reader: FileReader


class Following:
    """Files that are read as they grow."""

    def __init__(self, paths: Sequence[Path | str], formats: Formats, limits: Limits | None = None) -> None:
        self._paths = [Path(path) for path in paths]
        self._gathering = Gathering(formats)
        self._intake = Intake(self._gathering, limits or Limits())
        self._files: dict[tuple[int, int], _File] = {}
        self._left: list[FileReader] = []  # readers of files that are gone
        self._shortened: list[_Shortened] = []
        self._told: set[Finding] = set()
        for path in self._paths:
            if path == STDIN or path.is_fifo():
                raise IngestError(f"{shown(path)}: a pipe cannot be followed; give files or folders")
            if not is_pattern(path) and not path.exists():
                raise IngestError(f"{shown(path)}: cannot be opened: there is no such file or folder")
            if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
                raise IngestError(f"{shown(path)}: cannot be listed: permission denied")

    def poll(self) -> bool:
        """Read what is new; whether anything was.

        Raises:
            IngestError: no path was given.
        """
        findings: list[Finding] = []
        found = set()
        for label, path in walk(self._paths, findings, patient=True):
            try:
                status = path.stat()
            except OSError:  # gone since it was listed
                continue
            identity = (status.st_dev, status.st_ino)
            found.add(identity)
            if identity in self._files:
                self._files[identity].path = path
            elif self._intake.admits():
                self._files[identity] = _File(self._intake.own(label), path)
        news = self._tell(findings)
        for identity in list(self._files):
            file = self._files[identity]
            if identity not in found and not self._found_again(file, identity):
                self._leave(file)
                del self._files[identity]
                continue
            try:
                news |= self._look(file, identity)
            except OSError as error:
                text = f"cannot be read: {error.strerror or error}"
                news |= self._tell([Finding(file.label, None, "unreadable", text)])
        return news

    def snapshot(self) -> Ingested:
        """Everything read so far."""
        twin = self._gathering.snapshot()
        for reader in (*self._left, *(file.reader for file in self._files.values() if file.reader)):
            reader.settle(twin)
        ingested = twin.finish()
        ingested.findings = bounded(ingested.findings, self._intake.limits.findings_of_a_kind)
        return ingested

    def _tell(self, findings: list[Finding]) -> bool:
        new = [finding for finding in findings if finding not in self._told]
        self._told.update(new)
        self._gathering.result.findings += new
        return bool(new)

    @staticmethod
    def _found_again(file: _File, identity: tuple[int, int]) -> bool:
        """Whether a file that is no longer where it was lies beside that place, as after a rotation."""
        try:
            with os.scandir(file.path.parent) as entries:
                for entry in entries:
                    if entry.inode() == identity[1] and entry.is_file(follow_symlinks=False):
                        file.path = Path(entry.path)
                        return True
        except OSError:
            pass
        return False

    def _leave(self, file: _File) -> None:
        if file.reader is not None:
            file.reader.end()
            self._left.append(file.reader)

    def _look(self, file: _File, identity: tuple[int, int]) -> bool:
        """Read what is new in a file; whether anything was."""
        with file.path.open("rb", buffering=0) as stream:
            descriptor = stream.fileno()
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != identity:
                return False  # replaced a moment ago; the next look sorts it out
            if (status.st_size, status.st_mtime_ns) == (file.size, file.changed):
                file.quiet += 1
                return self._look_again(file, descriptor)
            file.size, file.changed, file.quiet = status.st_size, status.st_mtime_ns, 0
            if file.done:
                text = "changed after it was read, and is read only once"
                return self._tell([Finding(file.label, None, "changed", text)])
            head = os.pread(descriptor, HEAD, 0)
            if file.reader is not None and (file.size < file.at or not head.startswith(file.head)):
                self._restart(file)
            if file.reader is None:
                self._begin(file, head)
            return self._read_on(file, descriptor, _end_of_lines(descriptor, file))

    def _look_again(self, file: _File, descriptor: int) -> bool:
        """Take what was held back for more to come, now that no more came."""
        if file.reader is not None:
            news = file.reader.flush()
            last_line = file.quiet == QUIET_POLLS and self._read_on(file, descriptor, file.size)
            return news or last_line
        if file.done or not file.size:
            return False
        file.done = True
        read_file(file.label, file.path, self._gathering, self._intake)
        return True

    def _begin(self, file: _File, head: bytes) -> None:
        """Give a file a reader if it is text; any other is left until it stops growing."""
        if not head or kind_of(head) or whole_file_reader(head) or encoding_of(head) or not_text(head):
            return
        copied = next((one for one in self._shortened if file.size >= one.at and head.startswith(one.head)), None)
        if copied is None:
            file.reader = FileReader(file.label, self._gathering)
        else:
            self._shortened.remove(copied)
            self._left.remove(copied.reader)
            file.head, file.at, file.line, file.reader = copied.head, copied.at, copied.line, copied.reader

    def _restart(self, file: _File) -> None:
        """Begin a file anew, under a label of its own: its lines are numbered from 1 again."""
        assert file.reader is not None
        self._leave(file)
        self._shortened.append(_Shortened(file.head, file.at, file.line, file.reader))
        del self._shortened[:-_MOST_SHORTENED]
        file.label, file.reader = self._intake.own(file.label), None
        file.head, file.at, file.line = b"", 0, 1

    def _read_on(self, file: _File, descriptor: int, end: int) -> bool:
        reader = file.reader
        if reader is None or end <= file.at:
            return False
        before = reader.summary.lines

        def piece(size: int) -> bytes:
            data = os.pread(descriptor, min(size, PIECE, end - file.at), file.at)
            file.at += len(data)
            file.line += data.count(b"\n")
            return data

        reader.feed(Stream(piece), file.line)
        file.head = os.pread(descriptor, min(_KNOWN_BY, file.at), 0)
        return reader.summary.lines > before


def _end_of_lines(descriptor: int, file: _File) -> int:
    """Up to where a file holds whole lines; up to its end, if the last line is longer than what is kept of one."""
    at = file.size
    while at > file.at:
        start = max(file.at, at - PIECE)
        cut = os.pread(descriptor, at - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        at = start
    return file.size if file.size - file.at > LONGEST_LINE else file.at
