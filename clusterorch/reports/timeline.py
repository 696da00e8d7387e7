"""Here lives the timeline of an incident: its cascade, a lane for every collector, and the belief."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clusterorch.models import Layout, Model
from clusterorch.models.ground import HEALTHY
from clusterorch.models.spec import STREAMS
from clusterorch.reports.wording import is_plain, percent, printable
from clusterorch.telemetry.events import CASCADE, Event

CAUSE = "cause"  # the lane of what no collector sees
_LANE = {CAUSE: "why", "nccl": "nccl", "kernel": "kern", "smi": "smi", "network": "net", "checkpoint": "ckpt"}
_COLOURS = {"nccl": "cyan", "kernel": "red", "smi": "magenta", "network": "blue", "checkpoint": "green"}
_SHADES = ("red", "blue", "magenta", "yellow", "cyan", "bright_red", "bright_blue", "bright_magenta")
_LEAST_CHANGE = 0.02  # slices in which no mode moves by more are told in one row
_RIBBON = 40
_CELL = 0.5 / _RIBBON  # what is rounded to a cell
_OTHERS = "others"
_PAUSE = 120.0  # seconds without a line of its kind after which it counts as a new row


class Mark(NamedTuple):
    """Something that happened in a lane, first at `time` (seconds), `times` times until `until`."""

    time: float
    lane: str
    text: str
    times: int
    until: float


class Belief(NamedTuple):
    """What was believed after a slice."""

    time: float
    modes: Mapping[str, float]


def clock(seconds: float) -> str:
    """Hours, minutes and seconds on the clock of an incident.

    >>> clock(3725.4), clock(-15.0)
    ('01:02:05', '-00:00:15')
    """
    whole = int(abs(seconds))
    return f"{'-' if seconds < 0 else ''}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def marks_of(events: Iterable[Event], model: Model) -> list[Mark]:
    """The cascade of a trace in words: the fault, its mechanisms, and the lines that they brought about.

    Of mechanisms that do nothing to the job only the beginning is told.  Lines of one kind that follow
    each other closely are one mark; everyday lines, which nothing brought about, are left out.
    """
    runs: dict[str, list[list[Event]]] = {}
    for event in sorted(events, key=lambda e: (e.time, e.id)):
        if (event.source != CASCADE and not event.causes) or _trifling(event, model):
            continue
        same = runs.setdefault(_meaning(event, model), [])
        if same and event.time - same[-1][-1].time <= _PAUSE:
            same[-1].append(event)
        else:
            same.append([event])
    marks = [_mark(text, run, model.layout) for text, group in runs.items() for run in group]
    return sorted(marks, key=lambda mark: (mark.time, mark.lane != CAUSE))


def _trifling(event: Event, model: Model) -> bool:
    """Whether this is the end of a mechanism that did nothing to the job."""
    return event.kind == "mechanism_off" and model.mechanisms[event.payload["name"]].effect == "none"


def _meaning(event: Event, model: Model) -> str:
    """What an event says, without its place."""
    payload = event.payload
    if event.kind in ("fault", "fault_end"):
        return _fault_words(event, model)
    if event.kind in ("mechanism_on", "mechanism_off"):
        title = model.mechanisms[payload["name"]].title
        return title if event.kind == "mechanism_on" else f"over: {title}"
    if event.kind == "action":
        return f"action: {payload['name']}"
    value = f" = {payload['value']}" if "value" in payload else ""
    return f"{model.signals[event.kind].title}{value}"


def _fault_words(event: Event, model: Model) -> str:
    if event.kind == "fault_end":
        return "the fault is over"
    mode, _, name = event.payload["variant"].partition(".")
    variants = model.spec.benign if mode == HEALTHY else model.modes[mode].variant
    title = next(v.title or v.name for v in variants if v.name == name)
    return f"{'again: ' if event.payload.get('again') else ''}{title}"


def _mark(text: str, run: Sequence[Event], layout: Layout) -> Mark:
    first = run[0]
    hidden = first.source == CASCADE
    places = list(dict.fromkeys(event.entity for event in run))
    if not hidden or first.kind == "fault":
        many = f"{len(places)} {places[0].split()[0]}s"
        text += f", {place_of(places[0], layout) if len(places) == 1 else many}"
    return Mark(first.time, CAUSE if hidden else first.source, text, len(run), run[-1].time)


def place_of(entity: str, layout: Layout) -> str:
    """An entity of a layout with the node it sits on.

    >>> place_of("link 11", Layout(2, 8)), place_of("job 0", Layout(2, 8))
    ('link 11 (node 1)', 'the job')
    """
    kind, number = entity.split()
    if layout.count(kind) == 1:
        return f"the {kind}"
    node = int(layout.node_of(kind)[int(number)])
    return entity if kind == "node" or node < 0 else f"{entity} (node {node})"


def show_cascade(marks: Sequence[Mark], console: Console, *, most: int = 60) -> None:
    """Print what happened on one clock, with a lane for causes and one for every collector.

    Args:
        marks: in order of time.
        console: where.
        most: rows printed.
    """
    lanes = [CAUSE, *STREAMS]
    head = "".join(f"{_LANE[lane]:<5}" for lane in lanes)
    console.print(Text(f"{'clock':<10}{head}what", style="bold"))
    dot, diamond = ("*", "#") if is_plain(console) else ("●", "◆")
    for mark in marks[:most]:
        colour = "bold" if mark.lane == CAUSE else _COLOURS.get(mark.lane, "")
        row = Text(f"{clock(mark.time):<10}")
        for lane in lanes:
            sign = (diamond if lane == CAUSE else dot) if lane == mark.lane else " "
            row.append(f"{sign:<5}", style=colour)
        count = f"  x {mark.times}, to {clock(mark.until)}" if mark.times > 1 else ""
        said = Text(printable(mark.text), style=colour)
        said.truncate(max(console.width - row.cell_len - len(count), 1), overflow="ellipsis")
        row.append_text(said).append(count, style="dim")
        console.print(row, no_wrap=True, overflow="ellipsis")
    if len(marks) > most:
        console.print(Text(f"and {len(marks) - most} more rows", style="dim"))


def show_beliefs(beliefs: Sequence[Belief], console: Console, *, top: int = 2) -> None:
    """Print the diagnosis slice by slice: a ribbon shared out among the modes, and the top ones."""
    if not beliefs:
        return
    letters = _letters(beliefs)
    _key(letters, console)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=9, no_wrap=True)
    table.add_column(width=_RIBBON, no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for alike in _stretches(beliefs):
        first, last = alike[0], alike[-1]
        table.add_row(clock(first.time), _ribbon(first.modes, letters), _leaders(first.modes, top))
        if len(alike) > 2:
            table.add_row("", Text(_alike(len(alike) - 2), style="dim"), "")
        if len(alike) > 1:
            table.add_row(clock(last.time), _ribbon(last.modes, letters), _leaders(last.modes, top))
    console.print(table)


def _alike(slices: int) -> str:
    return f"{slices} slice{'s' if slices > 1 else ''} alike"


def _stretches(beliefs: Sequence[Belief]) -> list[list[Belief]]:
    """Runs of slices in which every mode stays near where the run began."""
    runs: list[list[Belief]] = []
    for belief in beliefs:
        start = runs[-1][0] if runs else None
        if start and all(abs(p - start.modes[mode]) <= _LEAST_CHANGE for mode, p in belief.modes.items()):
            runs[-1].append(belief)
        else:
            runs.append([belief])
    return runs


def _letters(beliefs: Sequence[Belief]) -> dict[str, tuple[str, str]]:
    """Letter and colour of every mode that shows anywhere, and of the others together; healthy is a dot."""
    most = {mode: max(b.modes[mode] for b in beliefs) for mode in beliefs[0].modes if mode != HEALTHY}
    shown = [mode for mode in most if most[mode] >= _CELL]
    letters = {mode: (chr(ord("A") + n % 26), _SHADES[n % len(_SHADES)]) for n, mode in enumerate(shown)}
    if max((_others(b.modes, letters) for b in beliefs), default=0.0) >= _CELL:
        letters[_OTHERS] = ("-", "dim")
    return {HEALTHY: (".", "dim"), **letters}


def _others(modes: Mapping[str, float], letters: Mapping[str, tuple[str, str]]) -> float:
    return sum(p for mode, p in modes.items() if mode not in letters and mode != HEALTHY)


def _key(letters: Mapping[str, tuple[str, str]], console: Console) -> None:
    key = Text("")
    for mode, (letter, colour) in letters.items():
        key.append(letter, style=colour).append(f" {mode}   ")
    console.print(key)


def _ribbon(modes: Mapping[str, float], letters: Mapping[str, tuple[str, str]]) -> Text:
    """The cells shared out by cumulated probability, so that a row is always full."""
    ribbon, done, total = Text(), 0, 0.0
    order = [*(mode for mode in letters if mode != HEALTHY), HEALTHY]
    for mode in order:
        total += _others(modes, letters) if mode == _OTHERS else modes[mode]
        until = _RIBBON if mode == order[-1] else round(_RIBBON * total)
        letter, colour = letters[mode]
        ribbon.append(letter * (until - done), style=colour)
        done = until
    return ribbon


def _leaders(modes: Mapping[str, float], top: int) -> Text:
    ranked = [item for item in sorted(modes.items(), key=lambda item: -item[1])[:top] if item[1] >= 0.005]
    named = [f"{mode} {percent(p)}" for mode, p in ranked]
    return Text(", ".join(named), style="bold" if ranked and ranked[0][0] != HEALTHY else "")
