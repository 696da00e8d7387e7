"""Here lives smoothing: the belief about each slice given all evidence, or all within a lag.

Memory stays bounded: the forward pass keeps a belief every sqrt(T) slices and recomputes the
stretch between two of them when the backward pass comes by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from clusterorch.inference.backward import (
    log_likelihoods,
    retreat,
    retreat_clear,
    retreat_restart,
    weigh_future,
)  # fmt: skip
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import Filter, SliceEvidence, likelihood_ratios
from clusterorch.inference.plan import view_of
from clusterorch.inference.priors import OnsetPrior
from clusterorch.models.compile import Network


class Recording:
    """A forward pass over a sequence that can be visited again, stretch by stretch.

    Args:
        network: the compiled model.
        evidence: one entry a slice.
        prior, site_weights: as for `Filter`.
    """

    def __init__(
        self, network: Network, evidence: Sequence[SliceEvidence], *, prior: OnsetPrior | None = None,
        site_weights: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.evidence = evidence
        self.filter = Filter(network, prior=prior, site_weights=site_weights)
        self.stretch = max(1, math.isqrt(len(evidence)))
        self.kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.log_evidence = 0.0
        for t, one in enumerate(evidence):
            if t % self.stretch == 0:
                self.kept.append(self._state())
            self.log_evidence += float(self.filter.step(one)[0])

    def _state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        f = self.filter
        return f.belief.copy(), f.last.copy(), f.gap.copy()

    def stretch_of(self, number: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(slice, filtered belief after it, log likelihoods of it) over one stretch, in order."""
        f = self.filter
        belief, last, gap = self.kept[number]
        f.belief, f.last, f.gap, f.time = belief.copy(), last.copy(), gap.copy(), number * self.stretch
        found = []
        for one in self.evidence[f.time : f.time + self.stretch]:
            t, likelihood = f.time, np.empty(f.network.states)
            last, gap = f.last[0].copy(), f.gap[0].copy()
            likelihood_ratios(f.plan, view_of(one.phase, one.job_class), one.values, last, gap, f._scratch)
            log_likelihoods(f.plan, one.phase, one.job_class, f._scratch[3], one.soft, likelihood)
            f.step(one)
            found.append((t, f.belief[0].copy(), likelihood))
        return found

    def stretches(self) -> range:
        """Numbers of the stretches, in order."""
        return range(len(self.kept))

    def step_back(self, t: int, likelihood: np.ndarray, future: np.ndarray) -> np.ndarray:
        """From the future after slice t to the future before it.  [states] -> [states], scaled."""
        f, one = self.filter, self.evidence[t]
        weighed, before = np.empty_like(future), np.empty_like(future)
        weigh_future(likelihood, future, weighed)
        onset = f.prior.onset(t, one.phase)
        if one.action is not None and one.action.restarts:
            retreat_restart(
                f.plan,
                one.phase,
                one.save_ends,
                one.action.discards,
                one.action.clears,
                one.action.brought,
                one.action.brought_to,
                onset,
                f.weights,
                weighed,
                before,
            )
        else:
            retreat(
                f.plan,
                one.phase,
                int(f.due(one.age_before)[0]),
                one.save_ends,
                onset,
                f.weights,
                weighed,
                before,
            )
            if one.action is not None:
                retreat_clear(f.plan, one.action.clears, weighed[0], before)
        return before / before.max()


def backward_smooth(
    network: Network, evidence: Sequence[SliceEvidence], *, prior: OnsetPrior | None = None,
    site_weights: np.ndarray | None = None,
) -> Iterator[tuple[int, Belief]]:  # fmt: skip
    """p(state of slice t | all evidence), from the last slice to the first."""
    recording = Recording(network, evidence, prior=prior, site_weights=site_weights)
    future = np.ones(network.states)
    for number in reversed(recording.stretches()):
        for t, belief, likelihood in reversed(recording.stretch_of(number)):
            smoothed = belief * future
            yield t, Belief(network, smoothed / smoothed.sum())
            future = recording.step_back(t, likelihood, future)


def fixed_lag_smooth(
    network: Network, evidence: Sequence[SliceEvidence], lag: int, *, prior: OnsetPrior | None = None,
    site_weights: np.ndarray | None = None,
) -> Iterator[tuple[int, Belief]]:  # fmt: skip
    """p(state of slice t | evidence up to slice t + lag), in order; the last `lag` see what there is."""
    recording = Recording(network, evidence, prior=prior, site_weights=site_weights)
    window: list[tuple[int, np.ndarray, np.ndarray]] = []
    for number in recording.stretches():
        for entry in recording.stretch_of(number):
            window.append(entry)
            if len(window) == lag + 1:
                yield _look_back(recording, window, network)
                window.pop(0)
    while window:
        yield _look_back(recording, window, network)
        window.pop(0)


def _look_back(
    recording: Recording, window: list[tuple[int, np.ndarray, np.ndarray]], network: Network
) -> tuple[int, Belief]:
    future = np.ones(network.states)
    for t, _, likelihood in reversed(window[1:]):
        future = recording.step_back(t, likelihood, future)
    smoothed = window[0][1] * future
    return window[0][0], Belief(network, smoothed / smoothed.sum())
