"""Here live the commands about models; what they need is imported when they run."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from clusterorch.cli.commands import Repeated
from clusterorch.cli.writing import write_whole
from clusterorch.errors import ClusterorchError

if TYPE_CHECKING:
    from clusterorch.models import Model


@dataclass(kw_only=True)
class OfModel:
    """What the commands about one model share."""

    name: Positional[str] = "reference"
    """Name of a model, or a file."""
    overlay: Repeated = ()
    """Overlay, a name or a file."""


@dataclass(kw_only=True)
class Writing:
    """What the commands that write one file share."""

    out: Path
    """File to write."""
    force: bool = False
    """Replace what is there."""


@dataclass(kw_only=True)
class Check(OfModel):
    """Check a model file, and print what each variant costs."""

    def run(self) -> None:
        """Print the counts, or fail with the first thing that is wrong."""
        from rich.text import Text

        from clusterorch.models.command import check_command
        from clusterorch.reports.wording import terminal

        console = terminal(markup=True)
        with console.capture() as captured:
            sound = check_command([self.name], self.overlay, console=console)
        if not sound:
            raise ClusterorchError(Text.from_ansi(captured.get()).plain.strip().removeprefix("error "))
        sys.stdout.write(captured.get())


@dataclass(kw_only=True)
class Show(OfModel):
    """Print what a model declares."""

    layout: str = "4x8"
    """Nodes x GPUs that rates are told for."""

    def run(self) -> None:
        """Print the tables."""
        from clusterorch.models.command import show_command
        from clusterorch.reports.wording import terminal

        show_command(self.name, self.overlay, self.layout, console=terminal(markup=True))


@dataclass(kw_only=True)
class Sources(OfModel):
    """Print where every number of a model comes from."""

    def run(self) -> None:
        """Print the origins."""
        from clusterorch.models.command import sources_command
        from clusterorch.reports.wording import terminal

        sources_command(self.name, self.overlay, console=terminal(markup=True))


@dataclass(kw_only=True)
class Actions(OfModel):
    """Print what each action does to each failure."""

    def run(self) -> None:
        """Print the table."""
        from clusterorch.models.command import actions_command
        from clusterorch.reports.wording import terminal

        actions_command(self.name, self.overlay, console=terminal(markup=True))


@dataclass(kw_only=True)
class Picture(OfModel, Writing):
    """Draw the causal graph of a model, as .png or .svg."""

    def run(self) -> None:
        """Write the picture."""
        from clusterorch.figures.causal_graph import SUFFIXES, draw_causal_graph

        if self.out.suffix.lower() not in SUFFIXES:
            raise ClusterorchError(f"{self.out}: a picture is written as {' or '.join(SUFFIXES)}")
        model = _load(self.name, self.overlay)
        write_whole(self.out, lambda path: draw_causal_graph(model.graph, path), force=self.force)


@dataclass(kw_only=True)
class Export(OfModel, Writing):
    """Write one variant of a model for another program."""

    variant: str
    """Which one, as mode.variant."""
    format: Literal["bif", "dot"] = "bif"
    """The two-slice network (bif), or the causal graph below the variant (dot)."""
    layout: str = "1x2"
    """Nodes x GPUs."""

    def run(self) -> None:
        """Write the file."""
        import networkx as nx

        from clusterorch.causal.pgmpy_bridge import export_bif, export_dot

        model, variant = _load(self.name, self.overlay, self.layout), self.variant
        if variant not in model.variants:
            near = difflib.get_close_matches(variant, model.variants, cutoff=0.4) or model.variants
            raise ClusterorchError(f"no variant is named {variant!r}; near it: {', '.join(near)}")
        below = model.graph.subgraph({variant, *nx.descendants(model.graph, variant)})
        writers: dict[str, Callable[[Path], object]] = {
            "bif": lambda path: export_bif(model.spec, model.layout, variant, path),
            "dot": lambda path: path.write_text(export_dot(below), encoding="utf-8"),
        }
        write_whole(self.out, writers[self.format], force=self.force)


def _load(name: str, overlays: Sequence[str], layout: str = "1x2") -> Model:
    from clusterorch import models

    return models.load(name, layout=layout, overlays=overlays)
