"""Here live the scores of a posterior against the truth.

AC@k is the share of incidents whose true cause is among the first k (RCAEval, AIOpsLab); calibration errors
are those of Guo et al. 2017 (top label) and Kull et al. 2019 (classwise), over bins of equal mass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

LEAST = 1e-6  # a probability below this counts as this: no single incident decides a mean


def ranked(modes: Mapping[str, float]) -> list[str]:
    """Modes, most probable first; ties by name.

    >>> ranked({"a": 0.2, "b": 0.5, "c": 0.3})
    ['b', 'c', 'a']
    """
    return sorted(modes, key=lambda mode: (-modes[mode], mode))


def rank_of(modes: Mapping[str, float], truth: str) -> int:
    """Place of the truth in the ranking, from 1; one more than there are modes if it is no mode."""
    order = ranked(modes)
    return order.index(truth) + 1 if truth in order else len(order) + 1


def log_score(modes: Mapping[str, float], truth: str) -> float:
    """Log of the probability of the truth, nats, floored.

    >>> round(log_score({"a": 1.0, "b": 0.0}, "b"), 3)
    -13.816
    """
    return float(np.log(max(modes.get(truth, 0.0), LEAST)))


def entropy(modes: Mapping[str, float]) -> float:
    """Entropy of a posterior, nats.

    >>> round(entropy({"a": 0.5, "b": 0.5}), 4)
    0.6931
    """
    p = np.array([x for x in modes.values() if x > 0.0])
    return float(-(p * np.log(p)).sum())


def total_variation(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Largest difference of the probabilities that two posteriors give to a set of modes.

    >>> total_variation({"a": 1.0, "b": 0.0}, {"a": 0.75, "b": 0.25})
    0.25
    """
    return 0.5 * sum(abs(one.get(mode, 0.0) - other.get(mode, 0.0)) for mode in {**one, **other})


def calibration_error(probabilities: Sequence[float], happened: Sequence[bool], bins: int = 15) -> float:
    """Expected calibration error over bins of equal mass.

    >>> calibration_error([0.25] * 4, [True, False, False, False], bins=1)
    0.0
    """
    p, hit = np.asarray(probabilities, dtype=float), np.asarray(happened, dtype=float)
    if not len(p):
        return 0.0
    order = np.argsort(p, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) / len(p) * abs(p[part].mean() - hit[part].mean()) for part in parts))


def top_label_error(posteriors: Sequence[Mapping[str, float]], truths: Sequence[str], bins: int = 15) -> float:
    """Calibration error of the probability of the leading mode."""
    leading = [ranked(modes)[0] for modes in posteriors]
    confidence = [modes[mode] for modes, mode in zip(posteriors, leading, strict=True)]
    return calibration_error(confidence, [a == b for a, b in zip(leading, truths, strict=True)], bins)


def classwise_error(posteriors: Sequence[Mapping[str, float]], truths: Sequence[str], bins: int = 15) -> float:
    """Calibration error of each mode's probability, averaged over modes."""
    modes = list(posteriors[0]) if posteriors else []
    errors = [calibration_error([p[mode] for p in posteriors], [t == mode for t in truths], bins) for mode in modes]
    return float(np.mean(errors)) if errors else 0.0
