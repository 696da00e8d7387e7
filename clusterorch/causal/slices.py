"""Here lives one slice of one variant: the law of its mechanisms and pending edges, drawn or enumerated.

`models/README.md` section 2.4 is the definition. This is the only place where the compiler and
the sampler learn what an edge does; the sampler's kernel draws what `edge_outcomes` enumerates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FAST, RECURRENT, GEOMETRIC, ERLANG, TIMER = range(5)
EFFECTS = ("none", "slow", "stall", "crash", "block_save", "block_start", "poison")
MOVING, HALTED, DOWN = range(3)
VARIANT = -1  # the parent "the fault in the slot is this variant"


class EdgeLaw(NamedTuple):
    """One edge of a variant's network; mechanisms are indices in topological order."""

    name: str
    parent: int
    child: int
    kind: int
    gate: float
    advance: float
    stages: int
    due: int  # timers: how many of the model's limits, shortest first, must have passed
    phases: frozenset[int] | None


class MechanismLaw(NamedTuple):
    """One persistent mechanism: its effect on the job and the probability of healing in a slice."""

    name: str
    effect: str
    heals: float


class TransientLaw(NamedTuple):
    """A mechanism without memory: (parent, gate) pairs that may switch it on while they are active."""

    name: str
    parents: tuple[tuple[int, float], ...]


class VariantLaw(NamedTuple):
    """Everything that can happen after a variant has entered the slot."""

    name: str
    mechanisms: tuple[MechanismLaw, ...]
    edges: tuple[EdgeLaw, ...]
    transients: tuple[TransientLaw, ...]
    copies: int  # poisoned copies counted up to here; 0 if nothing can poison

    def mask(self, *effects: str) -> int:
        """Bit set of the mechanisms with one of these effects."""
        return sum(1 << i for i, m in enumerate(self.mechanisms) if m.effect in effects)


class Configuration(NamedTuple):
    """What persists between slices: mechanism bits, a stage for each edge, poisoned copies, hidden age."""

    bits: int
    stages: tuple[int, ...]
    poisoned: int = 0
    age: int = 0


class Context(NamedTuple):
    """What is published about a slice before anything is drawn in it."""

    phase: int
    due: int  # limits passed by age of the halt before this slice
    save_ends: bool
    phase_is_save: bool
    phase_is_start: bool


def job_class(law: VariantLaw, bits: int, context: Context) -> int:
    """MOVING, HALTED or DOWN (`models/README.md` 2.5)."""
    if bits & law.mask("crash"):
        return DOWN
    halting = law.mask("stall")
    if context.phase_is_save:
        halting |= law.mask("block_save")
    if context.phase_is_start:
        halting |= law.mask("block_start")
    return HALTED if bits & halting else MOVING


def edge_outcomes(
    edge: EdgeLaw, *, before: bool, now: bool, starts: bool, child_before: bool, stage: int, context: Context
) -> list[tuple[float, bool, int]]:
    """Every (probability, arrives, stage after) of one edge in one slice; `before`, `now`: its parent."""
    if child_before or not now:
        return [(1.0, False, 0)]
    open_here = edge.phases is None or context.phase in edge.phases
    if edge.kind == RECURRENT:
        p = edge.advance if before and not starts and open_here else 0.0
        return _split(p, (True, 0), (False, 0))
    if starts:
        gate = edge.gate if open_here else 0.0
        return _split(gate, (True, 0) if edge.kind == FAST else (False, 1), (False, 0))
    if stage == 0:
        return [(1.0, False, 0)]
    if edge.kind == TIMER:
        return [(1.0, True, 0)] if context.due >= edge.due else [(1.0, False, stage)]
    step = (True, 0) if stage == edge.stages else (False, stage + 1)
    return _split(edge.advance, step, (False, stage))


def _split(p: float, yes: tuple[bool, int], no: tuple[bool, int]) -> list[tuple[float, bool, int]]:
    outcomes = [(p, *yes), (1.0 - p, *no)]
    return [outcome for outcome in outcomes if outcome[0] > 0.0]


def successors(law: VariantLaw, before: Configuration, context: Context, *, starts: bool) -> dict[Configuration, float]:
    """The law of the configuration after a slice.  `starts`: the variant entered (or re-entered) the slot."""
    partial: dict[tuple[int, tuple[int, ...]], float] = {(0, before.stages): 1.0}
    for index in range(len(law.mechanisms)):
        following: dict[tuple[int, tuple[int, ...]], float] = {}
        for (bits, stages), p in partial.items():
            for q, bits_after, stages_after in _mechanism(law, index, before, bits, stages, context, starts):
                key = (bits_after, stages_after)
                following[key] = following.get(key, 0.0) + p * q
        partial = following
    result: dict[Configuration, float] = {}
    for (bits, stages), p in partial.items():
        after = _count(law, before, bits, stages, context)
        result[after] = result.get(after, 0.0) + p
    return result


def _mechanism(
    law: VariantLaw, index: int, before: Configuration, bits: int, stages: tuple[int, ...],
    context: Context, starts: bool,
) -> Iterator[tuple[float, int, tuple[int, ...]]]:  # fmt: skip
    """Every (probability, bits, stages) once mechanism `index` and the edges into it are decided."""
    active_before = bool(before.bits >> index & 1)
    incoming = [e for e, edge in enumerate(law.edges) if edge.child == index]
    cleared = tuple(0 if e in incoming else s for e, s in enumerate(stages))
    if active_before:
        heals = law.mechanisms[index].heals
        if heals > 0.0:
            yield heals, bits, cleared
        if heals < 1.0:
            yield 1.0 - heals, bits | 1 << index, cleared
        return
    joint: list[tuple[float, bool, tuple[int, ...]]] = [(1.0, False, cleared)]
    for e in incoming:
        edge = law.edges[e]
        is_variant = edge.parent == VARIANT
        was = not starts if is_variant else bool(before.bits >> edge.parent & 1)
        now = True if is_variant else bool(bits >> edge.parent & 1)
        outcomes = edge_outcomes(
            edge, before=was, now=now, starts=now and not was, child_before=False,
            stage=before.stages[e], context=context,
        )  # fmt: skip
        joint = [
            (p * q, arrived or arrives, (*held[:e], stage, *held[e + 1 :]))
            for p, arrived, held in joint
            for q, arrives, stage in outcomes
        ]
    for p, arrived, held in joint:
        yield (p, bits | 1 << index, cleared) if arrived else (p, bits, held)


def _count(
    law: VariantLaw, before: Configuration, bits: int, stages: tuple[int, ...], context: Context
) -> Configuration:
    poisoned = before.poisoned
    if law.copies and context.save_ends and bits & law.mask("poison"):
        poisoned += job_class(law, bits, context) == MOVING
    return Configuration(bits, stages, min(poisoned, law.copies), before.age)


def components(law: VariantLaw, bits: int) -> list[tuple[float, tuple[str, ...]]]:
    """Every (probability, transient mechanisms that are on) given the persistent ones."""
    result: list[tuple[float, tuple[str, ...]]] = [(1.0, ())]
    for transient in law.transients:
        off = 1.0
        for parent, gate in transient.parents:
            if parent == VARIANT or bits >> parent & 1:
                off *= 1.0 - gate
        on = 1.0 - off
        result = [
            (p * q, (*names, transient.name) if q_on else names)
            for p, names in result
            for q, q_on in ((on, True), (off, False))
            if q > 0.0
        ]
    return result
