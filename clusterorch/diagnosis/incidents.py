"""Here lives the telling apart of two incidents in one set of logs.

One fault must explain the whole of a diagnosis.  Where a job was started again, or nobody wrote for long, what
came before and what comes after may be two incidents; whether they are is a comparison of two hypotheses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis, diagnose
from clusterorch.inference.priors import incident_mix
from clusterorch.telemetry.readings import Ingested, PhaseMark, Reading

PAUSE = 1800.0  # seconds without a word after which something new may have begun
MOST_CUTS = 4
FEWEST_READINGS = 2  # on either side
_STARTS = ("launch", "init_comm")
_Said = Reading | PhaseMark


class Cut(NamedTuple):
    """Where the logs may be taken apart: a time on the common clock, else a line of one file."""

    time: float | None
    file: str
    order: int

    def before(self, said: _Said) -> bool | None:
        """Whether a line comes before; None if nothing tells."""
        if self.time is not None and said.clock == "wall" and said.time is not None:
            return said.time < self.time
        if said.file == self.file:
            return said.order < self.order
        if self.time is not None and said.clock == "none" and said.after is not None:
            return said.after < self.time
        return None


@dataclass(frozen=True)
class Incidents:
    """Two incidents in one set of logs, in order.

    probability: that there are two rather than one, given the logs.
    """

    first: Diagnosis
    second: Diagnosis
    probability: float


def two_incidents(diagnosis: Diagnosis, *, protocol: str = "auto") -> Incidents | None:
    """The two incidents that the logs hold, if that is more probable than one.

    Let m be the mode.  With evidence a before the cut and b after it, independent given what happened,
    p(a, b | one) / p(a, b | two) = sum over m of p(m | a) p(m | b) / p(m), by Bayes' rule; the prior probability
    of two is `[prior] second_incident`.  Only two failures of different modes are told apart.

    Args:
        diagnosis: of the whole.
        protocol: as for `diagnose`.
    """
    model, ingested = diagnosis.model, diagnosis.ingested
    second = model.spec.prior.second_incident
    if second <= 0.0 or diagnosis.belief is None:
        return None
    prior = _prior_modes(diagnosis)
    best: Incidents | None = None
    for cut in _cuts(ingested):
        parts = [_part(ingested, cut, before=before) for before in (True, False)]
        if min(len(part.readings) for part in parts) < FEWEST_READINGS:
            continue
        a, b = (diagnose(model, part, protocol=protocol) for part in parts)
        if HEALTHY in (a.leading, b.leading) or a.leading == b.leading or not (a.weights and b.weights):
            continue
        one = sum(a.modes[mode] * b.modes[mode] / prior[mode] for mode in prior)
        probability = second / (second + (1.0 - second) * one)
        if probability > 0.5 and (best is None or probability > best.probability):
            best = Incidents(a, b, probability)
    return best


def _prior_modes(diagnosis: Diagnosis) -> dict[str, float]:
    """What is believed of the modes before any line, at least one in a million each."""
    assert diagnosis.belief is not None
    network, prior = diagnosis.belief.network, diagnosis.model.spec.prior
    healthy = prior.healthy or 0.0
    shares = (1.0 - healthy) * incident_mix(network, prior.uniform_share)
    found = dict.fromkeys(diagnosis.modes, 1e-06)
    found[HEALTHY] = max(healthy, 1e-6)
    for block, share in zip(network.blocks, shares, strict=True):
        if not block.variant.benign:
            found[block.variant.mode] += float(share)
    return found


def _cuts(ingested: Ingested) -> list[Cut]:
    """Where the job starts again, and where nobody wrote for long; evenly spread if there are many."""
    cuts = [*_restarts(ingested), *_pauses(ingested)]
    cuts = list({(cut.time, cut.file if cut.time is None else ""): cut for cut in cuts}.values())
    if len(cuts) <= MOST_CUTS:
        return cuts
    return [cuts[int(i)] for i in np.linspace(0, len(cuts) - 1, MOST_CUTS)]


def _restarts(ingested: Ingested) -> Iterator[Cut]:
    """Marks of a start with something else said before; of a burst of marks the first."""
    last: dict[str, str] = {}
    for mark in sorted(ingested.phases, key=lambda m: m.order):
        started = mark.phase in _STARTS and last.get(mark.file) not in (None, *_STARTS)
        last[mark.file] = mark.phase
        if started:
            yield Cut(mark.time if mark.clock == "wall" else None, mark.file, mark.order)


def _pauses(ingested: Ingested) -> Iterator[Cut]:
    timed = sorted(
        ((r.time, r.file, r.order) for r in ingested.readings if r.clock == "wall" and r.time is not None),
    )
    for (earlier, *_), (later, file, order) in pairwise(timed):
        if later - earlier >= PAUSE:
            yield Cut((earlier + later) / 2.0, file, order)


def _part(ingested: Ingested, cut: Cut, *, before: bool) -> Ingested:
    """One side of a cut; what cannot be placed is on neither."""

    def kept(said: Iterable[_Said]) -> list:
        return [one for one in said if cut.before(one) is before]

    return replace(ingested, readings=kept(ingested.readings), phases=kept(ingested.phases), findings=[])


def ends(part: Diagnosis) -> tuple[Reading, Reading]:
    """The first and the last telling line of a part."""
    told = sorted((w.reading for w in part.weights), key=lambda r: (r.time if r.time is not None else 0.0, r.order))
    return told[0], told[-1]
