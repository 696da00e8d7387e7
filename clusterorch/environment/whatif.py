"""Here lives the question what would have become of an episode under another move, and its answer in tokens."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, NamedTuple

from clusterorch.environment.books import HEADS
from clusterorch.environment.replaying import MOVE, replay, replay_exactly
from clusterorch.environment.tables import EpisodeTrace
from clusterorch.errors import InvalidIntervention

_CLOCK = re.compile(r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9]))?")


class Incident(NamedTuple):
    """A failure that was in the slot."""

    variant: str
    place: str  # kind and number, "gpu 12"
    slice: int
    lasted: int | None  # slices until it was over, None: it was not


class Future(NamedTuple):
    """What an episode came to; amounts in slices of healthy training of the whole job."""

    slices: int
    kept: float  # good tokens that survive
    heads: dict[str, float]  # how the slices were spent; they sum to `slices`
    rolled_back: float
    false_moves: int
    moves: list[tuple[int, str]]  # slice and label of what was done beside waiting
    incidents: list[Incident]
    job: str  # class of the job in the end, or that it is lost
    phase: str  # in the end


class WhatIf(NamedTuple):
    """An episode as it was and as it would have been.

    at: slice of the decision that is another.  gained: slices of healthy training that would have been kept beyond
    what was kept, below 0 lost.  gained_hours: the same as hours of training.
    """

    trace: EpisodeTrace
    other: EpisodeTrace
    was: Future
    would_be: Future
    at: int
    action: str
    instead_of: str
    gained: float
    gained_hours: float


def what_if(trace: EpisodeTrace, at: int, action: str, *, then: str = "recorded") -> WhatIf:
    """The same noise under another move.

    Args:
        trace: of the episode.
        at: slice; the first decision not before it is changed.
        action: as `Moves.parse` reads it.
        then: after it, make the moves that were recorded later (`recorded`) or wait (`wait`).

    Raises:
        InvalidIntervention: no such move or decision, or the move is not legal there.
        InvalidTrace: the episode does not play again as it was.
    """
    replay_exactly(trace)
    made = [(round(row["time"] / trace.slice_seconds), row["move"]) for row in trace.rows("recovery")]
    later = [one for one in made if one[0] >= at]
    if at < 0 or not later:
        raise InvalidIntervention(f"slice {at}: the last decision of the trace is at {made[-1][0] if made else 'none'}")
    other = replay(trace, [f"{MOVE}={action}@{at}"], then=then)
    was, would_be = future_of(trace), future_of(other)
    gained = would_be.kept - was.kept
    return WhatIf(
        trace, other, was, would_be, later[0][0], action, later[0][1], gained, gained * trace.slice_seconds / 3600.0
    )


def future_of(trace: EpisodeTrace) -> Future:
    """What the episode of a trace came to, from its tables `truth` and `recovery`."""
    truth, dt = trace.rows("truth"), trace.slice_seconds
    waits = trace.metadata["waits"]
    last: dict[str, Any] = truth[-1] if truth else {"kept": 0.0, "lost": False, "job_class": "moving", "phase": "step"}
    made = [(round(row["time"] / dt), row["move"], row["legal"]) for row in trace.rows("recovery")]
    return Future(
        len(truth), last["kept"], {head: sum(row[head] for row in truth) for head in HEADS},
        sum(row["rolled_back"] for row in truth), sum(row["false_move"] for row in truth),
        [(t, move if legal else f"{move} (not legal)") for t, move, legal in made if move != waits],
        _incidents(truth), "lost" if last["lost"] else last["job_class"], last["phase"],
    )  # fmt: skip


def _incidents(truth: list[dict[str, Any]]) -> list[Incident]:
    found: list[Incident] = []
    for row in truth:
        if row["recovered_after"] is not None and found and found[-1].lasted is None:
            found[-1] = found[-1]._replace(lasted=row["recovered_after"])
        if row["incident_since"] == row["slice"]:
            found.append(Incident(row["variant"], f"{row['site_kind']} {row['site']}", row["slice"], None))
    return found


def slice_at(trace: EpisodeTrace, text: str) -> int:
    """The slice of a time of day on the trace's clock, `HH:MM` or `HH:MM:SS`, or of a number.

    Of a day that the episode outlasts it is the first.

    Raises:
        InvalidIntervention: another form, or outside of the episode.
    """
    last, dt = trace.slices - 1, trace.slice_seconds
    if text.strip().isdecimal():
        at = int(text)
    elif found := _CLOCK.fullmatch(text.strip()):
        starts = datetime.fromisoformat(trace.metadata["starts"])
        zero = starts.hour * 3600 + starts.minute * 60 + starts.second
        asked = int(found["hour"]) * 3600 + int(found["minute"]) * 60 + int(found["second"] or 0)
        at = math.ceil(((asked - zero) % 86400) / dt)
    else:
        raise InvalidIntervention(f"time {text!r}: write HH:MM, HH:MM:SS or the number of a slice")
    if not 0 <= at <= last:
        raise InvalidIntervention(
            f"time {text}: the episode runs from {clock_of(trace, 0)} to {clock_of(trace, last + 1)}, slices 0..{last}"
        )
    return at


def clock_of(trace: EpisodeTrace, slices: float) -> str:
    """Time of day on the trace's clock after so many slices, HH:MM:SS."""
    starts = datetime.fromisoformat(trace.metadata["starts"])
    zero = starts.hour * 3600 + starts.minute * 60 + starts.second
    whole = int(zero + slices * trace.slice_seconds) % 86400
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
