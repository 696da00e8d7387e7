"""Here lives the terminal view of an episode's trace: one clock for the job, the moves, the belief and the lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from clusterorch.environment.books import HEADS
from clusterorch.environment.tables import CELLS, EpisodeTrace
from clusterorch.environment.whatif import clock_of
from clusterorch.models.ground import HEALTHY
from clusterorch.models.rows import CONTINUOUS, KIND_OF_FAMILY
from clusterorch.reports.wording import bar, is_plain, percent, printable
from clusterorch.telemetry.events import CASCADE

_STEPS, _SAVES = "step", "save"
_SURE = (0.5, 0.9)  # a belief that passes one of these is a row
_PAUSE = 300.0  # seconds without a line of its kind after which it is a new row
_EVERYDAY = 0.1  # share of slices from which on a kind of line is everyday, and no row
_ENDS = ("fault_end", "mechanism_off")
_SIGNS = {"job": "■", "move": "▶", "belief": "◆", "line": "·", "cause": "✗"}
_PLAIN = {"job": "=", "move": ">", "belief": "#", "line": ".", "cause": "!"}
_STYLES = {"job": "bold", "move": "green", "belief": "magenta", "line": "cyan", "cause": "red"}
_ORDER = ("line", "belief", "move", "cause", "job")
_BAR = 30


class Row(NamedTuple):
    """Something that happened, `time` seconds after the beginning."""

    time: float
    kind: str  # job, move, belief, line, cause
    text: str


def show_episode(trace: EpisodeTrace, console: Console, *, truth: bool = False, most: int = 24) -> None:
    """Print the timeline of an episode.

    Args:
        trace: of the episode.
        console: where.
        truth: show faults, mechanisms and what was kept; else only what was published, delivered or believed.
        most: rows of lines that are printed, the rarest kinds; of all else every row is.
    """
    lines, left = _rarest(_lines(trace), most)
    rows = [*_job(trace), *_moves(trace), *_beliefs(trace), *lines, *(_causes(trace) if truth else ())]
    rows.sort(key=lambda row: (row.time, _ORDER.index(row.kind)))
    _head(trace, console, truth=truth)
    amounts, signs = _amounts(trace, truth=truth), _PLAIN if is_plain(console) else _SIGNS
    for row in rows:
        style = _STYLES[row.kind]
        amount = f"{amounts(row.time):>9.1f}"
        line = Text(f"{clock_of(trace, row.time / trace.slice_seconds)}  ")
        line.append(f"{signs[row.kind]} ", style=style)
        told = Text(printable(row.text), style=style)
        told.truncate(console.width - line.cell_len - len(amount) - 1, overflow="ellipsis", pad=True)
        console.print(line.append_text(told).append(" ").append(amount), no_wrap=True)
    if left:
        console.print(Text(f"and {left} more rows of lines, of kinds that come more often", style="dim"))
    if truth:
        _shares(trace, console)


def _head(trace: EpisodeTrace, console: Console, *, truth: bool) -> None:
    told = trace.metadata
    spares = f", {told['spares']} spare{'s' if told['spares'] != 1 else ''}" if told["spares"] else ""
    title = f"Episode {told['episode']} of seed {told['seed']}: a job on {told['layout']}{spares}"
    console.print(Text(printable(title), style="bold"))
    moves = sum(row["move"] != told["waits"] for row in trace.rows("recovery"))
    span = f"{clock_of(trace, 0)} to {clock_of(trace, trace.slices)}"
    console.print(
        f"{span}, {trace.slices} slices of {trace.slice_seconds:g} s, "
        f"{trace.tables['recovery'].num_rows} decisions, {moves} move{'s' if moves != 1 else ''}"
    )
    if told["do"]:
        console.print(Text(printable("under " + ", ".join(told["do"])), style="yellow"))
    signs = _PLAIN if is_plain(console) else _SIGNS
    kinds = [kind for kind in ("job", "line", "belief", "move", "cause") if truth or kind != "cause"]
    key = Text("")
    for kind in kinds:
        key.append(f"{signs[kind]} {kind}   ", style=_STYLES[kind])
    console.print(key)
    console.print()
    amount = "kept" if truth else "reward"
    console.print(Text(f"{'clock':<10}{'what':<{console.width - 10 - len(amount)}}{amount}", style="bold"))


def _amounts(trace: EpisodeTrace, *, truth: bool) -> Any:
    """Function of time: what had been kept (truth), or the sum of rewards of the decisions that had ended."""
    if truth:
        steps = [(row["time"], row["kept"]) for row in trace.rows("truth")]
    else:
        total, steps = 0.0, []
        for row in trace.rows("recovery"):
            total += row["reward"]
            steps.append((row["time"] + row["slices"] * trace.slice_seconds, total))

    def at(time: float) -> float:
        known = [amount for moment, amount in steps if moment <= time]
        return known[-1] if known else 0.0

    return at


def _job(trace: EpisodeTrace) -> Iterator[Row]:
    """Changes of class and phase, which are published."""
    for event in trace.events:
        if event.kind == "action" and event.payload["name"] == trace.metadata["scheduler"]:
            yield Row(event.time, "job", "the scheduler starts the job again")
    phase, job, lost = _STEPS, "moving", False
    for row in trace.rows("truth"):
        time = row["time"] - trace.slice_seconds
        if row["job_class"] != job:
            yield Row(time, "job", f"job {row['job_class']} (phase {row['phase']})")
        elif row["phase"] != phase and (row["phase"] != _STEPS or phase != _SAVES):
            yield Row(time, "job", "saves a copy" if row["phase"] == _SAVES else f"phase {row['phase']}")
        if row["lost"] and not lost:
            yield Row(row["time"], "job", "job lost: the scheduler gives it up")
        phase, job, lost = row["phase"], row["job_class"], row["lost"]


def _moves(trace: EpisodeTrace) -> Iterator[Row]:
    waits = trace.metadata["waits"]
    for row in trace.rows("recovery"):
        if row["move"] != waits:
            stated = f", stating {row['stated_mode']}" if row["stated_mode"] else ""
            stated += f" at node {row['stated_node']}" if row["stated_node"] is not None else ""
            done = f"{row['slices']} slices, reward {row['reward']:+.1f}" if row["legal"] else "not legal: nothing done"
            yield Row(row["time"], "move", f"{row['move']}: {done}{stated}")


def _beliefs(trace: EpisodeTrace) -> Iterator[Row]:
    """The leading mode, where it, its node or how sure it is changes."""
    before: tuple[Any, ...] | None = None
    for row in trace.rows("diagnosis"):
        mode = max(trace.metadata["modes"], key=lambda name: row[f"p.{name}"])
        p = row[f"p.{mode}"]
        node = row["node"] if mode != HEALTHY and row["p_node"] >= _SURE[0] else None
        now = (mode, node, sum(p >= level for level in _SURE))
        if now != before:
            place = f", node {node} {percent(row['p_node'])}" if node is not None else ""
            yield Row(row["time"], "belief", f"{mode} {percent(p)}{place}")
        before = now


def _rarest(kinds: list[list[Row]], most: int) -> tuple[list[Row], int]:
    """Rows of the kinds that come least often, at most so many, and how many are left out."""
    chosen: list[Row] = []
    for rows in sorted(kinds, key=lambda rows: (len(rows), rows[0])):
        if len(chosen) + len(rows) > most:
            break
        chosen += rows
    return chosen, sum(map(len, kinds)) - len(chosen)


def _lines(trace: EpisodeTrace) -> list[list[Row]]:
    """What was delivered beside samples and everyday lines, kind by kind, when it arrived; a run is one row."""
    signals, runs = trace.metadata["signals"], {}
    for row in trace.rows("telemetry"):
        if row["signal"] != CELLS and KIND_OF_FAMILY[signals[row["signal"]]["family"]] != CONTINUOUS:
            runs.setdefault((row["stream"], row["signal"]), []).append(row)
    found = []
    for (stream, name), rows in runs.items():
        if len({row["slice"] for row in rows}) > _EVERYDAY * trace.slices:
            continue
        rows.sort(key=lambda row: row["arrival"])
        told, run = [], [rows[0]]
        for row in rows[1:]:
            if row["arrival"] - run[-1]["arrival"] > _PAUSE:
                told.append(_line(stream, name, run, signals[name]))
                run = []
            run.append(row)
        found.append([*told, _line(stream, name, run, signals[name])])
    return found


def _line(stream: str, name: str, run: list[dict[str, Any]], signal: dict[str, Any]) -> Row:
    first = run[0]
    places = sorted({(row["entity"], row["number"]) for row in run})
    place = f"{first['entity']} {first['number']}" if len(places) == 1 else f"{len(places)} {first['entity']}s"
    value = f" = {signal['values'][int(first['value'])]}" if signal["values"] else ""
    times = f" x {len(run)}" if len(run) > 1 else ""
    return Row(first["arrival"], "line", f"{stream}: {name}{value}, {place}{times}")


def _causes(trace: EpisodeTrace) -> Iterator[Row]:
    """Faults, their ends, and the mechanisms between them."""
    for event in trace.events:
        if event.source != CASCADE or event.kind == "action":
            continue
        name = event.payload.get("variant") or event.payload.get("name") or ""
        again = "again " if event.payload.get("again") else ""
        severity = f", {event.payload['severity']}" if event.payload.get("severity") else ""
        text = f"{again}{name}{severity}, {event.entity}" if event.kind not in _ENDS else f"over: {name or 'the fault'}"
        yield Row(event.time, "cause", text)


def _shares(trace: EpisodeTrace, console: Console) -> None:
    """How the slices were spent."""
    truth = trace.rows("truth")
    console.print()
    for head in HEADS:
        total = sum(row[head] for row in truth)
        share = total / max(trace.slices, 1)
        console.print(f"{head:<10}{total:>8.1f}  {bar(share, _BAR, plain=is_plain(console))} {percent(share)}")
    back = sum(row["rolled_back"] for row in truth)
    kept = truth[-1]["kept"] if truth else 0.0
    hours = kept * trace.slice_seconds / 3600.0
    console.print(f"{'lost work':<10}{back:>8.1f}")
    console.print(f"{'kept':<10}{kept:>8.1f}  slices of healthy training, {hours:.2f} h")
