"""Here lives the printing of samples: nvidia-smi's CSV and the counters of network devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from clusterorch.models import Model
from clusterorch.models.spec import Signal
from clusterorch.telemetry.printing import Line, Printer
from clusterorch.telemetry.rows import Column, Counter

_ABSENT = "[N/A]"
_TOTAL_MIB = 81_559  # an 80 GB device
_WIDTH, _NARROW = "16", "8"  # lanes of a slot, and of one that trained down
_HIGHEST = 100_000  # by which a counter that stands high is above the least that counts as high
_CELL, _NAMES = 6, 10  # entities of the noise: which number, which of a column's names
_UNITS = {"W": " [W]", "MHz": " [MHz]"}
_OPPOSITE = {"Active": "Not Active", "Yes": "No", "1": "0"}


class _Printed(NamedTuple):
    """A column of the sheet: the signal that it shows, and what stands above it."""

    signal: int
    header: str
    row: Column


def sheet(printer: Printer, model: Model, values: np.ndarray) -> dict[str, list[str]]:
    """Lines of the CSV of each host: a header, then a row for every delivered sample of every GPU.  [T, width]"""
    columns = _columns(printer, model)
    if not columns:
        return {}
    layout, dt = model.layout, model.spec.model.slice_seconds
    identity = _identity(printer)
    header = ["timestamp", *identity, *(column.header for column in columns)]
    rows: dict[str, list[str]] = {}
    risen = np.zeros((layout.count("gpu"), len(columns)), dtype=np.int64)
    for node in range(layout.nodes):
        host = printer.naming.host(node)
        # The prompt is what says whose devices these are.
        rows[host] = [f"user@{host}:~$ nvidia-smi --query-gpu=... --format=csv -l {dt:.0f}", ", ".join(header)]
    for t, flat in enumerate(values):
        for gpu in range(layout.count("gpu")):
            node, place = divmod(gpu, layout.gpus)
            given = [float(flat[model.network.slice_of(column.signal)][gpu]) for column in columns]
            if np.isnan(given).all():
                continue
            cells = [
                cell
                for i, (column, x) in enumerate(zip(columns, given, strict=True))
                for cell in _cells(printer, model, column, x, (t, gpu), risen[gpu : gpu + 1, i])
            ]
            name = [str(place), printer.naming.address(place) + ".0"][: len(identity)]
            stamp = printer.clock(printer.naming.host(node), t * dt)["smi"]
            rows[printer.naming.host(node)].append(", ".join([stamp, *name, *cells]))
    return {host: lines for host, lines in rows.items() if len(lines) > 2}


def _identity(printer: Printer) -> list[str]:
    roles = {c.role: c.columns[0] for c in reversed(printer.formats.column.values()) if c.role in ("index", "pci")}
    return [roles[role] for role in ("index", "pci") if role in roles]


def _columns(printer: Printer, model: Model) -> list[_Printed]:
    """Columns for each signal of a GPU that the formats can read from a sheet: as many as its values need."""
    rows: dict[str, list[Column]] = {}
    for column in printer.formats.column.values():
        name = column.signal or printer.measured(column.measure)
        signal = printer.signals.get(name or "")
        if signal is not None and not signal.lines and signal.entity == "gpu" and _name(printer, column) is not None:
            rows.setdefault(signal.name, []).append(column)
    return [
        _Printed(model.network.signal_index(name), _header(printer, name, column), column)
        for name, columns in rows.items()
        for column in _needed(columns)
    ]


def _needed(columns: Sequence[Column]) -> list[Column]:
    """One column, or those that together have all values."""
    first = columns[0]
    if not first.values:
        return [first]
    needed, said = [], set()
    for column in columns:
        if column.values and not set(column.values) <= said:
            needed.append(column)
            said |= set(column.values)
    return needed


def _name(printer: Printer, column: Column) -> str | None:
    """What the column is called: nvidia-smi's name, in one of its spellings, or else DCGM's."""
    plain = [name for name in column.columns if "/" not in name and name != "*"]
    own = [name for name in plain if not name.startswith("DCGM_")]
    # Names changed over the versions of the driver; one file keeps to one of them.
    return own[int(printer.uniform(0, _NAMES, 0) * len(own))] if own else next(iter(plain), None)


def _header(printer: Printer, signal: str, column: Column) -> str:
    whole = [names[0] for names in (column.of_column, column.below) if names]
    return ", ".join([f"{_name(printer, column)}{_UNITS.get(printer.signals[signal].unit, '')}", *whole])


def _cells(
    printer: Printer, model: Model, column: _Printed, x: float, at: tuple[int, int], risen: np.ndarray
) -> list[str]:
    """The cell of one value, and of the whole it is a part of."""
    row, signal = column.row, model.spec.signal[column.signal]
    if np.isnan(x) or np.isinf(x):
        return [_ABSENT] * (2 if row.of_column or row.below else 1)
    u = printer.uniform(at[0], _CELL, at[1] * len(model.spec.signal) + column.signal)
    if row.of_column:
        return [str(round(max(0.0, x) * _TOTAL_MIB)), str(_TOTAL_MIB)]
    if row.below:
        return [_NARROW if x > 0.0 else _WIDTH, _WIDTH]
    if row.delta:
        low, high = printer.count_range(int(x))
        risen[0] += low + int(u * (high - low + 1))
        return [str(risen[0])]
    if signal.family == "categorical":
        return [_word(row, signal.values[int(x)], u)]
    if row.values:
        word = str(next(iter(row.values.values()))[0])
        return [word if x > 0.0 else _OPPOSITE.get(word, _ABSENT)]
    number = (signal.baseline or 1.0) * float(np.exp(x)) if signal.family == "log_ratio" else x
    shown = (number - row.offset) / row.scale
    return [f"{shown:.0f}" if signal.unit == "C" else f"{shown:.2f}"]


def _word(row: Column, value: str, u: float) -> str:
    """A class as a column prints it; one that the column does not know is its rest."""
    if row.bits:
        return f"0x{row.bits.get(value, 0):016x}"
    if row.bins:
        low, high = (int(edge) for edge in row.bins[value])
        return str(low + int(u * (high - low)))
    return str(row.values.get(value, row.values.get(row.rest or "", [_ABSENT]))[0])


def counter_lines(printer: Printer, model: Model, values: np.ndarray, *, spread: bool = True) -> Iterator[Line]:
    """Counters of every link, for the slices in which they rose or were seen to stand high.  [T, width]

    Either at any time of these, or, not spread, all at the second in their middle.
    """
    printed: set[str] = set()
    for counter in printer.formats.counter.values():
        for name in (counter.signal, counter.standing):
            signal = printer.signals.get(name or "")
            if counter.template is None or signal is None or signal.entity != "link" or signal.name in printed:
                continue
            printed.add(signal.name)
            yield from _of_counter(printer, model, values, counter, signal, spread=spread)


def _of_counter(
    printer: Printer, model: Model, values: np.ndarray, counter: Counter, signal: Signal, *, spread: bool
) -> Iterator[Line]:
    dt, stands = model.spec.model.slice_seconds, signal.name == counter.standing
    s = model.network.signal_index(signal.name)
    block, stood = values[:, model.network.slice_of(s)], np.zeros(model.layout.count("link"), dtype=np.int64)
    for t, link in zip(*np.nonzero(np.nan_to_num(block) > 0.0), strict=True):
        u = printer.uniform(int(t), _CELL, int(link) * len(model.spec.signal) + s)
        low, high = printer.count_range(int(block[t, link])) if signal.family == "count" else (1, 1)
        before = int(stood[link])
        stood[link] += low + int(u * (high - low + 1))
        time = (int(t) + u) * dt if spread else (int(t) + 0.5) * dt // 1.0
        fields = printer.naming.fields("link", int(link), time, 0)
        fields |= printer.clock(fields["host"], time)
        header = f"{fields['stamp'].replace(',', '.')} # {fields['host']} {fields['device']}/ports/1/counters"
        high_value = counter.standing_from + int(u * _HIGHEST)
        pair = (high_value, high_value) if stands else (before, int(stood[link]))
        text = counter.template.format(before=pair[0], after=pair[1])
        yield Line(time, fields["host"], signal.stream, f"{header}\n{text}", (signal.name, ""), signal.verbosity)
