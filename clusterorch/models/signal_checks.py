"""Here lives what must hold in the signals of a model: nothing impossible, nothing that cannot apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clusterorch.models.layout import Layout
from clusterorch.models.reach import can_match, reached_mechanisms
from clusterorch.models.spec import ModelSpec, Parameters, Signal, When

Problem = tuple[str, str, str]  # key, what is wrong there, what would be right

ALONE = ("communicator", "checkpoint", "job")  # kinds of which a layout has one entity
_SPEAKERS = ("chorus", "first_speaker")  # their parameters are by relation already
_CHANCES = ("probability", "probabilities", "told", "quiet", "speaks")
_BY_SEVERITY = ("mean", "sd", "absent", "probability", "told", "speaks")


def problems(spec: ModelSpec) -> Iterator[Problem]:
    """Everything wrong with a signal or one of its rules, in the order of the file."""
    for signal in spec.signal:
        key = f"signal({signal.name})"
        if signal.memory >= 1.0:
            yield f"{key}.memory", "1 leaves no noise", "give a number below 1"
        yield from _numbers(key, signal)
        yield from _background(key, signal)
        for index, rule in enumerate(signal.when):
            here = f"{key}.when[{index}]"
            yield from _numbers(here, rule)
            yield from _conditions(here, signal, rule)
            yield from _severities(spec, here, rule)
    reached = reached_mechanisms(spec)
    graded = _graded(spec)
    for mechanism in spec.mechanism:
        if isinstance(mechanism.slowdown, list) and not any(mechanism.name in reached[v] for v in graded):
            key = f"mechanism({mechanism.name}).slowdown"
            yield key, "by severity, and no variant with severities brings it about", "give one number"


def idle_rules(spec: ModelSpec) -> list[str]:
    """A line for every rule that no fault can make match."""
    reached = reached_mechanisms(spec)
    sites = {f"{m.name}.{v.name}": v.site for m in spec.mode for v in m.variant}
    sites |= {f"healthy.{b.name}": b.site for b in spec.benign}
    lines = []
    for signal in spec.signal:
        for index, rule in enumerate(signal.when):
            if not (rule.needs or rule.job in ("halted", "down") or rule.where in ("site", "node")):
                continue
            matching = [name for name, mechanisms in reached.items() if can_match(spec, rule, mechanisms)]
            near = [name for name in matching if _related(sites[name], signal.entity, rule.where)]
            if not near:
                why = "no variant brings about what it asks for"
                if matching:
                    kinds = ", ".join(sorted({sites[name] for name in matching}))
                    why = f"no {signal.entity} stands in relation {rule.where!r} to a site of kind {kinds}"
                lines.append(f"signal({signal.name}).when[{index}]: never matches: {why}")
    return lines


def _related(site_kind: str, entity_kind: str, where: str) -> bool:
    at_site, near = Layout(1, 1).relation_levels(site_kind, entity_kind)
    return {"site": at_site is not None, "node": near is not None}.get(where, True)


def _graded(spec: ModelSpec) -> list[str]:
    """Variants that have severities."""
    names = [f"{m.name}.{v.name}" for m in spec.mode for v in m.variant if v.severity is not None]
    return names + [f"healthy.{b.name}" for b in spec.benign if b.severity is not None]


def _flat(value: Any) -> list[float]:
    if value is None:
        return []
    return [number for part in value for number in _flat(part)] if isinstance(value, list) else [value]


def _numbers(key: str, table: Parameters) -> Iterator[Problem]:
    """Evidence of probability zero would be impossible, and one line of it would end every diagnosis."""
    for name in _CHANCES:
        for number in _flat(getattr(table, name)):
            if number in (0.0, 1.0):
                yield _certain(f"{key}.{name}", number)
    for name in ("speak", "weight"):
        for relation, number in (getattr(table, name) or Parameters()).__dict__.items():
            if relation not in ("site", "node", "rest"):
                continue
            here = f"{key}.{name}.{relation}"
            if name == "weight" and number == 0.0:
                yield here, "0 makes a first word of theirs impossible", "use a small weight"
            elif name == "speak" and number in (0.0, 1.0):
                yield _certain(here, number)
            elif name == "speak" and number > 1.0:
                yield here, f"{number:g} is not a probability", "give a number between 0 and 1"
    if any(number >= 1.0 for number in _flat(table.absent)):
        yield f"{key}.absent", "1 makes every value impossible", "give a number in [0, 1)"
    if any(number <= 0.0 for number in _flat(table.sd)):
        yield f"{key}.sd", f"{table.sd} is not positive", "give a number above 0"


def _certain(key: str, number: float) -> Problem:
    if number == 0.0:
        return key, "0 makes evidence of it impossible", "use a small probability"
    return key, "1 makes evidence against it impossible", "use a probability a little below 1"


def _background(key: str, signal: Signal) -> Iterator[Problem]:
    for name in _listed(signal):
        fix = "give one number, or add a rule"
        yield f"{key}.{name}", "by severity, and without a fault there is none", fix


def _listed(table: Parameters) -> list[str]:
    """Parameters that are given for each severity."""
    names = [name for name in _BY_SEVERITY if isinstance(getattr(table, name), list)]
    rows = table.probabilities
    return [*names, "probabilities"] if rows and isinstance(rows[0], list) and len(rows) > 1 else names


def _conditions(key: str, signal: Signal, rule: When) -> Iterator[Problem]:
    """A rule says when it applies, only what its family knows, and a relation only where there is one."""
    if not (rule.needs or rule.absent_mechanisms or rule.phases or rule.job or rule.where != "all"):
        yield key, "matches always, so the signal's own parameters never count", "say when it applies"
    if rule.where != "all" and signal.entity in ALONE:
        fix = 'remove the key, or give where = "all"'
        yield f"{key}.where", f"there is one {signal.entity}, so a relation tells nothing", fix
    if rule.where != "all" and signal.family in _SPEAKERS:
        fix = "put the relations into speak or weight"
        yield f"{key}.where", f"a {signal.family} rule speaks for all members at once", fix
    known = (*signal.REQUIRED[signal.family], "absent") if signal.outlier else signal.REQUIRED[signal.family]
    for name in Parameters.model_fields.keys() - {"source", "derived", "assumed"}:
        if getattr(rule, name) is not None and name not in known:
            yield f"{key}.{name}", f"family {signal.family} does not read it", "remove the key"


def _severities(spec: ModelSpec, key: str, rule: When) -> Iterator[Problem]:
    listed = _listed(rule)
    if not listed:
        return
    reached = reached_mechanisms(spec)
    by_fault = rule.needs or rule.job in ("halted", "down") or rule.where in ("site", "node")
    if not (by_fault and any(can_match(spec, rule, reached[name]) for name in _graded(spec))):
        problem = "by severity, and no variant with severities can make it match"
        yield f"{key}.{listed[0]}", problem, "give one number"
