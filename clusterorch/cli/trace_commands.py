"""Here live the commands about traces of episodes; what they need is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from clusterorch.cli.commands import Repeated
from clusterorch.cli.of_episodes import OfEpisode
from clusterorch.cli.writing import refuse_to_replace, write_whole
from clusterorch.errors import ClusterorchError

_WIDTH = 80


@dataclass(kw_only=True)
class Record(OfEpisode):
    """Play one episode of the environment under moves that you set, waiting else, and keep its trace."""

    out: Path
    """Folder for the trace."""
    do: Repeated = ()
    """Move, move=ACTION[:TARGET]@SLICE[:TO], or intervention, NAME=VALUE[@FROM[:TO]]."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        """Play and write."""
        from clusterorch.environment.replaying import play
        from clusterorch.environment.tables import refuse, write_trace
        from clusterorch.reports.wording import terminal

        refuse(self.out, force=self.force)
        trace = play(self.episodes(), self.episode, self.do)
        write_trace(trace, self.out, force=self.force)
        terminal().print(f"{trace.slices} slices, {trace.tables['recovery'].num_rows} decisions: {self.out}")


@dataclass
class Show:
    """Print the timeline of an episode: what was published, delivered and believed, and the moves."""

    trace: Positional[Path]
    """Folder of the trace."""
    truth: bool = False
    """Show the truth too: faults, mechanisms, and what was kept."""
    lines: int = 24
    """Rows of delivered lines that are printed, the rarest kinds."""

    def run(self) -> None:
        """Print it."""
        from clusterorch.environment.tables import read_trace
        from clusterorch.reports.episode import show_episode

        if self.lines < 0:
            raise ClusterorchError(f"--lines {self.lines}: give 0 or more")
        show_episode(read_trace(self.trace), _terminal(), truth=self.truth, most=self.lines)


@dataclass
class Export:
    """Write an episode, with its truth, for other programs."""

    trace: Positional[Path]
    """Folder of the trace."""
    perfetto: Path | None = None
    """Chrome JSON here, as Perfetto reads it: nodes, ranks, phases, moves, faults, arrows from cause to effect."""
    openmetrics: Path | None = None
    """OpenMetrics text here: telemetry as it was delivered, what was published, and the belief."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        """Write the files."""
        if self.perfetto is None and self.openmetrics is None:
            raise ClusterorchError("nothing to write: give --perfetto FILE, --openmetrics FILE or both")
        files = [path for path in (self.perfetto, self.openmetrics) if path is not None]
        if len({path.absolute() for path in files}) < len(files):
            raise ClusterorchError(f"{files[0]}: --perfetto and --openmetrics cannot be one file")
        for path in files:
            refuse_to_replace(path, force=self.force)
        from clusterorch.environment.tables import read_trace
        from clusterorch.reports.openmetrics import openmetrics
        from clusterorch.reports.perfetto import perfetto

        found = read_trace(self.trace)
        for path, text_of in ((self.perfetto, perfetto), (self.openmetrics, openmetrics)):
            if path is not None:
                text = text_of(found)
                write_whole(path, lambda part, text=text: part.write_text(text, encoding="utf-8"), force=self.force)


@dataclass
class WhatIf:
    """Play an episode again, event by event, with one other move, and compare the tokens kept."""

    trace: Positional[Path]
    """Folder of the trace."""
    at: str
    """Time of day on the trace's clock, HH:MM[:SS], or number of a slice; the next decision is changed."""
    action: str
    """ACTION or ACTION:TARGET, as `trace show` tells moves."""
    then: Literal["recorded", "wait"] = "recorded"
    """Afterwards make the moves that were recorded later, or wait."""
    out: Path | None = None
    """Write the other future as a trace into this folder."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        """Play both futures, and print them side by side."""
        from clusterorch.environment.tables import read_trace, refuse, write_trace
        from clusterorch.environment.whatif import slice_at, what_if
        from clusterorch.reports.futures import show_futures

        if self.out is not None:
            refuse(self.out, force=self.force)
        trace = read_trace(self.trace)
        told = what_if(trace, slice_at(trace, self.at), self.action, then=self.then)
        if self.out is not None:
            write_trace(told.other, self.out, force=self.force)
        show_futures(told, _terminal())


def _terminal():
    from clusterorch.reports.wording import terminal

    console = terminal()
    console.width = min(console.width, _WIDTH)
    return console
