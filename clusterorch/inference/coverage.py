"""Here lives the filter for logs of unknown verbosity, where silence may mean that nothing is printed.

Each stream prints its informational lines, or it never does.  If it does not, the log shows of them
what it shows when nothing happened: nobody can tell "not printed" from "did not happen" until the
first such line appears.  Given the setting of every stream the log is complete, so the belief is a
mixture of 2^k exact filters for the k streams that have informational lines, weighed by evidence.
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


def info_streams(network: Network) -> list[str]:
    """Streams that have informational lines, in order of their first one."""
    return list(dict.fromkeys(s.stream for s in network.spec.signal if s.verbosity == "info"))


def info_lines(network: Network, stream: str) -> np.ndarray:
    """[width] which values of a slice are informational lines of a stream."""
    continuous = family_kinds(network.spec) == CONTINUOUS  # samples, not lines
    mine = [s.stream == stream and s.verbosity == "info" for s in network.spec.signal]
    return np.repeat(np.array(mine) & ~continuous, np.diff(network.signal_offset))


def silence(network: Network) -> np.ndarray:
    """[width] what the log shows of a line that is not printed: the first class, or nobody."""
    first = family_kinds(network.spec) == FIRST
    return np.repeat(np.where(first, -1.0, 0.0), np.diff(network.signal_offset))


class CoveredFilter:
    """Online filtering of a batch of instances, each of which may keep informational lines back.

    Takes 2^k times as long as `Filter`.

    Args:
        network: the compiled model.
        info_share: probability that a stream prints its informational lines.
        batch, prior, site_weights, strict, plan: as for `Filter`.

    Attributes:
        streams: the k streams that have informational lines.
        settings: [2^k, k] whether each prints them.
        weights: [B, 2^k] belief over settings.
    """

    def __init__(
        self, network: Network, info_share: float, *, batch: int = 1, prior: OnsetPrior | None = None,
        site_weights: np.ndarray | None = None, strict: bool = True, plan: Plan | None = None,
    ) -> None:  # fmt: skip
        self.network, self.strict = network, strict
        self.streams = info_streams(network)
        self.settings = np.array(list(product((True, False), repeat=len(self.streams))), dtype=bool)
        share = np.where(self.settings, info_share, 1.0 - info_share).prod(axis=1)
        self.weights = np.tile(share, (batch, 1))
        plan = plan if plan is not None else make_plan(network)
        self.filters = [
            Filter(network, batch=batch, prior=prior, site_weights=site_weights, strict=False, plan=plan)
            for _ in self.settings
        ]
        lines = np.array([info_lines(network, stream) for stream in self.streams]).reshape(-1, network.width)
        self._held_back = np.array([lines[~printed].any(axis=0) for printed in self.settings])
        self._silence = silence(network)
        self.time = 0
        self.set_aside: list[tuple[int, int]] = []

    @property
    def batch(self) -> int:
        """Number of instances."""
        return len(self.weights)

    @property
    def belief(self) -> np.ndarray:
        """[B, states] belief, whatever the verbosity."""
        return sum(self.weights[:, [s]] * f.belief for s, f in enumerate(self.filters))

    def posterior(self, b: int = 0) -> Belief:
        """The belief of one instance."""
        parts = [self.weights[b, s] * f.belief[b] for s, f in enumerate(self.filters)]
        return Belief(self.network, np.sum(parts, axis=0))

    def printed(self, b: int = 0) -> dict[str, float]:
        """Probability that each stream prints its informational lines."""
        return {name: float(self.weights[b, self.settings[:, k]].sum()) for k, name in enumerate(self.streams)}

    def step(self, evidence: SliceEvidence | Sequence[SliceEvidence]) -> np.ndarray:
        """Advance one slice.  [B] log p(evidence of the slice | evidence before), nats.

        Raises:
            ImpossibleEvidence: no setting and no state that was believed possible explains it (if strict).
        """
        each = [evidence] * self.batch if isinstance(evidence, SliceEvidence) else list(evidence)
        values = np.stack([one.values for one in each])
        logs = [
            f.step([replace(one, values=seen) for one, seen in zip(each, self._shown(values, s), strict=True)])
            for s, f in enumerate(self.filters)
        ]
        return self._weigh(np.stack(logs, axis=1), values)

    def step_batch(
        self,
        values: np.ndarray,
        phase: np.ndarray,
        job_class: np.ndarray,
        age_before: np.ndarray,
        save_ends: np.ndarray,
    ) -> np.ndarray:
        """The fast path of `step`: no actions, no soft evidence.  [B, width] values -> [B] log evidence."""
        logs = [
            f.step_batch(self._shown(values, s), phase, job_class, age_before, save_ends)
            for s, f in enumerate(self.filters)
        ]
        return self._weigh(np.stack(logs, axis=1), values)

    def _shown(self, values: np.ndarray, s: int) -> np.ndarray:
        """What a setting has to explain: a line that it never prints says nothing."""
        return np.where(self._held_back[s], np.nan, values)

    def _weigh(self, logs: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Weigh the settings by what they made of the slice.  [B, settings] -> [B]"""
        spoken = ~np.isnan(values) & (values != self._silence)
        for s, f in enumerate(self.filters):
            logs[(spoken & self._held_back[s]).any(axis=1), s] = -np.inf
            for t, b in reversed(f.set_aside):
                if t != self.time:
                    break
                logs[b, s] = -np.inf
        with np.errstate(divide="ignore"):
            before = np.log(self.weights)
        joint = before + logs
        peak = joint.max(axis=1)
        stuck = peak == -np.inf
        for b in np.flatnonzero(stuck):
            self._impossible(int(b))
        joint[stuck], peak[stuck] = before[stuck], 0.0
        share = np.exp(joint - peak[:, None])
        total = share.sum(axis=1)
        self.weights = share / total[:, None]
        self.time += 1
        return np.log(total) + peak

    def _impossible(self, b: int) -> None:
        if self.strict:
            raise ImpossibleEvidence(f"slice {self.time}, instance {b}: no believed state and no verbosity gives this")
        for f in self.filters:  # the prediction stands, in every setting
            f.belief[b] = f._after[b] / f._after[b].sum()
        self.set_aside.append((self.time, b))
