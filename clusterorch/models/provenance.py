"""Here lives the account of numbers: where each number of a model file comes from.

An origin is a `source` that cites a key of `[sources]`, `derived` that cites one and says how the number
follows from it, or the word `assumed` with a reason. A number
takes its own (`{ value = ..., source = ... }`), else that of the nearest table around it; an entry
of a list of tables, such as a rule of a signal, has the table that holds the list around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from clusterorch.errors import InvalidModel

ORIGINS = ("source", "derived", "assumed")
CITING = ("source", "derived")  # these begin with a key of `[sources]`
NO_ORIGIN_NEEDED = {"model.version"}  # a label, not a quantity
_UNITS = {
    "rate_per_1000_node_days": "/1000 node-days", "recovers_per_hour": "/h", "incidents_per_hour": "/h",
    "heals": "s", "seconds": "s", "geometric": "s", "erlang": "stages, s", "lognormal": "s, log sd",
    "delay": "slices", "max_delay": "slices",
}  # fmt: skip
_IN_SIGNAL_UNITS = {"mean", "sd", "baseline"}
_LOGARITHMIC = {"mean", "sd"}

Status = Literal["sourced", "derived", "assumed"]
_STATUS: dict[str, Status] = {"source": "sourced", "derived": "derived", "assumed": "assumed"}
Table = Mapping[str, Any]
Value = float | tuple[Any, ...]


class Origin(NamedTuple):
    """One quantity of a model file; a list, such as a row of probabilities, is one quantity."""

    key: str  # dotted: edge(link_down>transport_gave_up).delay.timer
    value: Value
    unit_hint: str  # "" if it has no unit, or none that the key tells
    text: str  # the citation or the reason
    status: Status

    @property
    def table(self) -> str:
        """The top-level table the quantity stands in."""
        return re.split(r"[.(]", self.key, maxsplit=1)[0]


class Summary(NamedTuple):
    """How many quantities a model states: published, following from something published, or ours."""

    quantities: int
    sourced: int
    derived: int
    assumed: int

    @property
    def assumed_share(self) -> float:
        """Share that is nobody's but ours; 0 for a model without numbers."""
        return self.assumed / self.quantities if self.quantities else 0.0

    def __str__(self) -> str:
        parts = ", ".join(
            f"{count} {status} ({100.0 * count / max(self.quantities, 1):.0f} %)"
            for status, count in zip(_STATUS.values(), self[1:], strict=True)
        )
        return f"{self.quantities} quantities: {parts}"


class _Found(NamedTuple):
    key: str
    value: Value
    unit: str
    origin: tuple[str, str] | None  # (source or assumed, text)


def table_key(parent: str, name: str, table: Any, index: int) -> str:
    """How a table inside a list of tables is named in messages.

    >>> table_key("", "edge", {"from": "a", "to": "b"}, 3), table_key("signal(x)", "when", {}, 0)
    ('edge(a>b)', 'signal(x).when[0]')
    """
    if isinstance(table, Mapping) and "from" in table:
        own = f"{name}({table['from']}>{table.get('to')})"
    elif isinstance(table, Mapping) and "name" in table:
        own = f"{name}({table['name']})"
    else:
        own = f"{name}[{index}]"
    return f"{parent}.{own}" if parent else own


def numbers(raw: Table, file: str = "model") -> list[Origin]:
    """Every quantity of the merged raw tables with its origin, in the order of the file.

    Raises:
        InvalidModel: a number has no origin, a table has two, or a source cites an unknown key.
    """
    _check_origins(raw, file)
    return [_with_origin(found, file) for found in _walk(raw)]


def check_overlay(overlay: Table, model: Table, file: str) -> None:
    """Hold an overlay to its own account: what it changes may not borrow the origin of what it replaces.

    Args:
        overlay: raw tables of the overlay alone.
        model: raw tables of the model with the overlay merged, whose `[sources]` count.
        file: the overlay, as the user knows it.

    Raises:
        InvalidModel: as `numbers`.
    """
    numbers({**overlay, "sources": {**model.get("sources", {}), **overlay.get("sources", {})}}, file)


def summary(origins: Iterable[Origin]) -> Summary:
    """Count quantities by status."""
    statuses = [origin.status for origin in origins]
    return Summary(len(statuses), *(statuses.count(status) for status in _STATUS.values()))


def uncited(raw: Table) -> list[str]:
    """Keys of `[sources]` that no text of the file mentions."""
    texts = " ".join(text for _, table in _tables(raw) for name in ORIGINS if (text := table.get(name)))
    mentioned = set(re.findall(r"\w+", texts))
    return [key for key in raw.get("sources", {}) if key not in mentioned]


def _with_origin(found: _Found, file: str) -> Origin:
    if found.origin is None:
        raise InvalidModel(
            file, found.key, f"the number {found.value} has no origin",
            'add source = "key where", derived = "key how" or assumed = "reason" to it or to its table',
        )  # fmt: skip
    kind, text = found.origin
    return Origin(found.key, found.value, found.unit, text, _STATUS[kind])


def _check_origins(raw: Table, file: str) -> None:
    known = raw.get("sources", {})
    for key, table in _tables(raw):
        here = key or "file"
        given = [name for name in ORIGINS if name in table]
        if len(given) > 1:
            raise InvalidModel(file, here, f"{' and '.join(given)} are given", "keep one of them")
        if given and not key:
            raise InvalidModel(
                file, here, f"{given[0]} stands outside every table", "move it to the tables it speaks of"
            )
        for name in given:
            text = table[name]
            if not isinstance(text, str) or not text.strip():
                fix = "say where the number comes from"
                raise InvalidModel(file, f"{here}.{name}", "the text is empty", fix)
        for name in (name for name in CITING if name in table):
            cited = (re.match(r"\w+", table[name]) or [""])[0]
            if cited not in known:
                raise InvalidModel(
                    file, f"{here}.{name}", f"cites {cited!r}, which is not a key of [sources]",
                    "begin with one of its keys, or add the key",
                )  # fmt: skip


def _tables(value: Any, key: str = "") -> Iterator[tuple[str, Table]]:
    """Every table with its key, outermost first, but for `[sources]`."""
    if not isinstance(value, Mapping):
        return
    yield key, value
    for name, part in value.items():
        if not key and name == "sources":
            continue
        if isinstance(part, Mapping):
            yield from _tables(part, f"{key}.{name}" if key else name)
        elif isinstance(part, list):
            for index, entry in enumerate(part):
                yield from _tables(entry, table_key(key, name, entry, index))


def _walk(raw: Table) -> Iterator[_Found]:
    for name, part in raw.items():
        if name != "sources":
            yield from _in(name, name, part, None, "")


def _in(key: str, name: str, value: Any, around: tuple[str, str] | None, unit: str) -> Iterator[_Found]:
    """Numbers in a value; `around` is the nearest origin so far, `unit` that of the signal around it."""
    if isinstance(value, Mapping):
        own = next(((kind, value[kind]) for kind in ORIGINS if kind in value), around)
        if "value" in value and set(value) <= {"value", *ORIGINS}:
            yield from _in(key, name, value["value"], own, unit)
            return
        unit = _signal_unit(value) if "family" in value else unit
        for part_name, part in value.items():
            if isinstance(part, list) and any(isinstance(entry, Mapping) for entry in part):
                for index, entry in enumerate(part):
                    yield from _in(table_key(key, part_name, entry, index), part_name, entry, own, unit)
            else:
                yield from _in(f"{key}.{part_name}", part_name, part, own, unit)
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for index, entry in enumerate(value):
            yield from _in(table_key("", name, entry, index), name, entry, around, unit)
    elif _is_quantity(value) and key not in NO_ORIGIN_NEEDED:
        yield _Found(key, _frozen(value), _unit(name, unit), around)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_quantity(entry) for entry in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(entry) for entry in value) if isinstance(value, list) else value


def _signal_unit(signal: Table) -> str:
    unit = signal.get("unit", "")
    return f"log {unit}".strip() if signal["family"] == "log_ratio" else unit


def _unit(name: str, signal_unit: str) -> str:
    if name in _UNITS:
        return _UNITS[name]
    for suffix, unit in (("_seconds", "s"), ("_slices", "slices")):
        if name.endswith(suffix):
            return unit
    if name in _IN_SIGNAL_UNITS and signal_unit:
        # The logarithm of a ratio has no unit; its baseline has that of the signal.
        logarithmic = signal_unit.startswith("log")
        if logarithmic and name in _LOGARITHMIC:
            return "log ratio"
        return signal_unit.removeprefix("log").strip()
    return ""
