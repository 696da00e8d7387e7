"""Here lives what must hold between the tables of a model file.

Each check yields what is wrong as (key, problem, fix).  They stand in an order in which a later one
may rely on the earlier: names, references, graph, reach, signals.  The first thing found is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain as joined
from typing import Any, NamedTuple

import networkx as nx

from clusterorch.causal.slices import VariantLaw
from clusterorch.errors import InvalidModel
from clusterorch.models import provenance, signal_checks
from clusterorch.models.configurations import Chain, expand
from clusterorch.models.ground import HEALTHY, ground, limit_slices, variant_names
from clusterorch.models.reach import reached_mechanisms, sees, variant_key
from clusterorch.models.spec import PHASES, Edge, ModelSpec

MANY, MOST = 16, 64  # configurations of a variant: a warning above the first, an error above the second

_HALTING = ("stall", "block_save", "block_start")

Problem = tuple[str, str, str]  # key, what is wrong there, what would be right


class _Reference(NamedTuple):
    key: str
    kind: str
    name: str


def check(spec: ModelSpec, raw: dict[str, Any], file: str, *, thorough: bool = False) -> list[str]:
    """Warnings, one line each, about a model in which nothing is wrong.

    Args:
        spec: the model, overlays applied.
        raw: its merged raw tables.
        file: the files, as the user knows them.
        thorough: also refuse mechanisms that nothing brings about, and count the configurations of
            every variant.

    Raises:
        InvalidModel: the first thing that cannot be.
    """
    provenance.numbers(raw, file)
    finders = [_names, _references, _shape, _timers, _reach, _settings, signal_checks.problems]
    for find in [*finders, _unused] if thorough else finders:
        for key, problem, fix in find(spec):
            raise InvalidModel(file, key, problem, fix)
    warnings = [f"sources.{key}: no number cites it" for key in provenance.uncited(raw)]
    warnings += signal_checks.idle_rules(spec)
    if thorough:
        for name, chain in count_configurations(spec, file).items():
            if (count := len(chain.configurations)) > MANY:
                warnings.append(f"{variant_key(name)}: {count} configurations, more than {MANY}: slow")
    return warnings


def count_configurations(spec: ModelSpec, file: str) -> dict[str, Chain]:
    """The chain of every variant, where logs publish the age of a halt.

    Raises:
        InvalidModel: a variant has more than 64 configurations.
    """
    limits = tuple(sorted(set(limit_slices(spec).values())))
    return {variant.name: _expand_bounded(variant.law, limits, file) for variant in ground(spec, 1, spec.job.copies)}


def refuse_large(chain: Chain, file: str) -> None:
    """Refuse a chain with the published age of a halt that is too large to be exact in good time.

    Raises:
        InvalidModel: more than 64 configurations.
    """
    if (count := len(chain.configurations)) > MOST:
        raise _too_large(chain.law.name, str(count), file)


def _expand_bounded(law: VariantLaw, limits: tuple[int, ...], file: str) -> Chain:
    # The first k mechanisms alone have no more configurations than all of them, so a cascade that
    # multiplies without end is noticed before one slice of it fills the memory.
    heads = (
        law._replace(
            mechanisms=law.mechanisms[:k], edges=tuple(e for e in law.edges if e.child < k), copies=0,
            transients=(),
        )
        for k in range(1, len(law.mechanisms))
    )  # fmt: skip
    try:
        for head in heads:
            expand(head, limits, hidden_age=False, most=MOST)
        return expand(law, limits, hidden_age=False, most=MOST)
    except OverflowError as error:
        raise _too_large(law.name, f"more than {MOST}", file) from error


def _too_large(name: str, count: str, file: str) -> InvalidModel:
    return InvalidModel(
        file, variant_key(name), f"{count} configurations, and {MOST} are the most",
        "drop gates or delays below it, or split the variant",
    )  # fmt: skip


def edge_key(edge: Edge) -> str:
    """How an edge is named in messages."""
    return f"edge({edge.from_}>{edge.to})"


def _names(spec: ModelSpec) -> Iterator[Problem]:
    """No two things of one kind, and no two nodes of the causal graph, have one name."""
    lists = {
        "mode": [m.name for m in spec.mode], "benign": [b.name for b in spec.benign],
        "mechanism": [m.name for m in spec.mechanism], "signal": [s.name for s in spec.signal],
        "timer": [t.name for t in spec.timer], "stream": [s.name for s in spec.stream],
        "action": [a.name for a in spec.action], "protocol": [p.name for p in spec.protocol],
        "edge": [f"{e.from_}>{e.to}" for e in spec.edge],
    }  # fmt: skip
    lists |= {f"mode({m.name}).variant": [v.name for v in m.variant] for m in spec.mode}
    for kind, names in lists.items():
        for name, times in Counter(names).items():
            if times > 1:
                yield f"{kind}({name})", f"declared {times} times", "keep one, or give each its own name"
    if HEALTHY in lists["mode"]:
        yield f"mode({HEALTHY})", "the name stands for the absence of failure", "choose another name"
    owner: dict[str, str] = {}
    for kind in ("mode", "mechanism", "signal"):
        for name in lists[kind]:
            if name in owner:
                yield f"{kind}({name})", f"a {owner[name]} has this name", "give each its own name"
            owner[name] = kind
    for signal in spec.signal:
        if len(set(signal.values)) < len(signal.values):
            yield f"signal({signal.name}).values", f"{signal.values} repeats a value", "name each value once"


def _references(spec: ModelSpec) -> Iterator[Problem]:
    """Every name that something refers to is declared."""
    variants = variant_names(spec)
    mechanisms = [m.name for m in spec.mechanism]
    known = {
        "mechanism": mechanisms, "phase": list(PHASES), "timer": [t.name for t in spec.timer],
        "stream": [s.name for s in spec.stream],
        "mechanism or variant (as mode.variant)": [*mechanisms, *variants],
        "mode or variant": [*(m.name for m in spec.mode), HEALTHY, *variants],
    }  # fmt: skip
    for key, kind, name in _all_references(spec):
        if name not in known[kind]:
            near = get_close_matches(name, known[kind], 1)
            fix = f"declare it, or did you mean {near[0]!r}?" if near else "declare it, or correct the name"
            yield key, f"no {kind} is named {name!r}", fix
    for key, phases in _phase_lists(spec):
        if not phases:
            yield key, "an empty list of phases never applies", "name a phase, or remove the key"
    for action in spec.action:
        for index, effect in enumerate(action.effect):
            if not effect.of:
                key = f"action({action.name}).effect[{index}].of"
                yield key, "matches no fault", "list modes or variants"


def _all_references(spec: ModelSpec) -> Iterator[_Reference]:
    for name, variant in zip(variant_names(spec), _declared_variants(spec), strict=True):
        if variant.proximate is not None:
            yield _Reference(f"{variant_key(name)}.proximate", "mechanism", variant.proximate)
    for edge in spec.edge:
        yield _Reference(f"{edge_key(edge)}.from", "mechanism or variant (as mode.variant)", edge.from_)
        yield _Reference(f"{edge_key(edge)}.to", "mechanism", edge.to)
        if edge.delay.timer is not None:
            yield _Reference(f"{edge_key(edge)}.delay.timer", "timer", edge.delay.timer)
    for signal in spec.signal:
        yield _Reference(f"signal({signal.name}).stream", "stream", signal.stream)
        for index, rule in enumerate(signal.when):
            key = f"signal({signal.name}).when[{index}]"
            if rule.mechanism is not None:
                yield _Reference(f"{key}.mechanism", "mechanism", rule.mechanism)
            yield from (_Reference(f"{key}.mechanisms", "mechanism", name) for name in rule.mechanisms)
            yield from (_Reference(f"{key}.absent_mechanisms", "mechanism", name) for name in rule.absent_mechanisms)
    for action in spec.action:
        for index, effect in enumerate(action.effect):
            key = f"action({action.name}).effect[{index}].of"
            yield from (_Reference(key, "mode or variant", name) for name in effect.of)
        if action.brings is not None:
            key = f"action({action.name}).brings.of"
            yield from (_Reference(key, "mode or variant", name) for name in action.brings.of)
    for key, phases in _phase_lists(spec):
        yield from (_Reference(key, "phase", name) for name in phases)


def _declared_variants(spec: ModelSpec) -> Iterable[Any]:
    return joined((variant for mode in spec.mode for variant in mode.variant), spec.benign)


def _phase_lists(spec: ModelSpec) -> Iterator[tuple[str, list[str]]]:
    places: list[tuple[str, list[str] | None]] = [
        (variant_key(name), variant.phases)
        for name, variant in zip(variant_names(spec), _declared_variants(spec), strict=True)
    ]
    places += [(edge_key(edge), edge.phases) for edge in spec.edge]
    places += [
        (f"signal({signal.name}).when[{i}]", rule.phases)
        for signal in spec.signal
        for i, rule in enumerate(signal.when)
    ]
    return ((f"{key}.phases", phases) for key, phases in places if phases is not None)


def _shape(spec: ModelSpec) -> Iterator[Problem]:
    """No mechanism causes itself; a transient one ends the cascade and is drawn inside the slice."""
    declared = {m.name: m for m in spec.mechanism}
    graph = nx.DiGraph((e.from_, e.to) for e in spec.edge if e.from_ in declared)
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [tail for tail, _ in nx.find_cycle(graph)]
        text = " > ".join([*cycle, cycle[0]])
        yield f"edge({cycle[-1]}>{cycle[0]})", f"a cycle: {text}", "remove an edge of it"
    for edge in spec.edge:
        key = edge_key(edge)
        if edge.from_ in declared and declared[edge.from_].transient:
            yield f"{key}.from", f"{edge.from_!r} is transient and can cause nothing", "make it lasting"
        if declared[edge.to].transient and not edge.delay.fast:
            yield f"{key}.delay", f"{edge.to!r} is transient and cannot be awaited", 'give delay = "fast"'
        if declared[edge.to].transient and edge.phases is not None:
            yield f"{key}.phases", f"{edge.to!r} is transient and has no phases", "remove the key"


def _timers(spec: ModelSpec) -> Iterator[Problem]:
    """A timer counts slices of halt, so what it waits on must halt the job; a delay must fit its slices."""
    effects = {m.name: m.effect for m in spec.mechanism}
    for edge in spec.edge:
        key, delay = edge_key(edge), edge.delay
        if delay.timer is not None and effects.get(edge.from_) not in _HALTING:
            yield (
                f"{key}.delay.timer",
                f"a timer counts slices of halt, and {edge.from_!r} does not halt the job",
                'start it from a mechanism with effect = "stall", "block_save" or "block_start"',
            )
        if delay.erlang is not None:
            stages, mean = delay.erlang
            if mean < stages * spec.model.slice_seconds:
                shortest = stages * spec.model.slice_seconds
                yield (
                    f"{key}.delay.erlang",
                    f"{stages} stages take {shortest:g} s or more, not {mean:g} s on average",
                    "give fewer stages or a longer mean",
                )


def _reach(spec: ModelSpec) -> Iterator[Problem]:
    """Every variant starts a cascade that some signal shows."""
    reached = reached_mechanisms(spec)
    starts = {edge.from_ for edge in spec.edge}
    for name in reached:
        if name not in starts:
            yield variant_key(name), "no edge leaves it, so it does nothing", "add an edge from it"
    for name, mechanisms in reached.items():
        if not any(sees(spec, rule, mechanisms) for signal in spec.signal for rule in signal.when):
            fix = "add a rule to a signal for one of its mechanisms"
            yield variant_key(name), "no signal shows any of its mechanisms", fix


def _unused(spec: ModelSpec) -> Iterator[Problem]:
    """Every mechanism belongs to a cascade.  One that does not changes nothing, so `load` lets it pass."""
    anywhere = frozenset().union(*reached_mechanisms(spec).values())
    for mechanism in spec.mechanism:
        if mechanism.name not in anywhere:
            fix = "add an edge into it, or remove it"
            yield f"mechanism({mechanism.name})", "no variant brings it about", fix


def _settings(spec: ModelSpec) -> Iterator[Problem]:
    """An action that discards copies restarts from one of them; a prior has the numbers of its kind."""
    for action in spec.action:
        if action.discards and not (action.restarts and action.target == "copy"):
            fix = 'give restarts = true and target = "copy"'
            yield f"action({action.name}).discards", "discards copies without a restart from a copy", fix
        if action.brings is not None and not (action.restarts and action.target == "node" and action.brings.of):
            fix = 'give restarts = true, target = "node" and some modes, or remove the table'
            yield f"action({action.name}).brings", "a fault comes with nothing that replaces a node", fix
        if action.restarts and action.reinitialises:
            fix = "a restart does so anyhow: remove the key"
            yield f"action({action.name}).reinitialises", "restarts and re-initialises", fix
    needed = {"episode": "incidents_per_hour", "incident": "healthy"}.get(spec.prior.kind)
    if needed and getattr(spec.prior, needed) is None:
        yield f"prior.{needed}", f"missing, and the kind is {spec.prior.kind!r}", "add the key"
