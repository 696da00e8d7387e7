"""Here live the identities of a right posterior, as statistics with limits.

If a posterior is right in law, then over episodes drawn from the same model (1) its mean is the
prior, (2) what it predicts of its own next value is that value's mean, (3) the mean of
-log b(truth) is its mean entropy, and that of b(truth) its mean sum of squares, for states and for
sites, (4) the randomised rank of the truth is uniform, and (5) among events given p a share p
happens.  Each statistic is one number with one limit.

Limits: 4.9 standard errors for means (two-sided, 1e-6 a comparison); chi-square of 20 bins at
1e-6; calibration error at 4.9 standard deviations above that of labels resampled from the belief.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import stats

from clusterorch.inference.plan import Plan
from clusterorch.inference.priors import OnsetPrior, uniform_sites
from clusterorch.inference.transition import predict
from clusterorch.models.compile import Network
from clusterorch.models.ground import HEALTHY
from clusterorch.simulation.plan import WORD
from clusterorch.simulation.state import State

ERRORS, LEVEL, RANK_BINS, ERROR_BINS = 4.9, 1e-6, 20, 15
RANK_LIMIT = float(stats.chi2.isf(LEVEL, RANK_BINS - 1))


class Statistic(NamedTuple):
    """A number that a right posterior keeps below its limit, but for one time in a million."""

    name: str
    value: float
    limit: float

    @property
    def passes(self) -> bool:
        """Whether it does."""
        return self.value <= self.limit


def standard_errors(differences: np.ndarray) -> float:
    """Largest |mean| over its standard error among the columns.  [N, columns]; inf if not all finite."""
    if not np.isfinite(differences).all():
        return np.inf
    spread = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    mean = np.abs(differences.mean(axis=0))
    return float(np.max(np.where(spread > 0.0, mean / np.where(spread > 0.0, spread, 1.0), 0.0)))


def rank_chi_square(ranks: np.ndarray) -> float:
    """Chi-square of uniform ranks in `RANK_BINS` bins.  [N] in [0, 1)"""
    counts = np.bincount((ranks * RANK_BINS).astype(int), minlength=RANK_BINS)
    expected = len(ranks) / RANK_BINS
    return float(((counts - expected) ** 2 / expected).sum())


def calibration_error(p: np.ndarray, happened: np.ndarray) -> float:
    """Mean |share that happened - mean p| over equal-mass bins of p.  [N], [N] bool"""
    order = np.argsort(p, kind="stable")
    gaps = [abs((happened[part] - p[part]).sum()) / len(p) for part in np.array_split(order, ERROR_BINS) if part.size]
    return float(np.sum(gaps))


def ranks_of(belief: np.ndarray, truth: np.ndarray, u: np.ndarray, *, by_belief: bool) -> np.ndarray:
    """Randomised rank of the true state: what lies below it, and a share u of its own mass.

    [B, K], [B], [B] -> [B].  Below: a smaller number, or (by_belief) a larger belief.  A truth of -1 is above all.
    """
    rows = np.arange(len(truth))
    own = belief[rows, truth][:, None]
    if by_belief:
        below, tied = belief > own, belief == own
    else:
        number = np.arange(belief.shape[1])[None, :]
        below, tied = number < truth[:, None], number == truth[:, None]
    rank = (belief * below).sum(axis=1) + u * (belief * tied).sum(axis=1)
    rank = np.where(truth < 0, 1.0, rank)
    return np.clip(rank, 0.0, np.nextafter(1.0, 0.0))


def labels(network: Network) -> tuple[list[str], np.ndarray]:
    """What a state is called: `none`, `healthy` (a benign root) or its mode; [states, labels] 0 or 1."""
    names = ["none", HEALTHY, *(mode.name for mode in network.spec.mode)]
    member = np.zeros((network.states, len(names)))
    member[0, 0] = 1.0
    for block in network.blocks:
        member[block.offset : block.offset + block.size, names.index(block.variant.mode)] = 1.0
    return names, member


def places(network: Network) -> np.ndarray:
    """[states, places] 0 or 1: nowhere, or the (kind, number) of the fault's site."""
    kinds = list(dict.fromkeys(block.variant.spec.site for block in network.blocks))
    first = dict(zip(kinds, np.cumsum([1, *(network.layout.count(kind) for kind in kinds)]), strict=False))
    number = np.zeros(network.states, dtype=np.int64)
    for block in network.blocks:
        sites = first[block.variant.spec.site] + np.arange(block.sites)
        number[block.offset : block.offset + block.size] = np.tile(sites, block.size // block.sites)
    return np.eye(number.max() + 1)[number]


@dataclass
class Ledger:
    """Beliefs against truths: sums over the slices of an episode, one row an episode.

    Args:
        network: of the believer.
        priors: [slices, labels] the labels' probabilities before any evidence.
        seed: of the randomised ranks and the resampled labels.
    """

    network: Network
    priors: np.ndarray
    seed: int = 0
    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    impossible: int = 0

    def __post_init__(self) -> None:
        self.names, self.member = labels(self.network)
        self.place = places(self.network)
        self.rng = np.random.default_rng(self.seed)

    def episodes(self, slices: list[tuple[np.ndarray, np.ndarray, np.ndarray]], label: np.ndarray) -> None:
        """Enter a batch.

        Args:
            slices: for each slice (predicted [B, K], belief [B, K], true state [B], -1 if it is none of the K).
            label: [B] number of the true label after the last one.
        """
        batch = len(slices[0][2])
        off = np.zeros((batch, len(self.names)))
        drift, pull, surprise, square = off.copy(), off.copy(), np.zeros((batch, 1)), np.zeros((batch, 2))
        for t, (predicted, belief, truth) in enumerate(slices):
            expected, found = predicted @ self.member, belief @ self.member
            off += found - self.priors[t]
            drift += found - expected
            pull += (found - expected) * expected
            own = np.where(truth >= 0, belief[np.arange(batch), truth], 0.0)
            logs = np.log(belief, out=np.zeros_like(belief), where=belief > 0.0)
            self.impossible += int((own <= 0.0).sum())
            surprise[:, 0] -= np.log(np.maximum(own, 1e-300))
            surprise[:, 0] += (belief * logs).sum(axis=1)
            somewhere = belief @ self.place
            there = np.where(truth >= 0, (somewhere * self.place[truth]).sum(axis=1), 0.0)
            square[:, 0] += own - (belief**2).sum(axis=1)
            square[:, 1] += there - (somewhere**2).sum(axis=1)
        predicted, belief, truth = slices[-1]
        u = self.rng.random((2, batch))
        final = belief @ self.member
        told = (np.arange(len(self.names))[None, :] == label[:, None]).astype(float)
        new = {
            "off": off, "drift": np.hstack([drift, pull]), "surprise": surprise, "square": square,
            "final": final, "told": told,
            "rank": ranks_of(belief, truth, u[0], by_belief=False),
            "rank_by_belief": ranks_of(belief, truth, u[1], by_belief=True),
        }  # fmt: skip
        for name, row in new.items():
            self.rows.setdefault(name, []).append(row)

    def column(self, name: str) -> np.ndarray:
        """All episodes' rows of one quantity."""
        return np.concatenate(self.rows[name])

    def _error(self, name: str, p: np.ndarray, told: np.ndarray, resampled: list[np.ndarray]) -> Statistic:
        null = np.array([calibration_error(p, again) for again in resampled])
        return Statistic(name, calibration_error(p, told), float(null.mean() + ERRORS * null.std()))

    def errors(self, repeats: int = 60) -> list[Statistic]:
        """Calibration errors over all labels, and of the best label, after the last slice."""
        final, told = self.column("final"), self.column("told")
        cumulated = np.cumsum(final, axis=1)[:, None, :]
        draws = self.rng.random((len(final), repeats, 1)) * cumulated[:, :, -1:]
        drawn = (draws >= cumulated).sum(axis=2)  # [N, repeats] a label from each belief
        best = final.argmax(axis=1)
        rows = np.arange(len(final))
        every = [(np.arange(final.shape[1])[None, :] == drawn[:, [r]]).astype(float).ravel() for r in range(repeats)]
        top = [(drawn[:, r] == best).astype(float) for r in range(repeats)]
        return [
            self._error("calibration error, all labels", final.ravel(), told.ravel(), every),
            self._error("calibration error, best label", final[rows, best], told[rows, best], top),
        ]

    def statistics(self) -> list[Statistic]:
        """Every identity."""
        final, told = self.column("final"), self.column("told")
        return [
            Statistic("truths thought impossible", self.impossible, 0.0),
            Statistic("mean belief - prior", standard_errors(self.column("off")), ERRORS),
            Statistic("mean belief - share of truths", standard_errors(final - told), ERRORS),
            Statistic("next belief - predicted belief", standard_errors(self.column("drift")), ERRORS),
            Statistic("-log b(truth) - entropy", standard_errors(self.column("surprise")), ERRORS),
            Statistic("b(truth) - sum of squares", standard_errors(self.column("square")[:, :1]), ERRORS),
            Statistic("b(site) - sum of squares", standard_errors(self.column("square")[:, 1:]), ERRORS),
            Statistic("ranks of the truth", rank_chi_square(self.column("rank")), RANK_LIMIT),
            Statistic("ranks by belief", rank_chi_square(self.column("rank_by_belief")), RANK_LIMIT),
            *self.errors(),
        ]


def table(title: str, found: list[Statistic]) -> str:
    """The statistics as lines of text."""
    lines = [f"  {s.name:32s} {s.value:9.4g}  limit {s.limit:7.4g}  {'' if s.passes else 'FAILS'}" for s in found]
    lines = [title, *(line.rstrip() for line in lines)]
    return "\n".join(lines)


class TrueStates:
    """Numbers of the simulator's states in a network; -1 for what the network does not have.

    Args:
        network: of the believer.
        mechanisms, edges: names by the simulator's numbers.
    """

    def __init__(self, network: Network, mechanisms: list[str], edges: list[str]) -> None:
        self.network, self.mechanisms, self.edges = network, mechanisms, edges
        self.known: dict[tuple[int, int, bytes, int], int] = {}
        self.numbers = [{c: i for i, c in enumerate(b.chain.configurations)} for b in network.blocks]

    def of(self, state: State) -> np.ndarray:
        """[B] state numbers of a batch."""
        found = np.zeros(len(state.variant), dtype=np.int64)
        for b in np.flatnonzero(state.variant >= 0):
            v = int(state.variant[b])
            key = (
                v,
                int(state.bits[b, 0]) | int(state.bits[b, 1]) << WORD,
                state.stage[b].tobytes(),
                int(state.poisoned[b]),
            )
            if key not in self.known:
                self.known[key] = self._configuration(v, key[1], state.stage[b].tolist(), key[3])
            block, c = self.network.blocks[v], self.known[key]
            level = block.variant.severity_levels.index(int(state.severity[b]))
            at = block.offset + (level * len(block.chain.configurations) + c) * block.sites
            found[b] = at + int(state.site[b]) if c >= 0 else -1
        return found

    def _configuration(self, v: int, bits: int, stages: list[int], poisoned: int) -> int:
        law = self.network.blocks[v].chain.law
        on = {name for m, name in enumerate(self.mechanisms) if bits >> m & 1}
        pending = {self.edges[e]: stage for e, stage in enumerate(stages) if stage}
        mine = [m.name for m in law.mechanisms]
        if not on <= set(mine) or not pending.keys() <= {e.name for e in law.edges}:
            return -1
        local = sum(1 << i for i, name in enumerate(mine) if name in on)
        key = (local, tuple(pending.get(e.name, 0) for e in law.edges), poisoned, 0)
        return self.numbers[v].get(key, -1)  # a configuration is a tuple of these four


Schedule = Callable[[int, int, int], tuple[int, int, bool]]


def label_priors(network: Network, plan: Plan, prior: OnsetPrior, schedule: Schedule, slices: int) -> np.ndarray:
    """[slices, labels] probabilities with nothing observed, averaged over what will be published.

    `schedule` is the published machine: (phase, clock, class) -> (phase, clock, whether a save ends); phase -1 before.
    """
    _, member = labels(network)
    weights = uniform_sites(network)
    start = np.zeros(network.states)
    start[0] = 1.0
    joint = {(-1, -1, 0, 0): start}  # phase, clock, class, age of the halt
    result = np.empty((slices, member.shape[1]))
    for t in range(slices):
        following: dict[tuple[int, int, int, int], np.ndarray] = {}
        for (phase, clock, job, age), mass in joint.items():
            now, tick, ends = schedule(phase, clock, job)
            due = sum(age >= limit for limit in network.limits)
            after = np.empty_like(mass)
            predict(plan, now, due, ends, prior.onset(t, now), weights, mass, after)
            classes = state_classes(network, now)
            for kind in range(3):
                key = (now, tick, kind, age + 1 if kind == 1 else 0)
                part = np.where(classes == kind, after, 0.0)
                if part.any():
                    following[key] = following.get(key, 0.0) + part
        joint = following
        result[t] = sum(joint.values()) @ member
    return result


def state_classes(network: Network, phase: int) -> np.ndarray:
    """[states] job class of every state in a phase."""
    classes = np.zeros(network.states, dtype=np.int64)
    for block in network.blocks:
        one = np.repeat(block.classes[:, phase], block.sites)
        classes[block.offset : block.offset + block.size] = np.tile(one, block.levels)
    return classes
