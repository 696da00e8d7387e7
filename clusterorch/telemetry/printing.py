"""Here lives the way from events back to lines: which row prints an event, with which fields, on which host."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from clusterorch.models import Model
from clusterorch.models.spec import PHASES, Signal
from clusterorch.probability.noise import causal_uniform
from clusterorch.telemetry.events import Event
from clusterorch.telemetry.naming import Naming
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.rows import UNITS, Pattern
from clusterorch.telemetry.timestamps import find_stamp

COUNT_RANGES = ((0, 0), (1, 1), (2, 9), (10, 99), (100, 240))  # lines printed for each class of a count
_CHOICE, _NUMBER, _OTHER = 1, 2, 3  # entities of the noise: which row, how many, which peer
_MOMENT = 0.002  # seconds between the lines of one event


class Line(NamedTuple):
    """A printed line: when, by which host into which stream's file, and what it stands for."""

    time: float
    host: str
    stream: str
    text: str
    kind: tuple[str, str]  # signal and value; phase marks: ("phase", name)
    verbosity: str


class Printer:
    """Prints the events of one episode.

    Args:
        model: whose signals they are.
        formats: rows with templates.
        key: of the noise that decides between rows, and how many lines a class of counts is.
    """

    def __init__(self, model: Model, formats: Formats, key: tuple[int, int]) -> None:
        self.spec, self.formats, self.key = model.spec, formats, key
        seconds = {timer.name: timer.seconds for timer in model.spec.timer} | dict(model.limits)
        self.naming = Naming(model.layout, seconds)
        self.signals = {s.name: s for s in model.spec.signal}
        self._places = {s.name: model.network.slice_of(i) for i, s in enumerate(model.spec.signal)}
        self.rows: dict[str, list[Pattern]] = {}
        for row in formats.pattern.values():
            if row.signal is not None and row.template is not None:
                self.rows.setdefault(row.signal, []).append(row)
        self.carriers = {row.within for row in formats.pattern.values() if row.within and row.template is not None}
        self._known_plain: dict[str, bool] = {}
        ratios = [o for o in formats.operator.values() if o.kind == "ratio_to_own_baseline"]
        self._measured = {o.measure or "": o.signal for o in ratios}

    def measured(self, measure: str | None) -> str | None:
        """The signal that is a measure over its own level."""
        return self._measured.get(measure or "")

    @staticmethod
    def count_range(number: int) -> tuple[int, int]:
        """Fewest and most lines that a class of counts stands for."""
        return COUNT_RANGES[number]

    def uniform(self, number: int, entity: int, channel: int) -> float:
        """A draw in (0, 1)."""
        return float(causal_uniform(number, entity, channel, *map(np.uint64, self.key)))

    def lines(self, events: Sequence[Event], values: np.ndarray, step: int) -> Iterator[Line]:
        """Lines of one slice.  values: [width] of the slice."""
        carried: set[str] = set()
        for event in events:
            signal = self.signals.get(event.kind)
            row = None if signal is None else self._row(signal, event, values)
            if row is not None and row.name in self.carriers:
                carried |= {r.signal for r in self.formats.pattern.values() if r.within == row.name and r.signal}
        for event in events:
            signal = self.signals.get(event.kind)
            if signal is not None and event.kind not in carried:
                yield from self._print(signal, event, values, step)

    def _row(self, signal: Signal, event: Event, values: np.ndarray) -> Pattern | None:
        """The row that prints an event: one that carries others if it can, else any that has its value."""
        value = event.payload.get("value")
        fitting = [row for row in self.rows.get(signal.name, []) if row.within is None and _gives(row, value)]
        carrying = [row for row in fitting if row.name in self.carriers]
        if carrying and not self._says_too_much(carrying[0], values):
            return carrying[0]
        if carrying:
            fitting = [row for row in fitting if self._plain(row)]
        return fitting[int(self.uniform(event.id, _CHOICE, 0) * len(fitting))] if fitting else None

    def _says_too_much(self, carrier: Pattern, values: np.ndarray) -> bool:
        """Whether leaving a piece out tells a value, and the signal had nothing to tell or did not arrive."""
        told = {r.signal for r in self.formats.pattern.values() if r.within == carrier.name and r.template == ""}
        return any(not values[self._places[name]][0] > 0.0 for name in told if name in self._places)

    def _plain(self, row: Pattern) -> bool:
        """Whether a row's line says nothing about other signals."""
        if row.name not in self._known_plain:
            text = row.render(self.naming.fields("job", 0, 0.0, 0))
            others = (r for r in self.formats.pattern.values() if r.signal not in (None, row.signal))
            self._known_plain[row.name] = not any(re.search(other.regex, text) for other in others)
        return self._known_plain[row.name]

    def _print(self, signal: Signal, event: Event, values: np.ndarray, step: int) -> Iterator[Line]:
        row = self._row(signal, event, values)
        if row is None:
            return
        number = 1
        if signal.family == "count":
            low, high = COUNT_RANGES[event.payload["class"]]
            number = low + int(self.uniform(event.id, _NUMBER, 0) * (high - low + 1))
        repeats = 1 if row.count else number
        for i in range(repeats):
            time = event.time + i * _MOMENT
            fields = self.fields(row, signal.entity, int(event.entity.split()[1]), time, step, event.id)
            fields |= {"value": number, "skipped": number}
            fields["pieces"] = self._pieces(row, values, fields)
            yield self._line(row, fields, time, event, signal)

    def fields(self, row: Pattern, kind: str, entity: int, time: float, step: int, number: int) -> dict[str, Any]:
        """Fields of a row's template, the entity named where the row reads it."""
        fields = self.naming.fields(kind, entity, time, step)
        named = row.entity.host if row.entity else None
        if named not in (None, "host") and self.naming.layout.nodes > 1:
            # The line names the entity's host; another host writes it.
            shift = 1 + int(self.uniform(number, _OTHER, 0) * (self.naming.layout.nodes - 1))
            other = (self.naming.node_of(kind, entity) + shift) % self.naming.layout.nodes
            fields |= {named: fields["host"], "host": self.naming.host(other)}
        if row.limit is not None and row.limit.timer in self.naming.limits:
            fields[row.limit.field] = int(self.naming.limits[row.limit.timer] / UNITS[row.limit.unit])
        return fields

    def _line(self, row: Pattern, fields: dict[str, Any], time: float, event: Event, signal: Signal) -> Line:
        value = event.payload.get("value")
        text = row.render(fields, value if row.values or isinstance(row.template, dict) else None)
        kind = (signal.name, str(value or ""))
        return Line(time, fields["host"], row.stream, _stamped(text, fields), kind, signal.verbosity)

    def _pieces(self, carrier: Pattern, values: np.ndarray, fields: dict[str, Any]) -> str:
        """The pieces that other signals and measures add to a carrier's line, in order of the rows."""
        pieces = []
        for row in self.formats.pattern.values():
            if row.within != carrier.name or row.template is None:
                continue
            name = row.signal or self.measured(row.measure)
            x = float(values[self._places[name]][0]) if name in self._places else np.nan
            if name is None or np.isnan(x) or np.isinf(x):
                continue
            signal = self.signals[name]
            if row.signal is None:
                pieces.append(_with_number(row, fields, (signal.baseline or 1.0) * float(np.exp(x))))
            elif signal.family == "count":
                low, high = COUNT_RANGES[int(x)]
                pieces.append(row.render(fields | {"value": (low + high) // 2}))
            elif signal.family == "categorical" and _gives(row, signal.values[int(x)]):
                value = signal.values[int(x)]
                pieces.append(row.render(fields, value if row.values or isinstance(row.template, dict) else None))
        return "".join(pieces)

    def phase(self, phase: int, time: float, step: int) -> Iterator[Line]:
        """Lines that say which phase begins."""
        for row in self.formats.pattern.values():
            if row.phase == PHASES[phase] and row.signal is None and row.template is not None:
                fields = self.fields(row, "rank", 0, time, step, 0)
                text = _stamped(row.render(fields), fields)
                yield Line(time, fields["host"], row.stream, text, ("phase", row.phase), "info")
                return


def _gives(row: Pattern, value: str | None) -> bool:
    """Whether a row can print a value of a categorical signal; others have none."""
    if value is None:
        return row.value is None or not isinstance(row.template, dict)
    if isinstance(row.template, dict) and value not in row.template:
        return False
    return row.value == value if row.value is not None else value in (row.values or row.bins)


def _with_number(row: Pattern, fields: dict[str, Any], number: float) -> str:
    """A measure's template, with its number in the one field that is its own."""
    names = [name for _, name, _, _ in string.Formatter().parse(str(row.template)) if name]
    scale = {"ms": 1000.0}.get(names[0], 1.0)
    return row.render(fields | {names[0]: scale * number})


def _stamped(text: str, fields: dict[str, Any]) -> str:
    """A record with a time in front unless it has its own, as a log shipper puts it.

    Of several lines the last one gets it: what is before is a prompt or a heading, and known by its beginning.
    """
    if find_stamp(text) is not None:
        return text
    before, newline, last = text.rpartition("\n")
    return f"{before}{newline}{fields['stamp'].replace(',', '.')} {last}"
