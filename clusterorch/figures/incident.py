"""Here lives the picture of an incident: the posterior as a ribbon over time, below it what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from clusterorch.errors import ClusterorchError

SUFFIXES = (".png", ".svg")
# Okabe and Ito (2008): told apart by colour-blind readers.
_COLOURS = ("#D55E00", "#0072B2", "#CC79A7", "#E69F00", "#009E73", "#56B4E9", "#7B4173", "#8C564B")
_LIGHT, _OTHERS, _INK, _FAINT = "#E8EEE8", "#BDBDBD", "#1B1B1B", "#8A8A8A"
_NAMED = 0.03  # a mode that never reaches this is drawn among the others
_MOST_CAUSES = 8
CAUSE = "cause"


class Mark(NamedTuple):
    """A line or a sample in a collector's lane, or a cause (lane `CAUSE`); everyday ones are faint."""

    time: float
    lane: str
    text: str
    everyday: bool = False


def draw_incident(
    path: str | Path, times: np.ndarray, modes: Mapping[str, np.ndarray], marks: Sequence[Mark], *,
    lanes: Mapping[str, str], onset: float | None, healthy: str = "healthy", title: str = "",
) -> Path:  # fmt: skip
    """Write the picture.

    Args:
        path: .png or .svg; its folder is made.
        times: [T] end of each slice, seconds.
        modes: [T] probability of each mode, the healthy one among them.
        marks: what happened.
        lanes: name and title of each lane, top to bottom.
        onset: when the fault began, seconds; None if none did.
        healthy: name of the mode that is no failure.
        title: a line above.

    Raises:
        ClusterorchError: another suffix.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ClusterorchError(f"{path}: a picture is written as {' or '.join(SUFFIXES)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = incident_figure(times, modes, marks, lanes=lanes, onset=onset, healthy=healthy, title=title)
    # Same incident, same bytes: neither a date nor random identifiers go into the file.
    with mpl.rc_context({"svg.hashsalt": "clusterorch", "svg.fonttype": "path"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata)
    return path


def incident_figure(
    times: np.ndarray, modes: Mapping[str, np.ndarray], marks: Sequence[Mark], *, lanes: Mapping[str, str],
    onset: float | None, healthy: str = "healthy", title: str = "",
) -> Figure:  # fmt: skip
    """The picture as a figure without any global state; see `draw_incident`."""
    figure = Figure(figsize=(10.0, 6.6), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 1, height_ratios=(3, 3.4), hspace=0.02)
    ribbon = figure.add_subplot(grid[0])
    below = figure.add_subplot(grid[1], sharex=ribbon)
    unit, word = (60.0, "minutes") if times[-1] < 3 * 3600 else (3600.0, "hours")
    _ribbon(ribbon, times / unit, modes, healthy)
    _lanes(below, marks, lanes, unit, times[-1] / unit)
    for axes in (ribbon, below):
        if onset is not None:
            axes.axvline(onset / unit, color=_INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_INK, labelsize=9)
    if onset is not None:
        ribbon.annotate(
            "the fault begins", (onset / unit, 1.0), xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom", fontsize=9, color=_INK, annotation_clip=False,
        )  # fmt: skip
    ribbon.tick_params(labelbottom=False)
    below.set_xlabel(f"{word} since the start; dark: brought about by the fault, faint: everyday", fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold", color=_INK)
    return figure


def _ribbon(axes: Axes, times: np.ndarray, modes: Mapping[str, np.ndarray], healthy: str) -> None:
    """Healthy at the bottom in a light shade, failures above it, those that never matter as one."""
    failures = [mode for mode in modes if mode != healthy]
    named = [mode for mode in failures if np.max(modes[mode]) >= _NAMED]
    rest = [mode for mode in failures if mode not in named]
    series = [modes[healthy], *(modes[mode] for mode in named)]
    labels, colours = [healthy, *named], [_LIGHT, *(_COLOURS[n % len(_COLOURS)] for n in range(len(named)))]
    if rest:
        series.append(np.sum([modes[mode] for mode in rest], axis=0))
        labels.append(f"{len(rest)} other{'s' if len(rest) > 1 else ''}")
        colours.append(_OTHERS)
    # What is believed holds from the end of its slice until the next one.
    areas = axes.stackplot(times, *series, colors=colours, step="post", linewidth=0)
    axes.set(xlim=(0.0, times[-1]), ylim=(0.0, 1.0))
    axes.set_ylabel("belief, given what has arrived", fontsize=9)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.legend(
        areas[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False, fontsize=9,
        handlelength=1.0, handleheight=1.0,
    )  # fmt: skip


def _lanes(axes: Axes, marks: Sequence[Mark], lanes: Mapping[str, str], unit: float, end: float) -> None:
    """Causes in the order in which they set in, a row each with its name beside it; then collectors."""
    causes: dict[str, float] = {}
    for mark in sorted((m for m in marks if m.lane == CAUSE), key=lambda m: m.time):
        causes.setdefault(mark.text, mark.time / unit)
    shown = list(causes.items())[:_MOST_CAUSES]
    for row, (text, time) in enumerate(shown):
        axes.plot([time], [row], marker="D", markersize=5, markeredgewidth=0, color=_INK)
        left = time > 0.6 * end
        axes.annotate(
            text, (time, row), xytext=(-8 if left else 8, 0), textcoords="offset points", fontsize=8.5,
            ha="right" if left else "left", va="center", color=_INK,
        )  # fmt: skip
    if len(causes) > len(shown):
        axes.text(0.0, len(shown) - 0.4, f"and {len(causes) - len(shown)} more causes", fontsize=8, color=_FAINT)
    start = len(shown) + (0.5 if shown else 0.0)
    heights = [start + row for row in range(len(lanes))]
    for height, lane in zip(heights, lanes, strict=True):
        axes.axhline(height, color="#F2F2F2", linewidth=10, zorder=0, solid_capstyle="butt")
        for everyday, colour, size in ((True, "#B9C4CE", 5), (False, "#12476E", 10)):
            own = [mark.time / unit for mark in marks if mark.lane == lane and mark.everyday == everyday]
            axes.plot(
                own, [height] * len(own), linestyle="none", marker="|", markersize=size, markeredgewidth=1.2,
                color=colour,
            )  # fmt: skip
    ticks = ([(len(shown) - 1) / 2] if shown else []) + heights
    axes.set_yticks(ticks, (["causes"] if shown else []) + list(lanes.values()), fontsize=9)
    axes.set_ylim(heights[-1] + 0.7, -0.8)
    axes.tick_params(axis="y", length=0)
