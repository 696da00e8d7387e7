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
    _fault: np.ndarray = field(init=False, repr=False)  # [states] the fault, whatever its configuration
    # By phase: fault, state and probability of what a fault does that begins anew in a slice.
    _anew: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        network, prior = self.network, self.network.spec.prior
        down, fault = np.zeros((len(PHASES), network.states)), np.zeros(network.states, dtype=np.int64)
        faults, anew = 1, [[] for _ in PHASES]
        for block in network.blocks:
            levels, configurations, sites = block.shape()
            here = slice(block.offset, block.offset + block.size)
            mask = np.broadcast_to(
                (block.classes == DOWN)[None, :, None, :], (levels, configurations, sites, len(PHASES))
            )
            down[:, here] = mask.reshape(block.size, len(PHASES)).T
            number = np.arange(faults, faults + levels * sites).reshape(levels, 1, sites)
            faults += levels * sites
            fault[here] = np.broadcast_to(number, block.shape()).ravel()
            states = np.arange(block.size).reshape(block.shape()) + block.offset
            for phase, rows in enumerate(anew):
                start = block.chain.onsets[block.chain.onset_of[phase, 0, False]]
                rows += [(number[:, 0].ravel(), states[:, to].ravel(), np.full(levels * sites, p)) for to, p in start]
        seconds = prior.restart_seconds
        joined = [tuple(np.concatenate(column) for column in zip(*rows, strict=True)) for rows in anew]
        settings = {"chance": min(1.0, network.spec.model.slice_seconds / seconds) if seconds else 0.0}
        settings |= {"clears": prior.restart_clears, "_down": down, "_fault": fault, "_anew": joined}
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def pass_slice(self, belief: np.ndarray, over: np.ndarray, phase: int) -> tuple[np.ndarray, np.ndarray]:
        """Both after the restarts of one slice; together they keep their mass.  [states] each"""
        if self.chance == 0.0:
            return belief, over
        moved = self.chance * self._down[phase] * belief
        if not moved.any():
            return belief, over
        fault, state, p = self._anew[phase]
        mass = np.bincount(self._fault, weights=moved)
        again = np.bincount(state, weights=p * mass[fault], minlength=len(belief))
        return belief - moved + (1.0 - self.clears) * again, over + self.clears * moved

    def retreat_slice(self, future: np.ndarray, future_over: float, phase: int) -> np.ndarray:
        """The transpose of `pass_slice`: what the future says of every state before it.  [states]"""
        if self.chance == 0.0:
            return future
        fault, state, p = self._anew[phase]
        again = np.bincount(fault, weights=p * future[state])[self._fault]
        moved = self.clears * future_over + (1.0 - self.clears) * again
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
