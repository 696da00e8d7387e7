"""Here lives the predictive distribution: what a signal of the next slice will show, given all so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.inference.filtering import Filter
from clusterorch.inference.priors import STEP
from clusterorch.inference.transition import predict
from clusterorch.models.rows import CHORUS, DISCRETE, FIRST, KIND_OF_FAMILY


class Prediction(NamedTuple):
    """A mixture over rows.

    weights: [rows that can occur].  rows: their numbers in the network's table.
    classes: [classes] for presence, count and categorical; else None.
    mean, sd: of the value, given that there is one, for continuous signals; else nan.
    """

    weights: np.ndarray
    rows: np.ndarray
    classes: np.ndarray | None
    mean: float
    sd: float


def predicted_belief(
    f: Filter, *, phase: int = STEP, age_before: int = 0, save_ends: bool = False, b: int = 0
) -> np.ndarray:
    """[states] belief about the next slice before anything of it is seen."""
    after = np.empty(f.network.states)
    onset = f.prior.onset(f.time, phase)
    predict(f.plan, phase, int(f.due(age_before)[b]), save_ends, onset, f.weights, f.belief[b], after)
    return after


def row_weights(f: Filter, belief: np.ndarray, signal: int, entity: int, phase: int) -> np.ndarray:
    """[rows of the table] probability that each row rules one entity's signal."""
    network = f.network
    weights = np.zeros(len(network.rows))
    weights[network.background[phase, signal]] += belief[0]
    kind = network.spec.signal[signal].entity
    for block, chosen, shares in zip(network.blocks, network.emissions, network.weights, strict=True):
        site_kind = block.variant.spec.site
        relation = np.array([network.layout.relation(site_kind, i, kind)[entity] for i in range(block.sites)])
        mass = belief[block.offset : block.offset + block.size].reshape(block.shape())
        for level in range(block.levels):
            for c in range(mass.shape[1]):
                for k in np.flatnonzero(shares[c]):
                    pattern = network.patterns[phase][chosen[phase, level, c, k]]
                    rows = next((t[1:] for t in pattern.terms if t[0] == signal), None)
                    for r in range(3):
                        row = network.background[phase, signal] if rows is None else rows[r]
                        weights[row] += shares[c, k] * mass[level, c, relation == r].sum()
    return weights


def predictive(
    f: Filter, signal: str, entity: int = 0, *, phase: int = STEP, age_before: int = 0, b: int = 0
) -> Prediction:
    """Distribution of one entity's signal in the next slice, the published class not yet known.

    Raises:
        ValueError: a chorus and a first speaker have no distribution of one entity.
    """
    network = f.network
    number = network.signal_index(signal)
    family = KIND_OF_FAMILY[network.spec.signal[number].family]
    if family == FIRST:
        raise ValueError(f"{signal}: a first speaker is one value of the job; ask for another signal")
    weights = row_weights(f, predicted_belief(f, phase=phase, age_before=age_before, b=b), number, entity, phase)
    rows = np.flatnonzero(weights)
    weights, table = weights[rows], network.rows[rows]
    if family == DISCRETE:
        width = {"presence": 2, "count": 5}.get(
            network.spec.signal[number].family, len(network.spec.signal[number].values)
        )
        return Prediction(weights, rows, weights @ table[:, :width], float("nan"), float("nan"))
    if family == CHORUS:
        raise ValueError(f"{signal}: members of a chorus speak together; ask for another signal")
    return _continuous(f, number, entity, weights, rows, b)


def _continuous(f: Filter, signal: int, entity: int, weights: np.ndarray, rows: np.ndarray, b: int) -> Prediction:
    at = f.network.signal_offset[signal] + entity
    table, g = f.network.rows[rows], f.gap[b, at]
    a, spread = f.plan.decay[signal, g], f.plan.spread[signal, g]
    outlier, outlier_mean, outlier_sd = f.plan.outlier[signal]
    means = (1.0 - outlier) * (table[:, 0] + a * (f.last[b, at] - table[:, 0])) + outlier * outlier_mean
    centre = table[:, 0] + a * (f.last[b, at] - table[:, 0])
    second = (1.0 - outlier) * ((table[:, 1] * spread) ** 2 + centre**2) + outlier * (outlier_sd**2 + outlier_mean**2)
    present = weights * (1.0 - table[:, 2])
    present = present / present.sum()
    mean = float((present * means).sum())
    return Prediction(weights, rows, None, mean, float(np.sqrt((present * second).sum() - mean**2)))
