"""Here lives the reader of py-spy dumps: what each thread waits for, and who waits elsewhere than most."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef
from clusterorch.telemetry.rows import Operator, Wait

_PROCESS = re.compile(r"Process (?P<pid>\d{1,9}): ")
_THREAD = re.compile(
    r'Thread (?P<thread>(?:0x)?[0-9A-Fa-f]{1,18}) \((?P<state>[a-z+]{1,24})\)(?:: "(?P<name>[^"]{0,120})")?'
)
_FRAME = re.compile(r" {2,12}(?P<function>[^\s(][^(]{0,200}) \((?P<file>[^():]{1,300})(?::(?P<line>\d{1,9}))?\)$")
_MOST_THREADS = 10_000
_MOST_FRAMES = 64


@dataclass(slots=True)
class Thread:
    """A thread of the dump."""

    pid: str
    name: str
    line: int
    text: str
    order: int
    frames: list[tuple[str, str]] = field(default_factory=list)

    def waits(self, rows: list[Wait]) -> Wait | None:
        """The first declared row that one of its frames matches."""
        for row in rows:
            for function, file in self.frames:
                named = not row.functions or function in row.functions
                placed = not row.files or any(part in file for part in row.files)
                if named and placed:
                    return row
        return None


class Stacks:
    """The dumps of one file."""

    def __init__(self, formats: Formats) -> None:
        self._rows = list(formats.wait.values())
        self._process: str | None = None
        self.inside = False
        self.threads: list[Thread] = []

    def starts(self, text: str) -> bool:
        """Whether a line opens a dump or a thread."""
        return text.startswith(("Thread ", "Process ")) and bool(_THREAD.match(text) or _PROCESS.match(text))

    def read(self, number: int, order: int, text: str) -> bool:
        """Take a line; False if it belongs to no stack."""
        if found := _PROCESS.match(text):
            self._process, self.inside = found["pid"], True
            return True
        if found := _THREAD.match(text):
            self.inside = True
            if len(self.threads) < _MOST_THREADS:
                pid = self._process or found["thread"]
                self.threads.append(Thread(pid, found["name"] or "", number, text[:400], order))
            return True
        if self.inside and self.threads and (found := _FRAME.match(text, 0, 600)):
            frames = self.threads[-1].frames
            if len(frames) < _MOST_FRAMES:
                frames.append((found["function"], found["file"]))
            return True
        self.inside = self.inside and text.startswith(("  ", "Python v"))
        return self.inside

    def minority(self, operator: Operator, host: str | None) -> list[tuple[Thread, EntityRef, str]]:
        """(thread, its rank, what it waits for) of the few that do not wait with the others."""
        mine = [thread for thread in self.threads if operator.thread in (None, thread.name)]
        waits = [thread.waits(self._rows) for thread in mine]
        classes = [row.wait if row else "other" for row in waits]
        counts = Counter(classes)
        majority = counts.get(operator.majority or "", 0)
        few = len(mine) - majority
        if not few or few > operator.largest_share * len(mine) or majority < 2:
            return []
        return [
            (thread, EntityRef("rank", host, f"pid {thread.pid}"), wait)
            for thread, wait in zip(mine, classes, strict=True)
            if wait != operator.majority
        ]
