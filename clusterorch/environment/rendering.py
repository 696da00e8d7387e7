"""Here lives the rendering of an environment: the incident as text, the racks as a picture, either on a screen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from clusterorch.environment.chronicle import Chronicle
from clusterorch.environment.episodes import Episodes
from clusterorch.environment.timeline import printed, timeline
from clusterorch.errors import ClusterorchError, InvalidIntervention

if TYPE_CHECKING:
    import numpy as np

    from clusterorch.environment.racks import Painting

MODES = ("ansi", "rgb_array", "human")
_UP, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[{}A\r", "\x1b[K", "\x1b[J"


class Renderer:
    """Shows one instance of a batch of episodes as it is now; the truth only where the episodes are privileged.

    It listens to the episodes from when it is made, so make it before they begin to have all of the timeline.

    Args:
        episodes: to show.
        row: number of the instance.
        title: at the head of views; the layout if empty.
    """

    def __init__(self, episodes: Episodes, row: int = 0, title: str = "") -> None:
        self.title, self.chronicle = title, Chronicle(episodes, row)
        self._painting: Painting | None = None
        self._window: Any = None
        self._lines = 0  # of the view that stands on the terminal

    def render(self, mode: str) -> Any:
        """A view as `ansi` (text) or `rgb_array` ([height, width, 3] uint8); `human` shows it and returns None.

        Raises:
            InvalidIntervention: no such mode.
            ClusterorchError: a picture is asked for, and matplotlib is not there.
        """
        if mode == "ansi":
            return printed(self.text())
        if mode == "rgb_array":
            return self.frame()
        if mode != "human":
            raise InvalidIntervention(f"render_mode={mode!r}: give one of {', '.join(MODES)}")
        return self._show()

    def text(self, height: int | None = None) -> Text:
        """The timeline, in colours, for a console of rich; `height` lines if they are few."""
        return timeline(self.chronicle, self.title, height)

    def frame(self) -> np.ndarray:
        """The picture.  [height, width, 3] uint8"""
        return self._painted().frame()

    def save(self, path: str | Path) -> None:
        """Write the picture as a PNG."""
        self._painted().save(path)

    def close(self) -> None:
        """Let go of the window and of the episodes."""
        self.chronicle.close()
        if self._window is not None:
            self._window.close()
            self._window = None

    def _painted(self) -> Painting:
        if self._painting is None:
            check_drawing()
            from clusterorch.environment.racks import Painting  # matplotlib takes a while

            self._painting = Painting(self.chronicle, self.title)
        return self._painting

    def _show(self) -> None:
        if has_display():
            from clusterorch.environment.racks import Window

            self._window = self._window or Window()
            self._window.show(self.frame())
        else:
            self._print()

    def _print(self) -> None:
        """The timeline in the place of the one before, where the terminal can do that."""
        out = sys.stdout
        plain = not (out.encoding or "utf-8").lower().startswith("utf")
        if not out.isatty():
            out.write(printed(self.text(), plain=plain) + "\n\n")
            out.flush()
            return
        console = Console(file=out, highlight=False, emoji=False)
        with console.capture() as captured:
            text = self.text(console.height - 1)
            console.print(printed(text, plain=True) if plain else text, no_wrap=True, crop=True)
        lines = captured.get().rstrip("\n").split("\n")
        lines = lines[: max(console.height - 1, 1)]
        out.write(_UP.format(self._lines) if self._lines else "")
        out.write("".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW)
        out.flush()
        self._lines = len(lines)


def check_drawing() -> None:
    """Make sure that pictures can be drawn.

    Raises:
        ClusterorchError: matplotlib is not there.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ClusterorchError("pictures need matplotlib: pip install 'clusterorch[report]'")


def has_display() -> bool:
    """Whether a window can be opened: there is a screen, and a matplotlib that can draw on it."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        check_drawing()
        from clusterorch.environment.racks import opens_windows
    except ClusterorchError:
        return False
    return opens_windows()
