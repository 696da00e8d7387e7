"""Here lives the reading of format files: rows checked once, merged by name, compiled for the loop."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import clusterorch
from clusterorch.errors import InvalidModel
from clusterorch.telemetry.lines import Wrap
from clusterorch.telemetry.rows import TABLES, Column, Counter, Operator, Pattern, Row, Template, Wait, Wrapped
from clusterorch.telemetry.screening import GRAM, Screen

Compiled = tuple[re.Pattern[str], Pattern]
STACK_MARKS = ("Thread ", "Process ", "Current thread")
# What the lines of device tables begin with or hold: a full report, a printed table, a monitor, an exporter.
DEVICE_MARKS = (
    "NVSMI LOG", "GPU 0000", "Performance State", "Throttle Reasons", "Event Reasons", "Thermal Slowdown",
    "Current Temp", "ECC Errors", "Remapped Rows", "Retired Pages", "GPU Link Info", "PCIe Generation", "Link Width",
    "Replays Since Reset",
    "Power Readings", "Memory Usage", "T.Limit Temp", "MiB |", "ERR!", "Disp.A", "Driver Version:", "# gpu", "#Entity",
    "| 0000", ".0 Off |", ".0  On |", "gtemp", "GPUTL", "DCGM_", "query-gpu=", "index,", "Remapping Failure",
)  # fmt: skip
COUNTER_MARKS = (
    "rdma statistic", "link mlx", "link bnxt", "link roce", "link rdmap", "Counter ==", "Discards ==", "Wait ==",
    "Errors ==", "enabled ", "==> /sys/",
)  # fmt: skip


@dataclass
class Formats:
    """All rows by table and name, in the order in which they were first given."""

    pattern: dict[str, Pattern] = field(default_factory=dict)
    column: dict[str, Column] = field(default_factory=dict)
    counter: dict[str, Counter] = field(default_factory=dict)
    wait: dict[str, Wait] = field(default_factory=dict)
    wrapped: dict[str, Wrapped] = field(default_factory=dict)
    operator: dict[str, Operator] = field(default_factory=dict)
    template: dict[str, Template] = field(default_factory=dict)

    @cached_property
    def groups(self) -> dict[str, list[Compiled]]:
        """Compiled rows by each text of which one must stand in the line."""
        groups: dict[str, list[Compiled]] = {}
        for row in self.pattern.values():
            compiled = (re.compile(row.regex), row)
            for text in row.prefilter:
                groups.setdefault(text, []).append(compiled)
        return groups

    @cached_property
    def screen(self) -> Screen:
        """Finds the texts of `groups`, in their order, then the words of tables, counters and stacks."""
        columns = [name for name in self.columns if len(name) >= GRAM and "." in name and "/" not in name]
        return Screen([*self.groups, *columns, *self.counters, *STACK_MARKS, *DEVICE_MARKS, *COUNTER_MARKS])

    @cached_property
    def wraps(self) -> tuple[Wrap, ...]:
        """How records that were broken over several lines are told."""
        return tuple(
            Wrap(row.token, re.compile(row.starts), row.ends, re.compile(row.continues), row.most, row.border)
            for row in self.wrapped.values()
        )

    @cached_property
    def columns(self) -> dict[str, list[Column]]:
        """Column rows by each of the names a column may have."""
        named: dict[str, list[Column]] = {}
        for row in self.column.values():
            for name in row.columns:
                named.setdefault(name, []).append(row)
        return named

    @cached_property
    def counters(self) -> dict[str, Counter]:
        """Counter rows by each counter's name."""
        return {name: row for row in self.counter.values() for name in row.names()}

    def signals(self) -> Iterable[tuple[str, str, str, set[str]]]:
        """(table.row, signal, kind of entity if the row says it, values it may give)."""
        for row in self.pattern.values():
            if row.signal:
                values = {row.value} if row.value else {*row.values, *row.bins}
                yield f"pattern.{row.name}", row.signal, row.entity.kind if row.entity else "", values
        for column in self.column.values():
            if column.signal:
                values = {*column.values, *column.bins, *column.bits}
                yield f"column.{column.name}", column.signal, "gpu", values | ({column.rest} - {None})
        for counter in self.counter.values():
            for signal in (counter.signal, counter.standing):
                if signal:
                    yield f"counter.{counter.name}", signal, "link", set()
            if counter.unprotected:
                yield f"counter.{counter.name}", counter.unprotected, "job", set()
        for template in self.template.values():
            if template.signal:
                yield f"template.{template.name}", template.signal, "", {template.value} - {None}
        for operator in self.operator.values():
            yield f"operator.{operator.name}", operator.signal, "", set()


def load_formats(files: Sequence[Path | str]) -> Formats:
    """Read format files; a row of a later file replaces the row of that name.

    Raises:
        InvalidModel: a file is missing or malformed, or a row is not what a row may be.
    """
    formats = Formats()
    for file in map(Path, files):
        merge(formats, _toml(file), file.name)
    return formats


def shipped_formats() -> list[Path]:
    """The format files that come with the package, in sorted order."""
    package = Path(clusterorch.__file__).parent
    for folder in (package / "_models" / "formats", package.parent / "models" / "formats"):
        if folder.is_dir():
            return sorted(folder.glob("*.toml"))
    return []


def merge(formats: Formats, tables: Mapping[str, Any], file: str) -> None:
    """Add the rows of one file; a row with a known name replaces it.

    Raises:
        InvalidModel: names the file, the row and what is wrong with it.
    """
    for table, rows in tables.items():
        if table not in TABLES:
            raise InvalidModel(file, table, "is no table of a format file", f"use one of {', '.join(TABLES)}")
        if not isinstance(rows, list):
            raise InvalidModel(file, table, "is not a list of tables", f"write [[{table}]]")
        for number, row in enumerate(rows):
            checked = _row(TABLES[table], row, file, f"{table}.{number}")
            getattr(formats, table)[checked.name] = checked
    for name in ("groups", "screen", "wraps", "columns", "counters"):
        formats.__dict__.pop(name, None)


def check_signals(formats: Formats, signals: Mapping[str, tuple[str, Sequence[str]]], file: str = "formats") -> None:
    """Hold the rows to the signals of a model, given as name -> (kind of entity, values).

    Raises:
        InvalidModel: a row names a signal that is not declared, another entity, or an unknown value.
    """
    for place, signal, kind, values in formats.signals():
        if signal not in signals:
            raise InvalidModel(file, place, f"signal {signal!r} is not declared", "use a signal of the model")
        entity, known = signals[signal]
        if kind and kind != entity:
            raise InvalidModel(file, place, f"signal {signal!r} is of a {entity}, not of a {kind}", f"give a {entity}")
        if known and (strange := values - set(known)):
            raise InvalidModel(file, place, f"{signal!r} has no value {sorted(strange)}", f"use {', '.join(known)}")


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidModel(file.name, "file", f"cannot be read: {error.strerror}", "give a readable file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidModel(file.name, "file", f"is no TOML: {error}", "correct the syntax there") from error


def _row(kind: type[Row], row: Any, file: str, place: str) -> Any:
    if isinstance(row, dict) and isinstance(row.get("name"), str):
        place = f"{place}({row['name']})"
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([place, *(str(part) for part in first["loc"])])
        raise InvalidModel(
            file,
            key,
            first["msg"].removeprefix("Value error, "),
            "compare with a row of that table in models/formats",
        ) from error
