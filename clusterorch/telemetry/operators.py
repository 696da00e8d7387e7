"""Here live the relations between lines: what no single line says."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from clusterorch.telemetry import desync
from clusterorch.telemetry.dumps import Dump
from clusterorch.telemetry.levels import SHARE, at_beginning, under_load
from clusterorch.telemetry.readings import JOB, PhaseMark, Reading, Sample
from clusterorch.telemetry.rows import Operator
from clusterorch.telemetry.versions import conflict

_SELDOM_SHARED = 100  # a count that two communicators of a job seldom have in common
_FEWEST_STEPS = 3  # from one value of a series to the next
# From the lower quartile of steps, which no spike reaches, to the standard deviation of the values.
_SPREAD_OF_STEPS = 1.0 / (0.3186 * math.sqrt(2.0))
_FEWEST_OF_ONE = 3  # what comes twice may do so by chance


def related(
    operator: Operator,
    samples: Sequence[Sample],
    phases: Sequence[PhaseMark],
    complaints: Sequence[Reading],
    dumps: Sequence[Dump],
    host_of: Callable[[str], str | None],
) -> list[Reading]:
    """The readings of a relation; none for a kind that is worked out elsewhere.

    Args:
        operator: the row.
        samples: what was measured under its measure.
        phases: marks of phases, in order.
        complaints: readings of those who complain, in order.
        dumps: the Flight Recorder dumps of the case.
        host_of: the host that the name of a file tells.
    """
    if operator.kind == "ratio_to_own_baseline":
        return ratio_to_own_baseline(operator, samples, phases)
    if operator.kind == "differs":
        return differs(operator, samples)
    if operator.kind == "first_of":
        return first_of(operator, complaints)
    if operator.kind == "one_of_many":
        return one_of_many(operator, samples)
    if operator.kind == "conflict":
        return conflict(operator, samples, host_of)
    if operator.kind in desync.RELATIONS:
        return desync.recorded(operator, dumps)
    return []


def ratio_to_own_baseline(operator: Operator, samples: Sequence[Sample], phases: Sequence[PhaseMark]) -> list[Reading]:
    """Log of each value over a level of its own: that at which its file began, or that under load.

    The samples of a beginning, their first quarter, give no readings.  Where nothing tells load from rest, nothing is
    said.  A first step after a start or a load is slow by itself and left out, as is a value that is not positive (a
    feature that is off prints zero).
    """
    readings: list[Reading] = []
    settling = sorted((mark.file, mark.order) for mark in phases if mark.phase in operator.settles_after)
    for (file, *_), group in _grouped(operator, samples):
        values = _settled(operator, group, [order for name, order in settling if name == file])
        if len(values) < 2:
            continue
        series = values
        if operator.level == "load":
            if (level := under_load(values, phases, operator.least)) is None:
                continue
        else:
            level = at_beginning([sample.number for sample in values])
            values = values[max(1, len(values) // SHARE) :]
        unit = _calm(operator, [math.log(sample.number) for sample in series])
        readings += [
            sample.base._replace(
                signal=operator.signal, stream=operator.stream, value=unit * math.log(sample.number / level)
            )
            for sample in values
        ]
    return readings


def _calm(operator: Operator, logs: list[float]) -> float:
    """By what the ratios of a series shrink that jumps about more than a calm one: its own steps are the measure."""
    steps = sorted(abs(after - before) for before, after in pairwise(logs))
    if operator.scatter is None or len(steps) < _FEWEST_STEPS:
        return 1.0
    own = steps[(len(steps) - 1) // 4] * _SPREAD_OF_STEPS
    return min(1.0, operator.scatter / own) if own > 0 else 1.0


def _grouped(operator: Operator, samples: Iterable[Sample]) -> Iterable[tuple[tuple, list[Sample]]]:
    groups: dict[tuple, list[Sample]] = defaultdict(list)
    for sample in samples:
        if 0 < sample.number < math.inf:
            aligned = (sample.fields.get(name, "") for name in operator.align)
            groups[sample.base.file, sample.base.entity, *aligned].append(sample)
    return groups.items()


def _settled(operator: Operator, group: list[Sample], marks: list[int]) -> list[Sample]:
    if not operator.settles_after:
        return group
    kept, last, waiting = [], -1, list(marks)
    for sample in group:
        fresh = sample.fields.get("step") in ("0", "1")
        while waiting and waiting[0] < sample.base.order:
            fresh = fresh or waiting[0] > last
            waiting.pop(0)
        last = sample.base.order
        if not fresh:
            kept.append(sample)
    return kept


def differs(operator: Operator, samples: Iterable[Sample]) -> list[Reading]:
    """Members that do something else than the others at the same point.

    Samples are aligned by the fields of `align`, all of which must be known.  A field that no sample of a file has is
    one that its dialect does not print; the others then have to be large numbers, as two communicators that count
    apart seldom stand at the same one.  Nothing is said if a member comes twice (two communicators count alike), if
    members are missing, or if no small minority differs.
    """
    points: dict[tuple[str, ...], list[Sample]] = defaultdict(list)
    samples = list(samples)
    printed = {(sample.base.file, name) for sample in samples for name in operator.align if sample.fields.get(name)}
    for sample in samples:
        names = [name for name in operator.align if (sample.base.file, name) in printed]
        aligned = [sample.fields.get(name, "") for name in names]
        whole_key = len(names) == len(operator.align)
        if all(aligned) and (whole_key or all(_number((word,)) >= _SELDOM_SHARED for word in aligned)):
            points[sample.base.file, *aligned].append(sample)
    readings = []
    for point in points.values():
        members = Counter(sample.base.entity for sample in point)
        declared = point[0].fields.get(operator.members or "", "")
        whole = not declared or int(declared) == len(point)
        if len(point) < 3 or max(members.values()) > 1 or not whole:
            continue
        does = [tuple(sample.fields.get(name, "") for name in operator.compare) for sample in point]
        (usual, most), *_ = Counter(does).most_common(1)
        if 0 < len(point) - most <= operator.largest_share * len(point):
            readings += [
                sample.base._replace(signal=operator.signal, stream=operator.stream, value=1)
                for sample, doing in zip(point, does, strict=True)
                if doing != usual and (operator.only_below is None or _number(doing) < _number(usual))
            ]
    return readings


def _number(doing: tuple[str, ...]) -> int:
    return int(doing[0]) if doing and doing[0].isdigit() else 0


def first_of(operator: Operator, complaints: Sequence[Reading]) -> list[Reading]:
    """The rank that complained first, where one clock or one file orders them all."""
    ranked = [reading for reading in complaints if reading.speaker is not None and reading.speaker.kind == "rank"]
    if not ranked:
        return []
    timed = all(reading.clock == "wall" and reading.time is not None for reading in ranked)
    if timed:
        first = min(ranked, key=lambda reading: (reading.time, reading.order))
    elif len({reading.file for reading in ranked}) == 1:
        first = min(ranked, key=lambda reading: reading.order)
    else:
        return []
    speaker = first.speaker
    assert speaker is not None
    return [first._replace(signal=operator.signal, stream=operator.stream, value=1, entity=speaker)]


def one_of_many(operator: Operator, samples: Sequence[Sample]) -> list[Reading]:
    """That all samples name one pair of places, where there are more than that one.

    The names are the fields of `compare`, in either direction.  Samples without them say how many places there
    are, in the field of `members`; where that is one, nothing can be concentrated.
    """
    pairs: list[tuple[frozenset[str], Sample]] = []
    places = 0
    for sample in samples:
        names = [sample.fields.get(name, "") for name in operator.compare]
        if all(names):
            pairs.append((frozenset(names), sample))
        elif (count := sample.fields.get(operator.members or "", "")).isdigit():
            places = max(places, int(count) + 1)
    if len(pairs) < _FEWEST_OF_ONE or places == 1 or len({pair for pair, _ in pairs}) != 1:
        return []
    last = pairs[-1][1]
    return [last.base._replace(signal=operator.signal, stream=operator.stream, value=1, entity=JOB)]
