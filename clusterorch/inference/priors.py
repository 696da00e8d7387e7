"""Here lives what is believed about faults before any evidence: when they start, which, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clusterorch.models.compile import Network
from clusterorch.models.spec import PHASES
from clusterorch.probability.lifetimes import onset_probability, timer_slices

STEP = PHASES.index("step")


def incident_mix(network: Network, uniform_share: float) -> np.ndarray:
    """[variants] shares of a fault, modes part uniform and part by hazard; benign roots get none.  Sums to 1."""
    modes = list(dict.fromkeys(b.variant.mode for b in network.blocks if not b.variant.benign))
    hazard = np.array([0.0 if b.variant.benign else b.variant.rate_per_hour for b in network.blocks])
    shares = np.zeros(len(network.blocks))
    for mode in modes:
        mine = np.array([b.variant.mode == mode for b in network.blocks])
        weight = uniform_share / len(modes) + (1.0 - uniform_share) * hazard[mine].sum() / hazard.sum()
        shares[mine] = weight * hazard[mine] / hazard[mine].sum()
    return shares


def benign_mix(network: Network) -> np.ndarray:
    """[variants] shares of a benign root; sums to 1 unless the model has none."""
    shares = np.array([b.variant.incident_share if b.variant.benign else 0.0 for b in network.blocks])
    return shares / shares.sum() if shares.sum() > 0.0 else shares


def by_phase(network: Network, share: np.ndarray) -> np.ndarray:
    """[phases, variants] shares of what starts in a slice of each phase; every row has the sum of `share`.

    A variant that may start in some phases only starts in these; any other in each with its share of
    `[prior.phase_shares]`, or alike if there are none; with probability `phase_slip` the phase told is not the one
    that counted.  Bayes' rule on the phase of the start, for failures and
    disturbances apart, so that the phase tells them from each other and not whether there is one.
    """
    shares, slip = network.spec.prior.phase_shares, network.spec.prior.phase_slip
    anywhere = np.array([getattr(shares, phase) if shares else 1.0 / len(PHASES) for phase in PHASES])
    chance = anywhere[:, None] * np.ones(len(share))
    for v, block in enumerate(network.blocks):
        if only := block.variant.spec.phases:
            chance[:, v] = [(1.0 - slip) * (phase in only) / len(only) + slip / len(PHASES) for phase in PHASES]
    rows = share * chance
    benign = np.array([b.variant.benign for b in network.blocks])
    for part in (benign, ~benign):
        sums = rows[:, part].sum(axis=1, keepdims=True)
        rows[:, part] *= share[part].sum() / np.where(sums > 0.0, sums, 1.0)
    return rows


@dataclass(frozen=True)
class OnsetPrior:
    """Probability that each variant starts in a slice, given an empty slot.

    `share[f, v]` is the probability that variant v ever starts if all slices are of phase f, and `timing[t]`
    that a start falls into slice t; without a timing the probabilities are the same in every slice.
    """

    stationary: np.ndarray  # [phases, variants]
    share: np.ndarray | None = None  # [phases, variants]
    timing: np.ndarray | None = field(default=None, repr=False)

    def onset(self, t: int, phase: int) -> np.ndarray:
        """[variants] probability of starting in slice t, given that the slot was empty before."""
        if self.share is None or self.timing is None:
            return self.stationary[phase]
        if t >= len(self.timing):
            return np.zeros(self.share.shape[1])
        # Rows have one sum, but for phases in which nothing may start: those only leave more to later slices.
        left = 1.0 - float(self.share.sum(axis=1).max()) * float(self.timing[:t].sum())
        return self.share[phase] * self.timing[t] / left


def stationary_prior(network: Network) -> OnsetPrior:
    """Faults at their declared hazards, for ever."""
    return OnsetPrior(network.onset)


def episode_prior(network: Network) -> OnsetPrior:
    """Faults often enough to learn from, `[prior] incidents_per_hour`; benign roots at their own hazards."""
    prior = network.spec.prior
    total = onset_probability(prior.incidents_per_hour or 0.0, network.spec.model.slice_seconds)
    benign = np.array([b.variant.benign for b in network.blocks])
    mix = by_phase(network, incident_mix(network, prior.uniform_share))
    return OnsetPrior(np.where(benign, network.onset, total * mix))


def incident_prior(network: Network, slices: int) -> tuple[OnsetPrior, int]:
    """Somebody collected these logs: one fault at most, part of the time before the first line.

    Returns the prior and the number of slices to run before the first line.
    """
    prior = network.spec.prior
    healthy = prior.healthy if prior.healthy is not None else 0.12
    # Half of the healthy share is an empty slot, half a disturbance that looked like an incident.
    share = (1.0 - healthy) * incident_mix(network, prior.uniform_share) + 0.5 * healthy * benign_mix(network)
    before = timer_slices(prior.preroll_seconds, network.spec.model.slice_seconds) if prior.preroll_seconds else 0
    timing = np.zeros(before + slices)
    early = prior.before_first_line if before else 0.0
    timing[:before] = early / max(before, 1)
    timing[before:] = (1.0 - early) / slices
    return OnsetPrior(network.onset, by_phase(network, share), timing), before


def prior_of(network: Network, slices: int = 0) -> OnsetPrior:
    """The prior that the model's `[prior]` names."""
    kind = network.spec.prior.kind
    if kind == "stationary":
        return stationary_prior(network)
    return episode_prior(network) if kind == "episode" else incident_prior(network, slices)[0]


def uniform_sites(network: Network) -> np.ndarray:
    """[sum of sites over variants] every site of a variant alike."""
    return np.concatenate([np.full(b.sites, 1.0 / b.sites) for b in network.blocks])
