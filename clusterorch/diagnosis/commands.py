"""Here live the commands by which somebody gathers evidence: rows of the files that a model names under `commands`.

A row says what a shell line reveals, not what it means: the signals that it shows are the model's.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from clusterorch.errors import InvalidModel
from clusterorch.models import Model
from clusterorch.models.reading import read_toml
from clusterorch.models.rows import CONTINUOUS, FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import ModelSpec

PLACEHOLDERS = ("host", "pci", "device", "rank")
RunsOn = Literal["each suspected host", "one host", "every host", "job"]
_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")  # not the ${name} of a shell


class Command(BaseModel):
    """`[[command]]`: a shell line, where it runs, and the signals that it shows.

    shell: one line for a POSIX shell; `{host}`, `{pci}`, `{device}`, `{rank}` stand for a suspect's names.
    shows: `now`, a sample of the moment; `past`, a log or counter since before the fault began.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    title: Annotated[str, Field(min_length=1, max_length=100)]
    shell: Annotated[str, Field(min_length=1, max_length=1000)]
    runs_on: RunsOn
    shows: Literal["now", "past"]
    signals: Annotated[list[str], Field(min_length=1)]
    streams: Annotated[list[str], Field(min_length=1)]

    @field_validator("title", "shell")
    @classmethod
    def _one_line(cls, text: str) -> str:
        if not text.isprintable():
            raise ValueError("has a line break or a control character; write one line")
        return text

    @field_validator("shell")
    @classmethod
    def _known_placeholders(cls, text: str) -> str:
        if unknown := sorted(set(_PLACEHOLDER.findall(text)) - set(PLACEHOLDERS)):
            raise ValueError(f"knows no {{{unknown[0]}}}; there are {', '.join(f'{{{p}}}' for p in PLACEHOLDERS)}")
        return text

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Those that the shell line asks for."""
        asked = set(_PLACEHOLDER.findall(self.shell))
        return tuple(name for name in PLACEHOLDERS if name in asked)

    def line(self, names: dict[str, str]) -> str:
        """The shell line with the placeholders replaced as they are: quote the names first."""
        return _PLACEHOLDER.sub(lambda found: names[found[1]], self.shell)


def load_commands(model: Model) -> list[Command]:
    """Every command that a model and its overlays name, in order; none if they name no file.

    Raises:
        InvalidModel: a file cannot be read, a row is malformed, two have one name, or a row speaks of a signal
            or a stream that the model does not have.
    """
    commands: list[Command] = []
    for path in model.command_files:
        commands.extend(_read(path, model.spec))
        names = [command.name for command in commands]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidModel(str(path), f"command.{twice}", "stands there twice", "give each command its own name")
    return commands


def _read(path: Path, spec: ModelSpec) -> list[Command]:
    tables = read_toml(path)
    if unknown := sorted(set(tables) - {"command"}):
        raise InvalidModel(str(path), unknown[0], "is no table of commands", "this file has [[command]] only")
    rows = tables.get("command", [])
    if not isinstance(rows, list):
        raise InvalidModel(str(path), "command", "is one table", "write [[command]]")
    found = []
    for number, row in enumerate(rows, start=1):
        name = row.get("name") if isinstance(row, dict) else None
        key = f"command.{name if isinstance(name, str) else number}"
        try:
            found.append(Command.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (key, *first["loc"])))
            raise InvalidModel(str(path), where, first["msg"], "see [[command]] in models/README.md") from error
        _check(found[-1], spec, str(path), key)
    return found


def _check(command: Command, spec: ModelSpec, file: str, key: str) -> None:
    declared = {signal.name: signal for signal in spec.signal}
    for name in command.signals:
        if name not in declared:
            near = difflib.get_close_matches(name, declared) or ["a declared signal"]
            raise InvalidModel(file, f"{key}.signals", f"the model has no signal {name!r}", f"near it: {near[0]}")
        family = KIND_OF_FAMILY[declared[name].family]
        if family == FIRST:
            raise InvalidModel(file, f"{key}.signals", f"{name} is the order of lines", "leave it out")
        if family == CONTINUOUS and command.shows == "past":
            raise InvalidModel(file, f"{key}.signals", f"{name} is a sample", 'show it "now", in a command of its own')
    if unknown := sorted(set(command.streams) - {stream.name for stream in spec.stream}):
        streams = ", ".join(stream.name for stream in spec.stream)
        raise InvalidModel(file, f"{key}.streams", f"the model has no stream {unknown[0]!r}", f"it has {streams}")
