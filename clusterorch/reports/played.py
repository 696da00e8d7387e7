"""Here lives the account of one played episode on a terminal: what it was worth, and what was stated and true."""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from clusterorch.environment.books import HEADS
from clusterorch.environment.timeline import clock
from clusterorch.models.ground import HEALTHY
from clusterorch.reports.wording import bar, is_plain, percent

_HEAD, _BAR, _MOST_MOVES = 13, 30, 12


class Stated(NamedTuple):
    """A move, the diagnosis stated with it, and what was the case."""

    slice: int
    move: str
    legal: bool
    mode: str
    node: int  # -1: none
    true_mode: str
    true_node: int


class Played(NamedTuple):
    """One episode under one policy."""

    policy: str
    told: dict[str, Any]  # as `Episodes.incident` tells it
    healthy: float  # slices that a run without failures would keep
    slice_seconds: float
    moves: list[Stated]


def show_played(played: Played, console: Console) -> None:
    """Print what an episode was worth, its incidents, and the stated diagnoses beside the truth."""
    told, slices = played.told, max(int(played.told["slices"]), 1)
    hours = told["kept"] * played.slice_seconds / 3600.0
    _row(console, "kept", f"{told['kept']:.1f} of {slices} slices, {hours:.2f} h of healthy training")
    _row(console, "", f"{100.0 * _part(told['kept'], played.healthy):.1f} % of what a run without failures keeps")
    if told["lost"]:
        _row(console, "", Text("the job was given up", style="red"))
    false = f", {told['false_moves']} of them false" if told["moves"] else ""
    _row(console, "moves", f"{told['moves']}{false}")
    _row(console, "rolled back", f"{told['rolled_back']:.1f} slices")
    for i, head in enumerate(HEADS):
        part = told[head] / slices
        _row(console, "" if i else "time", f"{head:<9} {bar(part, _BAR, plain=is_plain(console))} {percent(part):>7}")
    _incidents(played, console)
    _stated(played, console)


def _part(kept: float, healthy: float) -> float:
    return kept / healthy if healthy > 0.0 else 0.0


def _row(console: Console, head: str, *parts: str | Text) -> None:
    line = Text(f"{head:<{_HEAD}}", style="bold")
    line = Text.assemble(line)
    for part in parts:
        line.append_text(part if isinstance(part, Text) else Text(part))
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, no_wrap=True)


def _incidents(played: Played, console: Console) -> None:
    found = played.told["incidents"]
    if not found:
        _row(console, "incidents", "none")
    for i, one in enumerate(found):
        begun, after = clock(one["slice"], played.slice_seconds), one["recovered"]
        lasted = "to the end" if after is None else f"for {clock(after, played.slice_seconds)}"
        _row(
            console,
            "" if i else "incidents",
            f"{begun} {lasted:<11} {one['variant']}, {one['site_kind']} {one['site']}",
        )


def _stated(played: Played, console: Console) -> None:
    """Moves with the diagnosis that was stated and the true one."""
    if not played.moves:
        return
    console.print()
    width = max(len(one.move) for one in played.moves) + 2
    console.print(Text(f"{'clock':<9}{'move':<{width}}stated with it", style="bold"))
    for one in played.moves[:_MOST_MOVES]:
        said, true = _place(one.mode, one.node), _place(one.true_mode, one.true_node)
        console.print(
            _told(f"{clock(one.slice, played.slice_seconds):<9}{one.move:<{width}}", one, said, true), no_wrap=True
        )
        if one.legal and said != true:
            console.print(Text(f"{'':<{9 + width}}in truth {true}", style="dim"), no_wrap=True, overflow="ellipsis")
    if len(played.moves) > _MOST_MOVES:
        console.print(Padding(Text(f"and {len(played.moves) - _MOST_MOVES} more", style="dim"), (0, 0, 0, 9)))
    first = played.moves[0]
    judged = "right" if first.mode == first.true_mode else "wrong"
    console.print(Text(f"What was stated with the first move was {judged}."))


def _told(head: str, one: Stated, said: str, true: str) -> Text:
    line = Text(head)
    if not one.legal:
        return line.append("not legal: nothing was done")
    judged = "right" if said == true else "the place is wrong" if one.mode == one.true_mode else "wrong"
    return line.append(f"{said}: ").append(judged, style="green" if said == true else "yellow")


def _place(mode: str, node: int) -> str:
    return "no failure" if mode == HEALTHY else mode + (f" at node {node}" if node >= 0 else "")
