"""Here lives the filter for logs of unknown verbosity: silence may mean that nothing is printed.

Each stream prints its informational lines or it does not, once and for all.  Where it does not,
the log shows of them what it shows when nothing happened, so an observer cannot tell the two
apart until one such line appears.  There are 2^k settings of the k streams that have informational
lines; given one of them the log is complete, so the belief is a mixture of 2^k exact filters,
weighed by the evidence.  Costs 2^k times as much as `Filter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.plan import Plan, make_plan
from clusterorch.inference.priors import OnsetPrior
from clusterorch.models.compile import Network, family_kinds
from clusterorch.models.rows import CONTINUOUS, FIRST


class CoveredFilter:
    """Online filtering of a batch of instances whose streams may keep informational lines back.

    Args:
        network: the compiled model.
        info_share: probability that a stream prints its informational lines (`[[protocol]]` covered).
        batch, prior, site_weights, strict, plan: as for `Filter`.

    Attributes:
        streams: names of the streams that have informational lines.
        settings: [settings, streams] whether each prints them.
        weights: [B, settings] belief over settings.
    """

    def __init__(
        self, network: Network, info_share: float, *, batch: int = 1, prior: OnsetPrior | None = None,
        site_weights: np.ndarray | None = None, strict: bool = True, plan: Plan | None = None,
    ) -> None:  # fmt: skip
        self.network, self.strict = network, strict
        plan = plan if plan is not None else make_plan(network)
        self.streams, self._lines = info_lines(network)
        self.settings = np.array(list(product((True, False), repeat=len(self.streams))), dtype=bool)
        share = np.where(self.settings, info_share, 1.0 - info_share).prod(axis=1)
        self.weights = np.tile(share, (batch, 1))
        self.filters = [
            Filter(network, batch=batch, prior=prior, site_weights=site_weights, strict=False, plan=plan)
            for _ in self.settings
        ]
        # [settings, width] what a setting never prints, and what the log then shows
        self._kept_back = ~self.settings.astype(int) @ self._lines.astype(int) != 0 if self.streams else None
        self._kept_back = (~self.settings).astype(int) @ self._lines.astype(int) > 0
        first = np.array(family_kinds(network.spec) == FIRST)
        self._silence = np.repeat(np.where(first, -1.0, 0.0), np.diff(network.signal_offset))
        self.time = 0
        self.set_aside: list[tuple[int, int]] = []
