"""Here lives `clusterorch collect`: the script that gathers what a diagnosis lacks."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from clusterorch.errors import ClusterorchError

if TYPE_CHECKING:
    from clusterorch.diagnosis.commands import Command
    from clusterorch.reports.gathering import Errand

_MOST_BYTES = 64 << 20
_SCHEMA = "clusterorch.diagnosis/1"


@dataclass
class Collect:
    """Print the shell script that gathers what is missing, most telling first; it runs nothing."""

    paths: Positional[tuple[Path, ...]] = ()
    """Logs to diagnose first; without any the script gathers all there is."""
    as_printed: Annotated[bool, arg(name="print")] = False
    """Print the script: the only thing that is done so far, and so it has to be asked for."""
    saved: Annotated[Path | None, arg(name="from")] = None
    """Take the order from a diagnosis that was written with --json or --out."""
    model: str = "reference"
    """Name of a model, or a file."""
    overlay: UseAppendAction[tuple[str, ...]] = ()
    """Overlay, a name or a file."""

    def run(self) -> None:
        """Print the script."""
        if not self.as_printed:
            raise ClusterorchError("collect runs nothing by itself: add --print and read what it prints")
        if self.saved is not None and self.paths:
            raise ClusterorchError("--from stands for logs that were diagnosed already: leave the paths or --from out")
        from clusterorch.diagnosis.commands import load_commands
        from clusterorch.diagnosis.diagnose import default_incident_model
        from clusterorch.reports.gathering import Errand, gathering_script

        model = default_incident_model(self.model, self.overlay)
        commands = load_commands(model)
        if not commands:
            raise ClusterorchError(f"model {model.name} names no commands; give a file of them under `commands`")
        origin = f"Model {model.name}, sha256 {model.sha256[:12]}"
        if self.saved is not None:
            errands, origin = _from_saved(self.saved, commands), f"{origin}; order from {self.saved.name}"
        elif self.paths:
            errands, origin = self._diagnosed(model, commands), f"{origin}; order from the logs' diagnosis"
        else:
            errands = [Errand(command, None, ()) for command in commands]
        sys.stdout.write(gathering_script(errands, origin))

    def _diagnosed(self, model: Any, commands: list[Command]) -> list[Errand]:
        from clusterorch.diagnosis.diagnose import diagnose
        from clusterorch.diagnosis.settling import settle
        from clusterorch.reports.gathering import Errand
        from clusterorch.telemetry.patterns import load_formats
        from clusterorch.telemetry.reading import read_paths

        found = diagnose(model, read_paths(self.paths, load_formats(model.format_files)))
        return [
            Errand(offer.command, offer.gain, tuple(_names(s.host, s.names) for s in offer.suspects))
            for offer in settle(found, commands)
        ]


def _names(host: str | None, names: dict[str, str]) -> dict[str, str]:
    return names if host is None else {"host": host, **names}


def _from_saved(path: Path, commands: list[Command]) -> list[Errand]:
    """The order and the places of a written diagnosis; what its commands are, the model says."""
    from clusterorch.reports.gathering import Errand

    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise ClusterorchError(f"{path}: is no JSON: {error}") from error
    if not isinstance(said, dict) or said.get("schema") != _SCHEMA or not isinstance(said.get("settle"), list):
        raise ClusterorchError(f"{path}: is no {_SCHEMA} with the key settle; write it with clusterorch diagnose --out")
    known = {command.name: command for command in commands}
    errands = []
    for number, row in enumerate(said["settle"]):
        name = row.get("command") if isinstance(row, dict) else None
        if name not in known:
            near = difflib.get_close_matches(str(name), known) or list(known)[:1]
            raise ClusterorchError(f"{path}: settle.{number}: the model has no command {name!r}; near it: {near[0]}")
        try:
            gain = float(row["gain_nats"])
            places = tuple(_saved_names(place) for place in row["hosts"])
        except (KeyError, TypeError, ValueError) as error:
            raise ClusterorchError(f"{path}: settle.{number}: gain_nats or hosts cannot be read: {error}") from error
        errands.append(Errand(known[name], gain, places))
    return errands


def _saved_names(place: dict[str, object]) -> dict[str, str]:
    from clusterorch.diagnosis.commands import PLACEHOLDERS

    named = {what: place[what] for what in PLACEHOLDERS if place.get(what) is not None}
    if not all(isinstance(name, str) for name in named.values()):
        raise ValueError("a name is no text")
    return {what: str(name) for what, name in named.items()}
