"""Here lives the filter for two faults at once: exact, over pairs of single-slot states, for small layouts.

`models/README.md` section 6 is the definition.  Two slots hold a fault each, or none.  Given what is
published (phase, age of the halt, saves, actions) they evolve independently, each by the compiled
chain and with its own law of starting; a poisoned copy is counted by its own slot.  The job class
is the worse of the two.  For every entity, each occupied slot offers the first rule that matches
with that slot's mechanisms, severity and relation, and with the joint class; of the two the rule
that comes first in the file applies, of two slots with the same rule the more severe one.  Where
a rule speaks for all members of a kind, and both slots offer it, a member stands to the fault as to
the nearer one.  With one slot empty this is the filter of one fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clusterorch.causal.slices import components
from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import SliceEvidence
from clusterorch.inference.pair_emissions import PairEmissions, Showing
from clusterorch.inference.plan import MOST_GAP, make_plan
from clusterorch.inference.priors import OnsetPrior, stationary_prior, uniform_sites
from clusterorch.inference.transition import NO_CLASS, clear, predict, restart
from clusterorch.models.compile import Network
from clusterorch.models.rows import CONTINUOUS, KIND_OF_FAMILY

MOST_STATES = 4000  # of one slot: a pair costs its square


class _Shares(NamedTuple):
    """What each state shows: [states, showings] shares of the transient mechanisms' outcomes."""

    share: np.ndarray
    showings: list[Showing]


@dataclass(frozen=True)
class PairBelief:
    """A normalised belief over pairs of states.  [states, states]"""

    network: Network
    matrix: np.ndarray

    def slot(self, number: int) -> Belief:
        """The belief about one slot, 0 or 1, whatever the other holds."""
        return Belief(self.network, self.matrix.sum(axis=1 - number))

    @property
    def empty(self) -> float:
        """Probability that both slots are empty."""
        return float(self.matrix[0, 0])

    @property
    def both(self) -> float:
        """Probability that there are two faults."""
        return float(self.matrix[1:, 1:].sum())

    @property
    def modes(self) -> dict[str, float]:
        """Probability that either slot holds each mode; of `healthy`, that neither holds a failure.

        Two modes may be there at once, so these do not sum to 1.
        """
        of_state = np.full(self.network.states, -1)
        names = [mode.name for mode in self.network.spec.mode]
        for block in self.network.blocks:
            number = -1 if block.variant.benign else names.index(block.variant.mode)
            of_state[block.offset : block.offset + block.size] = number
        result = {}
        for number, name in enumerate(names):
            without = of_state != number
            result[name] = 1.0 - float(self.matrix[np.ix_(without, without)].sum())
        calm = of_state == -1
        return result | {"healthy": float(self.matrix[np.ix_(calm, calm)].sum())}


class TwoSlotFilter:
    """Online filtering of one instance that may hold two faults.

    Args:
        network: compiled, with the age of a halt published.
        onset2: when faults start in the second slot.
        prior: the same of the first slot; the declared hazards if not given.
        site_weights: [sum of sites over variants] where they start; uniform if not given.

    Raises:
        ValueError: the age of the halt is hidden, or the layout is too large for pairs.
    """

    def __init__(
        self, network: Network, onset2: OnsetPrior, *, prior: OnsetPrior | None = None,
        site_weights: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        if network.hidden_age:
            raise ValueError("two slots share one published age of the halt: compile with hidden_age=False")
        if network.states > MOST_STATES:
            raise ValueError(f"{network.states} states a slot, and pairs are exact up to {MOST_STATES}")
        self.network, self.plan = network, make_plan(network)
        self.priors = (prior if prior is not None else stationary_prior(network), onset2)
        self.weights = uniform_sites(network) if site_weights is None else site_weights
        self.time = 0
        self.matrix = np.zeros((network.states, network.states))
        self.matrix[0, 0] = 1.0
        self.last = np.zeros(network.width)
        self.gap = np.zeros(network.width, dtype=np.int64)
        self.emissions = PairEmissions(network)
        self._moves: dict[tuple[int, int, bool], np.ndarray] = {}
        self._shares: dict[int, _Shares] = {}

    def step(self, evidence: SliceEvidence) -> float:
        """Advance one slice.  Log p(evidence of the slice | evidence before), nats.

        Raises:
            ImpossibleEvidence: no pair of states that was believed possible explains the slice.
            ValueError: the evidence is soft; that is about the states of one slot.
        """
        if len(evidence.soft):
            raise ValueError("soft evidence is about one slot")
        predicted = self._predict(evidence)
        rows, columns = np.flatnonzero(predicted.any(axis=1)), np.flatnonzero(predicted.any(axis=0))
        held = predicted[np.ix_(rows, columns)]  # pairs outside have probability zero, and keep it
        shares = self._showings(evidence.phase)
        log_pair = self.emissions.log_likelihoods(
            evidence.phase, shares.showings, evidence.values, self.last, self.gap
        )  # fmt: skip
        if evidence.job_class != NO_CLASS:
            own = np.array([showing.job_class for showing in shares.showings])
            log_pair[np.maximum.outer(own, own) != evidence.job_class] = -np.inf
        left, right = shares.share[rows], shares.share[columns]
        possible = left.T @ held @ right > 0.0
        peak = log_pair[possible].max(initial=-np.inf)
        if not peak > -np.inf:
            raise ImpossibleEvidence(f"slice {self.time}: no believed pair of states gives this evidence")
        weight = np.where(possible, np.exp(np.minimum(log_pair - peak, 0.0)), 0.0)
        held = held * (left @ weight @ right.T)
        total = float(held.sum())
        self.matrix = np.zeros_like(self.matrix)
        self.matrix[np.ix_(rows, columns)] = held / total
        self._remember(evidence.values)
        self.time += 1
        return float(np.log(total) + peak)

    def posterior(self) -> PairBelief:
        """The belief over pairs."""
        return PairBelief(self.network, self.matrix.copy())

    def _predict(self, one: SliceEvidence) -> np.ndarray:
        due = int((one.age_before >= np.array(self.network.limits, dtype=np.int64)).sum())
        after = self.matrix
        for slot, prior in enumerate(self.priors):
            used = np.flatnonzero(after.any(axis=1 - slot))
            move = self._move(one, due, prior.onset(self.time, one.phase), used)
            after = move[used].T @ after[used] if slot == 0 else after[:, used] @ move[used]
        return after

    def _move(self, one: SliceEvidence, due: int, onset: np.ndarray, used: np.ndarray) -> np.ndarray:
        """[from, to] transition of one slot; rows of states without mass are left zero or stale."""
        key = (one.phase, due, one.save_ends)
        known = self._moves.setdefault(key, np.full((self.network.states, self.network.states), np.nan))
        if one.action is not None:
            known = np.full_like(known, np.nan)  # what an action does is not kept
        for state in used:
            # Only what starts in an empty slot depends on the slot.
            if state == 0 or np.isnan(known[state, 0]):
                known[state] = self._moved(one, due, onset, int(state))
        return known

    def _moved(self, one: SliceEvidence, due: int, onset: np.ndarray, state: int) -> np.ndarray:
        before, after = np.zeros(self.network.states), np.zeros(self.network.states)
        before[state] = 1.0
        action = one.action
        if action is not None and action.restarts:
            restart(
                self.plan, one.phase, one.save_ends, action.discards, action.clears, action.brought,
                action.brought_to, onset, self.weights, before, after,
            )  # fmt: skip
            return after
        cleared = clear(self.plan, action.clears, before) if action is not None else 0.0
        predict(self.plan, one.phase, due, one.save_ends, onset, self.weights, before, after)
        after[0] += cleared
        return after

    def _showings(self, phase: int) -> _Shares:
        """What the states of one slot show in a phase, each distinct thing once."""
        if phase not in self._shares:
            number: dict[Showing, int] = {}
            entries = [(0, number.setdefault(Showing.nothing(), 0), 1.0)]
            for block in self.network.blocks:
                law, kind = block.chain.law, block.variant.spec.site
                for c, configuration in enumerate(block.chain.configurations):
                    lasting = {m.name for i, m in enumerate(law.mechanisms) if configuration.bits >> i & 1}
                    job = int(block.classes[c, phase])
                    for share, transient in components(law, configuration.bits):
                        for level, severity in enumerate(block.variant.severity_levels):
                            at = block.offset + (level * block.shape()[1] + c) * block.sites
                            for site in range(block.sites):
                                showing = Showing(kind, site, severity, job, frozenset(lasting | set(transient)))
                                entries.append((at + site, number.setdefault(showing, len(number)), share))
            shares = np.zeros((self.network.states, len(number)))
            for state, showing_number, share in entries:
                shares[state, showing_number] += share
            self._shares[phase] = _Shares(shares, list(number))
        return self._shares[phase]

    def _remember(self, values: np.ndarray) -> None:
        for s, signal in enumerate(self.network.spec.signal):
            if KIND_OF_FAMILY[signal.family] == CONTINUOUS:
                at = self.network.slice_of(s)
                x, gap = values[at], self.gap[at]
                taken = np.isfinite(x)
                self.last[at] = np.where(taken, x, self.last[at])
                older = np.where(gap > 0, np.minimum(gap + 1, MOST_GAP - 1), 0)
                self.gap[at] = np.where(taken, 1, older)
