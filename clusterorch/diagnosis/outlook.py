"""Here lives the outlook: what a command would show under each hypothesis that the evidence has left.

Given a hypothesis all that is shown is independent: transient mechanisms, and whether a chorus was told, are
hypotheses of their own.  States that differ in nothing the command shows are one hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from clusterorch.diagnosis.histories import Histories, LineKind
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.priors import STEP
from clusterorch.models.compile import Block, Network, Pattern
from clusterorch.models.ground import HEALTHY
from clusterorch.models.rows import CHORUS, CONTINUOUS, KIND_OF_FAMILY

NOW = -1
_MOST = 1500  # hypotheses
DROPPED = 1e-4  # mass of the least likely states, which are left out
_LEAST = 1e-12


class Pair(NamedTuple):
    """One thing that a command shows: an entity's signal; of a log, whether it names the entity with a value."""

    signal: int
    entity: int
    value: int = NOW


@dataclass(frozen=True)
class Outlook:
    """Hypotheses and what each shows.

    mass: [H] probabilities, sum 1.  mode: [H] index into `modes`.
    tables: [H, pairs, classes] of the discrete ones.  normals: [H, samples, 3] mean, sd, chance of no value.
    outliers: [samples, 3] share, mean, sd.
    """

    modes: tuple[str, ...]
    mass: np.ndarray
    mode: np.ndarray
    pairs: tuple[Pair, ...]
    tables: np.ndarray
    samples: tuple[Pair, ...]
    normals: np.ndarray
    outliers: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        """[modes] probability of each mode as it stands."""
        return np.bincount(self.mode, self.mass, minlength=len(self.modes))


def look_out(
    belief: Belief, pairs: Sequence[Pair], histories: Histories | None = None, *, dropped: float = DROPPED
) -> Outlook:
    """What pairs show under a belief.

    Args:
        belief: after the last evidence; a command is taken to run in the same state, at phase step.
        pairs: all of the moment (`NOW`), or all of a log.
        histories: for pairs of a log.
        dropped: mass of states, the least likely ones, that may be left out.
    """
    network = belief.network
    modes = tuple(belief.modes)
    family = [KIND_OF_FAMILY[network.spec.signal[p.signal].family] for p in pairs]
    discrete = [i for i, kind in enumerate(family) if kind != CONTINUOUS]
    build = _Now(network, pairs, family) if histories is None else _Past(network, pairs, family, histories)
    found: dict[tuple, float] = {}
    for key, mass in build.hypotheses(_likely(belief, dropped)):
        found[key] = found.get(key, 0.0) + mass
    # The likeliest, in the order in which they were met: that of the model, whatever things are called.
    keys, masses = list(found), np.array(list(found.values()))
    ranked = np.argsort(-masses, kind="stable")
    enough = int(np.searchsorted(np.cumsum(masses[ranked]), masses.sum() * (1.0 - dropped))) + 1
    kept = np.sort(ranked[: min(enough, _MOST)])
    shown = np.stack([build.parameters(keys[i]) for i in kept]) if pairs else np.zeros((len(kept), 0, 2))
    continuous = [i for i, kind in enumerate(family) if kind == CONTINUOUS]
    outliers = [network.spec.signal[pairs[i].signal].outlier for i in continuous]
    return Outlook(
        modes, masses[kept] / masses[kept].sum(), np.array([modes.index(keys[i][0]) for i in kept]),
        tuple(pairs[i] for i in discrete), shown[:, discrete],
        tuple(pairs[i] for i in continuous), shown[:, continuous, :3] if continuous else np.zeros((len(kept), 0, 3)),
        np.array([(o.probability, o.mean, o.sd) if o else (0.0, 0.0, 1.0) for o in outliers]).reshape(-1, 3),
    )  # fmt: skip


def _likely(belief: Belief, dropped: float) -> Belief:
    """The belief without its least likely states, which together weigh no more than `dropped`; not normalised."""
    ranked = np.argsort(belief.vector, kind="stable")
    gone = ranked[: int(np.searchsorted(np.cumsum(belief.vector[ranked]), dropped))]
    vector = belief.vector.copy()
    vector[gone] = 0.0
    return Belief(belief.network, vector)


class _Now:
    """Hypotheses of a sample: key (mode, rows of the pairs, which choruses were told)."""

    def __init__(self, network: Network, pairs: Sequence[Pair], family: Sequence[int]) -> None:
        self.network, self.pairs, self.family = network, pairs, family
        self.signal = np.array([pair.signal for pair in pairs], dtype=np.int64)
        self.asked = set(self.signal.tolist())
        self.choruses = sorted({p.signal for p, kind in zip(pairs, family, strict=True) if kind == CHORUS})
        self.relation: dict[str, np.ndarray] = {}

    def hypotheses(self, belief: Belief) -> Iterator[tuple[tuple, float]]:
        """Every (key, mass)."""
        rest = np.zeros(len(self.pairs), dtype=np.int64)
        quiet = self.network.background[STEP][self.signal]
        yield from self._told(HEALTHY, Pattern("job", ()), quiet, rest, belief.empty)
        for v, block in enumerate(self.network.blocks):
            if belief.variants[block.variant.name] > _LEAST:
                yield from self._of_block(belief, v, block)

    def _of_block(self, belief: Belief, v: int, block: Block) -> Iterator[tuple[tuple, float]]:
        signatures, mass = self._by_signature(belief, block)
        chosen, shares = self.network.emissions[v][STEP], self.network.weights[v]
        weights: dict[tuple[int, int], float] = {}  # by pattern and signature
        for level, c, g in np.argwhere(mass > _LEAST):
            for k in np.flatnonzero(shares[c]):
                at = int(chosen[level, c, k]), int(g)
                weights[at] = weights.get(at, 0.0) + shares[c, k] * mass[level, c, g]
        for (number, g), weight in weights.items():
            pattern = self.network.patterns[STEP][number]
            rows = self._rows(pattern, signatures[g])
            yield from self._told(block.variant.mode, pattern, rows, signatures[g], weight)

    def _by_signature(self, belief: Belief, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """[signatures, pairs] relation of the entities to a site, and [levels, configurations, signatures] mass."""
        kind = block.variant.spec.site
        if kind not in self.relation:
            layout = self.network.layout
            kinds = {self.network.spec.signal[s].entity for s in self.signal}
            of_kind = {k: np.stack([layout.relation(kind, i, k) for i in range(block.sites)]) for k in kinds}
            columns = [of_kind[self.network.spec.signal[p.signal].entity][:, p.entity] for p in self.pairs]
            self.relation[kind] = np.stack(columns, axis=1) if columns else np.zeros((block.sites, 0), dtype=np.int64)
        signatures, which = np.unique(self.relation[kind], axis=0, return_inverse=True)
        mass = np.zeros((*block.shape()[:2], len(signatures)))
        np.add.at(mass, (slice(None), slice(None), which.ravel()), belief.block(block))
        return signatures, mass

    def _rows(self, pattern: Pattern, signature: np.ndarray) -> np.ndarray:
        rows = self.network.background[STEP][self.signal]
        for signal, *by_relation in pattern.terms:
            if signal in self.asked:
                rows = np.where(self.signal == signal, np.array(by_relation)[signature], rows)
        return rows

    def _told(
        self, mode: str, pattern: Pattern, rows: np.ndarray, signature: np.ndarray, mass: float
    ) -> Iterator[tuple[tuple, float]]:
        """One hypothesis for each way in which choruses are told, by their row at rest."""
        at_rest = {term[0]: term[1] for term in pattern.terms}
        chances = [self.network.rows[at_rest.get(s, self.network.background[STEP, s]), 0] for s in self.choruses]
        for told, share in _ways(chances):
            yield (mode, tuple(rows.tolist()), told, tuple(signature.tolist()) if told else ()), mass * share

    def parameters(self, key: tuple) -> np.ndarray:
        """[pairs, columns] class probabilities, or mean, sd and absence."""
        _, rows, told, signature = key
        table = self.network.rows[list(rows)].copy()
        for i, (pair, family) in enumerate(zip(self.pairs, self.family, strict=True)):
            if family == CHORUS:
                hears = told[self.choruses.index(pair.signal)]
                speaks = table[i, 3 - signature[i]] if hears else table[i, 4]
                table[i] = 0.0
                table[i, :2] = 1.0 - speaks, speaks
        return table


class _Past(_Now):
    """Hypotheses of a log: key (mode, variant, severity, configuration, relations, which choruses were told)."""

    def __init__(self, network: Network, pairs: Sequence[Pair], family: Sequence[int], histories: Histories) -> None:
        super().__init__(network, pairs, family)
        self.histories = histories
        self.kinds = np.array([histories.number[LineKind(p.signal, p.value)] for p in pairs], dtype=np.int64)
        self.told_kinds = {s: histories.number[LineKind(s, 1, told=True)] for s in self.choruses}

    def hypotheses(self, belief: Belief) -> Iterator[tuple[tuple, float]]:
        """Every (key, mass)."""
        for told, share in _ways([self.histories.quiet[k] for k in self.told_kinds.values()]):
            yield (HEALTHY, -1, 0, 0, (), told), belief.empty * share
        for v, block in enumerate(self.network.blocks):
            if belief.variants[block.variant.name] <= _LEAST:
                continue
            signatures, mass = self._by_signature(belief, block)
            relations = [tuple(signature.tolist()) for signature in signatures]
            for level, c, g in np.argwhere(mass > _LEAST).tolist():
                shown = self.histories.shown(v, level)[c]
                for told, share in _ways([shown[k, 0] for k in self.told_kinds.values()]):
                    yield (block.variant.mode, v, level, c, relations[g], told), mass[level, c, g] * share

    def parameters(self, key: tuple) -> np.ndarray:
        """[pairs, 2] not in the log, in the log."""
        _, v, level, c, signature, told = key
        if v < 0:
            everywhere = self.histories.quiet[:, None]
            chance, told_chance = everywhere[self.kinds, 0], everywhere
        else:
            shown = self.histories.shown(v, level)[c]
            chance, told_chance = shown[self.kinds, list(signature)], shown
        chance = chance.copy()
        for i, (pair, family) in enumerate(zip(self.pairs, self.family, strict=True)):
            if family == CHORUS:
                ever = float(told_chance[self.told_kinds[pair.signal], 0])
                untold = float(self.histories.quiet[self.kinds[i]])
                hears = told[self.choruses.index(pair.signal)]
                # p(spoke) = ever p(spoke | told) + (1 - ever) p(spoke | not told)
                chance[i] = (chance[i] - (1.0 - ever) * untold) / max(ever, _LEAST) if hears else untold
        chance = np.clip(chance, 0.0, 1.0)
        return np.stack([1.0 - chance, chance], axis=1)


def _ways(chances: Sequence[float]) -> Iterator[tuple[tuple[bool, ...], float]]:
    """Every way in which independent things happen, and its probability."""
    for way in product((False, True), repeat=len(chances)):
        share = float(np.prod([p if yes else 1.0 - p for yes, p in zip(way, chances, strict=True)]))
        if share > 0.0:
            yield way, share
