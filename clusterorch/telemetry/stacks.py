"""Here lives the reader of stacks: what each thread waits for, and who waits elsewhere than most.

Three dialects: py-spy (with and without native frames and locals), Python's faulthandler, and the backtraces of
gdb and cuda-gdb.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.readings import LOCAL, EntityRef, Reading
from clusterorch.telemetry.rows import Operator, Wait

_PROCESS = re.compile(r"Process (?P<pid>\d{1,9}): ")
_THREAD = re.compile(
    r'Thread (?P<thread>(?:0x)?[0-9A-Fa-f]{1,18}) \((?P<state>[a-z+]{1,24})\)(?:: "(?P<name>[^"]{0,120})")?'
)
_FAULT = re.compile(
    r"(?P<current>Current thread|Thread) (?P<thread>0x[0-9a-fA-F]{1,18})(?: \[(?P<name>[^\]]{0,64})\])?"
    r" (?:\[Python\] )?\(most recent call first\):"
)
_GDB_THREAD = re.compile(
    r"Thread (?P<number>\d{1,7}) \((?:Thread 0x[0-9a-f]{1,18} )?\(?LWP (?P<thread>\d{1,9})\)?\)?"
    r'(?: "(?P<name>[^"]{0,64})")?'
)
_FAULT_FRAME = re.compile(r' {2}File "(?P<file>[^"]{1,300})", line \d{1,9} in (?P<function>[^\s].{0,199}?)$')
_GDB_FRAME = re.compile(
    r"#\d{1,4} {1,3}(?:0x[0-9a-fA-F]{1,18} in )?(?P<function>[^\s(][^(]{0,200}?) ?\(.{0,400}?\)"
    r"(?: (?:from|at) (?P<file>\S{1,300}))?$"
)
_RANK_IN_NAME = re.compile(r"rank[_-]?(?P<rank>\d{1,6})(?!\d)")
_OUTERMOST = ("<module>", "_start", "main", "Py_BytesMain", "Py_RunMain", "__libc_start_main", "__libc_start_call_main")
_DEVICE = "compute"
_MAIN = "MainThread"
_HEADS = ("Thread ", "Process ", "Current thread ")
_WAITS = re.compile(r"torch/(?:distributed|cuda|_|autograd)|c10d|threading\.py|queue\.py|selectors\.py|\.so\b|^$")
_EXCHANGE = re.compile(
    r"(?:^|[_./])(?:p2p|send|recv|broadcast|all_?reduce|all_?gather|all_?to_?all|reduce_scatter|barrier|communicate)"
)
_FEWEST_TOGETHER = 3
_MOST_THREADS = 10_000
_MOST_FRAMES = 96


@dataclass(slots=True)
class Thread:
    """A thread of a dump; the innermost frame comes first."""

    pid: str
    name: str
    line: int
    text: str
    order: int
    rank: int | None = None
    local: int | None = None
    frames: list[tuple[str, str]] = field(default_factory=list)

    @property
    def main(self) -> bool:
        """Whether it runs the program itself: it begins where programs begin."""
        return bool(self.frames and self.frames[-1][0] in _OUTERMOST)

    @property
    def position(self) -> str | None:
        """Where the program itself stands: the innermost function that is not of a library that only waits."""
        return next((f"{function} ({file})" for function, file in self.frames if not _WAITS.search(file)), None)

    @property
    def communicates(self) -> bool:
        """Whether one of its frames is called like an exchange with other members."""
        return any(_EXCHANGE.search(function) or _EXCHANGE.search(file) for function, file in self.frames)

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
        bare, _ = _bare(text)
        heads = (_THREAD, _PROCESS, _FAULT, _GDB_THREAD)
        return bare.startswith(_HEADS) and any(head.match(bare) for head in heads)

    def read(self, number: int, order: int, text: str) -> bool:
        """Take a line; False if it belongs to no stack."""
        text, context = _bare(text)
        if found := _PROCESS.match(text):
            self._process, self.inside = found["pid"], True
            return True
        if found := _FAULT.match(text):
            name = _MAIN if found["name"] and found["name"].startswith("MainThr") else found["name"] or ""
            return self._open(found["thread"], name, number, order, text, context)
        if found := _THREAD.match(text):
            return self._open(self._process or found["thread"], found["name"] or "", number, order, text, context)
        if found := _GDB_THREAD.match(text):
            name = _MAIN if found["number"] == "1" else found["name"] or ""
            return self._open(self._process or found["thread"], name, number, order, text, context)
        if self.inside and self.threads and (frame := _frame(text)) is not None:
            frames = self.threads[-1].frames
            if len(frames) < _MOST_FRAMES:
                frames.append(frame)
            return True
        self.inside = self.inside and text.startswith(("  ", "Python v", "Extension modules"))
        return self.inside

    def _open(self, pid: str, name: str, number: int, order: int, text: str, context: dict[str, str]) -> bool:
        self.inside = True
        if len(self.threads) < _MOST_THREADS:
            rank, local = context.get("rank"), context.get("local")
            self.threads.append(
                Thread(pid, name, number, text[:400], order, int(rank) if rank else None, int(local) if local else None)
            )
        return True

    def waiting(self, operator: Operator) -> list[tuple[Thread, str]]:
        """Each thread that the operator compares, and the class of what it waits for."""
        mine = [thread for thread in self.threads if operator.thread in (None, thread.name) or thread.main]
        rows = [thread.waits(self._rows) for thread in mine]
        return [(thread, row.wait if row else "other") for thread, row in zip(mine, rows, strict=True)]


def elsewhere(operator: Operator, waiting: Sequence[tuple[EntityRef, str]]) -> list[int]:
    """Which of the compared do not wait with the others, if they are few.

    Who waits for the device waits for what runs on it: where the others stand in a collective, for that.
    """
    with_others = {operator.majority, _DEVICE}
    apart = [at for at, (_, wait) in enumerate(waiting) if wait not in with_others]
    most = len(waiting) - len(apart)
    together = any(wait == operator.majority for _, wait in waiting)
    if not together or most < 2 or len(apart) > operator.largest_share * len(waiting):
        return []
    return apart


def alone(operator: Operator, waiting: Sequence[tuple[Thread, str]]) -> list[int]:
    """The one in another communication than all its peers, which stand at one place, if there are three of them."""
    positions = [thread.position for thread, _ in waiting]
    (usual, most), *_ = Counter(positions).most_common(1) or [(None, 0)]
    together = all(wait == operator.majority for (_, wait), at in zip(waiting, positions, strict=True) if at == usual)
    if usual is None or not together or most < _FEWEST_TOGETHER or most != len(positions) - 1:
        return []
    return [at for at, (thread, _) in enumerate(waiting) if positions[at] != usual and thread.communicates]


def owner(thread: Thread, host: str | None, rank: int | None) -> EntityRef:
    """The rank that a thread belongs to; `rank` is what the name of the file says."""
    if thread.rank is not None or rank is not None:
        return EntityRef("rank", host, None, thread.rank if thread.rank is not None else rank)
    if thread.local is not None:
        return EntityRef("rank", host, LOCAL, thread.local)
    return EntityRef("rank", host, f"pid {thread.pid}")


def _bare(text: str) -> tuple[str, dict[str, str]]:
    if not text or text[0] not in "[(0123456789":
        return text, {}
    body = peel(text[:600], None)
    return body.text, body.context


def _frame(text: str) -> tuple[str, str] | None:
    """(function, file) of a frame; the line number is left out."""
    if found := _FAULT_FRAME.match(text, 0, 600):
        return found["function"], found["file"]
    if text.startswith("#") and (found := _GDB_FRAME.match(text, 0, 900)):
        return found["function"].strip(), found["file"] or ""
    if not text.startswith("  ") or not text.endswith(")") or len(text) > 900:
        return None
    function, _, place = text.strip()[:-1].rpartition(" (")
    file, colon, line = place.rpartition(":")
    if not function or not place or " " in place:
        return None
    name = function.split("(", 1)[0]  # native frames carry their arguments
    return name, file if colon and line.isdigit() else place


def minority(
    operator: Operator, files: Sequence[tuple[str, Stacks]], host_of: Callable[[str], str | None]
) -> list[Reading]:
    """Readings of the few that wait elsewhere: over all files together, else within each.

    One process a file, or all of a host in one: both are how dumps are taken.
    """
    compared: list[tuple[str, Thread, EntityRef, str]] = []
    for file, stacks in files:
        found = _RANK_IN_NAME.search(file.rsplit("/", 1)[-1])
        rank = int(found["rank"]) if found else None
        host = host_of(file if found is None else file.replace(found[0], ""))
        for thread, wait in stacks.waiting(operator):
            compared.append((file, thread, owner(thread, host, rank), wait))
    sets = [compared] + [[one for one in compared if one[0] == file] for file, _ in files]
    for group in sets:
        if len({entity for _, _, entity, _ in group}) < 3:
            continue
        apart = elsewhere(operator, [(entity, wait) for _, _, entity, wait in group])
        apart = apart or alone(operator, [(thread, wait) for _, thread, _, wait in group])
        if apart:
            return [_reading(operator, *group[at]) for at in apart]
    return []


def _reading(operator: Operator, file: str, thread: Thread, entity: EntityRef, wait: str) -> Reading:
    text = f"{thread.text} waits for: {wait}"
    return Reading(
        file, thread.line, None, thread.order, operator.stream, operator.signal, 1, entity, text, operator.name
    )
