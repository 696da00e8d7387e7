"""Here lives the incident as text within 80 columns: the job over time, its copies and nodes, lines, moves, belief."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
from rich.text import Text

from clusterorch.environment.books import DETOUR, IN_JOB, IN_REPAIR, REPAIRED, TREE
from clusterorch.environment.chronicle import (
    EVALUATES,
    HALTS,
    IS_DOWN,
    LOST,
    SAVES,
    STARTS,
    STEPS,
    UNKNOWN,
    Chronicle,
)
from clusterorch.environment.notices import place_of
from clusterorch.environment.truth import privileged_info
from clusterorch.inference.beliefs import Belief
from clusterorch.models.ground import HEALTHY
from clusterorch.models.spec import STREAMS

WIDTH = 80
_HEAD, _RIBBON = 11, 60  # columns of the names at the left; cells of a row of the ribbon
_MOST_MODES = 4
_BAR = 24
_SHOWN = 0.005  # probability from which a mode is listed
_PLACED = 0.05  # probability of a failure from which its place is
_LEVELS = " ▁▂▃▄▅▆▇█"
_SPENT = {
    UNKNOWN: (" ", ""), STEPS: ("─", "green"), EVALUATES: ("e", "green"), SAVES: ("s", "cyan"), STARTS: ("↑", "blue"),
    HALTS: ("▒", "yellow"), IS_DOWN: ("×", "bold red"), LOST: ("!", "bold red"),
}  # fmt: skip
_WORDS = {STEPS: "steps", EVALUATES: "evaluates", SAVES: "saves", STARTS: "starts", HALTS: "halted", IS_DOWN: "down"}
_STYLES = {"moving": "green", "halted": "yellow", "down": "bold red"}
_TOPOLOGY = {TREE: "tree", DETOUR: "around a rail or leaf"}
_PHASES = {
    "step": "steps", "eval": "evaluates", "save": "saves a copy", "launch": "launches", "init_comm": "connects",
    "load": "loads a copy", "stop": "stops",
}  # fmt: skip
_ASCII = str.maketrans(
    {"─": "-", "↑": "^", "▒": "~", "×": "x", "▲": "A", "·": ".", "…": "~"}
    | dict(zip(_LEVELS, " .:-=+*%#", strict=True))
)  # fmt: skip


class _Room(NamedTuple):
    """How much of the past is shown."""

    rows: int  # of the ribbon
    lines: int  # of telemetry
    moves: int


_ROOMS = (_Room(4, 8, 4), _Room(3, 5, 3), _Room(2, 4, 2), _Room(1, 3, 1), _Room(1, 1, 1))


def clock(slices: float, slice_seconds: float) -> str:
    """Time since the beginning of the episode.

    >>> clock(0, 15.0), clock(333, 15.0)
    ('0:00:00', '1:23:15')
    """
    seconds = round(slices * slice_seconds)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def share(p: float) -> str:
    """A probability that never rounds to certainty.

    >>> share(1.0), share(0.5), share(0.0)
    ('>99.9 %', '50.0 %', '<0.1 %')
    """
    return "<0.1 %" if p < 0.0005 else ">99.9 %" if p >= 0.9995 else f"{100.0 * p:.1f} %"


def printed(text: Text, *, plain: bool = False) -> str:
    """A view without colours; `plain` in letters of ASCII."""
    return text.plain.translate(_ASCII).encode("ascii", "replace").decode() if plain else text.plain


def timeline(chronicle: Chronicle, title: str = "", height: int | None = None) -> Text:
    """The view of an instance as it is now; with `privileged` episodes the truth too.

    Args:
        chronicle: of the instance.
        title: at the head, after the clock.
        height: lines of the terminal; where they are few the past is cut first.
    """
    lines: list[Text] = []
    for room in _ROOMS:
        lines = _viewed(chronicle, title, room)
        if height is None or len(lines) <= height:
            break
    for line in lines:
        line.truncate(WIDTH, overflow="ellipsis")
        line.rstrip()
    return Text("\n").join(lines)


def _viewed(chronicle: Chronicle, title: str, room: _Room) -> list[Text]:
    made = [*_head(chronicle, title), *_state(chronicle), Text(""), *_ribbon(chronicle, room.rows)]
    for found in (
        _belief(chronicle), _lines(chronicle, room.lines), _moves(chronicle, room.moves), _truth(chronicle),
    ):  # fmt: skip
        part = list(found)
        made += [Text(""), *part] if part else []
    return made


def _named(name: str, *told: str | Text) -> Text:
    line = Text(f"{name:<{_HEAD}}", style="dim") if name else Text(" " * _HEAD)
    line = Text.assemble(line)
    for part in told:
        line.append_text(part if isinstance(part, Text) else Text(part))
    return line


def _clock_of(chronicle: Chronicle) -> Callable[[float], str]:
    dt = chronicle.episodes.world.network.spec.model.slice_seconds
    return lambda slices: clock(slices, dt)


def _head(chronicle: Chronicle, title: str) -> Iterator[Text]:
    episodes, at = chronicle.episodes, _clock_of(chronicle)
    layout = episodes.world.network.layout
    what = title or f"a job on {layout}"
    yield Text(f"{at(chronicle.time)} of {at(episodes.horizon)}  {what}", style="bold")


def _state(chronicle: Chronicle) -> Iterator[Text]:
    episodes, at, job = chronicle.episodes, _clock_of(chronicle), chronicle.job()
    rules, layout = episodes.world.rules, episodes.world.network.layout
    words = state_words(chronicle)
    if job["until_requeue"] is not None:
        words += f"; the scheduler starts it in {at(job['until_requeue'])}"
    if job["failures"] and not job["lost"]:
        words += f"; start {job['failures']} of {rules.retries} without a copy"
    yield _named("job", Text(words, style="bold red" if job["lost"] else _STYLES[job["class"]]))

    yield _named("kept", kept_words(chronicle))

    place = job["place"]
    here = f"{int((place == IN_JOB).sum())} of {layout.nodes} in the job"
    gone = [
        f"; {word} {', '.join(str(n) for n in np.flatnonzero(place == where))}"
        for word, where in (("in repair", IN_REPAIR), ("back from repair", REPAIRED))
        if (place == where).any()
    ]
    spares = f"; {job['spares']} spare{'' if job['spares'] == 1 else 's'}"
    yield _named("nodes", Text(here), Text("".join(gone), style="yellow"), spares)

    ages = [f"{k}: {at(age)} old" for k, age in enumerate(job["copies"])]
    if episodes.believes:
        sick = episodes.outlook.copies[chronicle.row]
        ages = [f"{a}, {share(float(p))} bad" if p >= _SHOWN else a for a, p in zip(ages, sick, strict=False)]
    yield _named("copies", "   ".join(ages) or "none")
    yield _named("topology", _TOPOLOGY.get(job["detour"], "ring"))


def state_words(chronicle: Chronicle) -> str:
    """What the job does."""
    job = chronicle.job()
    if job["lost"]:
        return "given up"
    if job["class"] == "moving":
        return _PHASES.get(job["phase"], job["phase"])
    halted = f"halted in {job['phase']} for {_clock_of(chronicle)(job['halted'])}"
    return "down" if job["class"] == "down" else halted


def kept_words(chronicle: Chronicle) -> str:
    """Training that survives, of all time; the true one of privileged episodes."""
    since = f" since {_clock_of(chronicle)(chronicle.since)}" if chronicle.since else ""
    if chronicle.episodes.settings.privileged:
        kept, of, how = float(chronicle.episodes.world.books.good[chronicle.row]), chronicle.time, " in truth"
    else:
        kept, of, how = chronicle.kept, chronicle.time - chronicle.since, f"{since} as far as is published"
    return f"{kept:.1f} of {of} slices" + (f" ({100.0 * kept / of:.1f} %)" if of else "") + how


def _ribbon(chronicle: Chronicle, most: int) -> Iterator[Text]:
    """The newest rows of an hour or so: how the job fared, how probable a failure is, and where moves were made."""
    episodes, at = chronicle.episodes, _clock_of(chronicle)
    every = episodes.settings.decision
    cells = _cells(chronicle, every)
    seen = {STEPS} | set(cells)
    dt = episodes.world.network.spec.model.slice_seconds
    key = Text(f"{every * dt / 60.0:g} min each:")
    for spent, word in _WORDS.items():
        if spent in seen:
            key.append(f" {_SPENT[spent][0]}", style=_SPENT[spent][1]).append(f" {word}")
    if chronicle.moves:
        key.append(" ▲", style="bold magenta").append(" move")
    yield _named("timeline", key)
    believed = _believed(chronicle, len(cells), every)
    moved = {min(made.slice // every, len(cells) - 1) for made in chronicle.moves}
    for row in range(max(0, -(-len(cells) // _RIBBON) - most), max(1, -(-len(cells) // _RIBBON))):
        span = range(row * _RIBBON, min((row + 1) * _RIBBON, len(cells)))
        line = Text()
        for spent, run in groupby(cells[cell] for cell in span):
            sign, style = _SPENT[spent]
            line.append(sign * len(list(run)), style=style)
        yield _named(f"  {at(row * _RIBBON * every)}", line)
        if believed:
            yield _named("  failing", Text("".join(_level(believed[cell]) for cell in span), style="magenta"))
        if moved & set(span):
            marks = "".join("▲" if cell in moved else " " for cell in span)
            yield _named("  moves", Text(marks, style="bold magenta"))


def _cells(chronicle: Chronicle, every: int) -> list[int]:
    """The worst of what each column of the ribbon was spent on."""
    return [max(chronicle.spent[i : i + every]) for i in range(0, len(chronicle.spent), every)]


def _believed(chronicle: Chronicle, cells: int, every: int) -> list[float]:
    """What was last believed by the end of each column."""
    if not chronicle.failing:
        return []
    times = np.array([time for time, _ in chronicle.failing])
    p = np.array([0.0, *(p for _, p in chronicle.failing)])
    ends = np.minimum((np.arange(cells) + 1) * every, chronicle.time)
    return [float(x) for x in p[np.searchsorted(times, ends, side="right")]]


def _level(p: float) -> str:
    return _LEVELS[0] if p < 0.01 else _LEVELS[min(1 + int(p * 8.0), 8)]


def _belief(chronicle: Chronicle) -> Iterator[Text]:
    modes = chronicle.modes()
    if not modes:
        return
    titles = {mode.name: mode.title for mode in chronicle.episodes.world.network.spec.mode}
    shown = [modes[0], *(one for one in modes[1 : 1 + _MOST_MODES] if one[1] >= _SHOWN)]
    for i, (name, p) in enumerate(shown):
        eighths = max(round(8 * _BAR * p), int(p >= 0.0005))
        whole, part = divmod(min(eighths, 8 * _BAR), 8)
        bar = ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(_BAR)
        style = "green" if name == HEALTHY else "magenta"
        told = "no failure" if name == HEALTHY else titles[name]
        yield _named("" if i else chronicle.believed, Text(bar, style=style), f" {share(p):>7}  {told}")
    if 1.0 - modes[0][1] >= _PLACED:
        yield _named("", f"at {site_words(chronicle)}")


def site_words(chronicle: Chronicle) -> str:
    """The likeliest place of a failure, and the likeliest node; the true place where the truth is told."""
    episodes, b = chronicle.episodes, chronicle.row
    network, believer = episodes.world.network, episodes.believer
    if believer is None:
        return _site_words(chronicle)
    sites = Belief(network, believer.current.vector[b]).sites()
    (kind, number), p = max(sites.items(), key=lambda item: (item[1], item[0]))
    node = int(network.layout.node_of(kind)[number])
    many = network.layout.count(kind) > 1
    words = f"{kind} {number}" if many else f"the {kind}"
    words += f" of node {node}" if node >= 0 and kind != "node" else ""
    nodes = chronicle.nodes()
    likeliest = int(nodes.argmax())
    at_node = float(nodes[likeliest])
    same = likeliest == node and abs(at_node - p) < _SHOWN
    told = "" if same or at_node < _SHOWN else f"; node {likeliest} {share(at_node)}"
    return f"{words} {share(p)}{told}"


def _lines(chronicle: Chronicle, most: int) -> Iterator[Text]:
    at, layout = _clock_of(chronicle), chronicle.episodes.world.network.layout
    yield _named("telemetry", _arrived(chronicle))
    for notice in chronicle.told(most):
        lasted = "still" if notice.last == chronicle.time else f"to {at(notice.last)}"
        times = f"  x{notice.times} {lasted}" if notice.times > 1 else ""
        text = f"{at(notice.first)}  {place_of(notice.nodes, layout):<9} {notice.text}"
        room = WIDTH - _HEAD - len(times)
        yield _named("", f"{text[: room - 1]}…" if len(text) > room else text, Text(times, style="dim"))


def _arrived(chronicle: Chronicle) -> Text:
    """How many collectors were heard with the newest decision, stream by stream."""
    episodes, b = chronicle.episodes, chronicle.row
    names, newest = episodes.names, episodes.window
    told = Text()
    for stream in STREAMS:
        nodes = newest.node_rows[b, -1, :, names.node.index(f"{stream}.arrived")]
        heard = int(nodes.sum() + newest.job_rows[b, -1, names.job.index(f"{stream}.arrived")])
        style = "" if heard > len(nodes) else "yellow"
        told.append(f"{'  ' if told else ''}{stream} {heard}/{len(nodes) + 1}", style=style)
    return told


def _moves(chronicle: Chronicle, most: int) -> Iterator[Text]:
    at = _clock_of(chronicle)
    if len(chronicle.moves) > most:
        yield _named("moves", Text(f"{len(chronicle.moves) - most} before these", style="dim"))
    for i, made in enumerate(chronicle.moves[-most:]):
        first = i == 0 and len(chronicle.moves) <= most
        told = made.label if made.legal else f"{made.label}, not legal: nothing was done"
        yield _named("moves" if first else "", Text(f"{at(made.slice)}  {told}", style="magenta" if made.legal else ""))


def truth_words(chronicle: Chronicle) -> str:
    """The fault in the slot."""
    told = privileged_info(chronicle.episodes, chronicle.row)
    fault, where = told["fault"], "no fault"
    if fault["variant"] is not None:
        where = f"{fault['variant']}, {_site_words(chronicle)}"
        where += f", {fault['severity']}" if fault["severity"] else ""
    return where + (f"; {told['poisoned_copies']} copies poisoned" if told["poisoned_copies"] else "")


def _site_words(chronicle: Chronicle) -> str:
    """The place of the fault in the slot."""
    fault = privileged_info(chronicle.episodes, chronicle.row)["fault"]
    hosted = fault["node"] >= 0 and fault["site_kind"] != "node"
    return f"{fault['site_kind']} {fault['site']}" + (f" of node {fault['node']}" if hosted else "")


def _truth(chronicle: Chronicle) -> Iterator[Text]:
    if not chronicle.episodes.settings.privileged:
        return
    heads = privileged_info(chronicle.episodes, chronicle.row)["heads"]
    spent = ", ".join(f"{100 * x:.0f} % {head}" for head, x in heads.items() if x > 0.0)
    yield _named("truth", Text(truth_words(chronicle), style="red"))
    if spent:
        yield _named("", f"the newest slice: {spent}")
