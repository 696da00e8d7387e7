"""Here lives what reading may cost: every limit on what strangers' files can make the reader do.

Each limit that is met leaves a finding; none is an error, and what was read before it counts.  Limits on a single
line are in `lines` and `linearity`, on folders in `walking`, on what is kept in `gathering`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.readings import Finding
from clusterorch.telemetry.streams import Stopped


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read of what was given.

    Args:
        files: files, and members of archives, that are looked at, all together.
        bytes_read: bytes read from disk, and bytes out of every decompressor, all together.
        ratio: bytes that one compressed file may yield per byte of its own.  Text of logs shrinks 5 to 50
            times, deflate can shrink zeros 1032 times, xz and zstd much more.
        ratio_from: bytes that a compressed file may yield before its ratio counts.
        nesting: archives within archives; a compressed tar counts as one.
        whole_file_bytes: size of a file that is read whole (`whole_files`).  Hostile JSON grows some 20-fold
            in memory, and half a gigabyte is what a diagnosis may take.
        window_bytes: memory that an xz or zstd file may ask for to be unpacked.
        findings_of_a_kind: findings of one kind that are listed; the others are counted.
    """

    files: int = 100_000
    bytes_read: int = 64 << 30
    ratio: int = 500
    ratio_from: int = 256 << 20
    nesting: int = 2
    whole_file_bytes: int = 32 << 20
    window_bytes: int = 128 << 20
    findings_of_a_kind: int = 200


class Intake:
    """One reading of files: what it has cost so far, and what it has to say about them."""

    def __init__(self, gathering: Gathering, limits: Limits) -> None:
        self.limits = limits
        self.over: Stopped | None = None  # why nothing more is read
        self._gathering = gathering
        self._files = 0
        self._bytes = 0
        self._labels: Counter[str] = Counter()

    def note(self, label: str, kind: str, text: str) -> None:
        """Add a finding about a file or a member."""
        self._gathering.note(label, kind, text)

    def tell(self, label: str, stopped: Stopped) -> None:
        """Add a finding about why reading stopped, once, however many layers meet it."""
        if not stopped.told:
            stopped.told = True
            self.note(label, stopped.kind, stopped.text)

    def admits(self) -> bool:
        """Whether one more file or member may be looked at."""
        if self.over is not None:
            return False
        self._files += 1
        if self._files > self.limits.files:
            text = f"only the first {self.limits.files} files are read; give fewer at a time"
            self.over = Stopped("too_many_files", text)
            self.tell("", self.over)
        return self.over is None

    def spend(self, size: int) -> None:
        """Count bytes that were read or unpacked.

        Raises:
            Stopped: all that may be read has been.
        """
        self._bytes += size
        if self.over is None and self._bytes > self.limits.bytes_read:
            text = f"only the first {_size(self.limits.bytes_read)} are read; give fewer files at a time"
            self.over = Stopped("too_much", text)
        if self.over is not None:
            raise self.over

    def own(self, label: str) -> str:
        """A label for a member that no other has."""
        self._labels[label] += 1
        return label if self._labels[label] == 1 else f"{label} ({self._labels[label]})"


class Meter:
    """What one file on disk gave, against its size: a small file that unpacks without end is a bomb."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._packed = 0
        self._unpacked = 0

    def read(self, size: int) -> None:
        """Count bytes that came from disk.

        Raises:
            Stopped: all that may be read has been.
        """
        self._packed += size
        self._intake.spend(size)

    def unpacked(self, size: int) -> None:
        """Count bytes that came out of a decompressor.

        Raises:
            Stopped: the file unpacks to too much for its size, or all that may be read has been.
        """
        self._unpacked += size
        limits = self._intake.limits
        if self._unpacked > limits.ratio_from and self._unpacked > limits.ratio * self._packed:
            text = f"unpacks to over {limits.ratio} times its size; only its first {_size(self._unpacked)} are read"
            raise Stopped("bomb", f"{text}: unpack it yourself if you trust it")
        self._intake.spend(size)


def bounded(findings: list[Finding], most: int) -> list[Finding]:
    """The first findings of each kind, and how many more there were.

    >>> many = [Finding(f"{n}.log", None, "empty", "is empty") for n in range(5)]
    >>> [finding.text for finding in bounded(many, 2)]
    ['is empty', 'is empty', '3 more findings of this kind are not listed']
    """
    seen: Counter[str] = Counter()
    kept = []
    for finding in findings:
        seen[finding.kind] += 1
        if seen[finding.kind] <= most:
            kept.append(finding)
    for kind, count in seen.items():
        if count > most:
            kept.append(Finding("", None, kind, f"{count - most} more findings of this kind are not listed"))
    return kept


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >> 20 else f"{count} bytes"
