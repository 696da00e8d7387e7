"""Here live the records that reading logs yields: what was said, about what, and when.

A reading says which signal an entity showed and with which value; what that means the network decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

LOCAL = "local"  # name of a rank known by its place on its host only


class EntityRef(NamedTuple):
    """An entity as the logs name it; every part may be unknown.

    `name` is a PCI address, a network device, `local` for a local rank, or `pid N`;
    `index` a GPU index or a rank.

    >>> str(EntityRef("gpu", "n17", "0000:61:00")), str(EntityRef("rank", index=23)), str(EntityRef("job"))
    ('gpu 0000:61:00 on n17', 'rank 23', 'job')
    """

    kind: str
    host: str | None = None
    name: str | None = None
    index: int | None = None

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind, without the host; `?` if nothing does."""
        if self.kind == "rank" and self.name == LOCAL:
            return f"{LOCAL} rank {self.index}"
        if self.name:
            return self.name
        return "?" if self.index is None else str(self.index)

    def __str__(self) -> str:
        if self.kind in ("job", "node"):
            label = self.host or self.name or ("" if self.kind == "job" else "?")
            return f"{self.kind} {label}".strip()
        if self.kind == "link":
            device = f"device {self.index}" if self.name is None and self.index is not None else self.place
            return f"link {self.host or '?'} {device}"
        where = f" on {self.host}" if self.host else ""
        if self.kind == "rank" and self.name:
            return f"{self.place}{where}"
        return f"{self.kind} {self.place}{where}"


JOB = EntityRef("job")


class Reading(NamedTuple):
    """One signal of one entity, read from one line.

    `value` is 1 (or a number of occurrences) for what is counted, a class for what is categorical, else a
    number.  `time` counts seconds on `clock` (`wall`, `boot:<file>`, `delta:<file>`); an untimed line has the
    clock `none`, and in `after` the last time that its file showed before it.  `order` rises with every line
    read, over all files.  `speaker` is who wrote the line, as far as its prefix tells.
    """

    file: str
    line: int
    time: float | None
    order: int
    stream: str
    signal: str
    value: float | str
    entity: EntityRef
    text: str
    pattern: str
    clock: str = "none"
    after: float | None = None
    speaker: EntityRef | None = None


class Sample(NamedTuple):
    """A raw quantity that becomes a reading only in relation to others."""

    measure: str
    number: float
    fields: dict[str, str]
    base: Reading


class PhaseMark(NamedTuple):
    """The job says which phase it is in from here on."""

    file: str
    line: int
    time: float | None
    order: int
    phase: str
    text: str
    pattern: str
    clock: str = "none"
    after: float | None = None


class LimitMark(NamedTuple):
    """A line states the limit of a timer."""

    file: str
    line: int
    time: float | None
    order: int
    timer: str
    seconds: float
    text: str
    pattern: str


class Place(NamedTuple):
    """A line says where a rank or a device sits, or what else a device is called.

    `pci`, `uuid` and `index` are names of one GPU (or, with `netdev` and `device`, of one link); `port` is the PCIe
    port above it, or the port above the bus `bus`; `driver` is what drives the device.
    """

    host: str | None = None
    rank: int | None = None
    local: int | None = None
    pci: str | None = None
    address: str | None = None
    ranks: int | None = None
    uuid: str | None = None
    index: int | None = None
    driver: str | None = None
    port: str | None = None
    bus: str | None = None
    device: str | None = None
    netdev: str | None = None
    guid: str | None = None


class Finding(NamedTuple):
    """Something about the files themselves that a reader of the result should know."""

    file: str
    line: int | None
    kind: str
    text: str


class Unrecognised(NamedTuple):
    """A line that no pattern knows."""

    file: str
    line: int
    text: str


@dataclass(slots=True)
class FileSummary:
    """What one file held."""

    file: str
    lines: int = 0
    recognised: int = 0
    readings: int = 0
    streams: set[str] = field(default_factory=set)
    clock: str = "none"
    first: float | None = None
    last: float | None = None


@dataclass(slots=True)
class Coverage:
    """How much of the input was understood; blank lines are not counted."""

    lines: int = 0
    recognised: int = 0
    unrecognised: int = 0
    too_late: int = 0
    truncated: int = 0
    undecodable: int = 0
    streams: dict[str, int] = field(default_factory=dict)
    samples: list[Unrecognised] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Recognised share of the lines; 1 if there are none."""
        return self.recognised / self.lines if self.lines else 1.0


@dataclass(slots=True)
class Ingested:
    """Everything the files said, in the order in which it was read."""

    readings: list[Reading] = field(default_factory=list)
    phases: list[PhaseMark] = field(default_factory=list)
    limits: list[LimitMark] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    findings: list[Finding] = field(default_factory=list)
    files: list[FileSummary] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
