"""Here lives the weighing of evidence: what each delivered signal did to the log odds of every mode.

The prequential weight of an item is the change of the log odds when it comes in after all items
before it, in a fixed order: slices, then signals as declared, then entities.  Weights, and what the
passing of time itself did, add up to the whole change exactly.  Leave-one-out, beside it, asks
what would be believed without the item; those do not add up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.models.compile import Network


class Weight(NamedTuple):
    """Change of every mode's log odds by one item; `signal` None is the passing of time."""

    slice_index: int
    signal: str | None
    entity: int | None
    change: dict[str, float]


def log_odds(belief: Belief) -> dict[str, float]:
    """Log odds of every mode against all others, nats; infinite where a belief is exactly zero."""
    modes = belief.modes
    with np.errstate(divide="ignore"):
        return {
            mode: float(np.log(p) - np.log(sum(q for other, q in modes.items() if other != mode)))
            for mode, p in modes.items()
        }


def _difference(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {mode: after[mode] - before[mode] if np.isfinite(before[mode]) else after[mode] for mode in after}


class _Trial:
    """Repeated updates of one slice from the same state of a filter, with more and more of its values."""

    def __init__(self, base: Filter, evidence: SliceEvidence) -> None:
        self.base, self.evidence = base, evidence
        self.kept = base.belief.copy(), base.last.copy(), base.gap.copy(), base.time

    def belief(self, values: np.ndarray, *, published: bool = True) -> Belief:
        """The belief after the slice had only these values been delivered."""
        f = self.base
        f.belief[:], f.last[:], f.gap[:], f.time = self.kept
        job_class = self.evidence.job_class if published else -1
        f.step(replace(self.evidence, values=values, job_class=job_class))
        return f.posterior()


def prequential_weights(
    network: Network, evidence: list[SliceEvidence], *, by_entity: bool = False, base: Filter | None = None
) -> list[Weight]:
    """Weights of every delivered signal (or of every entity's value), in order.

    The published class is counted with the passing of time: it is never in doubt.
    """
    f = base or Filter(network)
    weights = []
    for t, one in enumerate(evidence):
        odds = log_odds(f.posterior())
        trial = _Trial(f, one)
        seen = np.full(network.width, np.nan)
        now = log_odds(trial.belief(seen))
        weights.append(Weight(t, None, None, _difference(now, odds)))
        for signal, entity, where in items(network, one.values, by_entity=by_entity):
            seen[where] = one.values[where]
            later = log_odds(trial.belief(seen))
            weights.append(Weight(t, signal, entity, _difference(later, now)))
            now = later
        trial.belief(one.values)
    return weights


def items(network: Network, values: np.ndarray, *, by_entity: bool) -> list[tuple[str, int | None, slice]]:
    """The delivered items of a slice in canonical order: (signal, entity or None, where in the vector)."""
    found: list[tuple[str, int | None, slice]] = []
    for s, signal in enumerate(network.spec.signal):
        at = network.slice_of(s)
        if by_entity:
            present = at.start + np.flatnonzero(~np.isnan(values[at]))
            found.extend((signal.name, int(i - at.start), slice(int(i), int(i) + 1)) for i in present)
        elif not np.isnan(values[at]).all():
            found.append((signal.name, None, at))
    return found


def leave_one_out(
    network: Network, evidence: list[SliceEvidence], *, by_entity: bool = False, base: Filter | None = None
) -> list[Weight]:
    """Change of the log odds after the last slice if one item of it had not been delivered, sign as for weights."""
    f = base or Filter(network)
    for one in evidence[:-1]:
        f.step(one)
    trial, last = _Trial(f, evidence[-1]), evidence[-1].values
    whole = log_odds(trial.belief(last))
    weights = []
    for signal, entity, where in items(network, last, by_entity=by_entity):
        without = last.copy()
        without[where] = np.nan
        weights.append(Weight(len(evidence) - 1, signal, entity, _difference(whole, log_odds(trial.belief(without)))))
    trial.belief(last)
    return weights
