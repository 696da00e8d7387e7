"""Here lives how uniform draws become values, entity by entity, for whole arrays of entities.

What an entity gets depends on its own draw and row alone: the pass over all entities and the one over
those that need more do the same arithmetic, so it does not matter in which company it is drawn.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clusterorch.probability.elementary import central_quantile, normal_quantile

MEAN, SD, ABSENT, THRESHOLD, SCALE, OUTLIER_SCALE = range(6)  # columns of a continuous row
_SMALLEST, _LARGEST = 2.0**-54, 1.0 - 2.0**-53
_CENTRAL = 0.180625


@njit(cache=True, error_model="numpy", forceinline=True)
def _inside(u):
    u = u if u > _SMALLEST else _SMALLEST  # stretching may round to 0 or 1
    return u if u < _LARGEST else _LARGEST


@njit(cache=True, error_model="numpy", forceinline=True)
def _sample(z, mean, sd, a, spread, last):
    return (mean + a * (last - mean)) + (sd * spread) * z


@njit(cache=True, error_model="numpy")
def draw_continuous(
    out: np.ndarray, u: np.ndarray, row: np.ndarray, outlier: np.ndarray, decay: np.ndarray, spread: np.ndarray,
    last: np.ndarray, gap: np.ndarray, work: np.ndarray, index: np.ndarray,
) -> None:  # fmt: skip
    """Below `absent` no value, below `threshold` an outlier, else a regular sample by its quantile.

    row: [6+] see the columns.  outlier: [3] probability, mean, sd.  decay, spread: [64] memory and
    sqrt(1 - memory**2) by gap.  out, u, last, gap: [entities].  work, index: scratch, longer.
    """
    mean, sd, threshold, scale = row[MEAN], row[SD], row[THRESHOLD], row[SCALE]
    decay_1, spread_1 = decay[1], spread[1]
    for e in range(out.shape[0]):  # as if regular, central, and one slice after the last sample
        q = _inside((u[e] - threshold) * scale) - 0.5
        work[e] = q
        out[e] = _sample(central_quantile(q), mean, sd, decay_1, spread_1, last[e])
    late = np.uint64(0)
    for e in range(out.shape[0]):
        index[late] = e
        late += np.uint64((u[e] < threshold) | (work[e] * work[e] > _CENTRAL) | (gap[e] != 1))
    absent, outlier_scale = row[ABSENT], row[OUTLIER_SCALE]
    for j in range(late):
        v = u[np.uint64(index[j])]
        rest = (v - absent) * outlier_scale if v < threshold else (v - threshold) * scale
        work[j] = _inside(rest)
    for j in range(late):
        work[j] = normal_quantile(work[j])
    for j in range(late):
        e = np.uint64(index[j])
        g, v = np.uint8(gap[e]), u[e]
        value = _sample(work[j], mean, sd, decay[g], spread[g], last[e])
        value = outlier[1] + outlier[2] * work[j] if v < threshold else value
        out[e] = np.inf if v < absent else value


@njit(cache=True, error_model="numpy")
def draw_class(out: np.ndarray, u: np.ndarray, row: np.ndarray, classes: int) -> None:
    """First class whose cumulated mass exceeds the draw."""
    first = row[0]
    for e in range(out.shape[0]):
        out[e] = 1.0 if u[e] >= first else 0.0
    for k in range(1, classes - 1):
        edge = row[k]
        for e in range(out.shape[0]):
            out[e] += 1.0 if u[e] >= edge else 0.0


@njit(cache=True, error_model="numpy")
def draw_presence(out: np.ndarray, u: np.ndarray, probability: float) -> None:
    """1 with a probability, at the upper end of the draw."""
    silent = 1.0 - probability
    for e in range(out.shape[0]):
        out[e] = 1.0 if u[e] >= silent else 0.0


@njit(cache=True, error_model="numpy")
def remember(values: np.ndarray, last: np.ndarray, gap: np.ndarray) -> None:
    """Keep samples that were taken (delivered and not absent), count slices since for the others."""
    for e in range(values.shape[0]):
        x = values[e]
        taken = (x == x) & (x != np.inf)
        last[e] = x if taken else last[e]
        g = gap[e]
        older = g + 1 if (g > 0) & (g < 63) else g
        gap[e] = 1 if taken else older
