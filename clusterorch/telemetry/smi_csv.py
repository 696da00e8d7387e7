"""Here lives the reader of nvidia-smi's CSV: which column means what is declared in the formats."""

from __future__ import annotations

from typing import NamedTuple

from clusterorch.telemetry.entities import pci_name
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef
from clusterorch.telemetry.rows import Column

_ANY = "*"
_MOST_COLUMNS = 512
_MOST_DEVICES = 100_000


class Cell(NamedTuple):
    """A value that one row of the table gives."""

    signal: str | None
    measure: str | None
    value: float | str
    entity: EntityRef
    row: str


class Sheet:
    """A table whose header has been seen; it ends with the first line of another width."""

    def __init__(self, names: list[str], formats: Formats) -> None:
        self.names = names
        self._columns = [formats.columns.get(name, []) for name in names]
        self._any = formats.columns.get(_ANY, [])
        self._at = {name: at for at, name in enumerate(names)}
        self._last: dict[tuple[EntityRef, str], float] = {}

    def row(self, text: str, host: str | None) -> list[Cell] | None:
        """What a line of the table says, or None if it is no such line."""
        cells = [cell.strip() for cell in text.split(",", _MOST_COLUMNS)]
        if len(cells) != len(self.names):
            return None
        entity = self._entity(cells, host)
        found: dict[str, Cell] = {}
        for cell, rows in zip(cells, self._columns, strict=True):
            for row in (*rows, *self._any):
                self._read(row, cell, cells, entity, found)
        return list(found.values())

    def _read(self, row: Column, cell: str, cells: list[str], entity: EntityRef, found: dict[str, Cell]) -> None:
        if row.role is not None:
            return
        value = self._value(row, cell, cells)
        if value is None:
            return
        if row.delta:
            value = self._rise(row, entity, value)
            if value is None:
                return
        key = row.signal or row.measure or ""
        # Several columns may speak of one signal: the first that says more than `rest` counts.
        if key not in found or (found[key].value == row.rest and value != row.rest):
            present = 1 if row.columns == [_ANY] else value
            found[key] = Cell(row.signal, row.measure, present, entity, row.name)

    def _value(self, row: Column, cell: str, cells: list[str]) -> float | str | None:
        if row.bits:
            try:
                mask = int(cell, 16)
            except ValueError:
                return None
            return next((value for value, bit in row.bits.items() if mask & bit), row.rest)
        if row.values:
            return row.of(cell)
        bare = cell.split(" ", 1)[0]
        if row.of_column:
            whole = next((cells[self._at[name]] for name in row.of_column if name in self._at), "")
            part, total = row.of(bare), row.of(whole.split(" ", 1)[0])
            usable = isinstance(part, float) and isinstance(total, float) and total > 0
            return part / total if usable else None  # type: ignore[operator]
        return row.of(bare)

    def _rise(self, row: Column, entity: EntityRef, value: float | str) -> int | None:
        if isinstance(value, str):
            return None
        before = self._last.get((entity, row.name))
        if before is not None or len(self._last) < _MOST_DEVICES:
            self._last[entity, row.name] = value
        return int(value - before) if before is not None and value > before else None

    def _entity(self, cells: list[str], host: str | None) -> EntityRef:
        index, pci = None, None
        for cell, rows in zip(cells, self._columns, strict=True):
            for row in rows:
                if row.role == "index" and cell.isdigit() and len(cell) < 6:
                    index = int(cell)
                elif row.role == "pci":
                    pci = pci_name(cell)
        return EntityRef("gpu", host, pci, index)


def sheet_of(text: str, formats: Formats) -> Sheet | None:
    """The table that a line is the header of, or None.

    A header has at least two columns that the formats declare.
    """
    if text.count(",") < 1 or text.count(",") > _MOST_COLUMNS:
        return None
    names = [cell.split("[", 1)[0].strip() for cell in text.split(",")]
    known = sum(name in formats.columns for name in names)
    return Sheet(names, formats) if known >= 2 and known * 2 >= len(names) else None
