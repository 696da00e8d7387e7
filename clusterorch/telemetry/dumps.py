"""Here live the records of a Flight Recorder dump: what one rank enqueued in each of its process groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Record(NamedTuple):
    """A collective as one rank enqueued it; `started` is None where nothing can be said."""

    sequence: int
    operation: str
    sizes: str
    done: bool
    started: bool | None
    limit_ms: int | None
    record_id: int


@dataclass(slots=True)
class Membership:
    """What one rank did in one process group."""

    local_id: str | None = None
    description: str = ""
    members: tuple[int, ...] = ()
    pairwise: bool = False  # sends and receives count apart, and the last number mixes both
    enqueued: int | None = None
    completed: int | None = None
    pending: dict[int, Record] = field(default_factory=dict)
    done: dict[int, Record] = field(default_factory=dict)
    partners: set[int] = field(default_factory=set)  # ranks of sends and receives that are pending


@dataclass(slots=True)
class Dump:
    """The dump of one rank."""

    file: str
    order: int
    rank: int | None
    groups: dict[str, Membership]
    status: dict[str, tuple[int | None, int | None]]  # last (enqueued, completed) of a group by its local number
    records: int = 0
    waits: int = 0  # records that are pending, of any kind
    last_partner: int | None = None  # of the newest pending record, where it is a send or a receive

    @property
    def world(self) -> int:
        """How many ranks the largest group has."""
        return max((len(group.members) for group in self.groups.values()), default=0)
