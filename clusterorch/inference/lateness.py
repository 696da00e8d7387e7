"""Here lives late evidence: cells that arrive slices after they happened.

The filter keeps its own state before each of the last `max_lag` slices and replays what a late
cell touches, so that at every step it equals the batch posterior on what has arrived.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.priors import OnsetPrior
from clusterorch.models.compile import Network


@dataclass
class _Kept:
    """One slice of the window: its evidence so far, and the filter's state before it."""

    evidence: SliceEvidence
    before: tuple[np.ndarray, np.ndarray, np.ndarray]
    log_evidence: float = 0.0


class LateFilter:
    """A filter for one instance whose evidence may come late, in any order within `max_lag` slices.

    Args:
        network: the compiled model.
        max_lag: slices a cell may be late; what comes later is counted in `too_late`.
        prior, site_weights, strict: as for `Filter`.
    """

    def __init__(
        self, network: Network, max_lag: int, *, prior: OnsetPrior | None = None,
        site_weights: np.ndarray | None = None, strict: bool = True,
    ) -> None:  # fmt: skip
        self.filter = Filter(network, prior=prior, site_weights=site_weights, strict=strict)
        self.max_lag = max_lag
        self.too_late = 0
        self._kept: deque[_Kept] = deque()
        self._first = 0

    @property
    def time(self) -> int:
        """Number of slices opened."""
        return self.filter.time

    def open_slice(self, published: SliceEvidence) -> None:
        """Begin the next slice; `published` carries schedule, class, action and the cells already here."""
        self._kept.append(_Kept(published, self._state()))
        self._kept[-1].log_evidence = float(self.filter.step(published)[0])
        if len(self._kept) > self.max_lag + 1:
            self._kept.popleft()
            self._first += 1

    def arrive(self, slice_index: int, values: np.ndarray) -> bool:
        """Add the cells of one slice: [width], NaN where nothing new.  False: too late, counted."""
        return self.arrive_many({slice_index: values}) == 1

    def arrive_many(self, cells: dict[int, np.ndarray]) -> int:
        """Add cells of several slices and replay once.  Returns how many slices were in time."""
        known = {t: v for t, v in cells.items() if self._first <= t < self.time}
        self.too_late += sum(t < self._first for t in cells)
        for t, values in known.items():
            kept = self._kept[t - self._first]
            merged = np.where(np.isnan(values), kept.evidence.values, values)
            kept.evidence = replace(kept.evidence, values=merged)
        if known:
            self._replay(min(known))
        return len(known)

    def _replay(self, start: int) -> None:
        f, end = self.filter, self.filter.time
        belief, last, gap = self._kept[start - self._first].before
        f.belief[:], f.last[:], f.gap[:], f.time = belief, last, gap, start
        for t in range(start, end):
            kept = self._kept[t - self._first]
            kept.before = self._state()
            kept.log_evidence = float(f.step(kept.evidence)[0])

    def _state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        f = self.filter
        return f.belief.copy(), f.last.copy(), f.gap.copy()

    def posterior(self) -> Belief:
        """The belief about the newest slice given all that has arrived."""
        return self.filter.posterior()
