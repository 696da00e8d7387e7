"""Figure 1: CPU time of an exact filter step against the size of the cluster.  Reads only data/results."""

import json
import re
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "data" / "results" / "bench" / "bench.json"
TARGET = ROOT / "build" / "papers" / "engine" / "figure_1_cost_by_layout.png"


def points(figures: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """(GPUs, milliseconds a slice) of every layout that was measured, by size."""
    found = []
    for key, value in figures.items():
        match = re.fullmatch(r"filter_(\d+)x(\d+)_ms_per_slice", key)
        if match:
            found.append((int(match[1]) * int(match[2]), value))
    gpus, cost = zip(*sorted(found), strict=True)
    return np.array(gpus, dtype=float), np.array(cost)


def main() -> None:
    """Draw the figure."""
    gpus, cost = points(json.loads(SOURCE.read_text(encoding="utf-8"))["figures"])
    slope, intercept = np.polyfit(np.log(gpus[-3:]), np.log(cost[-3:]), 1)
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    line = np.geomspace(gpus[-3], gpus[-1], 50)
    fitted = f"fit to the three largest: GPUs ^ {slope:.2f}"
    axes.loglog(line, np.exp(intercept) * line**slope, color="#9aa5b1", label=fitted)
    axes.loglog(gpus, cost, "o", color="#1f5fa8", label="measured, one core")
    for x, y in zip(gpus, cost, strict=True):
        axes.annotate(f"{y:.3g} ms", (x, y), textcoords="offset points", xytext=(6, -12), fontsize=8, color="#333333")
    axes.set_xlim(gpus[0] / 1.6, gpus[-1] * 3)
    axes.set_ylim(cost[0] / 2, cost[-1] * 2)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("CPU time of one filter step, ms")
    axes.set_title("An exact filter step, by size of the cluster", fontsize=11)
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET, dpi=150)


if __name__ == "__main__":
    main()
