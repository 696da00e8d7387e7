"""Here lives the terminal view of a diagnosis: what probably happened, where, since when, and why."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clusterorch.diagnosis.advice import Advice
from clusterorch.diagnosis.agent_advice import AgentAdvice, Considered, cost_words
from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis, Weight, ranked_weights
from clusterorch.diagnosis.dossier import DECIDED, Dossier
from clusterorch.diagnosis.incidents import Incidents, ends
from clusterorch.diagnosis.settling import Offer
from clusterorch.models import Model
from clusterorch.reports.wording import bar, is_plain, percent, printable, says, when, where

_SHOUTED = 0.05  # below this a proximate mechanism is not worth a line
_MOST_SAMPLES, _MOST_FINDINGS = 5, 8
_LIGHT = 0.005  # nats; a line that weighs less is not evidence one way or the other
_LABEL = 8
_FEWEST, _RARE = 5, 0.005  # modes shown whatever they are, and what makes a further one worth a row


def show_diagnosis(told: Diagnosis | Dossier, console: Console, *, top: int = 5) -> None:
    """Print a diagnosis for a person.

    Args:
        told: what to show; of a dossier also what would settle it and what to do.
        console: where; nothing is assumed but its width and its encoding.
        top: how many places, and how many lines for and against the verdict.
    """
    dossier = told if isinstance(told, Dossier) else Dossier(told)
    diagnosis = dossier.diagnosis
    console.print(_title(diagnosis))
    if dossier.incidents is not None:
        console.print(_two(dossier.incidents))
    console.print()
    console.print(_modes(diagnosis, console))
    console.print()
    console.print(_facts(diagnosis, top))
    if dossier.offers or dossier.advice:
        console.print(_next(dossier))
    if dossier.agent is not None:
        console.print()
        console.print(Text(f"What agent {printable(dossier.agent.agent)} would do next", style="bold"))
        console.print(_of_agent(dossier.agent))
    leading = diagnosis.leading
    _lines(diagnosis, console, f"Lines for {leading}, nats", 1.0, top)
    _lines(diagnosis, console, f"Lines against {leading}, nats", -1.0, top)
    _rest(diagnosis, console)
    console.print()
    model, overlays = diagnosis.model, [path.stem for path in diagnosis.model.overlays]
    named = " + ".join([model.name, *overlays])
    console.print(Text(f"model {printable(named)}, sha256 {model.sha256[:12]}", style="dim"))


def title_of(model: Model, mode: str) -> str:
    """What a mode is called in words."""
    return "no failure" if mode == HEALTHY else model.modes[mode].title


def verdict(diagnosis: Diagnosis) -> str:
    """The diagnosis in one line; `undecided` unless one mode is more probable than all others together."""
    leading, p = diagnosis.leading, diagnosis.modes[diagnosis.leading]
    if not diagnosis.weights:
        return "nothing in these logs tells failures apart: the prior stands"
    if p < DECIDED:
        return f"undecided: {leading} leads with {percent(p)}"
    return f"{title_of(diagnosis.model, leading)} ({leading}, {percent(p)})"


def _title(diagnosis: Diagnosis) -> Text:
    text = Text("Diagnosis: ", style="bold")
    decided = diagnosis.weights and diagnosis.modes[diagnosis.leading] >= DECIDED
    colour = "yellow" if not decided else "green" if diagnosis.leading == HEALTHY else "red"
    return text.append(verdict(diagnosis), style=f"bold {colour}")


def _two(incidents: Incidents) -> Table:
    """The two failures, where the logs hold two; what follows below is about the whole."""
    table = _grid(_LABEL)
    words = f"{percent(incidents.probability)} that these are two incidents, and not one; below, all is taken for one"
    table.add_row(Text("Note", style="bold yellow"), Text(words))
    for name, part in (("first", incidents.first), ("then", incidents.second)):
        first, last = ends(part)
        place = f", {printable(part.sites[0][1])}" if part.sites else ""
        span = f"{where(first)} ({when(first)}) to {where(last)}"
        table.add_row(name, Text(f"{verdict(part)}{place}").append(f"\n{span}", style="dim"))
    return table


def _grid(*widths: int) -> Table:
    """Columns of fixed widths, the last one taking the rest."""
    table = Table.grid(padding=(0, 1), expand=True)
    for width in widths:
        table.add_column(width=width, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, overflow="fold")
    return table


def shown_modes(diagnosis: Diagnosis) -> tuple[list[tuple[str, float]], list[str], float]:
    """Modes worth a row, most probable first; the names of all others, and their probability together."""
    modes = sorted(diagnosis.modes.items(), key=lambda item: (-item[1], item[0]))
    shown = [item for i, item in enumerate(modes) if i < _FEWEST or item[1] >= _RARE]
    others = modes[len(shown) :]
    return shown, [name for name, _ in others], sum(p for _, p in others)


def _modes(diagnosis: Diagnosis, console: Console) -> Table:
    """Modes and healthy, most probable first; a full bar is certainty."""
    shown, others, rest = shown_modes(diagnosis)
    room = max(len(name) for name, _ in shown)
    wide = 30 if console.width >= 90 else 20
    table = _grid(room, wide, 7)
    table.columns[2].justify = "right"
    for name, p in shown:
        style = "green" if name == HEALTHY else "bold" if name == diagnosis.leading else ""
        filled = Text(bar(p, wide, plain=is_plain(console)), style="green" if name == HEALTHY else "red")
        words = Text(title_of(diagnosis.model, name), style="dim", no_wrap=True, overflow="ellipsis")
        table.add_row(Text(name, style=style), filled, percent(p), words)
    if others:
        words = Text(", ".join(others), style="dim", no_wrap=True, overflow="ellipsis")
        table.add_row(f"{len(others)} others", Text(bar(rest, wide, plain=is_plain(console))), percent(rest), words)
    return table


def _facts(diagnosis: Diagnosis, top: int) -> Table:
    """Where, since when, and what shouts against what is behind it."""
    table = _grid(_LABEL)
    if diagnosis.leading != HEALTHY or diagnosis.modes[HEALTHY] < DECIDED:
        for index, (_, name, p) in enumerate(diagnosis.sites[:top]):
            if index == 0 or p >= 0.01:
                table.add_row("" if index else "where", Text(f"{percent(p):>7}  {printable(name)}"))
    for index, line in enumerate(_since(diagnosis)):
        table.add_row("" if index else "since", Text(line))
    if diagnosis.weights:
        table.add_row("root", Text(_root(diagnosis)))
    if diagnosis.weights and diagnosis.proximate is not None and diagnosis.proximate[2] >= _SHOUTED:
        _, title, p = diagnosis.proximate
        table.add_row("symptom", Text(f"{title} ({percent(p)}): what the logs shout, not the cause"))
    return table


def _since(diagnosis: Diagnosis) -> list[str]:
    """The line by which the fault had probably started, and whether the logs begin too late."""
    onset = diagnosis.onset
    if not diagnosis.weights:
        return ["no line tells"]
    first = diagnosis.weights[0].reading
    before = f"{percent(onset.before_first_line):>7}  that it had begun by the first telling line"
    if onset.reading is None:
        return [f"no line: probably nothing began; first telling line {where(first)}", before]
    if (onset.reading.file, onset.reading.line) == (first.file, first.line):
        return [f"{where(first)} ({when(first)}), the first telling line, or before", before]
    return [f"{where(onset.reading)} ({when(onset.reading)})", f"{before}, {where(first)}"]


def _root(diagnosis: Diagnosis) -> str:
    """The leading mode by its most probable variant."""
    leading, model = diagnosis.leading, diagnosis.model
    inside = {name: p for name, p in diagnosis.variants.items() if name.partition(".")[0] == leading}
    if not inside or leading == HEALTHY:
        return "none: the job is healthy, or a disturbance passed" if leading == HEALTHY else leading
    best = max(inside, key=lambda name: inside[name])
    named = next(v for v in model.modes[leading].variant if v.name == best.partition(".")[2])
    return f"{named.title or named.name} ({best}, {percent(inside[best])})"


def _next(dossier: Dossier) -> Table:
    """What would settle it, and what to do."""
    table = _grid(_LABEL)
    rows = [("settle", line) for line in _settle(dossier.offers)]
    rows += [("advice", line) for line in (_advice(dossier.advice) if dossier.advice else [])]
    for index, (label, line) in enumerate(rows):
        table.add_row("" if index and rows[index - 1][0] == label else label, Text(printable(line)))
    return table


def _settle(offers: list[Offer]) -> list[str]:
    """The command that is expected to tell most, and where its two likeliest outcomes would lead."""
    if not offers:
        return []
    best = offers[0]
    if best.gain < _LIGHT:
        return ["nothing that could be gathered is expected to move this"]
    hosts = ", ".join(s.host for s in best.suspects if s.host) if best.command.runs_on != "job" else ""
    lines = [f"{best.command.title}{f' of {hosts}' if hosts else ''} ({best.command.name}, {best.gain:.2f} nats)"]
    for o in best.outcomes:
        leads = f"{o.leads} then {percent(o.then)}" if o.leads == o.leading else f"{o.leads} leads, {percent(o.then)}"
        lines.append(f"{percent(o.probability):>7}  {o.what}, {o.entity}: {o.shows}; {leads}")
    return lines


def _advice(advice: Advice) -> list[str]:
    """The action that most probably clears the failure, its cost, and the next best."""
    if advice.waits:
        best = advice.options[0] if advice.options else None
        if best is None or advice.no_failure >= DECIDED:
            return [f"{advice.best.name}: {advice.best.title}"]
        clears = f"the best, {best.name}, clears a failure with {percent(best.clears)}"
        return [f"{advice.best.name}, and gather evidence: no action is likely to help; {clears}"]
    lines = []
    for word, option in (("", advice.best), ("or ", advice.second)):
        if option is not None:
            cost = f"; costs {option.cost}" if option.cost else ""
            lines.append(f"{word}{option.name}, {option.target}: clears it with {percent(option.clears)}{cost}")
    return lines


def _of_agent(told: AgentAdvice) -> Table:
    """Its likeliest moves with their share of its policy, why, and what was assumed."""
    table = _grid(_LABEL)
    for move in told.moves:
        table.add_row(Text(f"{percent(move.probability):>{_LABEL}}"), Text(printable(move_words(move))))
    table.add_row("because", Text(printable(told.because)))
    for index, line in enumerate(told.assumptions):
        table.add_row("" if index else "assumed", Text(printable(line), style="dim"))
    return table


def move_words(move: Considered) -> str:
    """A move that an agent considers: what it is aimed at, what it ends, and what it costs."""
    if move.aim is None:
        return f"{move.words}: {move.does}"
    aim = f"{move.aim.mode}{f' on {move.aim.place}' if move.aim.place else ''} ({percent(move.aim.probability)})"
    return (
        f"{move.words}: ends {aim} with {percent(move.aim.ends)}, any failure with {percent(move.ends)}; "
        + cost_words(move.minutes)
    )


def _lines(diagnosis: Diagnosis, console: Console, heading: str, sign: float, top: int) -> None:
    """Lines that moved the leading mode, strongest first."""
    leading = diagnosis.leading
    told = [w for w in ranked_weights(diagnosis) if sign * w.change[leading] > _LIGHT]
    if not told:
        return
    console.print()
    console.print(Text(heading, style="bold"))
    for weight in told[:top]:
        console.print(_line(diagnosis.model, weight, weight.change[leading], console))
    if len(told) > top:
        console.print(Text(f"  and {len(told) - top} more", style="dim"))


def _line(model: Model, weight: Weight, change: float, console: Console) -> Table:
    reading = weight.reading
    value = "" if reading.value in (0, 1) else f" = {value_words(reading.value)}"
    meaning = f"{model.signals[reading.signal].title}{value}, {reading.entity}"
    table = _grid(7)
    table.columns[0].justify = "right"
    style = "red" if change > 0 else "green"
    head = Text(f"{where(reading)}  ", style="bold", no_wrap=True, overflow="ellipsis")
    table.add_row(Text(f"{change:+.2f}", style=style), head.append(printable(meaning), style="not bold"))
    text = says(reading.text)
    text.stylize("dim")
    table.add_row("", text)
    return table


def value_words(value: float | str) -> str:
    """The value of a reading, safe to print."""
    return printable(value) if isinstance(value, str) else f"{value:.3g}"


def _rest(diagnosis: Diagnosis, console: Console) -> None:
    """What was not understood, and what is odd about the files."""
    coverage = diagnosis.ingested.coverage
    console.print()
    if coverage.unrecognised:
        console.print(Text(f"Not recognised: {coverage.unrecognised} of {coverage.lines} lines", style="bold"))
        _listed(console, ((f"{printable(s.file)}:{s.line}", s.text) for s in coverage.samples[:_MOST_SAMPLES]))
        left = coverage.unrecognised - min(len(coverage.samples), _MOST_SAMPLES)
        if left > 0:
            console.print(Text(f"  and {left} more", style="dim"))
    elif coverage.lines:
        console.print(Text(f"All {coverage.lines} lines were recognised.", style="bold"))
    else:
        console.print(Text("There was no line to read.", style="bold"))
    findings = diagnosis.findings
    if findings:
        console.print(Text("Findings", style="bold"))
        told = [(f"{printable(f.file)}:{f.line}" if f.line else printable(f.file) or "logs", f.text) for f in findings]
        _listed(console, told[:_MOST_FINDINGS])
        if len(told) > _MOST_FINDINGS:
            console.print(Text(f"  and {len(told) - _MOST_FINDINGS} more", style="dim"))


def _listed(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    for place, text in rows:
        line = Text(f"{place}  ", no_wrap=True, overflow="ellipsis")
        console.print(Padding(line.append_text(says(text)), (0, 0, 0, 2)))
