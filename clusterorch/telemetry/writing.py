"""Here lives the writing of logs as people have them: files by host and stream, under three protocols.

* complete: every line, every sample.
* covered: a stream of unknown verbosity may leave its informational lines out.
* excerpt: one file with the first line of each kind, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from clusterorch.causal.slices import MOVING
from clusterorch.errors import OutputExists
from clusterorch.models import Model
from clusterorch.models.spec import PHASES, STREAMS
from clusterorch.probability.noise import stream_key
from clusterorch.telemetry.events import Event
from clusterorch.telemetry.patterns import Formats, load_formats
from clusterorch.telemetry.printing import Line, Printer
from clusterorch.telemetry.sheets import counter_lines, sheet

PROTOCOLS = ("complete", "covered", "excerpt")
_VERBOSITY, _STRANGER, _DMESG = 4, 5, 11  # entities of the noise
_DMESG_SHARE = 0.5  # of runs whose kernel lines come from `dmesg -T` and not from the system log
_SYSLOG = re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} kernel: ", re.MULTILINE)


def write_logs(
    model: Model, values: np.ndarray, published: Mapping[str, np.ndarray], events: Sequence[Event],
    folder: str | Path, *, protocol: str = "complete", seed: int = 0, formats: Formats | None = None,
    skew: float = 0.0, zones: bool = False, force: bool = False, pasted: bool = False,
) -> list[Path]:  # fmt: skip
    """Write the logs of an episode; gives the files, sorted.

    Args:
        model: whose signals the values and events are.
        values: [T, width] flat values.
        published: `phase` and `job_class`, [T] each.
        events: of the episode, in order of time.
        folder: `HOST/STREAM.log` and `HOST/smi.csv` go below it, or `excerpt.log`.
        protocol: one of `PROTOCOLS`.
        seed: of what the writing itself decides: rows, numbers of lines, verbosity.
        formats: rows with templates; those that the model names if None.
        skew: most seconds by which the clock of a host is wrong.
        zones: whether hosts keep the time of different zones.
        force: replace files.
        pasted: the events are those that somebody chose for an excerpt, which then has all of them.

    Raises:
        OutputExists: a file is there already, and not `force`.
    """
    key = stream_key(seed, "write", 0, 0)
    formats = formats or load_formats(model.format_files)
    printer = Printer(model, formats, key, skew=skew, zones=zones, pasted=pasted)
    printer.settle(values)
    lines = _lines(printer, model, values, published, events, skew, pasted=pasted)
    chosen = next((p for p in model.spec.protocol if p.name == protocol), None)
    if protocol == "excerpt":
        stray = chosen.entity_contamination if chosen else 0.0
        told = [line for line in lines if line.kind[0] not in printer.signals or printer.signals[line.kind[0]].lines]
        mine = [line for line in told if pasted and line.kind[0] in printer.signals]
        shown = _excerpt(printer, [line for line in told if not pasted or line.kind[0] not in printer.signals], stray)
        shown = sorted([*mine, *shown], key=lambda line: line.time)
        files = {"excerpt.log": [line.text for line in shown if not line.file]}
        # A dump is passed on as it lies, with those that were made with it.
        dumps = {(line.file or "").split("/")[0]: line.kind for line in shown if line.file}
        files |= _by_file(x for x in told if x.file and dumps.get(x.file.split("/")[0]) == x.kind)
    else:
        quiet = _quiet(printer, chosen.info_share if chosen else 1.0) if protocol == "covered" else set()
        told = [line for line in lines if line.verbosity != "info" or line.stream not in quiet]
        files = _by_file(_as_dmesg(printer, told) if printer.uniform(0, _DMESG, 0) < _DMESG_SHARE else told)
        for host, rows in sheet(printer, model, values).items():
            files[f"{host}/smi.csv"] = rows
    return _write(Path(folder), files, force=force)


def _lines(
    printer: Printer, model: Model, values: np.ndarray, published: Mapping[str, np.ndarray], events: Sequence[Event],
    skew: float, *, pasted: bool,
) -> list[Line]:  # fmt: skip
    """Every line, in order of time."""
    dt, count = model.spec.model.slice_seconds, len(values)
    bounds = np.searchsorted([e.time for e in events], np.arange(count + 1) * dt).tolist()
    done = (published["phase"] == PHASES.index("step")) & (published["job_class"] == MOVING)
    steps = np.cumsum(done).tolist()
    lines = list(counter_lines(printer, model, values, spread=not pasted))
    before = -1
    for t, (first, last) in enumerate(pairwise(bounds)):
        phase = int(published["phase"][t])
        if phase != before:
            lines += printer.phase(phase, t * dt, steps[t])
        before = phase
        told = _first_speaker_first(model, events[first:last], t * dt) if skew > 0.0 else events[first:last]
        said = list(printer.lines(told, values[t], steps[t]))
        lines += said
        lines += printer.phase_again(said, phase, steps[t])
        lines += printer.samples(values[t], (t + 0.5) * dt, steps[t])
        lines += printer.chatter(t, t * dt, steps[t])
    return sorted(lines, key=lambda line: line.time)


def _first_speaker_first(model: Model, events: Sequence[Event], start: float) -> list[Event]:
    """The events of a slice, whoever speaks first in its first half and the others in its second.

    Clocks that are wrong by hundredths of a second would else tell another order, or another slice for half of them.
    """
    dt, moved = model.spec.model.slice_seconds, list(events)
    for signal in model.spec.signal:
        speaker = next((e for e in events if e.kind == signal.name and signal.family == "first_speaker"), None)
        if speaker is None:
            continue
        kinds = {x.name for x in model.spec.signal if (x.stream, x.entity) == (signal.stream, signal.entity)}
        for i, event in enumerate(moved):
            if event.kind in kinds:
                late = 0.5 * dt if event.entity != speaker.entity else 0.0
                moved[i] = replace(event, time=start + late + 0.45 * (event.time - start))
    return sorted(moved, key=lambda event: event.time)


def _quiet(printer: Printer, info_share: float) -> set[str]:
    """Streams whose verbosity leaves informational lines out."""
    draws = {stream: printer.uniform(0, _VERBOSITY, i) for i, stream in enumerate(STREAMS)}
    return {stream for stream, u in draws.items() if u >= info_share}


def _excerpt(printer: Printer, lines: Sequence[Line], stray: float) -> list[Line]:
    """The first line of each kind; some are of another host than the one that first printed it."""
    first: dict[tuple[str, str], Line] = {}
    of_kind: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        first.setdefault(line.kind, line)
        of_kind.setdefault(line.kind, []).append(line)
    chosen = []
    for number, (kind, line) in enumerate(first.items()):
        others = of_kind[kind]
        if printer.uniform(number, _STRANGER, 0) < stray:
            line = others[int(printer.uniform(number, _STRANGER, 1) * len(others))]
        chosen.append(line)
    return sorted(chosen, key=lambda line: line.time)


def _as_dmesg(printer: Printer, lines: Sequence[Line]) -> Iterator[Line]:
    """Kernel lines as people paste them: the prompt says whose they are, the lines only when."""
    seen: set[str] = set()
    for line in lines:
        if line.stream != "kernel" or not _SYSLOG.match(line.text):
            yield line
            continue
        if line.host not in seen:
            seen.add(line.host)
            yield line._replace(text=f"root@{line.host}:~# dmesg -T")
        stamp = printer.clock(line.host, line.time)["ctime"]
        yield line._replace(text=_SYSLOG.sub(f"[{stamp}] ", line.text))


def _by_file(lines: object) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for line in lines:  # type: ignore[attr-defined]
        files.setdefault(f"{line.host}/{line.file or f'{line.stream}.log'}", []).append(line.text)
    return files


def _write(folder: Path, files: Mapping[str, list[str]], *, force: bool) -> list[Path]:
    paths = {folder / name: rows for name, rows in files.items()}
    there = [path for path in paths if path.exists()]
    if there and not force:
        raise OutputExists(f"{there[0]} exists; give another folder, or force")
    for path, rows in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return sorted(paths)
