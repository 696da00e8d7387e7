"""Here lives what a log has shown by now: the chance that a kind of line was printed since before the fault began.

Many lines are printed once, when something happens; the state of the moment no longer shows it.  For each
configuration of a variant the chance that it is in the log follows by one forward pass over the slices since the
start of the fault, in which the mass that has not shown the kind yet is carried along.  The age of the fault is
uniform over a window, the job is stepping all along, and given the state kinds are taken as independent.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from clusterorch.inference.priors import STEP
from clusterorch.models.compile import Block, Network
from clusterorch.models.rows import CHORUS, KIND_OF_FAMILY
from clusterorch.probability.lifetimes import timer_slices

_WINDOW_SECONDS = 1800.0  # where the prior names no time before the first line
_LEAST = 1e-300


class LineKind(NamedTuple):
    """A signal that showed one of its values; `told`: that its chorus was told, whoever spoke then."""

    signal: int
    value: int
    told: bool = False


class Histories:
    """Chances of kinds to be in a log by now, by configuration.

    Args:
        network: compiled; all tables are read at phase step.
        kinds: what is asked for.
        slices: length of the log; that of the incident prior before the first line if None.
    """

    def __init__(self, network: Network, kinds: list[LineKind], slices: int | None = None) -> None:
        seconds = network.spec.prior.preroll_seconds or _WINDOW_SECONDS
        self.network, self.kinds = network, list(dict.fromkeys(kinds))
        self.slices = slices or timer_slices(seconds, network.spec.model.slice_seconds)
        self.number = {kind: i for i, kind in enumerate(self.kinds)}
        self._known: dict[tuple[int, int], np.ndarray] = {}

    def rate(self, kind: LineKind, rows: np.ndarray) -> np.ndarray:
        """[3] chance in one slice that an entity at rest, near, at the site shows a kind; rows [3] likewise."""
        table, signal = self.network.rows, self.network.spec.signal[kind.signal]
        if KIND_OF_FAMILY[signal.family] == CHORUS:
            told = np.full(3, table[rows[0], 0])
            if kind.told:
                return told
            speak = np.array([table[rows[r], 3 - r] for r in range(3)])
            return told * speak + (1.0 - told) * table[rows, 4]
        return 1.0 - table[rows, 0] if signal.family == "count" else table[rows, kind.value]

    @cached_property
    def quiet(self) -> np.ndarray:
        """[kinds] chance that an entity's line stands in the log of a job without any fault."""
        rates = [self.rate(k, np.full(3, self.network.background[STEP, k.signal]))[0] for k in self.kinds]
        return 1.0 - (1.0 - np.array(rates)) ** self.slices

    def shown(self, v: int, level: int) -> np.ndarray:
        """[configurations, kinds, 3] chance by now, by relation to the site, for variant number v at a severity."""
        if (v, level) not in self._known:
            self._known[v, level] = self._forward(self.network.blocks[v], v, level)
        return self._known[v, level]

    def _forward(self, block: Block, v: int, level: int) -> np.ndarray:
        rates, now = self._rates(v, level), len(block.chain.configurations)
        varies = np.flatnonzero((rates != self._background[None]).any(axis=(0, 2)))
        result = np.broadcast_to(self.quiet[None, :, None], rates.shape).copy()
        silent = (1.0 - rates[:, varies]).reshape(now, -1)
        before = (1.0 - self._background[varies]).reshape(-1)
        rows = np.array(block.chain.tables[block.chain.table_of[STEP, 0, False]])
        step = csr_array((rows[:, 2], (rows[:, 1].astype(int), rows[:, 0].astype(int))), shape=(now, now))
        here = np.zeros(now)
        for to, p in block.chain.onsets[block.chain.onset_of[STEP, 0, False]]:
            here[to] += p
        unshown = here[:, None] * silent
        mass, still = np.zeros(now), np.zeros_like(unshown)
        for age in range(1, self.slices + 1):
            mass += here
            still += unshown * before ** (self.slices - age)
            here, unshown = step @ here, (step @ unshown) * silent
        reached = mass > _LEAST
        chance = 1.0 - still[reached] / mass[reached, None]
        result[np.ix_(reached, varies)] = chance.reshape(int(reached.sum()), len(varies), 3)
        # A state that stepping alone does not reach: what it shows in one slice is all that is known.
        result[np.ix_(~reached, varies)] = rates[~reached][:, varies]
        return np.clip(result, 0.0, 1.0)

    @cached_property
    def _background(self) -> np.ndarray:
        rows = [np.full(3, self.network.background[STEP, kind.signal]) for kind in self.kinds]
        return np.array([self.rate(kind, row) for kind, row in zip(self.kinds, rows, strict=True)]).reshape(-1, 3)

    def _rates(self, v: int, level: int) -> np.ndarray:
        """[configurations, kinds, 3] chance in one slice, transient mechanisms summed out."""
        chosen, shares = self.network.emissions[v][STEP, level], self.network.weights[v]
        by_pattern = np.zeros((len(self.network.patterns[STEP]), len(self.kinds), 3))
        for number in np.unique(chosen[shares > 0.0]):
            by_pattern[number] = self._background
            for signal, *rows in self.network.patterns[STEP][number].terms:
                for k in self._of_signal.get(signal, ()):
                    by_pattern[number, k] = self.rate(self.kinds[k], np.array(rows))
        return np.einsum("ck,ckrs->crs", shares, by_pattern[chosen])

    @cached_property
    def _of_signal(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for k, kind in enumerate(self.kinds):
            found.setdefault(kind.signal, []).append(k)
        return found
