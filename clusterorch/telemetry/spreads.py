"""Here lives the comparison of the two ends that one line reports: the fastest member and the slowest."""

from __future__ import annotations

from collections.abc import Iterable

from clusterorch.telemetry.readings import Reading, Sample
from clusterorch.telemetry.rows import Operator


def far_apart(operator: Operator, samples: Iterable[Sample]) -> list[Reading]:
    """The members named as slowest, where they took more than `factor` times as long as the fastest.

    A report that always names its slowest member says nothing as long as the two ends lie close together.  The field
    `least` of a sample is the other end.
    """
    readings = []
    for sample in samples:
        try:
            least = float(sample.fields.get("least", ""))
        except ValueError:
            continue
        if least > 0 and sample.number > operator.factor * least:
            readings.append(sample.base._replace(signal=operator.signal, stream=operator.stream, value=1))
    return readings
