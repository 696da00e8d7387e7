"""Here lives what two faults at once show: the likelihood of a slice for every pair of things that slots can show.

`models/README.md` section 6.  Signals are taken one by one: of what a slot shows, a signal sees only
the mechanisms that its rules name, so that few distinct pairs are left for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clusterorch.inference.plan import MOST_GAP
from clusterorch.models.compile import Network
from clusterorch.models.rows import CHORUS, CONTINUOUS, DISCRETE, KIND_OF_FAMILY, Rows, Situation, matching_rule
from clusterorch.models.spec import JOB_CLASSES, Signal

_UNOCCUPIED = 2**30  # an empty slot offers a rule after every other
_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))


class Showing(NamedTuple):
    """What a slot shows in a slice: the site of its fault, severity, own job class, active mechanisms."""

    site_kind: str | None
    site: int
    severity: int
    job_class: int
    active: frozenset[str]

    @classmethod
    def nothing(cls) -> Showing:
        """An empty slot."""
        return cls(None, 0, 1, 0, frozenset())


@dataclass
class _Offers:
    """What each distinct view of one signal offers: [views, classes, entities] rule, row and relation."""

    view: np.ndarray  # [showings] which view each showing is
    rule: np.ndarray
    row: np.ndarray
    relation: np.ndarray  # [views, entities]
    severity: np.ndarray  # [views]


class PairEmissions:
    """Likelihoods of pairs under one network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.rows = Rows(network.spec)
        self._offers: dict[int, list[_Offers]] = {}
        self._named = [
            frozenset(n for rule in signal.when for n in (*rule.needs, *rule.absent_mechanisms))
            for signal in network.spec.signal
        ]

    def log_likelihoods(
        self, phase: int, showings: list[Showing], values: np.ndarray, last: np.ndarray, gap: np.ndarray
    ) -> np.ndarray:
        """[showings, showings] log density of a slice, for the showings of this phase (always the same list)."""
        if phase not in self._offers:
            self._offers[phase] = [self._offer(s, phase, showings) for s in range(len(self.network.spec.signal))]
        offers, table = self._offers[phase], self.rows.table()
        own = np.array([showing.job_class for showing in showings])
        job = np.maximum.outer(own, own)
        total = np.zeros((len(showings), len(showings)))
        for s, offer in enumerate(offers):
            at = self.network.slice_of(s)
            if np.isnan(values[at]).all():
                continue
            pairs = self._of_signal(s, offer, table, values[at], last[at], gap[at])
            total += pairs[offer.view[:, None], offer.view[None, :], job]
        return total

    def _offer(self, s: int, phase: int, showings: list[Showing]) -> _Offers:
        signal, layout = self.network.spec.signal[s], self.network.layout
        number: dict[Showing, int] = {}
        view = [
            number.setdefault(x._replace(job_class=0, active=x.active & self._named[s]), len(number)) for x in showings
        ]
        shape = (len(number), len(JOB_CLASSES), layout.count(signal.entity))
        rule, row = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        relation = np.zeros((shape[0], shape[2]), dtype=np.int64)
        for v, showing in enumerate(number):
            if showing.site_kind is not None:
                relation[v] = layout.relation(showing.site_kind, showing.site, signal.entity)
            for job in range(shape[1]):
                for stands in range(3):
                    situation = Situation(showing.active, showing.severity, phase, job, stands)
                    here = relation[v] == stands
                    rule[v, job, here] = _place_of_rule(signal, situation, occupied=showing.site_kind is not None)
                    row[v, job, here] = self.rows.of(s, situation)
        if KIND_OF_FAMILY[signal.family] not in (CONTINUOUS, DISCRETE):
            rule, row = rule[..., :1], row[..., :1]  # one rule speaks for all members
        severity = np.array([showing.severity for showing in number])
        return _Offers(np.array(view), rule, row, relation, severity)

    def _of_signal(
        self, s: int, offer: _Offers, table: np.ndarray, values: np.ndarray, last: np.ndarray, gap: np.ndarray
    ) -> np.ndarray:
        """[views, views, classes] log density of one signal's values."""
        signal = self.network.spec.signal[s]
        family = KIND_OF_FAMILY[signal.family]
        ours, theirs = offer.rule[:, None], offer.rule[None, :]
        worse = offer.severity[:, None, None, None] >= offer.severity[None, :, None, None]
        first = (ours < theirs) | ((ours == theirs) & worse)
        row = np.where(first, offer.row[:, None], offer.row[None, :])
        with np.errstate(divide="ignore"):
            if family in (CONTINUOUS, DISCRETE):
                known = np.unique(row)
                density = np.zeros((len(table), len(values)))
                if family == DISCRETE:
                    seen = np.where(np.isnan(values), 0, values).astype(np.int64)
                    density[known] = np.log(table[known][:, seen])
                else:
                    density[known] = _continuous(signal, table[known, :3], values, last, gap)
                density[:, np.isnan(values)] = 0.0
                return density[row, np.arange(len(values))].sum(axis=-1)
            # [views, views, classes, members]: the nearer fault of those that offer the rule
            mine, other = offer.relation[:, None, None], offer.relation[None, :, None]
            nearer = np.where(ours == theirs, np.maximum(mine, other), np.where(ours < theirs, mine, other))
            row = row[..., 0]
            return _chorus(table, row, nearer, values) if family == CHORUS else _first(table, row, nearer, values[0])


def _place_of_rule(signal: Signal, situation: Situation, *, occupied: bool) -> int:
    """Where the first rule that matches stands in the file; after all of them if none does."""
    if not occupied:
        return _UNOCCUPIED
    rule = matching_rule(signal, situation)
    return len(signal.when) if rule is None else next(i for i, one in enumerate(signal.when) if one is rule)


def _continuous(signal: Signal, rows: np.ndarray, values: np.ndarray, last: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """[rows, entities] log density of samples given the last ones taken."""
    mean, sd, absent = (rows[:, k, None] for k in range(3))
    memory = np.where(gap > 0, signal.memory ** np.clip(gap, 1, MOST_GAP - 1), 0.0)
    x = np.where(np.isfinite(values), values, 0.0)

    def normal(centre: np.ndarray | float, width: np.ndarray | float) -> np.ndarray:
        return np.exp(-0.5 * ((x - centre) / width) ** 2) / (width * _ROOT_TWO_PI)

    share = signal.outlier.probability if signal.outlier else 0.0
    density = (1.0 - share) * normal(mean + memory * (last - mean), sd * np.sqrt(1.0 - memory**2))
    if signal.outlier:
        density = density + share * normal(signal.outlier.mean, signal.outlier.sd)
    return np.log(np.where(np.isinf(values), absent, (1.0 - absent) * density))


def _chorus(table: np.ndarray, row: np.ndarray, relation: np.ndarray, values: np.ndarray) -> np.ndarray:
    heard = ~np.isnan(values)
    spoke = values[heard] > 0.5
    told, quiet = table[row, 0], table[row, 4][..., None]
    speak = np.take_along_axis(table[row], 3 - relation[..., heard], axis=-1)
    of_told = np.log(np.where(spoke, speak, 1.0 - speak)).sum(axis=-1)
    of_quiet = np.log(np.where(spoke, quiet, 1.0 - quiet)).sum(axis=-1)
    return np.logaddexp(np.log(told) + of_told, np.log(1.0 - told) + of_quiet)


def _first(table: np.ndarray, row: np.ndarray, relation: np.ndarray, speaker: float) -> np.ndarray:
    speaks = table[row, 0]
    if speaker < 0.0:
        return np.log(1.0 - speaks)
    weight = np.take_along_axis(table[row], 3 - relation, axis=-1)
    return np.log(speaks * weight[..., int(speaker)] / weight.sum(axis=-1))
