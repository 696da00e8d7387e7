"""Here lives the slow twin of the filter for two faults: the walk over whole declared states, once more for pairs.

What a slot does in a slice is drawn as for one fault; what two faults show together is said here again,
entity by entity (models/README.md 6).  Numbers in brackets are sections of that page.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from clusterorch.errors import ImpossibleEvidence
from clusterorch.models.layout import Layout
from clusterorch.models.spec import ModelSpec, Signal, When
from tests.reference import emissions
from tests.reference.draws import Draws, Root, Slot, State
from tests.reference.walk import Slice

Pair = tuple[State, State]
ORDER = ("rest", "node", "site")  # from far to near
CLASSES = ("moving", "halted", "down")  # from good to bad


class Seat(NamedTuple):
    """One occupied slot, as the signals see it."""

    kind: str
    site: int
    severity: int
    on: frozenset[str]


def walk_pairs(
    spec: ModelSpec,
    layout: Layout,
    slices: Sequence[Slice],
    timer_slices: Mapping[str, int],
    onsets: tuple[Sequence[Mapping[Root, float]], Sequence[Mapping[Root, float]]],
) -> list[tuple[dict[Pair, float], float]]:
    """Filter two slots by enumeration: after each slice the posterior over pairs and the log evidence, nats.

    Args:
        timer_slices: n of each timer.
        onsets: for each slot and slice, the probability of each variant to start in an empty slot.
    """
    draws = Draws(spec, layout, timer_slices, None)
    empty = State(None, frozenset(), (0,) * len(spec.edge), 0, None)
    belief: dict[Pair, float] = {(empty, empty): 1.0}
    results = []
    for t, now in enumerate(slices):

        @cache
        def ways(slot: int, before: State, t: int = t, now: Slice = now) -> list[tuple[float, State, frozenset[str]]]:
            merged: dict[tuple[State, frozenset[str]], float] = defaultdict(float)
            for p, after, sounding in draws.one_slice(
                before, onsets[slot][t], now.phase, now.age_before, now.action, save_ends=now.save_ends
            ):
                merged[after, sounding] += p
            return [(p, after, sounding) for (after, sounding), p in merged.items()]

        heard = cache(partial(_log_likelihood, draws, now))
        logs: dict[Pair, list[float]] = defaultdict(list)
        for (one, other), weight in belief.items():
            for p, a, sounding_a in ways(0, one):
                for q, b, sounding_b in ways(1, other):
                    job = _worse(draws, now, a, b)
                    if weight * p * q > 0 and now.job_class in (None, job):
                        log = math.log(weight) + math.log(p) + math.log(q)
                        log += heard(_seat(draws, a, sounding_a), _seat(draws, b, sounding_b), job)
                        if log > -math.inf:
                            logs[a, b].append(log)
        if not logs:
            raise ImpossibleEvidence(f"slice {t}: no pair of states explains what was seen")
        peak = max(max(each) for each in logs.values())
        total = math.fsum(math.exp(log - peak) for each in logs.values() for log in each)
        belief = {pair: math.fsum(math.exp(log - peak) for log in each) / total for pair, each in logs.items()}
        results.append((belief, peak + math.log(total)))
    return results


def _worse(draws: Draws, now: Slice, one: State, other: State) -> str:
    classes = [draws.job_class(state.active, now.phase) for state in (one, other)]
    return max(classes, key=CLASSES.index)


def _seat(draws: Draws, state: State, sounding: frozenset[str]) -> Seat | None:
    if state.slot is None:
        return None
    slot: Slot = state.slot
    return Seat(draws.variant[slot[0], slot[1]].site, slot[3], slot[2], state.active | sounding)


def _log_likelihood(draws: Draws, now: Slice, one: Seat | None, other: Seat | None, job: str) -> float:
    """Log probability of every value delivered in a slice, given what both slots hold."""
    seats = [seat for seat in (one, other) if seat is not None]
    logs = []
    for signal in draws.spec.signal:
        if signal.name in now.values:
            values = np.asarray(now.values[signal.name], dtype=float)
            none = np.full(values.shape, math.nan)
            last, gap = now.last.get(signal.name, none), now.gap.get(signal.name, none)
            logs.append(_signal(draws.layout, signal, seats, now.phase, job, values, last, gap))
    return -math.inf if -math.inf in logs else math.fsum(logs)


def _signal(
    layout: Layout, signal: Signal, seats: list[Seat], phase: str, job: str,
    values: np.ndarray, last: np.ndarray, gap: np.ndarray,
) -> float:  # fmt: skip
    if signal.family in ("chorus", "first_speaker"):
        chosen, near, _ = _parameters(layout, signal, seats, phase, job, None)
        return _of_all(layout, signal, chosen, near, values)
    total = []
    for entity, value in enumerate(values):
        if not math.isnan(value):
            chosen, _, severity = _parameters(layout, signal, seats, phase, job, entity)
            if signal.family in ("gaussian", "log_ratio"):
                total.append(emissions._continuous(signal, chosen, value, last[entity], gap[entity]))
            else:
                total.append(emissions._table(signal, chosen, int(value), severity))
    return math.fsum(total) if -math.inf not in total else -math.inf


def _parameters(
    layout: Layout, signal: Signal, seats: list[Seat], phase: str, job: str, entity: int | None
) -> tuple[dict[str, Any], list[Seat], int]:
    """The parameters that hold for an entity, the slots whose rule gives them, and the severity that is read."""
    ways = seats or [Seat("", 0, emissions.MIDDLE, frozenset())]
    found: Signal | When = signal
    mine = ways
    for rule in signal.when:
        matching = [seat for seat in ways if _applies(layout, signal, rule, seat, phase, job, entity)]
        if matching:
            found, mine = rule, matching
            break
    severity = max(seat.severity for seat in mine)
    named = {}
    for key in ("mean", "sd", "absent", "probability", "probabilities", "told", "speak", "quiet", "speaks", "weight"):
        own, given = getattr(signal, key), getattr(found, key)
        named[key] = emissions.by_severity(own if given is None else given, key, severity)
    return named, mine, severity


def _applies(layout: Layout, signal: Signal, rule: When, seat: Seat, phase: str, job: str, entity: int | None) -> bool:
    stands = "all" if entity is None else _stands(layout, signal, seat, entity)
    return (
        all(name in seat.on for name in rule.needs)
        and not any(name in seat.on for name in rule.absent_mechanisms)
        and (rule.phases is None or phase in rule.phases)
        and (rule.job is None or rule.job == job)
        and (rule.where in ("all", stands) or (rule.where == "others" and stands in ("node", "rest")))
    )


def _stands(layout: Layout, signal: Signal, seat: Seat, entity: int) -> str:
    return emissions.relation(layout, seat.kind or None, seat.site, signal.entity, entity)


def _of_all(layout: Layout, signal: Signal, chosen: dict[str, Any], near: list[Seat], values: np.ndarray) -> float:
    """A chorus or a first speaker: members stand to the nearer of the faults that the rule is about."""

    def nearest(member: int) -> str:
        return max((_stands(layout, signal, seat, member) for seat in near), key=ORDER.index)

    log = emissions.log
    if signal.family == "first_speaker":
        if math.isnan(values[0]):
            return 0.0
        if values[0] < 0:
            return log(1 - chosen["speaks"])
        weights = [getattr(chosen["weight"], nearest(m)) for m in range(layout.count(signal.entity))]
        return log(chosen["speaks"]) + log(weights[int(values[0])]) - log(math.fsum(weights))
    told, quiet = log(chosen["told"]), log(1 - chosen["told"])
    heard = [(member, spoke) for member, spoke in enumerate(values) if not math.isnan(spoke)]
    for member, spoke in heard:
        speaks = getattr(chosen["speak"], nearest(member))
        told += log(speaks if spoke else 1 - speaks)
        quiet += log(chosen["quiet"] if spoke else 1 - chosen["quiet"])
    return float(np.logaddexp(told, quiet)) if heard else 0.0
