"""Here lives the view of two futures side by side: the episode as it was, and under another move."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clusterorch.environment.books import HEADS
from clusterorch.environment.tables import EpisodeTrace
from clusterorch.environment.whatif import Future, WhatIf, clock_of
from clusterorch.reports.wording import printable

_LABEL = 11
_MOST = 8  # moves and incidents that are told of each future


def show_futures(told: WhatIf, console: Console) -> None:
    """Print both futures and the difference between them."""
    trace, when = told.trace, clock_of(told.trace, told.at)
    console.print(Text(f"At {when} (slice {told.at}): {told.action} instead of {told.instead_of}", style="bold"))
    console.print(Text("the same noise, event by event; this shows the truth, which no policy knows", style="dim"))
    console.print()
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False)
    table.add_column("", no_wrap=True, min_width=_LABEL)
    table.add_column("as it was", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("with " + told.action, no_wrap=True, overflow="ellipsis", ratio=1)
    for name, was, would_be in _rows(trace, told.was, told.would_be):
        style = "" if was == would_be else "bold"
        table.add_row(Text(name), Text(printable(was)), Text(printable(would_be), style=style))
    console.print(table)
    console.print()
    console.print(Text(difference(told), style="bold"))


def difference(told: WhatIf) -> str:
    """The difference in tokens, in a sentence."""
    if told.gained == 0.0:
        return "No difference in tokens kept."
    return f"Tokens kept: {told.gained:+.1f} slices of healthy training, {told.gained_hours:+.2f} hours of training."


def _rows(trace: EpisodeTrace, was: Future, other: Future) -> Iterator[tuple[str, str, str]]:
    yield "job at end", _job(was), _job(other)
    hour = trace.slice_seconds / 3600.0
    for name, a, b in (
        ("kept tokens", was.kept, other.kept),
        *((head, was.heads[head], other.heads[head]) for head in HEADS if was.heads[head] or other.heads[head]),
        ("rolled back", was.rolled_back, other.rolled_back),
    ):
        yield name, f"{a:.1f} slices, {a * hour:.2f} h", f"{b:.1f} slices, {b * hour:.2f} h"
    yield "false moves", str(was.false_moves), str(other.false_moves)
    yield from _listed("moves", *([f"{clock_of(trace, t)} {move}" for t, move in f.moves] for f in (was, other)))
    yield from _listed("incidents", *([line for one in _told(trace, f) for line in one] for f in (was, other)))


def _job(future: Future) -> str:
    return "lost" if future.job == "lost" else f"{future.job}, phase {future.phase}"


def _told(trace: EpisodeTrace, future: Future) -> Iterator[tuple[str, str]]:
    """Two short lines an incident, so that two futures fit side by side."""
    for one in future.incidents:
        minutes = None if one.lasted is None else one.lasted * trace.slice_seconds / 60.0
        lasted = "to the end" if minutes is None else f"for {minutes:.0f} min"
        yield f"{clock_of(trace, one.slice)} {one.place}, {lasted}", f"  {one.variant}"


def _listed(name: str, was: list[str], other: list[str]) -> Iterator[tuple[str, str, str]]:
    """Lists side by side, none as a dash."""
    left, right = _cut(was), _cut(other)
    for i in range(max(len(left), len(right))):
        yield name if i == 0 else "", left[i] if i < len(left) else "", right[i] if i < len(right) else ""


def _cut(lines: list[str]) -> list[str]:
    if len(lines) > _MOST:
        return [*lines[:_MOST], f"and {len(lines) - _MOST} more"]
    return lines or ["none"]
