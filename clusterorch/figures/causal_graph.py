"""Here lives the picture of a causal graph: modes, variants, mechanisms in causal order, signals by stream.

It reads left to right as a failure goes.  Columns are ordered so that lines cross little; all lengths
are inches, so that a label takes the same place whatever the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, PathPatch
from matplotlib.path import Path as Curve

SUFFIXES = (".png", ".svg")
# Okabe and Ito (2008): told apart by colour-blind readers.
CATEGORY_COLOURS = {
    "hardware": "#D55E00", "network": "#0072B2", "software": "#009E73", "silent": "#CC79A7",
    "benign": "#7F7F7F",
}  # fmt: skip
EFFECT_COLOURS = {
    "none": "#8A8A8A", "slow": "#56B4E9", "stall": "#E69F00", "crash": "#D62728", "block_save": "#B8860B",
    "block_start": "#8B6914", "poison": "#9467BD",
}  # fmt: skip
_EFFECT_WORDS = {
    "slow": "slows the job", "stall": "halts the job", "crash": "ends the job", "block_save": "blocks a save",
    "block_start": "blocks a start", "poison": "poisons the weights",
}  # fmt: skip
_INK, _PAPER, _FAINT, _MIXED = "#1B1B1B", "#FFFFFF", "#C9C9C9", "#4A4A4A"
_ROW, _BOX, _LETTER, _BETWEEN, _MARGIN = 0.31, 0.23, 0.077, 0.95, 0.35
_FAN = 1.7  # the gap before the signals, where most lines cross
_HEAD, _LEGEND = 0.75, 1.15  # room above for column titles, below for the legend


class Place(NamedTuple):
    """Centre of a box and its width."""

    x: float
    y: float
    width: float


def draw_causal_graph(graph: nx.DiGraph, path: str | Path, *, title: str = "") -> Path:
    """Write the picture of a causal graph.

    Args:
        graph: as `clusterorch.causal.graph.causal_graph` gives it.
        path: .png or .svg; its folder is made.
        title: a line above; the name of the graph if empty.

    Raises:
        ValueError: another suffix.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: a picture is written as {' or '.join(SUFFIXES)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Same graph, same bytes: neither a date nor random identifiers go into the file.
    with mpl.rc_context({"svg.hashsalt": "clusterorch", "svg.fonttype": "path"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        causal_graph_figure(graph, title).savefig(path, dpi=150, metadata=metadata)
    return path


def causal_graph_figure(graph: nx.DiGraph, title: str = "") -> Figure:
    """The picture as a figure without any global state."""
    columns = _columns(graph)
    places, heads, size = _arrange(graph, columns)
    figure = Figure(figsize=size, facecolor=_PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0.0, size[0]), ylim=(size[1], 0.0))
    axes.axis("off")
    colours = _line_colours(graph)
    for tail, head, traits in graph.edges(data=True):
        axes.add_patch(_line(places[tail], places[head], traits, colours[tail]))
    for name, place in places.items():
        _box(axes, graph.nodes[name], _label(graph, name), place)
    for x, y, text, bold in heads:
        weight = "bold" if bold else "normal"
        axes.text(x, y, text, fontsize=9, weight=weight, style="normal", va="center", color=_INK)
    title = title or f"{graph.name}: what causes what"
    axes.text(_MARGIN, 0.28, title, fontsize=13, weight="bold", color=_INK)
    _legend(axes, graph)
    return figure


def boxes(graph: nx.DiGraph) -> dict[str, tuple[float, float, float, float]]:
    """Left, top, right and bottom of every box, inches from the upper left corner."""
    places, _, _ = _arrange(graph, _columns(graph))
    return {name: (p.x - p.width / 2, p.y - _BOX / 2, p.x + p.width / 2, p.y + _BOX / 2) for name, p in places.items()}


def _of_kind(graph: nx.DiGraph, kind: str) -> list[str]:
    return [name for name, found in graph.nodes(data="kind") if found == kind]


def _columns(graph: nx.DiGraph) -> list[list[str]]:
    """Modes, variants, mechanisms by their longest way from a variant, signals."""
    mechanisms = graph.subgraph(_of_kind(graph, "mechanism"))
    depth: dict[str, int] = {}
    for name in nx.topological_sort(mechanisms):
        depth[name] = 1 + max((depth[parent] for parent in mechanisms.predecessors(name)), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in mechanisms:
        layers[depth[name]].append(name)
    return [_of_kind(graph, "mode"), _of_kind(graph, "variant"), *layers, _of_kind(graph, "signal")]


def _label(graph: nx.DiGraph, name: str) -> str:
    """What stands in a box: a variant leaves out its mode, which stands to the left."""
    kind = graph.nodes[name]["kind"]
    label = name.partition(".")[2] if kind == "variant" and "." in name else name
    return f"{label} *" if graph.nodes[name].get("by_job") else label


def _arrange(
    graph: nx.DiGraph, columns: list[list[str]]
) -> tuple[dict[str, Place], list[tuple[float, float, str, bool]], tuple[float, float]]:
    """Place of every node, (x, y, text, bold) of every heading, and the size of the picture."""
    streams = list(dict.fromkeys(graph.nodes[name].get("stream", "") for name in columns[-1]))
    rows = max(len(columns[-1]) + len(streams), *(len(column) for column in columns))
    height, top = rows * _ROW, _HEAD + 0.2
    heights: dict[str, float] = {}
    variants = columns[1]
    for index, name in enumerate(variants):
        heights[name] = top + (index + 0.5) * height / max(len(variants), 1)
    for name in columns[0]:
        heights[name] = _mean(heights, graph.successors(name), top + height / 2)
    taken: list[float] = []  # where a line passes on its way to the signals
    for column in columns[2:-1]:
        wished = {name: _mean(heights, graph.predecessors(name), top + height / 2) for name in column}
        placed = _spread(wished, taken, top, height)
        taken += [y for name, y in placed.items() if any(True for _ in graph.successors(name))]
        heights |= placed
    stream_heads = _place_signals(graph, columns[-1], streams, heights, top)
    places, x, heads = {}, _MARGIN, []
    titles = ["failure mode", "variant", *[""] * (len(columns) - 3), "signal, by collector"]
    if len(columns) > 3:
        titles[2] = "mechanisms, in causal order"
    for title, column in zip(titles, columns, strict=True):
        width = 0.2 + _LETTER * max((len(_label(graph, name)) for name in column), default=8)
        heads.append((x, _HEAD - 0.1, title, True))
        for name in column:
            places[name] = Place(x + width / 2, heights[name], width)
        last, x = x, x + width + (_FAN if column is columns[-2] else _BETWEEN)
    heads += [(last, y, stream, False) for y, stream in stream_heads]
    return places, heads, (x - _BETWEEN + _MARGIN, top + height + _LEGEND)


def _mean(heights: dict[str, float], names: Iterable[str], otherwise: float) -> float:
    known = [heights[name] for name in names if name in heights]
    return float(np.mean(known)) if known else otherwise


def _spread(wished: dict[str, float], taken: list[float], top: float, height: float) -> dict[str, float]:
    """Heights near those wished, a row apart from each other and clear of lines that pass."""
    candidates = np.arange(top + _ROW / 2, top + height, _ROW / 4)
    free = [y for y in candidates if all(abs(y - other) > 0.55 * _ROW for other in taken)]
    placed: dict[str, float] = {}
    for name in sorted(wished, key=wished.__getitem__):
        clear = [y for y in free if all(abs(y - other) > 0.99 * _ROW for other in placed.values())]
        crowded = [y for y in candidates if all(abs(y - other) > 0.99 * _ROW for other in placed.values())]
        placed[name] = float(min(clear or crowded, key=lambda y: abs(y - wished[name])))
    return placed


def _place_signals(
    graph: nx.DiGraph, signals: list[str], streams: list[str], heights: dict[str, float], top: float
) -> list[tuple[float, str]]:
    """Signals of one stream stand together, each near its mechanisms; gives the heading of each stream."""
    wished = {name: _mean(heights, graph.predecessors(name), np.inf) for name in signals}
    members = {s: [name for name in signals if graph.nodes[name].get("stream", "") == s] for s in streams}
    middle = {
        s: float(np.mean([w for n in names if np.isfinite(w := wished[n])] or [np.inf])) for s, names in members.items()
    }
    y, headings = top + _ROW / 2, []
    for stream in sorted(streams, key=middle.__getitem__):
        headings.append((y, stream))
        for name in sorted(members[stream], key=wished.__getitem__):
            y += _ROW
            heights[name] = y
        y += _ROW
    return headings


def _line_colours(graph: nx.DiGraph) -> dict[str, str]:
    """Colour of the lines that leave a node: the one category of failure behind it, or none."""
    behind: dict[str, set[str]] = {}
    for name in nx.topological_sort(graph):
        own = graph.nodes[name].get("category")
        behind[name] = {own} if own else set().union(*(behind[p] for p in graph.predecessors(name)))
    return {
        name: CATEGORY_COLOURS.get(next(iter(found)), _INK) if len(found) == 1 else _MIXED
        for name, found in behind.items()
    }


def _box(axes: mpl.axes.Axes, traits: dict[str, object], label: str, place: Place) -> None:
    is_mode, edge = traits["kind"] == "mode", _FAINT
    if traits["kind"] in ("mode", "variant"):
        edge = CATEGORY_COLOURS.get(str(traits.get("category")), _INK)
    elif traits["kind"] == "mechanism":
        edge = EFFECT_COLOURS.get(str(traits.get("effect")), _INK)
    has_effect = traits.get("effect", "none") != "none"
    left, upper = place.x - place.width / 2, place.y - _BOX / 2
    axes.add_patch(
        FancyBboxPatch(
            (left + 0.04, upper + 0.02), place.width - 0.08, _BOX - 0.04, boxstyle="round,pad=0.02",
            facecolor=edge if is_mode else _tinted(edge) if has_effect else _PAPER, edgecolor=edge,
            linewidth=1.3, linestyle=":" if traits.get("transient") else "-", zorder=3,
        )
    )  # fmt: skip
    axes.text(
        left + 0.1, place.y, label, fontsize=8, va="center_baseline", zorder=4,
        color=_PAPER if is_mode else _INK, weight="bold" if is_mode else "normal",
    )  # fmt: skip


def _tinted(colour: str) -> tuple[float, ...]:
    """A light shade that black text stands on."""
    return tuple(1.0 - 0.22 * (1.0 - part) for part in to_rgb(colour))


def _line(tail: Place, head: Place, traits: dict[str, object], colour: str) -> PathPatch:
    start, end = tail.x + tail.width / 2, head.x - head.width / 2
    cause, evidence = traits["kind"] == "cause", traits["kind"] == "evidence"
    # A line to a signal stays level with its cause until the last gap; any other bends in the first.
    turn, bend = (end - _FAN + 0.1, 0.5 * _FAN) if evidence else (start, 0.5 * _BETWEEN)
    points = [(start, tail.y), (turn, tail.y), (turn + bend, tail.y), (end - bend, head.y), (end, head.y)]
    curve = Curve(points, [Curve.MOVETO, Curve.LINETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    delays = " ".join(map(str, traits.get("delay", ())))
    style = ":" if "timer" in delays else "--" if "geometric" in delays or "erlang" in delays else "-"
    gate = max(map(float, traits.get("gate", (1.0,))), default=1.0)
    width = 0.6 + 1.2 * gate if cause else 0.7 if evidence else 1.0
    return PathPatch(
        curve, fill=False, edgecolor=colour, linestyle=style if cause else "-", linewidth=width,
        alpha=0.45 if evidence else 0.95, zorder=1 if evidence else 2, capstyle="butt",
    )  # fmt: skip


def _legend(axes: mpl.axes.Axes, graph: nx.DiGraph) -> None:
    categories = dict.fromkeys(c for _, c in graph.nodes(data="category") if c)
    found = {effect for _, effect in graph.nodes(data="effect")} - {"none"}
    entries: list[Patch | Line2D] = [
        Patch(facecolor=CATEGORY_COLOURS.get(category, _INK), label=f"{category} failure")
        if category != "benign"
        else Patch(facecolor=CATEGORY_COLOURS["benign"], label="no failure")
        for category in categories
    ]
    entries.append(Patch(facecolor=_MIXED, label="several of these"))
    entries += [
        Patch(facecolor=_tinted(EFFECT_COLOURS[e]), edgecolor=EFFECT_COLOURS[e], label=_EFFECT_WORDS[e])
        for e in EFFECT_COLOURS
        if e in found
    ]
    delays = {"-": "in the same slice", "--": "after a random delay", ":": "after a limit of halted time"}
    entries += [Line2D([], [], color=_INK, linestyle=s, linewidth=1.5, label=w) for s, w in delays.items()]
    entries.append(Line2D([], [], color=_INK, linewidth=0.8, label="thin: in part of the cases"))
    entries.append(Line2D([], [], color=_INK, linewidth=0.7, alpha=0.45, label="shows in"))
    entries.append(Line2D([], [], color=_INK, marker="$*$", ls="", label="also follows whether the job runs"))
    axes.legend(handles=entries, loc="lower left", bbox_to_anchor=(0.01, 0.005), ncols=6, frameon=False, fontsize=9)
