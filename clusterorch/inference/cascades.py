"""Here lives the most probable cascade: the single best path of states through the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clusterorch.errors import InvalidIntervention
from clusterorch.inference.filtering import SliceEvidence
from clusterorch.inference.priors import OnsetPrior
from clusterorch.inference.smoothing import Recording
from clusterorch.models.compile import Network


class State(NamedTuple):
    """One slice of a cascade; `variant` is None while the slot is empty."""

    variant: str | None
    severity: int
    site: int
    mechanisms: tuple[str, ...]
    poisoned: int


def describe_state(network: Network, index: int) -> State:
    """What a number of the state vector stands for."""
    if index == 0:
        return State(None, 0, -1, (), 0)
    block = next(b for b in network.blocks if b.offset <= index < b.offset + b.size)
    level, rest = divmod(index - block.offset, len(block.chain.configurations) * block.sites)
    number, site = divmod(rest, block.sites)
    configuration = block.chain.configurations[number]
    names = tuple(m.name for i, m in enumerate(block.chain.law.mechanisms) if configuration.bits >> i & 1)
    return State(block.variant.name, block.variant.severity_levels[level], site, names, configuration.poisoned)


def most_probable_cascade(
    network: Network, evidence: Sequence[SliceEvidence], *, prior: OnsetPrior | None = None,
    site_weights: np.ndarray | None = None,
) -> tuple[list[State], float]:  # fmt: skip
    """The best path and its log probability less the background's log evidence, nats (Viterbi 1967).

    Transient mechanisms are summed out at each slice.

    Raises:
        InvalidIntervention: the evidence contains an action; a path through one is not searched.
    """
    path, score = best_path(network, evidence, prior=prior, site_weights=site_weights)
    return [describe_state(network, i) for i in path], score


def best_path(
    network: Network, evidence: Sequence[SliceEvidence], *, prior: OnsetPrior | None = None,
    site_weights: np.ndarray | None = None,
) -> tuple[list[int], float]:  # fmt: skip
    """`most_probable_cascade` by numbers of the state vector."""
    if any(one.action is not None and one.action.clears.any() for one in evidence):
        raise InvalidIntervention("the most probable cascade is searched between actions; cut the evidence there")
    recording = Recording(network, evidence, prior=prior, site_weights=site_weights)
    score = np.full(network.states, -np.inf)
    score[0] = 0.0
    pointers: list[np.ndarray] = []
    for number in recording.stretches():
        for t, _, likelihood in recording.stretch_of(number):
            score, back = _advance(recording, t, score)
            score = score + likelihood
            pointers.append(back)
    best = int(score.argmax())
    path = [best]
    for back in reversed(pointers[1:]):
        path.append(int(back[path[-1]]))
    return path[::-1], float(score[best])


def _advance(recording: Recording, t: int, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Best predecessor of every state.  [states] -> [states], [states] int32"""
    f, one = recording.filter, recording.evidence[t]
    network, plan = f.network, f.plan
    onset, due, end = f.prior.onset(t, one.phase), int(f.due(one.age_before)[0]), int(one.save_ends)
    following, back = np.full_like(score, -np.inf), np.zeros(len(score), dtype=np.int32)
    following[0] = score[0] + np.log(1.0 - onset.sum())

    def offer(to: slice, values: np.ndarray, source: np.ndarray | int) -> None:
        better = values > following[to]
        following[to][better] = values[better]
        back[to][better] = source[better] if isinstance(source, np.ndarray) else source

    for v, block in enumerate(network.blocks):
        sites, configurations = block.sites, len(block.chain.configurations)
        weights = f.weights[plan.weight_start[v] : plan.weight_start[v + 1]]
        for level in range(block.levels):
            base = block.offset + level * configurations * sites
            table = plan.table_of[v, one.phase, due, end]
            for k in range(plan.table_range[table], plan.table_range[table + 1]):
                c, to = plan.table_from[k], base + plan.table_to[k] * sites
                stays = 1.0 - plan.recovers[v] * plan.may_end[plan.configuration_start[v] + c]
                at = np.arange(base + c * sites, base + (c + 1) * sites)
                if plan.table_p[k] * stays > 0.0:
                    offer(slice(to, to + sites), score[at] + np.log(plan.table_p[k] * stays), at)
            _end(plan, v, base, sites, configurations, score, offer)
            table = plan.onset_of[v, one.phase, due, end]
            for k in range(plan.onset_range[table], plan.onset_range[table + 1]):
                p = onset[v] * plan.severity[v, level] * plan.onset_p[k] * weights
                to = base + plan.onset_to[k] * sites
                with np.errstate(divide="ignore"):
                    offer(slice(to, to + sites), score[0] + np.log(p), 0)
    return following, back


def _end(plan, v, base, sites, configurations, score, offer) -> None:
    if plan.recovers[v] <= 0.0:
        return
    for c in range(configurations):
        if plan.may_end[plan.configuration_start[v] + c]:
            at = np.arange(base + c * sites, base + (c + 1) * sites)
            best = at[score[at].argmax()]
            offer(slice(0, 1), score[best : best + 1] + np.log(plan.recovers[v]), np.array([best]))
