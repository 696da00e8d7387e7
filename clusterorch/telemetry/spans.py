"""Here live the relations that take a stretch of lines: what some began and did not end, and what does not go away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from clusterorch.telemetry.readings import JOB, Reading, Sample
from clusterorch.telemetry.rows import Operator


def unfinished(operator: Operator, samples: Iterable[Sample]) -> list[Reading]:
    """That some members ended their part of a work in rounds and others did not.

    A sample names its member in one of the fields of `compare`; one with the field `ended` is an end, any other a
    beginning.  Only the last round counts, and only if as many ended as did not: a log that is cut in the middle of a
    round shows most of it open.
    """
    folders: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if _member(operator, sample):
            folders[sample.base.file.rpartition("/")[0]].append(sample)
    readings = []
    for mine in folders.values():
        begun: set[str] = set()
        ended: set[str] = set()
        for sample in sorted(mine, key=lambda sample: sample.base.order):
            who = _member(operator, sample)
            if "ended" in sample.fields:
                ended.add(who)
            elif who in ended:  # the member is in its next round
                begun, ended = {who}, set()
            else:
                begun.add(who)
        missing = begun - ended
        if missing and len(ended) >= len(missing):
            last = max(mine, key=lambda sample: sample.base.order).base
            names = ", ".join(sorted(missing, key=lambda name: (len(name), name))[:8])
            text = f"{last.text[:160]} (begun and not ended: {names})"
            readings.append(
                last._replace(signal=operator.signal, stream=operator.stream, value=1, entity=JOB, text=text)
            )
    return readings


def goes_on(operator: Operator, samples: Iterable[Sample], readings: Sequence[Reading]) -> list[Reading]:
    """That a work of one member advances across the line with which its peers give up.

    `after` is the signal of those who give up; what the work is called and how much of it there is say that it is one
    and the same before and after.
    """
    gave_up: dict[str, list[int]] = defaultdict(list)
    for reading in readings:
        if reading.signal == operator.after:
            gave_up[reading.file].append(reading.order)
    works: dict[tuple, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.base.file in gave_up:
            works[sample.base.file, sample.fields.get("work"), sample.fields.get("all")].append(sample)
    found = []
    for (file, *_), mine in works.items():
        first = min(gave_up[file])
        before = max((sample.number for sample in mine if sample.base.order < first), default=None)
        after = [sample for sample in mine if sample.base.order > first and before is not None]
        found += [
            sample.base._replace(signal=operator.signal, stream=operator.stream, value=1)
            for sample in after[-1:]
            if sample.number > before
        ]
    return found


def taken_back(operator: Operator, samples: Iterable[Sample], readings: Sequence[Reading]) -> list[Reading]:
    """The readings that a program takes back a few lines later: it caught what it said, and goes on.

    `over` is their signal and `compare` its values; each sample takes back the last one before it in its file.
    """
    said: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.signal == operator.over and reading.value in operator.compare:
            said[reading.file].append(reading)
    gone = []
    for sample in samples:
        before = [r for r in said[sample.base.file] if 0 <= sample.base.order - r.order <= operator.within]
        gone += before[-1:]
    return gone


def _member(operator: Operator, sample: Sample) -> str:
    return next((sample.fields[name] for name in operator.compare if sample.fields.get(name)), "")


def stays(operator: Operator, readings: Sequence[Reading]) -> list[Reading]:
    """That a signal ends with the same bad value time after time, and no other comes after.

    `over` is the signal, `compare` its bad values (any, if none is given), `least` how many in a row; a reading of
    `breaks` ends a row.  A file is a series of its own.
    """
    series: dict[tuple, list[Reading]] = defaultdict(list)
    breaks: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.signal == operator.over:
            series[reading.file, reading.entity].append(reading)
        elif reading.signal == operator.breaks:
            breaks[reading.file].append(reading)
    found = []
    for (file, _), mine in series.items():
        run: list[Reading] = []
        for reading in sorted([*mine, *breaks[file]], key=lambda reading: reading.order):
            bad = reading.signal == operator.over and (not operator.compare or reading.value in operator.compare)
            run = [*run, reading] if bad else []
        if len(run) >= operator.least:
            at = run[int(operator.least) - 1]
            found.append(at._replace(signal=operator.signal, stream=operator.stream, value=1, pattern=operator.name))
    return found
