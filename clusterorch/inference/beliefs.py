"""Here lives reading a belief: marginals over modes, variants, sites, mechanisms and copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clusterorch.models.compile import Block, Network
from clusterorch.models.ground import HEALTHY


@dataclass(frozen=True)
class Belief:
    """A normalised belief over the states of a network.  [states]"""

    network: Network
    vector: np.ndarray

    def block(self, block: Block) -> np.ndarray:
        """[severities, configurations, sites] of one variant."""
        return self.vector[block.offset : block.offset + block.size].reshape(block.shape())

    @property
    def empty(self) -> float:
        """Probability that the fault slot is empty."""
        return float(self.vector[0])

    @cached_property
    def variants(self) -> dict[str, float]:
        """Probability of each variant, benign ones included."""
        return {b.variant.name: float(self.block(b).sum()) for b in self.network.blocks}

    @cached_property
    def modes(self) -> dict[str, float]:
        """Probability of each failure mode and of `healthy`; sums to 1."""
        result = {mode.name: 0.0 for mode in self.network.spec.mode} | {HEALTHY: self.empty}
        for block in self.network.blocks:
            result[block.variant.mode] += self.variants[block.variant.name]
        return result

    def sites(self, *, benign: bool = False) -> dict[tuple[str, int], float]:
        """Probability that the fault lives on each (kind, number); variants of one kind add up."""
        result: dict[tuple[str, int], float] = {}
        for block in self.network.blocks:
            if block.variant.benign and not benign:
                continue
            for site, p in enumerate(self.block(block).sum(axis=(0, 1))):
                key = (block.variant.spec.site, site)
                result[key] = result.get(key, 0.0) + float(p)
        return result

    def mechanism(self, name: str) -> float:
        """Probability that a lasting mechanism is active."""
        total = 0.0
        for block in self.network.blocks:
            names = [m.name for m in block.chain.law.mechanisms]
            if name in names:
                bit = names.index(name)
                on = np.array([c.bits >> bit & 1 for c in block.chain.configurations], dtype=bool)
                total += float(self.block(block)[:, on, :].sum())
        return total

    def poisoned_copies(self) -> np.ndarray:
        """[copies + 1] probability of each number of poisoned copies."""
        result = np.zeros(self.network.layout.copies + 1)
        result[0] = self.empty
        for block in self.network.blocks:
            counts = np.array([c.poisoned for c in block.chain.configurations])
            mass = self.block(block).sum(axis=(0, 2))
            for count, p in zip(counts, mass, strict=True):
                result[count] += p
        return result

    @property
    def entropy(self) -> float:
        """Entropy of the belief over states, nats."""
        p = self.vector[self.vector > 0.0]
        return float(-(p * np.log(p)).sum())
