"""Here lives `do`: values set on named variables in given slices, against the noise of the same world.

Text form, for people and the command line (`[A:B)` in slices; `@A` is one slice, no `@` is always):

    link_down=1@10:20                 a mechanism on (1) or off (0)
    fault=MODE.VARIANT/3/severe@5     the slot: site and severity are drawn where not given
    fault=none@0:40                   the slot is empty
    phase=save@8:10                   the published phase
    A>B.gate=0, A>B.arrival=1@4       the gate of an edge, or its arrival (A>B alone: the arrival)
    xid[12]=lost@7                    a signal of one entity, or of all without [...]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clusterorch.errors import InvalidIntervention
from clusterorch.models.compile import Network
from clusterorch.models.spec import PHASES, SEVERITIES, Signal
from clusterorch.simulation.plan import FOREVER

_TEXT = re.compile(
    r"(?P<name>[^=@\[\]]+)(?:\[(?P<entity>[0-9]{1,9})\])?=(?P<value>[^@]*)"
    r"(?:@(?P<start>[0-9]{1,9})(?P<range>:(?P<stop>[0-9]{1,9})?)?)?"
)
GATE, ARRIVAL = range(2)  # what is set of an edge
_SILENT, _SPOKEN = 0.0, 1.0


class Interventions(NamedTuple):
    """What the kernels set; ranges of slices are half open."""

    mechanism: np.ndarray  # [n, 4] mechanism, 0 or 1, start, stop
    edge: np.ndarray  # [n, 5] edge, GATE or ARRIVAL, 0 or 1, start, stop
    phase: np.ndarray  # [n, 3] phase, start, stop
    slot: np.ndarray  # [n, 5] variant or -1, site or -1, severity or -1, start, stop
    entry: np.ndarray  # [B, 4] variant, site or -1, severity or -1, slice (-1 never); or [0, 4]
    signal: np.ndarray  # [n, 4] first and last + 1 place in the flat values, start, stop
    signal_value: np.ndarray  # [n]


@dataclass(frozen=True)
class Do:
    """One intervention: a variable, the value it is given, and the slices [start, stop)."""

    name: str
    value: str
    start: int = 0
    stop: int = FOREVER
    entity: int | None = None

    @classmethod
    def parse(cls, text: str | Do) -> Do:
        """Read the text form.

        Raises:
            InvalidIntervention: it has another form, or an empty range.

        >>> Do.parse("xid[12]=lost@7:9")
        Do(name='xid', value='lost', start=7, stop=9, entity=12)
        """
        if isinstance(text, Do):
            return text
        found = _TEXT.fullmatch(text.strip())
        if not found:
            raise InvalidIntervention(f"{text!r}: write NAME=VALUE, NAME=VALUE@SLICE or NAME=VALUE@FROM:TO")
        start = int(found["start"] or 0)
        stop = FOREVER if found["start"] is None else start + 1
        if found["range"]:
            stop = int(found["stop"]) if found["stop"] else FOREVER
        if stop <= start:
            raise InvalidIntervention(f"{text!r}: the range {start}:{stop} holds no slice")
        entity = None if found["entity"] is None else int(found["entity"])
        return cls(found["name"].strip(), found["value"].strip(), start, stop, entity)


@dataclass(frozen=True)
class Fault:
    """What is put into the slot; site and severity are drawn from their priors where None."""

    variant: int
    site: int | None = None
    severity: int | None = None

    def row(self) -> tuple[int, int, int]:
        """Variant, site and severity, -1 where drawn."""
        site = -1 if self.site is None else self.site
        return self.variant, site, -1 if self.severity is None else self.severity


def parse_fault(network: Network, text: str | Fault) -> Fault:
    """Read `none` or `mode.variant[/site[/severity]]`.

    Raises:
        InvalidIntervention: no such variant, site or severity.
    """
    if isinstance(text, Fault):
        return text
    name, *rest = text.split("/")
    if name == "none" and not rest:
        return Fault(-1)
    names = [b.variant.name for b in network.blocks]
    if name not in names:
        inside = [n for n in names if n.startswith(f"{name}.")]
        raise _unknown("fault", name, inside or [*names, "none"])
    v = names.index(name)
    site = severity = None
    if rest and rest[0]:
        if not rest[0].isdigit() or int(rest[0]) >= network.blocks[v].sites:
            kind = network.blocks[v].variant.spec.site
            raise InvalidIntervention(f"fault {text}: {kind} {rest[0]} is not in 0..{network.blocks[v].sites - 1}")
        site = int(rest[0])
    if len(rest) == 2:
        levels = network.spec.model.severities
        level = int(rest[1]) if rest[1].isdigit() else levels.index(rest[1]) if rest[1] in levels else SEVERITIES
        if level not in network.blocks[v].variant.severity_levels:
            allowed = [levels[i] for i in network.blocks[v].variant.severity_levels]
            raise InvalidIntervention(f"fault {text}: severity {rest[1]!r} is not one of {', '.join(allowed)}")
        severity = level
    if len(rest) > 2:
        raise InvalidIntervention(f"fault {text}: write MODE.VARIANT/SITE/SEVERITY")
    return Fault(v, site, severity)


def _unknown(what: str, name: str, known: Sequence[str]) -> InvalidIntervention:
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.4) or sorted(known)[:8]
    return InvalidIntervention(f"no {what} is named {name!r}; near it: {', '.join(near)}")


def compile_do(network: Network, do: Iterable[str | Do], entry: np.ndarray | None = None) -> Interventions:
    """Resolve names against a network.

    Raises:
        InvalidIntervention: a variable, value, entity or range that the network does not have.
    """
    rows: dict[str, list[tuple[int, ...]]] = {k: [] for k in ("mechanism", "edge", "phase", "slot", "signal")}
    values: list[float] = []
    for one in map(Do.parse, do):
        table, found, value = _resolve(network, one)
        rows[table] += [(*numbers, one.start, one.stop) for numbers in found]
        values += [value] * len(found) if table == "signal" else []
    widths = {"mechanism": 4, "edge": 5, "phase": 3, "slot": 5, "signal": 4}
    tables = {k: np.array(rows[k], dtype=np.int64).reshape(-1, width) for k, width in widths.items()}
    entry = np.zeros((0, 4), dtype=np.int64) if entry is None else entry
    return Interventions(**tables, entry=entry, signal_value=np.array(values, dtype=np.float64))


def _resolve(network: Network, one: Do) -> tuple[str, list[tuple[int, ...]], float]:
    """(table, rows without their range, value of a signal)."""
    spec = network.spec
    mechanisms = [m.name for m in spec.mechanism]
    edges = [f"{e.from_}>{e.to}" for e in spec.edge]
    signals = [s.name for s in spec.signal]
    path, _, what = one.name.partition(".") if ">" not in one.name else _edge_name(one.name)
    if one.name in signals:
        place = network.slice_of(signals.index(one.name))
        at = (place.start, place.stop)
        if one.entity is not None:
            if one.entity >= place.stop - place.start:
                raise InvalidIntervention(f"{one.name}[{one.entity}]: it has 0..{place.stop - place.start - 1}")
            at = (place.start + one.entity, place.start + one.entity + 1)
        return "signal", [at], signal_value(spec.signal[signals.index(one.name)], one.value)
    if one.entity is not None:
        raise _unknown("signal", one.name, signals)
    if one.name == "fault":
        return "slot", [parse_fault(network, one.value).row()], 0.0
    if one.name == "phase":
        if one.value not in PHASES:
            raise _unknown("phase", one.value, PHASES)
        return "phase", [(PHASES.index(one.value),)], 0.0
    if one.name in mechanisms:
        return "mechanism", [(mechanisms.index(one.name), _bit(one))], 0.0
    if path in edges and what in ("", "gate", "arrival"):
        kind = GATE if what == "gate" else ARRIVAL
        return "edge", [(e, kind, _bit(one)) for e, name in enumerate(edges) if name == path], 0.0
    raise _unknown("variable", one.name, [*mechanisms, *edges, *signals, "fault", "phase"])


def _edge_name(name: str) -> tuple[str, str, str]:
    for what in ("gate", "arrival"):
        if name.endswith(f".{what}"):
            return name.removesuffix(f".{what}"), ".", what
    return name, "", ""


def _bit(one: Do) -> int:
    if one.value not in ("0", "1", "off", "on"):
        raise InvalidIntervention(f"{one.name}={one.value!r}: give 0 or 1")
    return int(one.value in ("1", "on"))


def signal_value(signal: Signal, text: str) -> float:
    """The flat value of a word or number: a class by name or number, a number, `absent`.

    Raises:
        InvalidIntervention: the signal has no such value.
    """
    if signal.values and text in signal.values:
        return float(signal.values.index(text))
    continuous = signal.family in ("gaussian", "log_ratio")
    if continuous and text == "absent":
        return np.inf
    words = {"off": _SILENT, "on": _SPOKEN, "nobody": -1.0}
    try:
        value = words[text] if text in words and not continuous else float(text)
    except ValueError:
        known = ", ".join(signal.values) or "a number"
        raise InvalidIntervention(f"{signal.name}={text!r}: give {known}") from None
    most = {"count": 4, "categorical": len(signal.values) - 1, "presence": 1, "chorus": 1}.get(signal.family)
    fits = np.isfinite(value) if continuous else value == int(value) and value >= -1
    if not fits or (most is not None and not 0 <= value <= most):
        raise InvalidIntervention(f"{signal.name}={text!r}: not a value of this signal")
    return value
