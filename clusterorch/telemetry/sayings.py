"""Here live the ways of saying things: what rows and templates can print, and in whose words a run is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.rows import Pattern, Template

_HUGE = 1e200


@dataclass(frozen=True)
class Saying:
    """One way to print a signal, a measure, or something that says nothing.

    `text` is one for all values or one for each.  `within` names the saying whose line it is a piece of.
    """

    name: str
    stream: str
    text: str | dict[str, str]
    signal: str | None = None
    measure: str | None = None
    value: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    bins: dict[str, tuple[float, float]] = field(default_factory=dict)
    field: str | None = None
    counted: bool = False
    within: str | None = None
    needs: tuple[str, ...] = ()
    dialect: str | None = None
    host: str | None = None
    others: str | None = None
    members: str | None = None
    file: str | None = None
    once: bool = False
    row: Pattern | None = None
    template: Template | None = None

    def gives(self, value: str | None) -> bool:
        """Whether it can print a value of a categorical signal; other signals have none."""
        if value is None:
            return self.value is None or not isinstance(self.text, dict)
        if isinstance(self.text, dict) and value not in self.text:
            return False
        return self.value == value if self.value is not None else value in (self.values or self.bins)

    def render(self, fields: dict[str, Any], value: str | None = None) -> str:
        """A line as its program would print it."""
        text = self.text.get(value or "", "") if isinstance(self.text, dict) else self.text
        if value is not None and self.field is not None and value in self.values:
            fields = {**fields, self.field: self.values[value][0]}
        elif value is not None and self.field is not None and value in self.bins:
            fields = {**fields, self.field: _within(self.bins[value], fields.get(self.field))}
        return text.format(**fields)

    def number(self, number: float) -> float:
        """A measure as this way of printing counts it: a rate is the inverse of a time."""
        if self.template is None:
            return number
        return self.template.scale / number if self.template.transform == "inverse" else self.template.scale * number


def sayings(formats: Formats) -> list[Saying]:
    """Everything that can be printed, rows first, in order."""
    said = [_of_row(row) for row in formats.pattern.values() if row.template is not None]
    return [*said, *(_of_template(row) for row in formats.template.values())]


def _within(span: tuple[float, float], number: Any) -> float:
    """A number of a class: the usual one if it is in the class, else one well inside."""
    low, high = span
    if isinstance(number, int | float) and low <= number < high:
        return number
    if low < -_HUGE:
        return high - 16.0
    return low + 16.0 if high > _HUGE else (low + high) / 2.0


def _of_row(row: Pattern) -> Saying:
    assert row.template is not None
    return Saying(
        row.name, row.stream, row.template, row.signal, row.measure, row.value, dict(row.values), dict(row.bins),
        row.field, row.count is not None, row.within, (), row.dialect, row.entity.host if row.entity else None, row=row,
    )  # fmt: skip


def _of_template(row: Template) -> Saying:
    return Saying(
        row.name, row.stream, row.text, row.signal, row.measure, row.value, within=row.within, needs=tuple(row.needs),
        dialect=row.dialect, others=row.others, members=row.members, file=row.file, once=row.once, template=row,
    )  # fmt: skip


def spoken(said: Iterable[Saying], uniform: Callable[[int], float]) -> dict[str, str]:
    """The dialect of each kind of writing that a run keeps to.

    Args:
        said: all sayings; their dialects are `kind:dialect`.
        uniform: a draw for each kind, by number.
    """
    kinds: dict[str, list[str]] = {}
    for saying in said:
        if saying.dialect is not None:
            kind, dialect = saying.dialect.split(":")
            kinds.setdefault(kind, [])
            if dialect not in kinds[kind]:
                kinds[kind].append(dialect)
    numbered = enumerate(sorted(kinds.items()))
    return {kind: dialects[int(uniform(number) * len(dialects))] for number, (kind, dialects) in numbered}
