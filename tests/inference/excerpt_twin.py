"""Here lives the generative twin of the excerpt protocol: episodes drawn from the law that excerpts declare.

A fault may be older than the first line.  Between two items a number of slices passes by the gap
law, in the phase of the second, of which only the phase is published, or not even that (None).  An
item is a line: its kind is drawn in proportion to p(at least one entity shows it | state) among the
kinds not shown yet, then whom it names; once something else has been shown, informational kinds may
come again.  Hidden states are drawn by `tests.reference.draws`, chances by the rules of the file:
nothing compiled is read.  Numbers in brackets are sections of models/README.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clusterorch.inference.excerpts import Kind, Mark
from clusterorch.inference.marks import Item
from clusterorch.models.compile import Network
from clusterorch.models.ground import limit_slices
from clusterorch.models.spec import PHASES, Protocol
from tests.reference import emissions
from tests.reference.draws import Draws, Root, State

Phase = str | None  # None: the logs do not tell
History = tuple[frozenset[int], frozenset[int]]  # kinds not shown yet; entities named by the kind of the next line


class Job(NamedTuple):
    """The state of a job; `over`: the fault ended with a restart, and the state is the last that it brought about."""

    state: State
    over: bool = False


@dataclass
class Excerpt:
    """One drawn excerpt: what it shows, the state in which each item was printed, and what had been shown before it."""

    items: list[Item]
    states: list[Job]
    before: list[History]


def gap_chances(protocol: Protocol) -> np.ndarray:
    """[gaps] the same slice, else a short or a long geometric number of slices, cut at three long means."""
    chances = [protocol.same_slice]
    longest = int(3 * protocol.long_slices)
    for mean, share in (
        (protocol.gap_slices, 1 - protocol.same_slice - protocol.long_share),
        (protocol.long_slices, protocol.long_share),
    ):
        mass = [(1 - 1 / mean) ** (k - 1) / mean for k in range(1, longest + 1)]
        scaled = [share * m / math.fsum(mass) for m in mass]
        chances[1:] = [a + b for a, b in zip(chances[1:], scaled, strict=True)] if chances[1:] else scaled
    return np.array(chances)


@dataclass
class Twin:
    """Draws excerpts.

    Args:
        network: only its declared model and its layout are read.
        limits: seconds of the timers.
        protocol: numbers of the excerpt protocol.
        span: slices that an excerpt is expected to cover.
        seed: of everything drawn.
        again: share of items that name a further entity of a kind shown before.
    """

    network: Network
    limits: dict[str, float]
    protocol: Protocol
    span: int
    seed: int
    again: float = 0.0
    _moves: dict[tuple[Job, bool, Phase], tuple[np.ndarray, list[Job]]] = field(default_factory=dict)
    _chances: dict[tuple[object, ...], tuple[np.ndarray, list[np.ndarray]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec, self.layout = self.network.spec, self.network.layout
        timers = limit_slices(spec, self.limits)
        self.longest = max(timers.values())
        self.draws = Draws(spec, self.layout, timers, None)
        self.rng = np.random.default_rng(self.seed)
        self.gaps = np.cumsum(gap_chances(self.protocol))
        self.preroll = math.ceil(spec.prior.preroll_seconds / spec.model.slice_seconds)
        total, early = sum(self.shares.values()), self.protocol.before_first_line
        early = self.preroll / (self.preroll + self.span) if early is None else early
        seconds = spec.prior.restart_seconds
        self.restarts = min(1.0, spec.model.slice_seconds / seconds) if seconds else 0.0
        before = 1 - (1 - early * total) ** (1 / self.preroll) if self.preroll else 0.0
        later = 1 - ((1 - total) / (1 - early * total)) ** (1 / self.span)
        self.starts = {
            (early, phase): {root: chance * p for root, p in self.mix(phase).items()}
            for early, chance in ((True, before), (False, later))
            for phase in (None, *PHASES)
        }

    @cached_property
    def shares(self) -> dict[tuple[str, str], float]:
        """Probability that each variant ever starts (8)."""
        spec = self.network.spec
        prior, rate = spec.prior, {mode.name: mode.rate_per_1000_node_days for mode in spec.mode}
        shares = {}
        for mode in spec.mode:
            weight = prior.uniform_share / len(rate) + (1 - prior.uniform_share) * rate[mode.name] / sum(rate.values())
            for variant in mode.variant:
                shares[mode.name, variant.name] = (1 - prior.healthy) * weight * variant.share
        benign = sum(b.incident_share for b in spec.benign)
        return shares | {("healthy", b.name): prior.healthy / 2 * b.incident_share / benign for b in spec.benign}

    def mix(self, phase: Phase) -> dict[Root, float]:
        """What starts in a slice of a phase, if something does (8)."""
        total = math.fsum(self.shares.values())
        if phase is None:
            return {root: p / total for root, p in self.shares.items()}
        mix = {}
        for benign in (False, True):
            mine = {root: p for root, p in self.shares.items() if (root[0] == "healthy") == benign}
            joint = {root: p * self._begins_in(root, phase) for root, p in mine.items()}
            likely = math.fsum(joint.values())
            mix |= {r: p / likely * math.fsum(mine.values()) / total if likely else 0.0 for r, p in joint.items()}
        return mix

    def _begins_in(self, root: Root, phase: str) -> float:
        only, prior = self.draws.variant[root].phases, self.network.spec.prior
        shares, slip = prior.phase_shares, prior.phase_slip
        if only is not None:
            return (1 - slip) * (1 / len(only) if phase in only else 0.0) + slip / len(PHASES)
        return 1 / len(PHASES) if shares is None else getattr(shares, phase)

    @cached_property
    def kinds(self) -> list[Kind]:
        """Every line that a signal can print, in order of the file."""
        found = []
        for s, signal in enumerate(self.network.spec.signal):
            if signal.lines and signal.family == "categorical":
                found += [Kind(s, v) for v in range(1, len(signal.values))]
            elif signal.lines and signal.family in ("presence", "count", "chorus"):
                found.append(Kind(s, 1))
        return found

    @cached_property
    def informational(self) -> set[int]:
        """Numbers of the informational kinds."""
        return {k for k, kind in enumerate(self.kinds) if self.network.spec.signal[kind.signal].verbosity == "info"}

    def one(self, phases: Sequence[Phase]) -> Excerpt:
        """Draw one excerpt: an item for each phase."""
        job = self.empty
        for _ in range(self.preroll):
            job = self.move(job, phases[0], early=True)
        drawn, states, before = [], [], []
        unseen, named = set(range(len(self.kinds))), defaultdict(set)
        for phase in phases:
            gap = int(np.searchsorted(self.gaps, self.rng.random() * self.gaps[-1], "right"))
            for _ in range(gap):
                job = self.move(job, phase, early=False)
            state = self.shown(job)
            sounding = self._pick(list(self.draws.transient_draws(state)))
            mark, history = self._mark(state, sounding, phase, unseen, named)
            drawn.append(Item(None, mark, phase=None if phase is None else PHASES.index(phase)))
            states.append(job)
            before.append(history)
        return Excerpt(drawn, states, before)

    @cached_property
    def empty(self) -> Job:
        """The job before anything has started."""
        return Job(self.draws.nothing(State(None, frozenset(), (), 0, 0)))

    def shown(self, job: Job) -> State:
        """The state that lines are printed by: a fault that is over prints nothing of its own (8)."""
        return self.empty.state if job.over else job.state

    def move(self, job: Job, phase: Phase, *, early: bool) -> Job:
        """Draw the state a slice later."""
        key = (job, early, phase)
        if key not in self._moves:
            joint: dict[Job, float] = defaultdict(float)
            for p, after in [(1.0, job)] if job.over else self._ways(job.state, phase, early=early):
                joint[after] += p
            self._moves[key] = np.cumsum(list(joint.values())), list(joint)
        edges, after = self._moves[key]
        return after[int(np.searchsorted(edges, self.rng.random() * edges[-1], "right"))]

    def _ways(self, state: State, phase: Phase, *, early: bool) -> Iterator[tuple[float, Job]]:
        starts, phase = self.starts[early, phase], phase or "step"  # not known: whatever their phases
        for p, after, _ in self.draws.one_slice(state, starts, phase, state.age, None, save_ends=False):
            down = self.draws.job_class(after.active, phase) == "down"
            restart = self.restarts if down and not early else 0.0
            yield p * (1 - restart), self._aged(after)
            if restart > 0:
                clears = self.network.spec.prior.restart_clears
                yield p * restart * clears, self._aged(after, over=True)
                for q, again in self._anew(after, phase):
                    yield p * restart * (1 - clears) * q, self._aged(again)

    def _anew(self, state: State, phase: str) -> Iterator[tuple[float, State]]:
        """What a fault does in the slice in which it begins anew (5)."""
        idle = self.empty.state._replace(slot=state.slot)
        for p, active, stages in self.draws.moves(idle, phase, 0, started=True):
            yield p, State(state.slot, active, stages, 0, int(self.draws.job_class(active, phase) == "halted"))

    def _aged(self, state: State, *, over: bool = False) -> Job:
        return Job(state._replace(age=min(state.age, self.longest)), over)

    def _pick(self, weighted: list[tuple[float, object]]) -> object:
        edges = np.cumsum([p for p, _ in weighted])
        return weighted[int(np.searchsorted(edges, self.rng.random() * edges[-1], "right"))][1]

    def _mark(
        self, state: State, sounding: frozenset[str], phase: Phase, unseen: set[int], named: dict[int, set[int]]
    ) -> tuple[Mark, History]:
        shown, whom = self.chances(state, sounding, phase)
        open_kinds = [k for k in named if k not in unseen and len(named[k]) < len(whom[k])]
        further = bool(open_kinds) and self.rng.random() < self.again
        if further:
            k = open_kinds[self.rng.integers(len(open_kinds))]
        else:
            k = self._pick([(shown[i], i) for i in sorted(unseen)])
        history = frozenset(unseen), frozenset(named[k])
        if k not in self.informational:
            unseen |= self.informational
            for i in self.informational:
                named.pop(i, None)
        unseen.discard(k)
        c, p = self.protocol.entity_contamination, whom[k]
        law = (1 - c) * p / p.sum() + c / len(p)
        entity = self._pick([(q, e) for e, q in enumerate(law) if e not in named[k]])
        nobody = not further and self.rng.random() < 0.1  # says nothing about the state
        named[k] |= set() if nobody else {entity}
        return Mark(self.kinds[k], () if nobody else (int(entity),)), history

    def reachable(self, *phases: Phase) -> list[Job]:
        """Every state that can be reached while the job is in some of these phases, the empty slot first."""
        found = [self.empty]
        known = set(found)
        for job in found:  # grows while it is walked
            for phase in phases:
                self.move(job, phase, early=False)
                fresh = [after for after in self._moves[job, False, phase][1] if after not in known]
                known.update(fresh)
                found += fresh
        return found

    def line_law(self, state: State, k: int, before: History, phase: Phase) -> np.ndarray:
        """[entities] p(next line names each): with kind k itself if that is new, else given k."""
        c, total, (unseen, named) = self.protocol.entity_contamination, 0.0, before
        for p, sounding in self.draws.transient_draws(state):
            shown, whom = self.chances(state, sounding, phase)
            law = (1 - c) * whom[k] / whom[k].sum() + c / len(whom[k])
            law[list(named)] = 0.0
            chosen = shown[k] / shown[sorted(unseen)].sum() if k in unseen else 1.0
            total = total + p * chosen * law / law.sum()
        return total

    def chances(self, state: State, sounding: frozenset[str], phase: Phase) -> tuple[np.ndarray, list[np.ndarray]]:
        """[K] p(at least one entity shows the kind); by kind, [entities] p(this one does)."""
        key = (state.slot, state.active, sounding, phase)
        if key not in self._chances:
            world = self._world(state, sounding, phase or "step")
            whom = [self._by_entity(kind, world) for kind in self.kinds]
            shown = [self._any(kind, world, p) for kind, p in zip(self.kinds, whom, strict=True)]
            self._chances[key] = np.array(shown), whom
        return self._chances[key]

    def _world(self, state: State, sounding: frozenset[str], phase: str) -> emissions.World:
        job = self.draws.job_class(state.active, phase)
        kind, site, level = None, 0, emissions.MIDDLE
        if state.slot is not None:
            *root, level, site = state.slot
            kind = self.draws.variant[tuple(root)].site
        return emissions.World(self.layout, phase, job, state.active | sounding, kind, site, level)

    def _by_entity(self, kind: Kind, world: emissions.World) -> np.ndarray:
        signal = self.network.spec.signal[kind.signal]
        found = []
        for e in range(self.layout.count(signal.entity)):
            stands = emissions.relation(self.layout, world.site_kind, world.site, signal.entity, e)
            if signal.family == "chorus":
                chosen = emissions.parameters(signal, world, None)
                speaks = getattr(chosen["speak"], stands)
                found.append(chosen["told"] * speaks + (1 - chosen["told"]) * chosen["quiet"])
            else:
                chosen = emissions.parameters(signal, world, stands)
                quiet = signal.family == "count"
                p = math.exp(emissions._table(signal, chosen, 0 if quiet else kind.value, world.severity))
                found.append(1 - p if quiet else p)
        return np.array(found)

    def _any(self, kind: Kind, world: emissions.World, each: np.ndarray) -> float:
        signal = self.network.spec.signal[kind.signal]
        if signal.family != "chorus":
            return -math.expm1(sum(math.log1p(-p) for p in each))
        chosen = emissions.parameters(signal, world, None)  # all are told, or none is
        silent = [
            1 - getattr(chosen["speak"], emissions.relation(self.layout, world.site_kind, world.site, signal.entity, e))
            for e in range(len(each))
        ]
        told, alone = 1 - math.prod(silent), -math.expm1(len(each) * math.log1p(-chosen["quiet"]))
        return chosen["told"] * told + (1 - chosen["told"]) * alone


def state_numbers(network: Network) -> dict[tuple[object, ...], int]:
    """Number of every state of a network by what it declares."""
    numbers: dict[tuple[object, ...], int] = {("none",): 0}
    for block in network.blocks:
        law, number = block.chain.law, block.offset
        for severity in block.variant.severity_levels:
            for c in block.chain.configurations:
                active = frozenset(m.name for i, m in enumerate(law.mechanisms) if c.bits >> i & 1)
                stages = frozenset((e.name, s) for e, s in zip(law.edges, c.stages, strict=True) if s)
                for site in range(block.sites):
                    numbers[block.variant.name, severity, site, active, stages, c.poisoned, c.age] = number
                    number += 1
    return numbers


def state_key(twin: Twin, state: State) -> tuple[object, ...]:
    """The same of a drawn state; that of a fault that is over is the last it brought about."""
    if state.slot is None:
        return ("none",)
    mode, variant, severity, site = state.slot
    names = (f"{edge.from_}>{edge.to}" for edge in twin.network.spec.edge)
    stages = frozenset((n, s) for n, s in zip(names, state.stages, strict=True) if s)
    return (f"{mode}.{variant}", severity, site, state.active, stages, state.poisoned, state.age)
