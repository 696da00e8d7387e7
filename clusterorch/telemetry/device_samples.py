"""Here lives what the quantities of a GPU mean: rows of the formats, applied to names and words.

Where the words stood (a table, a report, a metric) is the business of the readers of those; they all come here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef
from clusterorch.telemetry.rows import Column

ANY = "*"
_MOST_DEVICES = 100_000
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,3})?")


class Cell(NamedTuple):
    """A value that one quantity of a device gives; `at` is the name of the quantity."""

    signal: str | None
    measure: str | None
    value: float | str
    entity: EntityRef
    row: str
    at: str = ""


class DeviceSamples:
    """Reads the quantities of the devices of one file; remembers the counters among them."""

    def __init__(self, formats: Formats) -> None:
        self._columns = formats.columns
        self._any = formats.columns.get(ANY, [])
        self._last: dict[tuple[EntityRef, str], float | str] = {}

    def cells(self, words: Mapping[str, str], entity: EntityRef, labels: Mapping[str, str] | None = None) -> list[Cell]:
        """What one sample of one device says.

        Args:
            words: by the names of the quantities.
            entity: the device.
            labels: of a metric.
        """
        found: dict[str, Cell] = {}
        for name, word in words.items():
            for row in (*self._columns.get(name, ()), *self._any):
                if row.role is None:
                    self._read(row, name, word, words, entity, labels or {}, found)
        return list(found.values())

    def _read(
        self, row: Column, name: str, word: str, words: Mapping[str, str], entity: EntityRef,
        labels: Mapping[str, str], found: dict[str, Cell],
    ) -> None:  # fmt: skip
        value = self._value(row, word, words, labels)
        if value is not None and (row.delta or row.on_change):
            value = self._fresh(row, entity, value)
        if value is None or not _busy(row, words):
            return
        key = row.signal or row.measure or ""
        # Several quantities may speak of one signal: the first that says more than `rest` counts.
        if key not in found or (found[key].value == row.rest and value != row.rest):
            present = 1 if row.columns == [ANY] else value
            found[key] = Cell(row.signal, row.measure, present, entity, row.name, name)

    def _value(self, row: Column, word: str, words: Mapping[str, str], labels: Mapping[str, str]) -> float | str | None:
        if row.label is not None:
            counted = number_of(word)
            return row.of(labels.get(row.label, "")) if counted else None
        if row.bits:
            mask = _mask(word)
            if mask is None:
                return None
            return _present(next((value for value, bit in row.bits.items() if mask & bit), row.rest))
        if row.values:
            return _present(row.of(word))
        number = number_of(word)
        if number is None:
            return None
        if row.below:
            best = max((b for name in row.below if (b := number_of(words.get(name, ""))) is not None), default=None)
            return 1 if best is not None and 0 < number < best else None
        if row.of_column:
            whole = next((w for name in row.of_column if (w := _sum(name, words)) is not None), None)
            return number * row.scale / whole if whole else None
        value = row.of(str(number))
        return value + row.offset if isinstance(value, float) else value

    def _fresh(self, row: Column, entity: EntityRef, value: float | str) -> float | str | None:
        """What a number that counts up rose by; a value that stands only when it is new."""
        key = (entity, row.name)
        before = self._last.get(key)
        if before is not None or len(self._last) < _MOST_DEVICES:
            self._last[key] = value
        if row.on_change:
            return value if value != before else None
        if isinstance(value, str) or isinstance(before, str):
            return None
        if before is None:
            return int(value) if row.standing_from is not None and value >= row.standing_from else None
        return int(value - before) if value > before else None


def _present(value: float | str | None) -> float | str | None:
    """A class as it is; of a signal that has none, the value 1."""
    return 1 if value == "present" else value


def number_of(word: str) -> float | None:
    """The number that a word begins with; units follow it, with or without a blank.

    >>> number_of("402W"), number_of(" 86 C"), number_of("[N/A]"), number_of("0x7f")
    (402.0, 86.0, None, None)
    """
    word = word.strip().replace(",", "")
    found = _NUMBER.match(word)
    if found is None or word[:2].lower() == "0x" or word[found.end() : found.end() + 1] in (":", "."):
        return None
    number = float(found[0])
    return number if math.isfinite(number) else None


def _sum(names: str, words: Mapping[str, str]) -> float | None:
    """The sum of quantities whose names are joined by `+`, if all are there."""
    numbers = [number_of(words.get(name, "")) for name in names.split("+")]
    return None if None in numbers else sum(number for number in numbers if number is not None)


def _mask(word: str) -> int | None:
    word = word.strip()
    try:
        return int(word, 16 if word.lower().startswith("0x") else 10)
    except ValueError:
        number = number_of(word)
        return int(number) if number is not None and number == int(number) else None


def _busy(row: Column, words: Mapping[str, str]) -> bool:
    """Whether one of the quantities that a row asks for has a word or a number that it asks for."""
    if not row.when:
        return True
    for name, wanted in row.when.items():
        word = words.get(name, "").strip()
        if isinstance(wanted, list):
            if word in wanted:
                return True
        elif (number := number_of(word)) is not None and number >= wanted:
            return True
    return False
