"""Here live the commands about incidents; what they need is imported when they run."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from clusterorch.cli.of_agents import agent_folder, check_learning
from clusterorch.cli.writing import refuse_to_replace, write_whole
from clusterorch.errors import ClusterorchError

if TYPE_CHECKING:
    from clusterorch.diagnosis.dossier import Dossier
    from clusterorch.learning.advising import Adviser
    from clusterorch.telemetry.readings import Ingested

PROGRAM = "clusterorch"
HAZARDS = "hazards"
Repeated = UseAppendAction[tuple[str, ...]]


@dataclass
class Diagnose:
    """Tell what broke, where and since when, from the logs there are.

    Ends with 0 whatever the diagnosis is, and with 2 if it cannot be made.  With --exit-code:
    0 healthy, 1 a failure at least as probable as all else together, 3 undecided or no line tells.
    """

    paths: Positional[tuple[Path, ...]]
    """Log files, folders, archives, quoted patterns, or - for standard input."""
    as_json: Annotated[bool, arg(name="json")] = False
    """Print one JSON object and nothing else."""
    model: str = "reference"
    """Name of a model, or a file."""
    overlay: Repeated = ()
    """Overlay, a name or a file."""
    top: int = 5
    """Places, and lines for and against, that are shown."""
    out: Path | None = None
    """Also write the JSON object here."""
    html: Path | None = None
    """Also write a page for a browser here: one file that loads nothing."""
    force: bool = False
    """Replace what is there."""
    follow: bool = False
    """Go on reading and diagnosing as the logs grow, until Ctrl-C, which is no error.  With --json a line each."""
    exit_code: bool = False
    """End with 1 for a failure and with 3 if undecided."""

    protocol: Literal["auto", "covered", "excerpt"] = "auto"
    """How to read the logs: as pasted lines, as contiguous streams in which absence counts, or as they look."""
    advise: Path | None = None
    """Also tell what a trained agent would do next, and why: its folder, or the name of one that ships."""
    spares: int | None = None
    """Nodes that stand by, for --advise; 1 is assumed."""

    def run(self) -> int:
        """Print the diagnosis; returns the exit code."""
        self._check()
        from clusterorch.diagnosis.commands import load_commands
        from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
        from clusterorch.diagnosis.dossier import open_dossier
        from clusterorch.reports.wording import terminal
        from clusterorch.telemetry.patterns import load_formats
        from clusterorch.telemetry.reading import read_paths

        adviser = None if self.advise is None else _adviser(self.advise, self.spares)
        model = default_incident_model(self.model, self.overlay)
        formats, commands = load_formats(model.format_files), load_commands(model)

        def told(ingested: Ingested) -> Dossier:
            found = diagnose(model, ingested, protocol=self.protocol)
            dossier = open_dossier(found, commands, self.paths, top=self.top, protocol=self.protocol)
            return dossier if adviser is None else replace(dossier, agent=adviser.advise(found))

        if self.follow:
            from clusterorch.cli.following import show_following
            from clusterorch.telemetry.following import follow

            snapshots = map(told, follow(self.paths, formats))
            to_line = _json if self.as_json else None
            code = show_following(snapshots, terminal(), top=self.top, to_line=to_line)
        else:
            dossier = told(read_paths(self.paths, formats))
            self._write(dossier)
            code = dossier.exit_code
        return code if self.exit_code else 0

    def _check(self) -> None:
        if self.top < 1:
            raise ClusterorchError(f"--top {self.top}: show at least one")
        if self.spares is not None and self.advise is None:
            raise ClusterorchError("--spares tells an agent what stands by: give --advise FOLDER too")
        if self.spares is not None and self.spares < 0:
            raise ClusterorchError(f"--spares {self.spares}: give 0 or more")
        for option, path in (("--out", self.out), ("--html", self.html)):
            if path is not None:
                if self.follow:
                    raise ClusterorchError(f"{option} writes one file, and --follow never ends: leave one of them out")
                refuse_to_replace(path, force=self.force)
        if self.out is not None and self.html is not None and self.out.absolute() == self.html.absolute():
            raise ClusterorchError(f"{self.out}: --out and --html cannot be one file")

    def _write(self, dossier: Dossier) -> None:
        """Files first: what is printed is then whole."""
        from clusterorch.reports.page import page
        from clusterorch.reports.terminal import show_diagnosis
        from clusterorch.reports.wording import terminal

        text = _json(dossier, indent=1) + "\n"
        if self.out is not None:
            write_whole(self.out, lambda path: path.write_text(text, encoding="utf-8"), force=self.force)
        if self.html is not None:
            made = page(dossier, top=self.top)
            write_whole(self.html, lambda path: path.write_text(made, encoding="utf-8"), force=self.force)
        if self.as_json:
            sys.stdout.write(text)
        else:
            show_diagnosis(dossier, terminal(), top=self.top)


def _adviser(folder: Path, spares: int | None) -> Adviser:
    """A trained agent to be asked; what is none is refused before any log is read."""
    check_learning()
    from clusterorch.learning.advising import Adviser

    return Adviser(agent_folder(folder), spares=spares)


def _json(dossier: Dossier, *, indent: int | None = None) -> str:
    """One object of schema `clusterorch.diagnosis/1`."""
    import json

    from clusterorch.diagnosis.diagnose import to_json
    from clusterorch.diagnosis.dossier import follow_ups

    return json.dumps(to_json(dossier.diagnosis) | follow_ups(dossier), allow_nan=False, indent=indent)


@dataclass(kw_only=True)
class Simulate:
    """Play one episode; keep its telemetry, its truth and, if asked, its logs as people would have them."""

    out: Path
    """Folder for the trace; logs go below it."""
    fault: str = HAZARDS
    """MODE.VARIANT[/SITE[/SEVERITY]]; MODE, of whose variants one is drawn by share; none; or what hazards bring."""
    layout: str = "4x8"
    """Nodes x GPUs."""
    seed: int = 0
    """Of the noise."""
    slices: int = 240
    """Length of the episode."""
    at: int | None = None
    """Slice in which the fault enters; if not given, one in which it can (20, or the first where it needs a start)."""
    do: Repeated = ()
    """Intervention, NAME=VALUE[@FROM[:TO]]."""
    logs: bool = False
    """Write logs too."""
    protocol: Literal["complete", "covered", "excerpt"] = "complete"
    """What of the logs people have."""
    model: str = "reference"
    """Name of a model, or a file."""
    overlay: Repeated = ()
    """Overlay, a name or a file."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        """Print the cascade and write the files."""
        from clusterorch.reports.wording import terminal
        from clusterorch.simulation import command

        if self.fault != HAZARDS and self.at is not None and not 0 <= self.at < max(self.slices, 1):
            raise ClusterorchError(f"--at {self.at}: the episode has slices 0..{self.slices - 1}")
        command.run(
            None if self.fault == HAZARDS else self.fault, self.layout, self.seed, self.out, logs=self.logs,
            protocol=self.protocol, do=self.do, slices=self.slices, at=self.at, model=self.model,
            overlays=self.overlay, force=self.force, command=self.words(), console=terminal(markup=True),
        )  # fmt: skip

    def words(self) -> str:
        """The command that makes the same episode again, wherever it is kept."""
        words = [PROGRAM, "simulate"]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("out", "force") or value == field.default:
                continue
            for one in value if isinstance(value, tuple) else (value,):
                words += [f"--{field.name}"] + ([] if one is True else [str(one)])
        return shlex.join(words)


@dataclass
class Demo:
    """Play one incident, diagnose it slice by slice, then diagnose the logs of a real one."""

    out: Path
    """Folder for the picture."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        """Run the demonstration."""
        from clusterorch import demo

        demo.run(self.out, force=self.force)
