"""Here live the tables of one variant unrolled over a few slices, straight from the declaration.

A variable `name[t]` says what is true after slice t; before slice 0 the fault slot is empty and nothing
is active.  Every state is a number, and 0 is how things stand before slice 0.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from clusterorch.causal import graph as causal
from clusterorch.causal.graph import Spec
from clusterorch.probability import lifetimes

LASTING = ("stall", "crash", "block_save", "block_start")
START_PHASES = ("launch", "init_comm", "load")
CLASSES = ("moving", "halted", "down")
MOVING, HALTED, DOWN = range(3)

Law = Callable[..., Sequence[float]]  # states of the parents -> probabilities of the states


class Context(NamedTuple):
    """What is published of a slice: its phase, and whether it is the last scheduled one of a save."""

    phase: str
    save_ends: bool = False


class Table(NamedTuple):
    """Distribution of one variable given its parents."""

    states: list[str]
    parents: list[str]
    values: np.ndarray  # [states, combinations of the parents' states, the last parent fastest]


def unroll(
    spec: Spec,
    layout: Any,
    variant: str,
    contexts: Sequence[Context],
    sites: Sequence[int] | None = None,
) -> dict[str, Table]:
    """Tables of one variant (`mode.variant`) by variable, parents before children.

    Variables, first state first: `fault[t]` (none, one a site), `present[t]` (off, on), `severity[t]`
    (none, one a level; only if the variant has levels), `edge:P>C[t]` (idle, stages that wait, arrives;
    a second edge between the same two ends in #2), `M[t]` for a mechanism (off, on), `class[t]`,
    `age[t]` (slices of halt, capped where no timer tells more apart), `poisoned[t]` (copies; only if
    the variant can poison).  Signals are left out.

    Args:
        spec: a checked model file.
        layout: a layout of the floor above; read are `nodes`, `copies` and `count(kind)`.
        variant: which one; what the others would take of an empty slot stays in none.
        contexts: what is published of each slice.
        sites: sites to keep, each at its own probability; None: all of the layout.

    Raises:
        InvalidModel: the causal graph has a cycle, or names a thing that is not declared.
    """
    unrolled = _Unrolled(_Declared(spec, layout, variant, len(contexts), sites))
    for t, context in enumerate(contexts):
        unrolled.add_slice(t, context)
    return unrolled.tables


class _Declared:
    """What the declaration says about one variant."""

    def __init__(self, spec: Spec, layout: Any, variant: str, slices: int, sites: Sequence[int] | None) -> None:
        self.spec, self.layout, self.seconds = spec, layout, spec.model.slice_seconds
        self.roots = causal.declared_roots(spec)
        self.root, self.variant = variant, self.roots[variant].variant
        self.sites = list(range(layout.count(self.variant.site)) if sites is None else sites)
        graph = causal.causal_graph(spec)
        declared = {mechanism.name: mechanism for mechanism in spec.mechanism}
        self.mechanisms = [declared[name] for name in causal.reachable_mechanisms(graph, variant)]
        known = {variant, *(mechanism.name for mechanism in self.mechanisms)}
        self.into: dict[str, list[tuple[str, Any]]] = {mechanism.name: [] for mechanism in self.mechanisms}
        for edge in spec.edge:
            if edge.from_ in known and edge.to in known:
                twins = sum(other.from_ == edge.from_ for _, other in self.into[edge.to])
                name = f"edge:{edge.from_}>{edge.to}" + (f"#{twins + 1}" if twins else "")
                self.into[edge.to].append((name, edge))
        limits = {t.name: lifetimes.timer_slices(t.seconds, self.seconds) for t in spec.timer}
        self.timers = {
            name: limits[edge.delay.timer]
            for edges in self.into.values()
            for name, edge in edges
            if edge.delay.timer is not None
        }
        self.oldest = min(slices, max(self.timers.values(), default=slices))
        # Under an incident prior no fault ends by itself.
        recovers = 0.0 if spec.prior.kind == "incident" else self.variant.recovers_per_hour
        self.ends = lifetimes.onset_probability(recovers, self.seconds)

    def with_effect(self, *effects: str) -> list[str]:
        return [mechanism.name for mechanism in self.mechanisms if mechanism.effect in effects]

    def onset(self, phase: str) -> float:
        """Probability that the variant starts at each of its sites in one slice of an empty slot."""
        hazards = {
            name: lifetimes.per_1000_node_days_to_per_hour(root.per_1000_node_days) * self.layout.nodes
            for name, root in self.roots.items()
            if root.variant.phases is None or phase in root.variant.phases
        }
        total = sum(hazards.values())
        if not total or self.root not in hazards:
            return 0.0
        starts = lifetimes.onset_probability(total, self.seconds) * hazards[self.root] / total
        return starts / self.layout.count(self.variant.site)


class _Unrolled:
    def __init__(self, declared: _Declared) -> None:
        self.declared = declared
        self.tables: dict[str, Table] = {}

    def add(self, t: int, name: str, states: Sequence[str], parents: Sequence[tuple[str, int]], law: Law) -> None:
        """Add `name[t]`; parents are (name, slices back), and all in state 0 before slice 0."""
        known = {f"{parent}[{t - back}]": back <= t for parent, back in parents}
        choices = [range(len(self.tables[k].states) if held else 1) for k, held in known.items()]
        columns = [law(*choice) for choice in product(*choices)]
        held = [k for k, held in known.items() if held]
        self.tables[f"{name}[{t}]"] = Table(list(states), held, np.array(columns, dtype=float).T)

    def add_slice(self, t: int, context: Context) -> None:
        """Add the variables of slice t, in the order in which a slice proceeds."""
        declared = self.declared
        self._add_fault(t, context.phase)
        for mechanism in declared.mechanisms:
            edges = declared.into[mechanism.name]
            if mechanism.transient:
                self._add_transient(t, mechanism.name, edges)
                continue
            for name, edge in edges:
                self._add_edge(t, name, edge, context.phase)
            self._add_mechanism(t, mechanism, [name for name, _ in edges])
        self._add_job(t, context)

    def _add_fault(self, t: int, phase: str) -> None:
        declared = self.declared
        sites, chance, levels = len(declared.sites), declared.onset(phase), declared.variant.severity
        lasting = declared.with_effect(*LASTING) if declared.ends else []

        def fault(before: int, *blocking: int) -> list[float]:
            if before == 0:
                return [1.0 - chance * sites, *[chance] * sites]
            ends = 0.0 if any(blocking) else declared.ends
            return [ends, *(1.0 - ends if site == before else 0.0 for site in range(1, sites + 1))]

        def severity(before: int, now: int, level: int) -> list[float]:
            if now and not before:
                return [0.0, *levels]
            return _certain(level if now else 0, 1 + len(levels))

        names = [f"{declared.variant.site}_{site}" for site in declared.sites]
        self.add(t, "fault", ["none", *names], [("fault", 1), *((name, 1) for name in lasting)], fault)
        self.add(t, "present", ["off", "on"], [("fault", 0)], lambda now: _certain(int(now > 0), 2))
        if levels is not None:
            parents = [("present", 1), ("present", 0), ("severity", 1)]
            self.add(t, "severity", ["none", *declared.spec.model.severities], parents, severity)

    def _source(self, edge: Any) -> str:
        return "present" if edge.from_ == self.declared.root else edge.from_

    def _add_edge(self, t: int, name: str, edge: Any, phase: str) -> None:
        allowed = edge.phases is None or phase in edge.phases
        parents = [(self._source(edge), 0), (self._source(edge), 1)]
        waiting = 0
        if edge.delay.fast:
            law = _fast(edge.gate if allowed else 0.0)
        elif edge.recurrent:
            parents += [(edge.to, 1)]
            p = lifetimes.geometric_from_mean(edge.delay.geometric, self.declared.seconds)
            law = _recurrent(p if allowed else 0.0)
        else:
            waiting = 1 if edge.delay.erlang is None else edge.delay.erlang[0]
            parents += [(edge.to, 1), (name, 1)] + [("age", 1)] * (edge.delay.timer is not None)
            law = _staged(edge.gate if allowed else 0.0, waiting, self._advance(name, edge.delay))
        states = ["idle", *(f"stage_{stage + 1}" for stage in range(waiting)), "arrives"]
        self.add(t, name, states, parents, law)

    def _advance(self, name: str, delay: Any) -> Callable[..., float]:
        """Probability that a waiting stage moves, given the age of the halt before the slice."""
        if delay.timer is not None:
            return lambda age: float(age >= self.declared.timers[name])
        if delay.erlang is not None:
            p = lifetimes.erlang_from_mean(*delay.erlang, self.declared.seconds)
        else:
            p = lifetimes.geometric_from_mean(delay.geometric, self.declared.seconds)
        return lambda: p

    def _add_mechanism(self, t: int, mechanism: Any, edges: list[str]) -> None:
        seconds, heals = self.declared.seconds, 0.0
        if mechanism.lasts is not None:
            heals = lifetimes.geometric_from_mean(mechanism.lasts, seconds)
        arrives = [len(self.tables[f"{name}[{t}]"].states) - 1 for name in edges]

        def law(present: int, was: int, *stages: int) -> list[float]:
            if not present:
                return [1.0, 0.0]
            if was:
                return [heals, 1.0 - heals]
            return _certain(int(any(s == last for s, last in zip(stages, arrives, strict=True))), 2)

        parents = [("present", 0), (mechanism.name, 1), *((name, 0) for name in edges)]
        self.add(t, mechanism.name, ["off", "on"], parents, law)

    def _add_transient(self, t: int, name: str, edges: list[tuple[str, Any]]) -> None:
        silences: dict[str, float] = {}
        for _, edge in edges:
            source = self._source(edge)
            silences[source] = silences.get(source, 1.0) * (1.0 - edge.gate)

        def law(*active: int) -> list[float]:
            silent = prod(p for p, on in zip(silences.values(), active, strict=True) if on)
            return [silent, 1.0 - silent]

        self.add(t, name, ["off", "on"], [(source, 0) for source in silences], law)

    def _add_job(self, t: int, context: Context) -> None:
        declared, oldest = self.declared, self.declared.oldest
        halting = ["stall"]
        halting += ["block_save"] * (context.phase == "save")
        halting += ["block_start"] * (context.phase in START_PHASES)
        stops, crashes = declared.with_effect(*halting), declared.with_effect("crash")

        def job_class(*active: int) -> list[float]:
            down, halted = any(active[: len(crashes)]), any(active[len(crashes) :])
            return _certain(DOWN if down else HALTED if halted else MOVING, 3)

        def age(now: int, before: int) -> list[float]:
            return _certain(min(before + 1, oldest) if now == HALTED else 0, oldest + 1)

        parents = [(name, 0) for name in (*crashes, *stops)]
        self.add(t, "class", CLASSES, parents, job_class)
        ages = [f"age_{slices}" for slices in range(oldest + 1)]
        self.add(t, "age", ages, [("class", 0), ("age", 1)], age)
        if poisons := declared.with_effect("poison"):
            self._add_copies(t, poisons if context.save_ends else [])

    def _add_copies(self, t: int, poisons: list[str]) -> None:
        most = self.declared.layout.copies

        def copies(before: int, present: int, job_class: int = HALTED, *active: int) -> list[float]:
            saved = job_class == MOVING and any(active)
            return _certain(min(before + saved, most) if present else 0, most + 1)

        parents = [("poisoned", 1), ("present", 0)]
        parents += [("class", 0), *((name, 0) for name in poisons)] if poisons else []
        self.add(t, "poisoned", [f"copies_{n}" for n in range(most + 1)], parents, copies)


def _certain(state: int, states: int) -> list[float]:
    return [float(other == state) for other in range(states)]


def _fast(gate: float) -> Law:
    return lambda now, was: [1.0 - gate, gate] if now and not was else [1.0, 0.0]


def _recurrent(p: float) -> Law:
    return lambda now, was, child_was: [1.0 - p, p] if now and was and not child_was else [1.0, 0.0]


def _staged(gate: float, waiting: int, advance: Callable[..., float]) -> Law:
    """States: 0 idle, 1..waiting, waiting + 1 arrives (idle from the next slice on)."""

    def law(now: int, was: int, child_was: int, stage: int, *age: int) -> list[float]:
        row = [0.0] * (waiting + 2)
        if not now or child_was or stage > waiting or (was and stage == 0):
            row[0] = 1.0
        elif not was:
            row[:2] = [1.0 - gate, gate]
        else:
            p = advance(*age)
            row[stage] += 1.0 - p
            row[stage + 1] += p
        return row

    return law
