"""Here lives the slow twin of one slice: every draw of models/README.md sections 2 and 5, literally.

Numbers in brackets are sections of that page.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from clusterorch.models.layout import Layout
from clusterorch.models.spec import Action, Edge, ModelSpec, Variant

Root = tuple[str, str]  # mode and variant; benign variants are of the mode `healthy`
Slot = tuple[str, str, int, int]  # mode, variant, severity, site
LASTING = ("stall", "crash", "block_save", "block_start")
START_PHASES = ("launch", "init_comm", "load")


class State(NamedTuple):
    """Everything that is true after a slice; `age` is None where the age is published."""

    slot: Slot | None
    active: frozenset[str]
    stages: tuple[int, ...]  # one for each declared edge
    poisoned: int
    age: int | None = None


class Draws:
    """The declared model on a layout, and what every step of a slice draws."""

    def __init__(self, spec: ModelSpec, layout: Layout, timers: Mapping[str, int], only: str | None) -> None:
        self.spec, self.layout, self.timers, self.only = spec, layout, timers, only
        self.dt = spec.model.slice_seconds
        self.mechanism = {m.name: m for m in spec.mechanism}
        self.effect = {m.name: m.effect for m in spec.mechanism}
        self.action = {a.name: a for a in spec.action}
        self.variant: dict[Root, Variant] = {}
        self.rate: dict[Root, float] = {}  # per hour, over all sites (2.3)
        for mode in spec.mode:
            for variant in mode.variant:
                self._declare((mode.name, variant.name), variant, mode.rate_per_1000_node_days * variant.share)
        for benign in spec.benign:
            self._declare(("healthy", benign.name), benign, benign.rate_per_1000_node_days)
        self.into = {m: [(i, e) for i, e in enumerate(spec.edge) if e.to == m] for m in self.mechanism}
        self.order: list[str] = []
        while len(self.order) < len(self.mechanism):
            self.order.append(next(m for m in self.mechanism if m not in self.order and self._parents_done(m)))
        self.downstream = {root: self._caused_by({".".join(root)}) for root in self.variant}

    def _declare(self, root: Root, variant: Variant, per_1000_node_days: float) -> None:
        self.variant[root] = variant
        self.rate[root] = per_1000_node_days / 1000 / 24 * self.layout.nodes

    def _parents_done(self, mechanism: str) -> bool:
        return all("." in e.from_ or e.from_ in self.order for _, e in self.into[mechanism])

    def _caused_by(self, names: set[str]) -> list[str]:
        """What a cascade can reach, in order; nothing else ever changes while its root is in the slot."""
        reached = set(names)
        for name in self.order:
            if any(edge.from_ in reached for _, edge in self.into[name]):
                reached.add(name)
        return [name for name in self.order if name in reached]

    def hazards(self, phase: str) -> dict[Root, float]:
        """p_v of each variant that may start in this phase (2.3)."""
        able = {r: self.rate[r] for r, v in self.variant.items() if v.phases is None or phase in v.phases}
        total = math.fsum(able.values())
        if total == 0:
            return {}
        return {root: -math.expm1(-total * self.dt / 3600) * rate / total for root, rate in able.items()}

    def shared(self, probability: float, mix: Mapping[str, float]) -> dict[Root, float]:
        return {root: probability * mix.get(".".join(root), 0.0) for root in self.variant}

    def one_slice(
        self,
        before: State,
        starts: Mapping[Root, float],
        phase: str,
        age: int,
        action: tuple[str, int | None] | None,
        *,
        save_ends: bool,
    ) -> Iterator[tuple[float, State, frozenset[str]]]:
        """Every way a slice can go: its probability, the state after it, the transient mechanisms on."""
        if action is not None and self.action[action[0]].restarts:
            age = 0
        for p_action, acted, restarted in self.action_draws(before, action):
            for p_slot, slotted, entered in self.slot_draws(acted, starts, again=restarted):
                for p_moves, active, stages in self.moves(slotted, phase, age, started=entered or restarted):
                    job_class = self.job_class(active, phase)
                    saved = save_ends and job_class == "moving"
                    spoilt = saved and any(self.effect[m] == "poison" for m in active)
                    poisoned = min(slotted.poisoned + spoilt, self.layout.copies)
                    carried = None if before.age is None else (age + 1 if job_class == "halted" else 0)
                    after = State(slotted.slot, active, stages, poisoned, carried)
                    for p_sound, sounding in self.transient_draws(after):
                        yield p_action * p_slot * p_moves * p_sound, after, sounding

    def nothing(self, state: State) -> State:
        return State(None, frozenset(), (0,) * len(self.spec.edge), 0, state.age)

    def action_draws(self, state: State, action: tuple[str, int | None] | None) -> Iterator[tuple[float, State, bool]]:
        """(probability, state, whether the action decided the slot of this slice) after the action (5)."""
        if action is None:
            yield 1.0, state, False
            return
        declared = self.action[action[0]]
        if state.slot is None:
            yield from self.with_replacement(declared, action[1], 1.0, state, decided=False)
            return
        poisoned = max(0, state.poisoned - action[1]) if declared.discards else state.poisoned
        clears = 0.0 if poisoned > 0 else self.clears(declared, action[1], state.slot)
        if clears > 0:
            yield from self.with_replacement(declared, action[1], clears, self.nothing(state), decided=True)
        if clears < 1 and declared.restarts:
            kept = frozenset(m for m in state.active if self.effect[m] == "poison" and poisoned > 0)
            idle = (0,) * len(state.stages)
            yield 1 - clears, State(state.slot, kept, idle, poisoned, state.age), True
        elif clears < 1:
            yield 1 - clears, state, False

    def with_replacement(
        self, action: Action, target: int | None, chance: float, state: State, *, decided: bool
    ) -> Iterator[tuple[float, State, bool]]:
        """An empty slot after an action, which a fault of what replaces the target may fill (5)."""
        coming = 0.0
        if action.brings is not None:
            rate = {r: self.rate[r] for r in self.variant if {r[0], ".".join(r)} & set(action.brings.of)}
            for root in rate:
                kind = self.variant[root].site
                sites = [s for s in range(self.layout.count(kind)) if self.lies_on(kind, s, action.target, target)]
                share = action.brings.probability * rate[root] / math.fsum(rate.values())
                coming += share
                for (level, p_level), site in product(enumerate(self.levels(root)), sites):
                    if p_level > 0:
                        slotted = self.nothing(state)._replace(slot=(*root, level, site))
                        yield chance * share * p_level / len(sites), slotted, True
        if coming < 1.0:
            yield chance * (1.0 - coming), state, decided

    def clears(self, action: Action, target: int | None, slot: Slot) -> float:
        mode, variant, _, site = slot
        kind = self.variant[mode, variant].site
        relation = "site" if self.lies_on(kind, site, action.target, target) else "elsewhere"
        for row in action.effect:
            if (mode in row.of or f"{mode}.{variant}" in row.of) and row.relation in ("any", relation):
                return row.clears
        return 0.0

    def lies_on(self, kind: str, site: int, target_kind: str, target: int | None) -> bool:
        """Whether a site is the target or lies on it."""
        if target_kind == "rail":
            return (kind == "rail" and site == target) or (kind == "link" and site % self.layout.rails == target)
        if kind not in ("gpu", "rank", "link", "node"):
            return kind == target_kind == "leaf" and site == target
        node = self.layout.node_of(kind)[site]
        return (node if target_kind == "node" else self.layout.leaf_of_node[node]) == target and target_kind in (
            "node", "leaf",
        )  # fmt: skip

    def slot_draws(
        self, state: State, starts: Mapping[Root, float], *, again: bool
    ) -> Iterator[tuple[float, State, bool]]:
        """(probability, state, whether a variant enters) after the fault slot (2.3)."""
        if state.slot is not None:
            variant = self.variant[state.slot[:2]]
            ends = -math.expm1(-variant.recovers_per_hour * self.dt / 3600)
            if again or self.spec.prior.kind == "incident" or any(self.effect[m] in LASTING for m in state.active):
                ends = 0.0
            if ends > 0:
                yield ends, self.nothing(state), False
            yield 1 - ends, state, False
            return
        if again:  # an action has just emptied it
            yield 1.0, state, False
            return
        starts = {r: p for r, p in starts.items() if p > 0 and self.only in (None, ".".join(r))}
        yield 1 - math.fsum(starts.values()), state, False
        for root, p in starts.items():
            sites = self.layout.count(self.variant[root].site)
            for (level, p_level), site in product(enumerate(self.levels(root)), range(sites)):
                if p_level > 0:
                    yield p * p_level / sites, state._replace(slot=(*root, level, site)), True

    def levels(self, root: Root) -> Sequence[float]:
        """Probability of each severity; a variant without severities has the middle one."""
        severity = self.variant[root].severity
        return [0.0, 1.0, 0.0] if severity is None else severity

    def moves(
        self, state: State, phase: str, age: int, *, started: bool
    ) -> Iterator[tuple[float, frozenset[str], tuple[int, ...]]]:
        """(probability, active mechanisms, stages) after mechanisms and edges (2.4)."""
        if state.slot is None:
            yield 1.0, frozenset(), state.stages
            return
        worlds: list[tuple[float, frozenset[str], tuple[int, ...]]] = [(1.0, frozenset(), state.stages)]
        for name in self.downstream[state.slot[:2]]:
            mechanism, was = self.mechanism[name], name in state.active
            if mechanism.transient:
                continue
            heals = 1.0 if mechanism.pulse else min(1.0, self.dt / mechanism.heals) if mechanism.heals else 0.0
            grown = []
            for p, active, stages in worlds:
                draws = [self.edge_draws(i, e, state, active, phase, age, started=started) for i, e in self.into[name]]
                for outcome in product(*draws):
                    chance = p * math.prod(q for q, _, _ in outcome)
                    arrived = any(arrives for _, arrives, _ in outcome)
                    for q, on in ((heals, False), (1 - heals, True)) if was else ((1.0, arrived),):
                        if chance * q > 0:
                            new = list(stages)
                            for (i, _), (_, _, stage) in zip(self.into[name], outcome, strict=True):
                                new[i] = 0 if on else stage
                            grown.append((chance * q, active | {name} if on else active, tuple(new)))
            worlds = grown
        yield from worlds

    def edge_draws(
        self, i: int, edge: Edge, state: State, active: frozenset[str], phase: str, age: int, *, started: bool
    ) -> list[tuple[float, bool, int]]:
        """(probability, arrives, stage) of one edge."""
        parent, child_was, stage = edge.from_, edge.to in state.active, state.stages[i]
        if "." in parent:
            now = ".".join(state.slot[:2]) == parent
            was = now and not started
        else:
            now, was = parent in active, parent in state.active
        starts, allowed, delay = now and not was, edge.phases is None or phase in edge.phases, edge.delay
        idle = [(1.0, False, 0)]
        if delay.fast:
            return [(edge.gate, True, 0), (1 - edge.gate, False, 0)] if starts and allowed else idle
        if edge.recurrent:
            p = min(1.0, self.dt / delay.geometric)
            return [(p, True, 0), (1 - p, False, 0)] if now and was and allowed and not child_was else idle
        if not now or child_was:
            return idle
        if starts:
            return [(edge.gate, False, 1), (1 - edge.gate, False, 0)] if allowed else idle
        if stage == 0:
            return idle
        if delay.timer is not None:
            return [(1.0, True, 0)] if age >= self.timers[delay.timer] else [(1.0, False, stage)]
        stages, mean = (1, delay.geometric) if delay.erlang is None else delay.erlang
        p = min(1.0, stages * self.dt / mean)
        moved = (p, True, 0) if stage == stages else (p, False, stage + 1)
        return [moved, (1 - p, False, stage)]

    def transient_draws(self, state: State) -> Iterator[tuple[float, frozenset[str]]]:
        on = set(state.active) | ({".".join(state.slot[:2])} if state.slot else set())
        chances = {}
        reached = self.downstream[state.slot[:2]] if state.slot else []
        for name in (m for m in reached if self.mechanism[m].transient):
            edges = [e for _, e in self.into[name] if e.from_ in on]
            chances[name] = 1 - math.prod(1 - e.gate for e in edges)
        for outcome in product((False, True), repeat=len(chances)):
            p = math.prod(c if o else 1 - c for c, o in zip(chances.values(), outcome, strict=True))
            if p > 0:
                yield p, frozenset(name for name, o in zip(chances, outcome, strict=True) if o)

    def job_class(self, active: frozenset[str], phase: str) -> str:
        effects = {self.effect[m] for m in active}
        if "crash" in effects:
            return "down"
        stuck = ("block_save" in effects and phase == "save") or ("block_start" in effects and phase in START_PHASES)
        return "halted" if "stall" in effects or stuck else "moving"
