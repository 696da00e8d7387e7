"""Here lives the way from events back to lines: what prints an event, with which fields, on which host."""

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
from clusterorch.telemetry.naming import START, Naming
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.rows import UNITS
from clusterorch.telemetry.sayings import Saying, sayings, spoken
from clusterorch.telemetry.timestamps import find_stamp, time_fields

COUNT_RANGES = ((0, 0), (1, 1), (2, 9), (10, 99), (100, 240))  # lines printed for each class of a count
_CHOICE, _NUMBER, _OTHER = 1, 2, 3  # entities of the noise: which row, how many, which peer
_DIALECT, _CLOCK, _CHATTER = 7, 8, 9  # ... in whose words, how wrong a clock is, what else is said
_MOMENT = 0.002  # seconds between the lines of one event
_CHATTY = 0.02  # share of slices in which a host says something that means nothing
_HOURS = 12  # of time zones, on either side
STAMPED_LIMITS = {"small": 5_000, "usual": 600_000, "long": 3_600_000}  # ms; what a class of limits is printed as


class Line(NamedTuple):
    """A printed line: when, by which host into which stream's file, and what it stands for."""

    time: float
    host: str
    stream: str
    text: str
    kind: tuple[str, str]  # signal and value; phase marks: ("phase", name); chatter: ("", row)
    verbosity: str
    file: str | None = None


class Printer:
    """Prints the events of one episode.

    Args:
        model: whose signals they are.
        formats: rows and templates.
        key: of the noise that decides between rows, and how many lines a class of counts is.
        skew: most seconds by which the clock of a host is wrong.
        zones: whether hosts keep the time of different zones.
        pasted: whether the events are those that somebody chose for an excerpt.
    """

    def __init__(
        self, model: Model, formats: Formats, key: tuple[int, int], *, skew: float = 0.0, zones: bool = False,
        pasted: bool = False,
    ) -> None:  # fmt: skip
        self.spec, self.formats, self.key = model.spec, formats, key
        seconds = {timer.name: timer.seconds for timer in model.spec.timer} | dict(model.limits)
        self.naming = Naming(model.layout, seconds)
        self.signals = {s.name: s for s in model.spec.signal}
        self._places = {s.name: model.network.slice_of(i) for i, s in enumerate(model.spec.signal)}
        said = [x for x in sayings(formats) if pasted or x.template is None or not x.template.pasted]
        self.spoken = spoken(said, lambda number: self.uniform(number, _DIALECT, 0))
        self.sayings: dict[str, list[Saying]] = {}
        self.pieces: dict[str, list[Saying]] = {}
        self.measures: dict[str, list[Saying]] = {}
        for saying in said:
            if saying.within is not None:
                self.pieces.setdefault(saying.within, []).append(saying)
            elif saying.signal is not None:
                self.sayings.setdefault(saying.signal, []).append(saying)
            elif saying.measure is not None and not (saying.row and saying.members):
                self.measures.setdefault(saying.measure, []).append(saying)
        self._marks: dict[str, list[Saying]] = {}
        for saying in said:
            if saying.row is not None and saying.row.phase and saying.signal is None and saying.measure is None:
                self._marks.setdefault(saying.row.phase, []).append(saying)
        self._tells = {row.signal: row.phase for row in formats.pattern.values() if row.signal and row.phase}
        self._chatter = [x for x in said if x.row is not None and x.row.known and x.row.silent]
        self._known_plain: dict[tuple[str, str | None], bool] = {}
        self._once: set[tuple[str, str]] = set()
        self._loss: float | None = None
        ratios = [o for o in formats.operator.values() if o.kind == "ratio_to_own_baseline"]
        self._measured = {o.measure or "": o.signal for o in ratios}
        hosts = [self.naming.host(node) for node in range(model.layout.nodes)]
        self._offset = {
            host: skew * (2.0 * self.uniform(node, _CLOCK, 0) - 1.0)
            + (3600.0 * int((2.0 * self.uniform(node, _CLOCK, 1) - 1.0) * _HOURS) if zones else 0.0)
            for node, host in enumerate(hosts)
        }

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

    def clock(self, host: str, time: float) -> dict[str, str]:
        """A time of the episode as the clock of a host shows it, in every shape."""
        return time_fields(START + time + self._offset.get(host, 0.0))

    def settle(self, values: np.ndarray) -> None:
        """Keep to dialects that can say what an episode has to say: programs differ in what they leave out.

        values: [T, width].
        """
        for carrier in [saying for said in self.sayings.values() for saying in said if saying.name in self.pieces]:
            if carrier.dialect is None or not self._speaks(carrier) or self._says_all(carrier, values):
                continue
            kind = carrier.dialect.split(":")[0]
            others = [
                other
                for other in self.sayings[carrier.signal or ""]
                if other.name in self.pieces
                and (other.dialect or "").startswith(f"{kind}:")
                and self._says_all(other, values)
            ]
            if others:
                self.spoken[kind] = (others[0].dialect or "").split(":")[1]
            return

    def _says_all(self, carrier: Saying, values: np.ndarray) -> bool:
        for name in self._carried(carrier):
            block = values[:, self._places[name]][:, 0]
            for t in {float(x): i for i, x in enumerate(block) if x > 0.0}.values():
                if not self._in_pieces(carrier, name, values[t]) and not self._alone(name, values[t]):
                    return False
        return True

    def lines(self, events: Sequence[Event], values: np.ndarray, step: int) -> Iterator[Line]:
        """Lines of one slice.  values: [width] of the slice."""
        carried: set[str] = set()
        self._learn_loss(values)
        for event in events:
            signal = self.signals.get(event.kind)
            saying = None if signal is None else self._saying(signal, event, values)
            if saying is not None and saying.name in self.pieces:
                carried |= {name for name in self._carried(saying) if self._in_pieces(saying, name, values)}
        timed_out = any(event.kind == "watchdog_timeout" for event in events)
        for event in events:
            signal = self.signals.get(event.kind)
            # What the line of a timeout says by itself needs no line of its own.
            told = timed_out and event.kind in ("limit_class", "barrier_waited")
            if signal is not None and event.kind not in carried and not told:
                yield from self._print(signal, event, values, step)

    def samples(self, values: np.ndarray, time: float, step: int) -> Iterator[Line]:
        """Lines of the measures of the job that no other line carries, at a time of the slice."""
        carried = {piece.measure for pieces in self.pieces.values() for piece in pieces}
        for measure, said in self.measures.items():
            name = self.measured(measure)
            if measure in carried or name not in self.signals or self.signals[name].entity != "job":
                continue
            x = float(values[self._places[name]][0])
            saying = next((one for one in said if self._speaks(one)), None)
            if saying is None or np.isnan(x) or np.isinf(x):
                continue
            fields = self.naming.fields("job", 0, time, step)
            fields |= self.clock(fields["host"], time)
            text = _with_number(saying, fields, (self.signals[name].baseline or 1.0) * float(np.exp(x)))
            yield Line(time, fields["host"], saying.stream, _stamped(text, fields), (name, ""), "info")

    def chatter(self, t: int, time: float, step: int) -> Iterator[Line]:
        """What hosts say in a slice that means nothing."""
        said = [saying for saying in self._chatter if self._speaks(saying)]
        for node in range(self.naming.layout.nodes if said else 0):
            if self.uniform(t, _CHATTER, 2 * node) >= _CHATTY:
                continue
            u = self.uniform(t, _CHATTER, 2 * node + 1)
            saying = said[int(u * len(said))]
            when = time + u * self.spec.model.slice_seconds
            fields = self.naming.fields("node", node, when, step)
            fields |= self.clock(fields["host"], when)
            text = _stamped(saying.render(fields), fields)
            yield Line(when, fields["host"], saying.stream, text, ("", saying.name), "info")

    def _speaks(self, saying: Saying) -> bool:
        if saying.dialect is None:
            return True
        kind, dialect = saying.dialect.split(":")
        return self.spoken[kind] == dialect

    def _saying(self, signal: Signal, event: Event, values: np.ndarray) -> Saying | None:
        """What prints an event: one that carries others if it can, else any that has its value."""
        value = event.payload.get("value")
        able = [saying for saying in self.sayings.get(signal.name, []) if saying.gives(value)]
        fitting = [saying for saying in able if self._speaks(saying)] or able
        carrying = [saying for saying in fitting if self._carries(saying, values)]
        if carrying:
            return carrying[0]
        # A line that says something else besides is the last choice.
        fitting = [x for x in fitting if self._plain(x, value)] or [x for x in able if self._plain(x, value)] or fitting
        fitting = [x for x in fitting if x.name not in self.pieces]
        return fitting[int(self.uniform(event.id, _CHOICE, 0) * len(fitting))] if fitting else None

    def _carries(self, carrier: Saying, values: np.ndarray) -> bool:
        """Whether a line can say all that its pieces stand for, and nothing that there is not to say."""
        pieces = self.pieces.get(carrier.name)
        if pieces is None:
            return False
        # Leaving such a piece out tells a value; the signal may have had nothing to tell, or did not arrive.
        told = [x.signal for x in pieces if x.text == "" and x.signal in self._places]
        if any(not values[self._places[name]][0] > 0.0 for name in (*told, *carrier.needs)):
            return False
        return all(
            self._in_pieces(carrier, name, values) or self._alone(name, values) for name in self._carried(carrier)
        )

    def _carried(self, carrier: Saying) -> list[str]:
        """The signals that pieces of a line may show."""
        names = dict.fromkeys(piece.signal for piece in self.pieces[carrier.name])
        return [name for name in names if name is not None and name in self._places]

    def _in_pieces(self, carrier: Saying, name: str, values: np.ndarray) -> bool:
        """Whether a piece shows what a signal has to show in a slice."""
        value = self._class(name, values)
        return value is None or any(x.signal == name and x.gives(value) for x in self.pieces[carrier.name])

    def _alone(self, name: str, values: np.ndarray) -> bool:
        """Whether a line of its own can show it."""
        value = self._class(name, values)
        return value is None or any(saying.gives(value) for saying in self.sayings.get(name, []))

    def _class(self, name: str, values: np.ndarray) -> str | None:
        """The class that a categorical signal of the job has to show; None if there is nothing."""
        signal, x = self.signals[name], float(values[self._places[name]][0])
        return signal.values[int(x)] if signal.family == "categorical" and x > 0.0 else None

    def _plain(self, saying: Saying, value: str | None) -> bool:
        """Whether a line says nothing about other signals."""
        if saying.name in self.pieces:
            return False
        if (saying.name, value) not in self._known_plain:
            fields = self.naming.fields("job", 0, 0.0, 0) | {"serial": 0, "behind": 0, "ahead": 2, "members": ""}
            text = saying.render(fields, value)
            others = (r for r in self.formats.pattern.values() if r.signal not in (None, saying.signal))
            self._known_plain[saying.name, value] = not any(re.search(other.regex, text) for other in others)
        return self._known_plain[saying.name, value]

    def _print(self, signal: Signal, event: Event, values: np.ndarray, step: int) -> Iterator[Line]:
        saying = self._saying(signal, event, values)
        if saying is None or (saying.once and (saying.name, event.entity) in self._once):
            return
        self._once.add((saying.name, event.entity))
        number = 1
        if signal.family == "count":
            low, high = COUNT_RANGES[event.payload["class"]]
            number = low + int(self.uniform(event.id, _NUMBER, 0) * (high - low + 1))
        entity = int(event.entity.split()[1])
        if saying.members is not None:
            yield from self._together(saying, signal, event, entity, step)
            return
        for i in range(1 if saying.counted else number):
            time = event.time + i * _MOMENT
            fields = self.fields(saying, signal.entity, entity, time, step, event.id)
            fields |= {"value": number, "skipped": number} | self._said_elsewhere(values)
            fields["pieces"] = self._pieces(saying, values, fields)
            yield self._line(saying, fields, time, event, signal)

    def _together(self, saying: Saying, signal: Signal, event: Event, entity: int, step: int) -> Iterator[Line]:
        """Every member of the entity's node or job has its line, in the file of the entity's host."""
        layout, node = self.naming.layout, self.naming.node_of(signal.entity, entity)
        first, count = (node * layout.gpus, layout.gpus) if saying.members == "node" else (0, layout.count("rank"))
        home, value = self.naming.host(node), str(event.payload.get("value") or "")
        for i, member in enumerate(range(first, first + count)):
            time = event.time + i * _MOMENT
            fields = self.fields(saying, "rank", member, time, step, event.id)
            fields |= {"members": str(list(range(layout.count("rank")))), "behind": 12 * step, "ahead": 12 * step + 2}
            text = (saying.text if member == entity else saying.others or "").format(**fields)  # type: ignore[union-attr]
            file = saying.file.format(**fields) if saying.file else None
            text = text if file else _stamped(text, fields)
            yield Line(time, home, saying.stream, text, (signal.name, value), signal.verbosity, file)

    def fields(self, saying: Saying, kind: str, entity: int, time: float, step: int, number: int) -> dict[str, Any]:
        """Fields of a text, the entity named where the row reads it."""
        fields = self.naming.fields(kind, entity, time, step) | {"serial": number}
        if saying.host not in (None, "host") and self.naming.layout.nodes > 1:
            # The line names the entity's host; another host writes it.
            shift = 1 + int(self.uniform(number, _OTHER, 0) * (self.naming.layout.nodes - 1))
            other = (self.naming.node_of(kind, entity) + shift) % self.naming.layout.nodes
            fields |= {saying.host: fields["host"], "host": self.naming.host(other)}
        limit = saying.row.limit if saying.row else None
        if limit is not None and limit.timer in self.naming.limits:
            fields[limit.field] = int(self.naming.limits[limit.timer] / UNITS[limit.unit])
        return fields | self.clock(fields["host"], time)

    def _said_elsewhere(self, values: np.ndarray) -> dict[str, Any]:
        """Numbers of a slice that lines about something else show too."""
        said: dict[str, Any] = {} if self._loss is None else {"loss": self._loss}
        if "limit_class" in self._places and (x := float(values[self._places["limit_class"]][0])) > 0.0:
            said["limit_ms"] = STAMPED_LIMITS.get(self.signals["limit_class"].values[int(x)], 600_000)
            said["ran_ms"] = said["limit_ms"] + 42
        if "barrier_waited" in self._places and float(values[self._places["barrier_waited"]][0]) > 0.0:
            said["elements"] = 1
        return said

    def _learn_loss(self, values: np.ndarray) -> None:
        """A loss is printed with its number; where the slice has none, the last one stands."""
        if "loss_level" in self._places and np.isfinite(x := float(values[self._places["loss_level"]][0])):
            self._loss = (self.signals["loss_level"].baseline or 1.0) * float(np.exp(x))

    def _line(self, saying: Saying, fields: dict[str, Any], time: float, event: Event, signal: Signal) -> Line:
        value = event.payload.get("value")
        text = saying.render(fields, value if saying.values or saying.bins or isinstance(saying.text, dict) else None)
        file = saying.file.format(**fields) if saying.file else None
        kind = (signal.name, str(value or ""))
        # A listing in a file of its own passes no log shipper.
        text = text if file else _stamped(text, fields)
        return Line(time, fields["host"], saying.stream, text, kind, signal.verbosity, file)

    def _pieces(self, carrier: Saying, values: np.ndarray, fields: dict[str, Any]) -> str:
        """The pieces that other signals and measures add to a carrier's line, in order of the rows."""
        pieces = []
        for saying in self.pieces.get(carrier.name, []):
            name = saying.signal or self.measured(saying.measure)
            x = float(values[self._places[name]][0]) if name in self._places else np.nan
            if name is None or np.isnan(x) or np.isinf(x):
                continue
            signal = self.signals[name]
            if saying.signal is None:
                pieces.append(_with_number(saying, fields, (signal.baseline or 1.0) * float(np.exp(x))))
            elif signal.family == "count":
                low, high = COUNT_RANGES[int(x)]
                pieces.append(saying.render(fields | {"value": (low + high) // 2}))
            elif signal.family == "categorical" and saying.gives(signal.values[int(x)]):
                value = signal.values[int(x)]
                pieces.append(
                    saying.render(
                        fields, value if saying.values or saying.bins or isinstance(saying.text, dict) else None
                    )
                )
        return "".join(pieces)

    def phase(self, phase: int, time: float, step: int) -> Iterator[Line]:
        """Lines that say which phase begins."""
        said = [x for x in self._marks.get(PHASES[phase], []) if self._speaks(x)]
        if said:
            saying = said[int(self.uniform(phase, _CHOICE, step) * len(said))]
            fields = self.fields(saying, "rank", 0, time, step, 0)
            text = _stamped(saying.render(fields), fields)
            yield Line(time, fields["host"], saying.stream, text, ("phase", PHASES[phase]), "info")

    def phase_again(self, said: Sequence[Line], phase: int, step: int) -> Iterator[Line]:
        """The phase once more after each line that tells another: it is published, and a stray line ends no phase."""
        for stray in said:
            if self._tells.get(stray.kind[0], PHASES[phase]) != PHASES[phase]:
                for line in self.phase(phase, stray.time + _MOMENT, step):
                    yield line._replace(kind=("phase", f"{PHASES[phase]} after {stray.time}"))


def _with_number(saying: Saying, fields: dict[str, Any], number: float) -> str:
    """A measure's text, with its number in the one field that is its own."""
    names = [name for _, name, _, _ in string.Formatter().parse(str(saying.text)) if name]
    own = next((name for name in names if name in _OWN), names[0])
    scale = {"ms": 1000.0}.get(own, 1.0)
    return saying.render(fields | {own: scale * saying.number(number)})


_OWN = ("ms", "grad_norm", "bandwidth", "seconds", "rate", "loss")  # fields that a measure may be printed in


def _stamped(text: str, fields: dict[str, Any]) -> str:
    """A record with a time in front unless it has its own, as a log shipper puts it.

    Of several lines the last one gets it: what is before is a prompt or a heading, and known by its beginning.
    """
    if find_stamp(text) is not None:
        return text
    before, newline, last = text.rpartition("\n")
    return f"{before}{newline}{fields['stamp'].replace(',', '.')} {last}"
