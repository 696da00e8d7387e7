"""Here lives the picture of an instance: nodes as racks, GPUs as cells coloured by what they sent, the belief over all.

Gymnasium has an environment draw itself, so this one file below the floor of pictures draws; nothing imports it before
a picture is asked for.  One figure is made and then only changed, so that a video is cheap.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends import BackendFilter, backend_registry
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Colormap, Normalize, to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text

from clusterorch.environment.books import IN_JOB, IN_REPAIR
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
from clusterorch.environment.timeline import clock, kept_words, share, site_words, state_words, truth_words
from clusterorch.environment.truth import privileged_info
from clusterorch.models.ground import HEALTHY
from clusterorch.models.spec import Signal

SIZE = (720, 1280)  # pixels, height and width
_DPI = 100
_INK, _PAPER, _FAINT, _NOTHING, _FRAME = "#1B1B1B", "#FFFFFF", "#6E6E6E", "#B4B4B4", "#9A9A9A"
_BELIEF, _TRUTH, _MOVE, _HEALTHY = "#B5179E", "#D62728", "#12476E", "#009E73"
_SPENT = {
    UNKNOWN: ("#FFFFFF", ""), STEPS: ("#BFE3D0", "steps"), EVALUATES: ("#7FC8A9", "evaluates"),
    SAVES: ("#56B4E9", "saves a copy"), STARTS: ("#0072B2", "starts"), HALTS: ("#F0C05A", "halted"),
    IS_DOWN: ("#C0392B", "down"), LOST: ("#5B1A12", "given up"),
}  # fmt: skip
_OLD = 20  # slices after which a sample is shown as none
_PLACED = 0.05  # probability of a failure from which its place is
_LISTED = 0.001  # probability from which a mode is named
_SHOWN = 0.01  # probability from which a node's is written
_MODES, _LINES, _WIDE, _MOST_LABELLED, _MOST_CELLS = 5, 5, 16, 64, 2000
_SIGN = {"boxstyle": "round,pad=0.3", "facecolor": _PAPER, "edgecolor": "none"}
_PREFERRED = ("temperature", "power_ratio")
_MAPS = ("YlOrRd", "Blues")


class _Scale(NamedTuple):
    """How samples of a signal become colours."""

    signal: int
    words: str
    norm: Normalize
    colours: Colormap
    ratio: bool


class Painting:
    """The figure of an instance; `frame` draws what is now.

    Args:
        chronicle: of the instance.
        title: at the head, after the clock.
    """

    def __init__(self, chronicle: Chronicle, title: str = "") -> None:
        self.chronicle = chronicle
        network = chronicle.episodes.world.network
        self._layout, self._dt = network.layout, network.spec.model.slice_seconds
        self._title = title or f"a job on {self._layout}"
        self._titles = {mode.name: mode.title for mode in network.spec.mode} | {HEALTHY: "no failure"}
        self.figure = Figure(figsize=(SIZE[1] / _DPI, SIZE[0] / _DPI), dpi=_DPI, facecolor=_PAPER)
        self._canvas = FigureCanvasAgg(self.figure)
        self._still: Any = None  # the canvas with all that never changes
        self._head = self._says(0.02, 0.955, 14, weight="bold")
        self._under = self._says(0.02, 0.915, 10)
        self._true = self._says(0.02, 0.882, 10, color=_TRUTH)
        self._scales = _scales(chronicle)
        self._racks = self.figure.add_axes((0.02, 0.40, 0.69, 0.455))
        self._draw_racks()
        self._draw_scales()
        self._draw_belief()
        self._draw_strip()

    def frame(self) -> np.ndarray:
        """[height, width, 3] uint8 of what is now."""
        if self._still is None:
            for artist in self._moving():
                artist.set_animated(True)
            self._canvas.draw()
            self._still = self._canvas.copy_from_bbox(self.figure.bbox)
        self._update()
        self._canvas.restore_region(self._still)
        for artist in self._moving():
            self.figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def save(self, path: str | Path) -> None:
        """Write what is now as a PNG."""
        imsave(path, self.frame(), format="png", metadata={"Software": None})

    def _moving(self) -> list[Artist]:
        """What a frame changes, in order of drawing; all else is drawn once."""
        return [
            self._cells, self._frames, *self._labels, *self._notes, self._spares, *self._tracks, *self._bars,
            *self._modes, *self._shares, self._place, *self._lines, self._strip, self._now, self._failing,
            self._moves, self._head, self._under, self._true,
        ]  # fmt: skip

    def _says(self, x: float, y: float, size: float, **how: Any) -> Text:
        return self.figure.text(x, y, "", fontsize=size, va="center", **({"color": _INK} | how))

    def _clock(self, slices: float) -> str:
        return clock(slices, self._dt)

    # What is drawn once.

    def _draw_racks(self) -> None:
        nodes, gpus, columns = self._layout.nodes, self._layout.gpus, len(self._scales)
        across = _columns(nodes + 1, 880.0, 330.0)
        down = math.ceil((nodes + 1) / across)
        axes = self._racks
        axes.set(xlim=(0, across), ylim=(down, 0))
        axes.axis("off")
        # Racks of a few nodes do not grow into squares.
        width = min(0.86, 0.36 * (330.0 / down) / (880.0 / across) * 2.0)
        corner = [(n % across + (1.0 - width) / 2.0, n // across + 0.17) for n in range(nodes + 1)]
        height, inset = 0.78, 0.04 * width
        cells = [
            Rectangle(
                (x + inset + c * (width - 2 * inset) / columns, y + 0.02 + g * (height - 0.04) / gpus),
                0.94 * (width - 2 * inset) / columns, 0.86 * (height - 0.04) / gpus,
            )
            for c in range(columns) for x, y in corner[:nodes] for g in range(gpus)
        ]  # fmt: skip
        self._cells = PatchCollection(cells, linewidth=0)
        frames = [Rectangle((x, y), width, height) for x, y in corner[:nodes]]
        self._frames = PatchCollection(frames, facecolor="none", edgecolor=_FRAME)
        axes.add_collection(self._cells)
        axes.add_collection(self._frames)
        self._gone = "in repair" if nodes <= _WIDE else "repair"
        size = 10.0 if nodes <= _WIDE else 7.5 if nodes <= _MOST_LABELLED else 0.0
        self._labels, self._notes = [], []
        for n, (x, y) in enumerate(corner[:nodes]):
            middle = x + width / 2.0
            self._labels.append(_written(axes, middle, y - 0.06, size, f"node {n}"))
            self._notes.append(_written(axes, middle, y + height / 2.0, size, "", weight="bold", bbox=_SIGN))
        x, y = corner[nodes]
        axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=_FRAME, linestyle=(0, (4, 3))))
        self._spares = _written(axes, x + width / 2.0, y + height / 2.0, max(size, 7.5), "", color=_FAINT)

    def _draw_scales(self) -> None:
        for c, scale in enumerate(self._scales):
            axes = self.figure.add_axes((0.02 + 0.315 * c, 0.362, 0.10, 0.014))
            bar = self.figure.colorbar(ScalarMappable(scale.norm, scale.colours), cax=axes, orientation="horizontal")
            bar.outline.set_visible(False)
            axes.tick_params(labelsize=8, length=2, pad=1, colors=_INK)
            side = ("left of a rack: ", "right: ")[c] if len(self._scales) > 1 else ""
            self._says(0.128 + 0.315 * c, 0.369, 8.5).set_text(side + scale.words)
        grey = f"grey: an empty sample, or none for {self._dt * _OLD / 60.0:g} minutes"
        self._says(0.71, 0.333, 8.5, color=_FAINT, ha="right").set_text(grey)

    def _draw_belief(self) -> None:
        axes = self.figure.add_axes((0.735, 0.565, 0.25, 0.29))
        axes.set(xlim=(0, 1), ylim=(_MODES + 1, 0))
        axes.axis("off")
        self._tracks, self._bars, self._modes, self._shares = [], [], [], []
        believes = self.chronicle.episodes.believes
        for row in range(_MODES + 1 if believes else 0):
            self._tracks.append(axes.add_patch(Rectangle((0, row + 0.55), 1, 0.28, facecolor="#EFEFEF")))
            colour = _BELIEF if row else _HEALTHY
            self._bars.append(axes.add_patch(Rectangle((0, row + 0.55), 0, 0.28, facecolor=colour)))
            how = {"fontsize": 9, "color": _INK, "va": "center"}
            self._modes.append(axes.text(0, row + 0.28, "", **how))
            self._shares.append(axes.text(1, row + 0.28, "", ha="right", **how))
        self._says(0.735, 0.875, 10, weight="bold").set_text(self.chronicle.believed if believes else "telemetry")
        self._place = self._says(0.735, 0.55, 9, color=_BELIEF)
        top = 0.51 if believes else 0.875
        if believes:
            self._says(0.735, top, 10, weight="bold").set_text("telemetry")
        lines = _LINES if believes else 2 * _LINES
        self._lines = [self._says(0.735, top - 0.032 * (1 + i), 8) for i in range(lines)]

    def _draw_strip(self) -> None:
        horizon, believes = self.chronicle.episodes.horizon, self.chronicle.episodes.believes
        hours = horizon * self._dt / 3600.0
        strip = self.figure.add_axes((0.075, 0.095, 0.91, 0.085))
        self._strip = strip.imshow(
            np.ones((1, 1, 3)), extent=(0, hours, 0, 1), aspect="auto", interpolation="nearest", origin="lower"
        )
        strip.set(xlim=(0, hours), ylim=(0, 1), yticks=[])
        strip.set_xlabel("hours since the episode began", fontsize=9, labelpad=2)
        strip.set_ylabel("job", fontsize=9, rotation=0, ha="right", va="center")
        (self._now,) = strip.plot([0, 0], [0, 1], color=_INK, linewidth=1.2)
        above = self.figure.add_axes((0.075, 0.195, 0.91, 0.065))
        above.set(xlim=(0, hours), ylim=(0, 1.08), xticks=[], yticks=[0, 1] if believes else [])
        (self._failing,) = above.plot([], [], color=_BELIEF, linewidth=1.4, drawstyle="steps-post")
        (self._moves,) = above.plot([], [], color=_MOVE, marker="v", markersize=7, linestyle="none", clip_on=False)
        above.set_ylabel(
            "p(failure)" if believes else "moves",
            fontsize=9,
            rotation=0,
            ha="right",
            va="center",
        )
        for axes in (strip, above):
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(_FRAME)
            axes.tick_params(colors=_INK, labelsize=8, length=2)
        above.yaxis.set_label_coords(-0.012, 0.5)
        strip.yaxis.set_label_coords(-0.012, 0.5)
        keys: list[Any] = [Patch(facecolor=c, label=word) for c, word in _SPENT.values() if word]
        keys.append(self._moves)
        self._moves.set_label("move")
        self.figure.legend(
            handles=keys, loc="center left", bbox_to_anchor=(0.072, 0.29), ncols=len(keys), frameon=False, fontsize=8.5,
            handlelength=1.1, handleheight=0.9, columnspacing=1.2, borderpad=0,
        )  # fmt: skip

    # What changes.

    def _update(self) -> None:
        chronicle = self.chronicle
        job, now, episodes = chronicle.job(), chronicle.time, chronicle.episodes
        self._head.set_text(
            f"{self._clock(now)} of {self._clock(episodes.horizon)}  ·  {self._title}  ·  {state_words(chronicle)}"
        )
        ages = ", ".join(self._clock(age) for age in job["copies"]) or "none"
        last = chronicle.moves[-1] if chronicle.moves else None
        moved = f"   last move {last.label} at {self._clock(last.slice)}" if last else ""
        self._under.set_text(f"kept {kept_words(chronicle)}   ages of copies {ages}{moved}")
        if episodes.settings.privileged:
            self._true.set_text(f"truth: {truth_words(chronicle)}")
        self._update_racks(job)
        if self._bars:
            self._update_belief()
        for i, notice in enumerate(reversed(chronicle.told(len(self._lines)))):
            text = f"{self._clock(notice.first)}  {place_of(notice.nodes, self._layout)}: {notice.text}"
            self._lines[i].set_text(_cut(text, 51))
        for line in self._lines[len(chronicle.told(len(self._lines))) :]:
            line.set_text("")
        self._update_strip(now)

    def _update_racks(self, job: dict[str, Any]) -> None:
        chronicle, place, now = self.chronicle, job["place"], self.chronicle.time
        colours = []
        for scale in self._scales:
            sampled = chronicle.samples[scale.signal]
            values = np.exp(sampled.values) * 100.0 if scale.ratio else sampled.values
            made = scale.colours(scale.norm(np.nan_to_num(values)))
            made[~np.isfinite(values) | (now - sampled.slices > _OLD)] = to_rgba(_NOTHING)
            colours.append(made)
        self._cells.set_facecolor(np.concatenate(colours))
        p = chronicle.nodes()
        ink, frame = np.array(to_rgba(_BELIEF)), np.array(to_rgba(_FRAME))
        weight = np.clip(p, 0.0, 1.0)[:, None]
        self._frames.set_edgecolor(np.where(weight >= _SHOWN, ink * weight**0.5 + frame * (1.0 - weight**0.5), frame))
        self._frames.set_linewidth(1.0 + 4.0 * weight[:, 0])
        true = (
            privileged_info(chronicle.episodes, chronicle.row)["fault"]["node"]
            if chronicle.episodes.settings.privileged
            else -1
        )
        for n, (label, note) in enumerate(zip(self._labels, self._notes, strict=True)):
            label.set_text(self._label(n, float(p[n])) + ("  ×" if n == true else ""))
            label.set_color(_TRUTH if n == true else _BELIEF if p[n] >= _SHOWN else _INK)
            note.set_visible(bool(place[n] != IN_JOB and len(self._labels) <= _MOST_LABELLED))
            note.set_text("" if place[n] == IN_JOB else self._gone if place[n] == IN_REPAIR else "back")
        ready = job["spares"]
        self._spares.set_text(f"{ready or 'no'}\nspare{'' if ready == 1 else 's'}")

    def _label(self, node: int, p: float) -> str:
        """A node and, where it matters, the probability of a failure there."""
        if len(self._labels) <= _WIDE:
            return f"node {node}" + (f"  {share(p)}" if p >= _SHOWN else "")
        return f"{node}  {min(round(100.0 * p), 99)} %" if p >= _SHOWN else f"node {node}"

    def _update_belief(self) -> None:
        ranked = self.chronicle.modes()
        rows = zip(self._tracks, self._bars, self._modes, self._shares, strict=True)
        for (track, bar, name, told), (mode, p) in zip(rows, ranked, strict=False):
            shown = p >= _LISTED or mode == HEALTHY
            track.set_visible(shown)
            bar.set_width(p)
            name.set_text(_cut(self._titles[mode], 37) if shown else "")
            told.set_text(share(p) if shown else "")
        self._place.set_text(f"at {site_words(self.chronicle)}" if 1.0 - ranked[0][1] >= _PLACED else "")

    def _update_strip(self, now: int) -> None:
        chronicle, horizon = self.chronicle, self.chronicle.episodes.horizon
        every = max(chronicle.episodes.settings.decision, math.ceil(horizon / _MOST_CELLS))
        spent = [max(chronicle.spent[i : i + every]) for i in range(0, len(chronicle.spent), every)]
        colours = np.ones((1, math.ceil(horizon / every), 3))
        colours[0, : len(spent)] = [to_rgb(_SPENT[one][0]) for one in spent] or np.ones((0, 3))
        self._strip.set_data(colours)
        hours = self._dt / 3600.0
        self._now.set_xdata([now * hours, now * hours])
        times = [time * hours for time, _ in chronicle.failing]
        self._failing.set_data(times, [p for _, p in chronicle.failing])
        self._moves.set_data([made.slice * hours for made in chronicle.moves], [1.0] * len(chronicle.moves))


def _written(axes: Axes, x: float, y: float, size: float, text: str, **how: Any) -> Text:
    given = {"color": _INK, "ha": "center", "va": "center"} | how
    return axes.text(x, y, text, fontsize=max(size, 1.0), visible=size > 0.0, **given)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _columns(racks: int, width: float, height: float) -> int:
    """How many racks stand side by side so that they are as large as can be, about half as wide as high."""
    return max(range(1, racks + 1), key=lambda n: (min(width / n, 0.6 * height / math.ceil(racks / n)), -n))


def _scales(chronicle: Chronicle) -> list[_Scale]:
    """The two signals that are shown, and their colours."""
    signals = chronicle.episodes.world.network.spec.signal
    ranked = sorted(
        chronicle.signals,
        key=lambda s: (_PREFERRED.index(signals[s].name) if signals[s].name in _PREFERRED else len(_PREFERRED), s),
    )
    return [_scale(s, signals[s], _MAPS[i]) for i, s in enumerate(ranked[: len(_MAPS)])]


def _scale(number: int, signal: Signal, colours: str) -> _Scale:
    ratio = signal.family == "log_ratio"
    mean, sd = (float(x[1] if isinstance(x, list) else x or 0.0) for x in (signal.mean, signal.sd))
    norm = Normalize(0.0, 125.0) if ratio else Normalize(mean - 4.0 * sd, mean + 5.0 * sd)
    unit = "%" if ratio else {"C": "°C"}.get(signal.unit, signal.unit)
    words = signal.title + (f", {unit}" if unit else "")
    return _Scale(number, words, norm, colormaps[colours], ratio)


class Window:
    """A window that shows frames."""

    def __init__(self) -> None:
        self._pyplot = _pyplot()
        self._figure = self._pyplot.figure("clusterorch", figsize=(SIZE[1] / _DPI, SIZE[0] / _DPI), dpi=_DPI)
        self._image: Any = None

    def show(self, frame: np.ndarray) -> None:
        """Show a frame in the place of the one before."""
        if self._image is None:
            self._image = self._figure.figimage(frame)
            self._pyplot.show(block=False)
        self._image.set_data(frame)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()

    def close(self) -> None:
        """Close the window."""
        self._pyplot.close(self._figure)


def opens_windows() -> bool:
    """Whether matplotlib's backend is one that opens windows."""
    return _pyplot().get_backend().lower() in {
        name.lower() for name in backend_registry.list_builtin(BackendFilter.INTERACTIVE)
    }


def _pyplot() -> Any:
    """Global state of matplotlib, which only a window needs."""
    from matplotlib import pyplot

    return pyplot
