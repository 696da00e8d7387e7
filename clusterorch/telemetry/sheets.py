"""Here lives the printing of samples: nvidia-smi's CSV and the counters of network devices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clusterorch.models import Model
from clusterorch.telemetry.naming import START
from clusterorch.telemetry.printing import Line, Printer
from clusterorch.telemetry.rows import Column
from clusterorch.telemetry.timestamps import time_fields

_ABSENT = "[N/A]"
_TOTAL_MIB = 81_559  # an 80 GB device
_CELL = 6  # entity of the noise
_HEADER_UNITS = {"W": " [W]", "MHz": " [MHz]"}


def sheet(printer: Printer, model: Model, values: np.ndarray) -> dict[str, list[str]]:
    """Lines of the CSV of each host: a header, then a row for every delivered sample of every GPU.  [T, width]"""
    columns = _columns(printer, model)
    if not columns:
        return {}
    layout, dt = model.layout, model.spec.model.slice_seconds
    header = ["timestamp", *_identity(printer), *(text for _, text, _ in columns)]
    rows: dict[str, list[str]] = {}
    risen = np.zeros((layout.count("gpu"), len(columns)), dtype=np.int64)
    for node in range(layout.nodes):
        host = printer.naming.host(node)
        # The prompt is what says whose devices these are.
        rows[host] = [f"user@{host}:~$ nvidia-smi --query-gpu=... --format=csv -l {dt:.0f}", ", ".join(header)]
    for t, flat in enumerate(values):
        stamp = time_fields(START + t * dt)["smi"]
        for gpu in range(layout.count("gpu")):
            node, place = divmod(gpu, layout.gpus)
            given = [float(flat[model.network.slice_of(s)][gpu]) for s, _, _ in columns]
            if np.isnan(given).all():
                continue
            cells = [
                _cell(printer, model, column, s, x, (t, gpu), risen[gpu : gpu + 1, i])
                for i, ((s, _, column), x) in enumerate(zip(columns, given, strict=True))
            ]
            name = [str(place), printer.naming.address(place) + ".0"][: len(_identity(printer))]
            rows[printer.naming.host(node)].append(", ".join([stamp, *name, *(c for cell in cells for c in cell)]))
    return {host: lines for host, lines in rows.items() if len(lines) > 2}


def _identity(printer: Printer) -> list[str]:
    roles = {c.role: c.columns[0] for c in reversed(printer.formats.column.values()) if c.role in ("index", "pci")}
    return [roles[role] for role in ("index", "pci") if role in roles]


def _columns(printer: Printer, model: Model) -> list[tuple[int, str, Column]]:
    """(signal, header, row) of one column for each signal of a GPU that the formats can read from a sheet."""
    chosen: dict[str, Column] = {}
    for column in printer.formats.column.values():
        name = column.signal or printer.measured(column.measure)
        signal = printer.signals.get(name or "")
        if signal is None or signal.entity != "gpu" or column.columns == ["*"]:
            continue
        if name not in chosen or (column.bits and not chosen[name].bits):
            chosen[name] = column
    found = []
    for name, column in chosen.items():
        unit = _HEADER_UNITS.get(printer.signals[name].unit, "")
        header = f"{column.columns[0]}{unit}" + (f", {column.of_column[0]}" if column.of_column else "")
        found.append((model.network.signal_index(name), header, column))
    return found


def _cell(
    printer: Printer, model: Model, column: Column, s: int, x: float, at: tuple[int, int], risen: np.ndarray
) -> list[str]:
    """The cell of one value, and of the whole it is a part of."""
    signal = model.spec.signal[s]
    if np.isnan(x) or np.isinf(x):
        return [_ABSENT] * (2 if column.of_column else 1)
    u = printer.uniform(at[0], _CELL, at[1] * len(model.spec.signal) + s)
    if column.of_column:
        return [str(round(max(0.0, x) * _TOTAL_MIB)), str(_TOTAL_MIB)]
    if column.delta:
        low, high = printer.count_range(int(x))
        risen[0] += low + int(u * (high - low + 1))
        return [str(risen[0])]
    if signal.family == "categorical":
        value = signal.values[int(x)]
        if column.bits:
            return [f"0x{column.bits.get(value, 0):016x}"]
        if column.bins:
            low, high = (int(edge) for edge in column.bins[value])
            return [str(low + int(u * (high - low)))]
        return [str(column.values[value][0])]
    number = (signal.baseline or 1.0) * float(np.exp(x)) if signal.family == "log_ratio" else x
    return [f"{number / column.scale:.0f}" if signal.unit == "C" else f"{number / column.scale:.2f}"]


def counter_lines(printer: Printer, model: Model, values: np.ndarray) -> Iterator[Line]:
    """Pairs of counters, for every link and slice in which they rose.  [T, width]"""
    dt = model.spec.model.slice_seconds
    for counter in printer.formats.counter.values():
        signal = printer.signals.get(counter.signal or "")
        if counter.template is None or signal is None or signal.entity != "link":
            continue
        s = model.network.signal_index(signal.name)
        block, stood = values[:, model.network.slice_of(s)], np.zeros(model.layout.count("link"), dtype=np.int64)
        for t, link in zip(*np.nonzero(np.nan_to_num(block) > 0.0), strict=True):
            u = printer.uniform(int(t), _CELL, int(link) * len(model.spec.signal) + s)
            low, high = printer.count_range(int(block[t, link])) if signal.family == "count" else (1, 1)
            before = int(stood[link])
            stood[link] += low + int(u * (high - low + 1))
            time = (int(t) + u) * dt
            fields = printer.naming.fields("link", int(link), time, 0)
            header = f"{fields['stamp'].replace(',', '.')} # {fields['host']} {fields['device']}/ports/1/counters"
            text = counter.template.format(before=before, after=int(stood[link]))
            kind = (signal.name, "")
            yield Line(time, fields["host"], signal.stream, f"{header}\n{text}", kind, signal.verbosity)
