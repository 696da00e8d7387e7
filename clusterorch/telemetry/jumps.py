"""Here lives the comparison of losses across a load: what a wrongly restored state shows first."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from clusterorch.telemetry.readings import PhaseMark, Reading, Sample
from clusterorch.telemetry.rows import Operator

_COMPARED = 5  # losses on either side of a load
_SETTLED = 20  # losses after which a restored state that was right would have been at its level
_STARTED = 10.0  # positions up to which a loss falls by itself
_SPREADS = 4.0  # a jump is this many times the scatter of the losses before it
_STAYS = 0.3  # share of the jump that the second loss still shows: one odd batch does not


class _Loss(NamedTuple):
    level: float  # its logarithm
    position: float | None
    sample: Sample


def jump_at_load(
    operator: Operator, samples: Sequence[Sample], positions: Sequence[Sample], phases: Sequence[PhaseMark]
) -> list[Reading]:
    """The first loss after a load, where it is far above the last ones before.

    Only a load between them makes two levels a jump of the state: elsewhere it may be a spike of the optimisation or
    another kind of data, and other signals speak of those.  The losses before are those of the same file, or of the
    file in which the run before ended; they count if the run went on where it was (its positions rise).  Without any,
    the losses after are their own measure, if the run was under way: a state that was restored right does not lose
    half of its loss in a few steps.  `factor` is 2: batches of one run differ by hundredths of their loss.
    """
    at = {sample.base.order: sample.number for sample in positions}
    files: dict[str, list[_Loss]] = defaultdict(list)
    for sample in samples:
        if 0 < sample.number < math.inf:
            loss = _Loss(math.log(sample.number), at.get(sample.base.order), sample)
            files[sample.base.file].append(loss)
    readings = []
    for file, losses in files.items():
        loads = sorted(mark.order for mark in phases if mark.file == file and mark.phase in operator.settles_after)
        orders = [loss.sample.base.order for loss in losses]
        starts = sorted({start for order in loads if (start := bisect_left(orders, order)) < len(losses)})
        for number, start in enumerate(starts):
            after = losses[start : starts[number + 1] if number + 1 < len(starts) else None]
            before = _before(file, start, files)
            if after and _jumps(before, after, math.log(operator.factor)):
                base = after[0].sample.base
                readings.append(base._replace(signal=operator.signal, stream=operator.stream, value=1))
    return readings


def _before(file: str, start: int, files: dict[str, list[_Loss]]) -> list[_Loss]:
    """The last losses of the run that the load continues."""
    first = files[file][start]
    if start:
        return _continued(files[file][:start], first)
    ended = [
        continued
        for name, losses in files.items()
        if name != file and (continued := [loss for loss in _continued(losses, first) if _earlier(loss, first)])
    ]
    return max(ended, key=lambda losses: _age(losses[-1]), default=[])


def _continued(losses: list[_Loss], first: _Loss) -> list[_Loss]:
    """The losses just below the position at which the run went on."""
    if first.position is not None and any(loss.position is not None for loss in losses):
        losses = [loss for loss in losses if loss.position is not None and loss.position <= first.position]
    return losses[-_COMPARED:]


def _earlier(loss: _Loss, first: _Loss) -> bool:
    """Whether a loss of another file came before, as far as clocks or positions tell."""
    one, other = loss.sample.base, first.sample.base
    if one.clock == other.clock == "wall" and one.time is not None and other.time is not None:
        return one.time < other.time
    return loss.position is not None and first.position is not None and loss.position <= first.position


def _age(loss: _Loss) -> tuple[float, float]:
    return (loss.position or 0.0, loss.sample.base.time or 0.0)


def _jumps(before: list[_Loss], after: list[_Loss], least: float) -> bool:
    if before:
        level = median(loss.level for loss in before)
        scatter = median(abs(loss.level - level) for loss in before)
        jump = after[0].level - level
        stays = len(after) < 2 or after[1].level - level > _STAYS * jump
        return jump > max(least, _SPREADS * scatter) and stays
    first = after[0].position
    if first is None or first <= _STARTED or len(after) < _COMPARED:
        return False
    level = median(loss.level for loss in after[2:_SETTLED])
    return after[0].level - level > least and after[1].level - level > _STAYS * (after[0].level - level)
