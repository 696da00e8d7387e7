"""Here lives what logs do not say of themselves: that a job which was down has been started again.

Under the incident prior a fault never ends by itself, since the question is what happened.  Yet jobs are restarted,
and their logs go on.  A fault in a job that is down is therefore *over* with some probability a slice: it keeps its
name and place, and brings about nothing more; or it begins anew with the restarted job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clusterorch.models.compile import Network
from clusterorch.models.spec import JOB_CLASSES, PHASES

DOWN = JOB_CLASSES.index("down")


@dataclass(frozen=True)
class Restarts:
    """Restarts nobody logged, of one network.

    `over` vectors have the shape of a belief, [states]: the mass of faults that are over, where they were.
    A fault that is over explains what is printed as the empty slot does.
    """

    network: Network
    chance: float = field(init=False)  # of a restart of a job that is down, a slice
    clears: float = field(init=False)
    _down: np.ndarray = field(init=False, repr=False)  # [phases, states]
    _again: np.ndarray = field(init=False, repr=False)  # [states] the state in which a fault begins anew

    def __post_init__(self) -> None:
        network, prior = self.network, self.network.spec.prior
        down, again = np.zeros((len(PHASES), network.states)), np.arange(network.states)
        for block in network.blocks:
            levels, configurations, sites = block.shape()
            here = slice(block.offset, block.offset + block.size)
            mask = np.broadcast_to(
                (block.classes == DOWN)[None, :, None, :], (levels, configurations, sites, len(PHASES))
            )
            down[:, here] = mask.reshape(block.size, len(PHASES)).T
            first = np.arange(block.size).reshape(block.shape())[:, :1, :] + block.offset
            again[here] = np.broadcast_to(first, block.shape()).ravel()
        seconds = prior.restart_seconds
        chance = min(1.0, network.spec.model.slice_seconds / seconds) if seconds else 0.0
        for name, value in (("chance", chance), ("clears", prior.restart_clears), ("_down", down), ("_again", again)):
            object.__setattr__(self, name, value)

    def pass_slice(self, belief: np.ndarray, over: np.ndarray, phase: int) -> tuple[np.ndarray, np.ndarray]:
        """Both after the restarts of one slice; together they keep their mass.  [states] each"""
        if self.chance == 0.0:
            return belief, over
        moved = self.chance * self._down[phase] * belief
        if not moved.any():
            return belief, over
        belief = belief - moved
        np.add.at(belief, self._again, (1.0 - self.clears) * moved)
        return belief, over + self.clears * moved

    def retreat_slice(self, future: np.ndarray, future_over: float, phase: int) -> np.ndarray:
        """The transpose of `pass_slice`: what the future says of every state before it.  [states]"""
        if self.chance == 0.0:
            return future
        moved = self.clears * future_over + (1.0 - self.clears) * future[self._again]
        return future + self.chance * self._down[phase] * (moved - future)


def condition(belief: np.ndarray, over: np.ndarray, log_ratio: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Weigh what is over against what is not, after evidence.

    Args:
        belief: [states] normalised, given the evidence and that the fault is not over.
        over: [states] mass before the evidence; the rest of 1 was not over.
        log_ratio: log p(evidence | not over) / p(evidence | empty slot).

    Returns:
        Both with their masses, together 1, and the log evidence against the empty slot's.
    """
    gone = float(over.sum())
    if gone <= 0.0:
        return belief, over, log_ratio
    log_here = np.log(max(1.0 - gone, 1e-300)) + log_ratio
    total = float(np.logaddexp(log_here, np.log(gone)))
    return belief * np.exp(log_here - total), over * np.exp(-total), total
