"""Here lives the picture of learning: the recovered share over decisions, one panel a layout's worth of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
# Okabe and Ito (2008): told apart by colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_INK, _FAINT = "#1B1B1B", "#8A8A8A"
_LABEL = 0.04  # shares between two labels, at least
_HOW = {"argmax": "the likeliest move", "sampled": "moves drawn from the policy"}


def draw_learning_curves(result: Mapping[str, Any], path: str | Path) -> Path:
    """Write the picture of a study of learning.

    Args:
        result: as `python -m clusterorch.evaluation learning` keeps it: `arms` with a curve of every seed, and
            `references`, shares of other policies on the same episodes.
        path: .png or .svg; its folder is made.

    Raises:
        ValueError: another suffix.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: give a name that ends in {' or '.join(SUFFIXES)}")
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _FAINT, "svg.hashsalt": "clusterorch"}):
        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(_HOW), sharey=True)
        for panel, (how, title) in zip(panels, _HOW.items(), strict=True):
            _panel(panel, result, how)
            panel.set_title(title, loc="left", color=_INK)
        panels[0].set_ylabel("recovered share of the head-room")
        panels[0].legend(loc="lower left", bbox_to_anchor=(0.01, 0.1), frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def _panel(panel: Axes, result: Mapping[str, Any], how: str) -> None:
    lowest = 0.0
    for colour, (arm, seeds) in zip(_COLOURS, result["arms"].items(), strict=False):
        curves = [_evaluations(one["curve"], how) for one in seeds.values()]
        for at, shares in curves:
            panel.plot(np.array(at) / 1000.0, shares, color=colour, alpha=0.35, linewidth=0.8)
        if at := sorted(set.intersection(*(set(x) for x, _ in curves))):
            known = [dict(zip(x, y, strict=True)) for x, y in curves]
            mean = [float(np.mean([one[x] for one in known])) for x in at]
            panel.plot(np.array(at) / 1000.0, mean, color=colour, linewidth=2.0, label=arm)
            lowest = min(lowest, *mean)
    right = max(one["decisions"] for seeds in result["arms"].values() for one in seeds.values()) / 1000.0
    for share, names in _neighbours(result["references"]):
        panel.text(right, share, names, color=_FAINT, ha="right", va="bottom", fontsize=7)
    for share in result["references"].values():
        if share > 0.0:
            panel.axhline(share, color=_FAINT, linewidth=0.8, linestyle=":")
    panel.axhline(0.0, color=_FAINT, linewidth=0.8)
    panel.set_xlim(0.0, right)
    panel.set_ylim(max(lowest, -0.6) - 0.05, 1.05)
    panel.set_xlabel("thousand decisions")
    panel.spines[["top", "right"]].set_visible(False)


def _neighbours(references: Mapping[str, float]) -> list[tuple[float, str]]:
    """Shares above that of waiting with what to call them, in one label where lines lie too close for two."""
    found: list[tuple[float, str]] = []
    for name, share in sorted(references.items(), key=lambda item: item[1]):
        words = name.replace("_", " ")
        if found and share - found[-1][0] < _LABEL:
            found[-1] = (share, f"{found[-1][1]}, {words}")
        elif share > 0.0:
            found.append((share, words))
    return found


def _evaluations(curve: Sequence[Mapping[str, Any]], how: str) -> tuple[list[int], list[float]]:
    """Decisions and shares of the evaluations of a run."""
    points = [(one["decisions"], one[how]) for one in curve if how in one]
    return [at for at, _ in points], [share for _, share in points]
