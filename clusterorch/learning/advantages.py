"""Here lives generalised advantage estimation over decisions of unequal length.

Source: Schulman et al. 2016; the discount of a decision is that of a slice to the power of its slices.
"""

from __future__ import annotations

import numpy as np


def advantages(
    rewards: np.ndarray, values: np.ndarray, after: np.ndarray, slices: np.ndarray, ended: np.ndarray,
    real: np.ndarray, discount: float, trace: float,
) -> np.ndarray:  # fmt: skip
    """Advantage of every decision.

    Args:
        rewards: [T, B] of each decision.
        values: [T, B] before each decision.
        after: [T, B] value of what each decision led to; of a truncated episode that of its last observation.
        slices: [T, B] that each decision lasted.
        ended: [T, B] whether the episode was cut off after the decision: what follows is another one's.
        real: [T, B] whether the decision was one; a row that only begins the next episode is not.
        discount: a slice.
        trace: lambda, a decision.

    Returns:
        [T, B]; 0 where not real.
    """
    found, running = np.zeros_like(values), np.zeros(values.shape[1])
    for t in reversed(range(len(rewards))):
        gamma = discount ** slices[t]
        surprise = rewards[t] + gamma * after[t] - values[t]
        running = np.where(real[t], surprise + gamma * trace * running * ~ended[t], 0.0)
        found[t] = running
    return found
