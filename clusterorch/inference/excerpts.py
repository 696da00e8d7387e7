"""Here lives the reading of excerpts: pasted lines, of which only the first of each kind is evidence.

Somebody copies lines that seemed to matter.  How many there are, when they were printed and what
is missing says nothing; *which kind* comes next does: p(kind | state, a line exists), among the
kinds not shown yet, and then *whom* it names.  Informational kinds count again once something
else has been shown after them (training goes on after the error).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clusterorch.inference.plan import Plan
from clusterorch.models.compile import Network
from clusterorch.models.rows import CHORUS, DISCRETE, KIND_OF_FAMILY

_TINY = 1e-12


class Kind(NamedTuple):
    """A kind of line: a signal showing one of its values."""

    signal: int
    value: int


class Mark(NamedTuple):
    """One line of an excerpt: its kind, and whom it names.

    `entities`: one number; several, if the line names one of them but not which; none, if it names nobody.
    """

    kind: Kind
    entities: tuple[int, ...]


def line_kinds(network: Network) -> list[Kind]:
    """Every kind of line that the model's signals can print."""
    kinds = []
    for s, signal in enumerate(network.spec.signal):
        family = KIND_OF_FAMILY[signal.family]
        if not signal.lines:
            continue
        if family == CHORUS or signal.family in ("presence", "count"):
            kinds.append(Kind(s, 1))
        elif family == DISCRETE:
            kinds.extend(Kind(s, v) for v in range(1, len(signal.values)))  # the first prints nothing
    return kinds


def info_kinds(network: Network) -> frozenset[int]:
    """Numbers, in `line_kinds`, of the informational kinds."""
    signals = network.spec.signal
    return frozenset(i for i, kind in enumerate(line_kinds(network)) if signals[kind.signal].verbosity == "info")


@dataclass
class Shown:
    """Which kinds, and which entities by kind, an excerpt has shown so far."""

    kinds: set[int] = field(default_factory=set)
    named: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)

    def admit(self, number: int, entities: tuple[int, ...], info_kinds: frozenset[int]) -> tuple[bool, bool]:
        """(the kind is new, whom it names is new for it); remembers both."""
        info = number in info_kinds
        new_kind = number not in self.kinds
        new_entity = (number, entities) not in self.named
        if not info and (new_kind or new_entity):
            self.kinds -= info_kinds  # something happened: going on after it is news again
            self.named = {pair for pair in self.named if pair[0] not in info_kinds}
        self.kinds.add(number)
        self.named.add((number, entities))
        return new_kind, new_entity


@dataclass
class Excerpts:
    """Likelihood ratios of marks for the patterns of a network.

    Args:
        network, plan: the compiled model and its layout for the kernels.
        present: by entity kind, [entities] True where the universe really has one.
        contamination: probability that a line names an unrelated entity.
    """

    network: Network
    plan: Plan
    present: dict[str, np.ndarray]
    contamination: float

    @cached_property
    def kinds(self) -> list[Kind]:
        """All kinds, in order of declaration."""
        return line_kinds(self.network)

    @cached_property
    def number(self) -> dict[Kind, int]:
        """Number of each kind."""
        return {kind: i for i, kind in enumerate(self.kinds)}

    @cached_property
    def info(self) -> frozenset[int]:
        """Numbers of the informational kinds."""
        return info_kinds(self.network)

    def probability(self, kind: Kind, rows: np.ndarray) -> np.ndarray:
        """[..., 3] chance that an entity at rest, near, at the site shows a kind; rows [..., 3] likewise."""
        table, signal = self.network.rows, self.network.spec.signal[kind.signal]
        if signal.family == "chorus":
            told = table[rows, 0]
            speaks = np.stack([table[rows[..., r], 3 - r] for r in range(3)], axis=-1)
            return told * speaks + (1.0 - told) * table[rows, 4]
        if signal.family == "count":
            return 1.0 - table[rows, 0]
        return table[rows, kind.value]

    @cached_property
    def _cached(self) -> dict[int, tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
        return {}

    def _tables(self, phase: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Background [K]; shown at all [sites of all patterns, K]; by pattern, by relation [K, 3]."""
        if phase not in self._cached:
            background = self._shown_background(phase)
            shown, relation = [], []
            for pattern in self.network.patterns[phase]:
                rows_of = {term[0]: np.array(term[1:]) for term in pattern.terms}
                quiet = self.network.background[phase]
                rows = [rows_of.get(kind.signal, np.full(3, quiet[kind.signal])) for kind in self.kinds]
                relation.append(np.stack([self.probability(k, row) for k, row in zip(self.kinds, rows, strict=True)]))
                shown.append(self._shown(pattern.site_kind, rows))
            self._cached[phase] = (background, np.concatenate(shown), relation)
        return self._cached[phase]

    def _shown_background(self, phase: int) -> np.ndarray:
        result = np.empty(len(self.kinds))
        for k, kind in enumerate(self.kinds):
            row = np.full(3, self.network.background[phase, kind.signal])
            count = self.present[self.network.spec.signal[kind.signal].entity].sum()
            result[k] = self._anybody(kind, row, np.array([[count, 0.0, 0.0]]))[0]
        return result

    def _shown(self, site_kind: str, rows: list[np.ndarray]) -> np.ndarray:
        """[sites, K] chance that at least one entity shows each kind."""
        counts = {s.entity: self.counts(site_kind, s.entity) for s in self.network.spec.signal}
        entity = [self.network.spec.signal[kind.signal].entity for kind in self.kinds]
        each = zip(self.kinds, rows, entity, strict=True)
        return np.stack([self._anybody(kind, row, counts[kin]) for kind, row, kin in each], axis=1)

    def _anybody(self, kind: Kind, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """[sites] chance that at least one shows a kind; rows [3] and counts [sites, 3] by relation."""

        def one_of(p: np.ndarray) -> np.ndarray:
            return -np.expm1(counts @ np.log1p(-np.minimum(p, 1.0 - _TINY)))

        if self.network.spec.signal[kind.signal].family != "chorus":
            return one_of(self.probability(kind, rows))
        table = self.network.rows  # all members are told, or none is
        told, speaks = table[rows[0], 0], np.array([table[rows[r], 3 - r] for r in range(3)])
        return told * one_of(speaks) + (1.0 - told) * one_of(table[rows, 4])

    @cached_property
    def _relations(self) -> dict[tuple[str, str], np.ndarray]:
        return {}

    def relations(self, site_kind: str, entity_kind: str) -> np.ndarray:
        """[sites, entities] relation of every entity to every site."""
        key = (site_kind, entity_kind)
        if key not in self._relations:
            layout = self.network.layout
            self._relations[key] = np.stack(
                [layout.relation(site_kind, site, entity_kind) for site in range(layout.count(site_kind))]
            )
        return self._relations[key]

    @cached_property
    def _counts(self) -> dict[tuple[str, str], np.ndarray]:
        return {}

    def counts(self, site_kind: str, entity_kind: str) -> np.ndarray:
        """[sites, 3] how many real entities are at rest, near, at each site."""
        key = (site_kind, entity_kind)
        if key not in self._counts:
            relation, real = self.relations(*key), self.present[entity_kind]
            counted = [((relation == r) & real).sum(axis=1) for r in range(3)]
            self._counts[key] = np.stack(counted, axis=1).astype(float)
        return self._counts[key]

    def ratios(self, mark: Mark, phase: int, shown: Shown) -> np.ndarray:
        """[pattern_size] log likelihood ratio of a mark against the empty slot; updates `shown`."""
        number = self.number[mark.kind]
        unseen = np.array([k not in shown.kinds for k in range(len(self.kinds))])
        named = sorted({e for k, whom in shown.named if k == number and len(whom) == 1 for e in whom})
        new_kind, new_entity = shown.admit(number, mark.entities, self.info)
        result = np.zeros(self.plan.pattern_size)
        if not new_entity:
            return result
        background, shown_at_all, by_relation = self._tables(phase)
        if new_kind:
            base = np.log(background[number] / background[unseen].sum())
            ratio = np.log(shown_at_all[:, number] / shown_at_all[:, unseen].sum(axis=1))
            result[: len(ratio)] = ratio - base
        entity_kind = self.network.spec.signal[mark.kind.signal].entity
        total = float(self.present[entity_kind].sum())
        if not mark.entities or total <= 1:
            return result
        first = self.plan.pattern_range[phase]
        told: dict[tuple[str, bytes], np.ndarray] = {}  # most patterns show the kind as the background does
        for j, pattern in enumerate(self.network.patterns[phase]):
            at, sites = self.plan.pattern_out[first + j], self.plan.pattern_sites[first + j]
            chances = by_relation[j][number]
            key = pattern.site_kind, chances.tobytes()
            if key not in told:
                told[key] = self._entity_term(pattern.site_kind, entity_kind, chances, mark.entities, named, total)
            result[at : at + sites] += told[key]
        return result

    def _entity_term(
        self, site_kind: str, entity_kind: str, chances: np.ndarray, entities: tuple[int, ...],
        named: list[int], total: float,
    ) -> np.ndarray:  # fmt: skip
        """[sites] log p(one of these entities | the kind is shown, none of those named before), against all alike."""
        relation = self.relations(site_kind, entity_kind)
        anybody = (self.counts(site_kind, entity_kind) @ chances)[:, None]

        def law(whom: list[int]) -> np.ndarray:
            return (1.0 - self.contamination) * chances[relation[:, whom]] / anybody + self.contamination / total

        left = np.maximum(1.0 - law(named).sum(axis=1), _TINY)
        return np.log(law(list(entities)).mean(axis=1) / left * (total - len(named)))
