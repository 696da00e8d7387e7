"""Here lives the memo of situations: which row each signal reads at rest, near the site and at it.

A situation is (active mechanisms, severity, phase, job class).  Few of the possible ones occur, and
an intervention can bring about ones that no variant reaches, so rows are resolved when first met.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.models.compile import Network, family_kinds
from clusterorch.models.rows import CHORUS, CONTINUOUS, DISCRETE, FIRST, Rows, Situation
from clusterorch.models.spec import RELATIONS
from clusterorch.simulation.plan import WORD
from clusterorch.simulation.state import State

_MIX_0, _MIX_1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT = np.uint64(29)
_THRESHOLD, _SCALE, _OUTLIER_SCALE = 3, 4, 5  # columns of a continuous row, after mean, sd, absent


class SituationTable(NamedTuple):
    """Open addressing: keys are (both words of active bits, the rest packed), -1 where free."""

    keys: np.ndarray  # [capacity, 3], capacity a power of two
    number: np.ndarray  # [capacity]
    rows: np.ndarray  # [situations, signals, relations]
    draws: np.ndarray  # [rows, columns] see `draw_table`


@njit(cache=True, error_model="numpy")
def find_place(keys: np.ndarray, low: int, high: int, packed: int) -> int:
    """Place of a key, or of the free cell where it belongs."""
    h = (np.uint64(low) * _MIX_0) ^ (np.uint64(packed) * _MIX_1) ^ (np.uint64(high) * _MIX_2)
    h = h ^ (h >> _SHIFT)
    place = np.int64(h & np.uint64(keys.shape[0] - 1))
    for _ in range(keys.shape[0]):
        if keys[place, 0] == -1 or (keys[place, 0] == low and keys[place, 1] == high and keys[place, 2] == packed):
            return place
        place = (place + 1) & (keys.shape[0] - 1)
    return -1


@njit(cache=True, error_model="numpy")
def pack(severity: int, phase: int, job_class: int) -> int:
    """What a situation depends on beside the active mechanisms, in one number."""
    return (severity * 64 + phase) * 4 + job_class


@njit(cache=True, error_model="numpy")
def look_up(table: SituationTable, state: State, times: np.ndarray) -> int:
    """Number the situation of every instance that does not rest; returns how many are not known yet (-1)."""
    missing = 0
    for b in range(state.variant.shape[0]):
        if times[b] < 0:
            continue
        packed = pack(state.severity[b], state.phase[b], state.job_class[b])
        low, high = state.bits[b, 0] | state.transient[b, 0], state.bits[b, 1] | state.transient[b, 1]
        place = find_place(table.keys, low, high, packed)
        state.situation[b] = table.number[place] if table.keys[place, 0] == low else -1
        missing += 1 if state.situation[b] < 0 else 0
    return missing


class Situations:
    """The growing memo of one network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.rows = _rows_of(network)
        self.known: list[tuple[Situation, np.ndarray]] = []
        self.table = SituationTable(
            np.full((64, 3), -1, dtype=np.int64),
            np.full(64, -1, dtype=np.int64),
            np.zeros((0, len(network.spec.signal), len(RELATIONS)), dtype=np.int64),
            draw_table(network, network.rows, network.row_signal),
        )

    def learn(self, bits: np.ndarray, severity: np.ndarray, phase: np.ndarray, job_class: np.ndarray) -> None:
        """Resolve the situations of a batch that are not known yet.  [n, 2] bits, [n] each of the others"""
        columns = (bits[:, 0], bits[:, 1], severity, phase, job_class)
        fresh = dict.fromkeys(zip(*(a.tolist() for a in columns), strict=True))
        table = self.table
        while len(table.keys) < 4 * (len(self.known) + len(fresh)):
            table = _grown(table)
        for key in fresh:
            lit = key[0] | key[1] << WORD
            active = frozenset(m.name for i, m in enumerate(self.network.spec.mechanism) if lit >> i & 1)
            packed = pack(*key[2:])
            place = find_place(table.keys, *key[:2], packed)
            if table.keys[place, 0] == -1:
                table.keys[place] = *key[:2], packed
                table.number[place] = len(self.known)
                self.known.append((Situation(active, *key[2:], 0), self._resolve(active, *key[2:])))
        rows = np.stack([found for _, found in self.known])
        draws = draw_table(self.network, self.rows.table(), self.rows.signals())
        self.table = table._replace(rows=rows, draws=draws)

    def _resolve(self, active: frozenset[str], severity: int, phase: int, job_class: int) -> np.ndarray:
        return np.array(
            [
                self.rows.by_relation(s, active, severity, phase, job_class)
                for s in range(len(self.network.spec.signal))
            ],
            dtype=np.int64,
        )


def _grown(table: SituationTable) -> SituationTable:
    keys = np.full((2 * len(table.keys), 3), -1, dtype=np.int64)
    number = np.full(len(keys), -1, dtype=np.int64)
    for key, n in zip(table.keys.tolist(), table.number.tolist(), strict=True):
        if key[0] >= 0:
            place = find_place(keys, *key)
            keys[place], number[place] = key, n
    return table._replace(keys=keys, number=number)


def _rows_of(network: Network) -> Rows:
    """The rows of a network, ready for more; numbers stay what they were."""
    rows = Rows(network.spec)
    kinds = family_kinds(network.spec)
    for row, signal in enumerate(network.row_signal.tolist()):
        declared = network.spec.signal[signal]
        classes = {"presence": 2, "count": 5}.get(declared.family, len(declared.values))
        width = {CONTINUOUS: 3, DISCRETE: classes, CHORUS: 5, FIRST: 4}[int(kinds[signal])]
        rows.numbers[signal, tuple(network.rows[row, :width].tolist())] = row
        rows.why.append(network.row_why[row])
    return rows


def draw_table(network: Network, rows: np.ndarray, row_signal: np.ndarray) -> np.ndarray:
    """What a draw compares its uniform number with.  [rows, columns], [rows] -> [rows, columns]

    Continuous rows: mean, sd, absent, then the share that is absent or an outlier, and the
    scales that stretch what is left to (0, 1) for regular samples and outliers.  Discrete rows: cumulated
    probabilities, infinite from the last class of positive mass on.  Others stay.
    """
    table = rows.copy()
    kinds = family_kinds(network.spec)
    for row, signal in enumerate(row_signal.tolist()):
        declared = network.spec.signal[signal]
        if kinds[signal] == CONTINUOUS:
            absent = rows[row, 2]
            outlier = declared.outlier.probability if declared.outlier else 0.0
            threshold = absent + (1.0 - absent) * outlier
            table[row, _THRESHOLD] = threshold
            table[row, _SCALE] = 1.0 / (1.0 - threshold) if threshold < 1.0 else 0.0
            table[row, _OUTLIER_SCALE] = 1.0 / (threshold - absent) if threshold > absent else 0.0
        elif kinds[signal] == DISCRETE:
            last = int(np.flatnonzero(rows[row])[-1])
            table[row] = np.cumsum(rows[row])
            table[row, last:] = np.inf
    return table
