"""Here lives the comparison of the two ends that one line reports: the fastest member and the slowest."""

from __future__ import annotations

from collections.abc import Iterable

from clusterorch.telemetry.readings import Reading, Sample
from clusterorch.telemetry.rows import Operator

_MOST_WAITING = 64  # members that a report lists at one end


def far_apart(operator: Operator, samples: Iterable[Sample]) -> list[Reading]:
    """The members named as slowest, where they took more than `factor` times as long as the fastest.

    A report that always names its slowest member says nothing as long as the two ends lie close together.  The field
    `least` of a sample is the other end.  Where a report takes two lines, the other end is in the field `highest` of
    the next sample of the file.
    """
    readings, waiting = [], []
    for sample in samples:
        if "highest" in sample.fields:
            ends = [(low, low.number, sample.number) for low in waiting if low.base.file == sample.base.file]
            waiting = []
        elif sample.fields.get("least") and float(sample.fields["least"]) == sample.number:
            ends, waiting = [], [*waiting[-_MOST_WAITING:], sample]
        else:
            ends = [(sample, _number(sample.fields.get("least", "")), sample.number)]
        readings += [
            slow.base._replace(signal=operator.signal, stream=operator.stream, value=1)
            for slow, least, most in ends
            if least > 0 and most > operator.factor * least
        ]
    return readings


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
