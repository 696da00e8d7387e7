"""Here lives the compilation of a variant into a finite chain: its configurations and their transitions."""

from __future__ import annotations

from dataclasses import dataclass

from clusterorch.causal.slices import HALTED, Configuration, Context, VariantLaw, job_class, successors
from clusterorch.models.spec import PHASES

SAVE, STARTING = PHASES.index("save"), {PHASES.index(p) for p in ("launch", "init_comm", "load")}


def make_context(phase: int, due: int, save_ends: bool) -> Context:
    """The published context of a slice."""
    return Context(phase, due, save_ends, phase == SAVE, phase in STARTING)


@dataclass(frozen=True)
class Chain:
    """A variant as a chain over configurations, one transition table for each distinct context.

    `table_of[phase][due][save_ends]` and `onset_of` number the tables; rows are (from, to, p).
    """

    law: VariantLaw
    configurations: tuple[Configuration, ...]
    tables: tuple[tuple[tuple[int, int, float], ...], ...]
    onsets: tuple[tuple[tuple[int, float], ...], ...]
    table_of: dict[tuple[int, int, bool], int]
    onset_of: dict[tuple[int, int, bool], int]

    def index(self, configuration: Configuration) -> int:
        """Number of a configuration."""
        return self.configurations.index(configuration)


def _canonical(law: VariantLaw, context: Context, hidden: bool) -> Context:
    """The context with everything removed that this variant cannot feel, so that equal tables are shared."""
    gated = {p for edge in law.edges if edge.phases is not None for p in edge.phases}
    phase = context.phase if context.phase in gated else -1
    due = 0 if hidden or not any(edge.due for edge in law.edges) else context.due
    blocks_save = bool(law.mask("block_save")) and context.phase_is_save
    blocks_start = bool(law.mask("block_start")) and context.phase_is_start
    return Context(phase, due, context.save_ends and law.copies > 0, blocks_save, blocks_start)


def expand(law: VariantLaw, limits: tuple[int, ...], *, hidden_age: bool, most: int = 10_000) -> Chain:
    """Every configuration the variant can reach, in any published context.

    `limits`: slices of halt of the distinct timers, shortest first.  With `hidden_age` the age of
    the halt is part of the configuration (for logs that do not publish it), else part of the context.
    """
    contexts = {
        (phase, due, ends): _canonical(law, make_context(phase, due, ends), hidden_age)
        for phase in range(len(PHASES))
        for due in range(1 if hidden_age else len(limits) + 1)
        for ends in (False, True)
    }
    distinct = list(dict.fromkeys(contexts.values()))
    start = Configuration(0, (0,) * len(law.edges))
    found: dict[Configuration, int] = {}
    rows: dict[tuple[Configuration, Context, bool], dict[Configuration, float]] = {}
    queue: list[Configuration] = []

    def reach(before: Configuration, context: Context, starts: bool) -> None:
        after = _step(law, before, context, starts, limits if hidden_age else ())
        rows[before, context, starts] = after
        for configuration in after:
            if configuration not in found:
                found[configuration] = len(found)
                queue.append(configuration)
                if len(found) > most:
                    raise OverflowError(law.name)

    restarts = [start, *(_poisoned_start(law, start, m) for m in range(1, law.copies + 1))]
    for before in restarts:
        for context in distinct:
            reach(before, context, True)
    while queue:
        before = queue.pop(0)
        for context in distinct:
            reach(before, context, False)
    order = sorted(found, key=lambda c: (c.bits.bit_count(), c.bits, c.stages, c.poisoned, c.age))
    number = {configuration: i for i, configuration in enumerate(order)}
    tables = tuple(
        tuple((number[b], number[a], p) for b in order for a, p in sorted_rows(rows[b, context, False], number))
        for context in distinct
    )
    onsets = tuple(
        tuple((number[a], p) for a, p in sorted_rows(rows[before, context, True], number))
        for before in restarts
        for context in distinct
    )
    return Chain(
        law, tuple(order), tables, onsets,
        {key: distinct.index(context) for key, context in contexts.items()},
        {key: distinct.index(context) for key, context in contexts.items()},
    )  # fmt: skip


def sorted_rows(row: dict[Configuration, float], number: dict[Configuration, int]) -> list[tuple[Configuration, float]]:
    """A row in the order of its target configurations."""
    return sorted(row.items(), key=lambda item: number[item[0]])


def _poisoned_start(law: VariantLaw, start: Configuration, poisoned: int) -> Configuration:
    """What a restart leaves when the loaded copy is poisoned."""
    return start._replace(bits=law.mask("poison"), poisoned=poisoned)


def _step(
    law: VariantLaw,
    before: Configuration,
    context: Context,
    starts: bool,
    limits: tuple[int, ...],
) -> dict[Configuration, float]:
    if not limits:
        return successors(law, before, context, starts=starts)
    due = sum(before.age >= limit for limit in limits)
    result: dict[Configuration, float] = {}
    for after, p in successors(law, before, context._replace(due=due), starts=starts).items():
        halted = job_class(law, after.bits, context) == HALTED
        age = min(before.age + 1, limits[-1]) if halted else 0
        aged = after._replace(age=age)
        result[aged] = result.get(aged, 0.0) + p
    return result
