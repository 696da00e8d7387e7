"""Here lives the table of emission rows: every distribution a signal can have, and which one applies when.

A row is one signal with its parameters resolved for a severity.  `Rows.of` is the only reader
of the rules of a model file; both the likelihood and the sampler take its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from clusterorch.models.spec import JOB_CLASSES, PHASES, RELATIONS, ModelSpec, Signal, When

CONTINUOUS, DISCRETE, CHORUS, FIRST = range(4)
KIND_OF_FAMILY = {
    "gaussian": CONTINUOUS, "log_ratio": CONTINUOUS, "presence": DISCRETE, "count": DISCRETE,
    "categorical": DISCRETE, "chorus": CHORUS, "first_speaker": FIRST,
}  # fmt: skip
WIDTH = 8  # columns of a row: probabilities of the classes, or the parameters of its family


class Situation(NamedTuple):
    """All that a rule may ask about."""

    active: frozenset[str]
    severity: int
    phase: int
    job_class: int
    relation: int  # index into RELATIONS


def row_width(spec: ModelSpec) -> int:
    """Columns that hold every row of this model."""
    return max(WIDTH, max((len(s.values) for s in spec.signal), default=0))


@dataclass
class Rows:
    """Distinct rows, numbered as they are met.

    A row of numbers holds: CONTINUOUS mean, sd, absent; DISCRETE the class probabilities
    (presence: no, yes); CHORUS told, speak at site, node, rest, quiet; FIRST speaks, weights.
    """

    spec: ModelSpec
    numbers: dict[tuple[int, tuple[float, ...]], int] = field(default_factory=dict)
    why: list[tuple[str, ...]] = field(default_factory=list)  # mechanisms of the rule that made the row
    _known: dict[tuple[int, frozenset[str], int, int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._asked = [frozenset(n for rule in s.when for n in rule_mechanisms(rule)) for s in self.spec.signal]

    def by_relation(self, signal: int, active: frozenset[str], severity: int, phase: int, job: int) -> tuple[int, ...]:
        """The rows of a signal at the site, near it and elsewhere; each situation is worked out once."""
        key = (signal, active & self._asked[signal], severity, phase, job)
        rows = self._known.get(key)
        if rows is None:
            rows = tuple(self.of(signal, Situation(key[1], severity, phase, job, r)) for r in range(len(RELATIONS)))
            self._known[key] = rows
        return rows

    def of(self, signal: int, situation: Situation) -> int:
        """The row of a signal in a situation."""
        declared = self.spec.signal[signal]
        rule = matching_rule(declared, situation)
        key = (signal, _parameters(declared, rule, situation.severity))
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.why.append(rule.needs if rule else ())
        return self.numbers[key]

    def table(self) -> np.ndarray:
        """[rows, width] the numbers of every row, zero padded."""
        table = np.zeros((len(self.numbers), row_width(self.spec)))
        for (_, parameters), row in self.numbers.items():
            table[row, : len(parameters)] = parameters
        return table

    def signals(self) -> np.ndarray:
        """[rows] the signal of every row."""
        return np.array([signal for signal, _ in self.numbers], dtype=np.int64)


def rule_mechanisms(rule: When) -> tuple[str, ...]:
    """Every mechanism that a rule asks about."""
    return (*rule.needs, *rule.absent_mechanisms)


def matching_rule(signal: Signal, situation: Situation) -> When | None:
    """The first rule that matches, in the order of the file; None: the background."""
    return next((rule for rule in signal.when if _matches(rule, situation)), None)


def _matches(rule: When, situation: Situation) -> bool:
    relation = RELATIONS[situation.relation]
    return (
        all(name in situation.active for name in rule.needs)
        and not any(name in situation.active for name in rule.absent_mechanisms)
        and (rule.phases is None or PHASES[situation.phase] in rule.phases)
        and (rule.job is None or rule.job == JOB_CLASSES[situation.job_class])
        and (rule.where == "all" or rule.where == relation or (rule.where == "others" and relation != "site"))
    )


def _parameters(signal: Signal, rule: When | None, severity: int) -> tuple[float, ...]:
    def get(key: str) -> Any:
        own = getattr(signal, key)
        given = getattr(rule, key) if rule is not None else None
        value = own if given is None else given
        return value[severity] if isinstance(value, list) and key != "probabilities" else value

    kind = KIND_OF_FAMILY[signal.family]
    if kind == CONTINUOUS:
        return (get("mean"), get("sd"), get("absent") or 0.0)
    if kind == CHORUS:
        speak = get("speak")
        return (get("told"), speak.site, speak.node, speak.rest, get("quiet"))
    if kind == FIRST:
        weight = get("weight")
        return (get("speaks"), weight.site, weight.node, weight.rest)
    if signal.family == "presence":
        own = signal.probability[severity] if isinstance(signal.probability, list) else signal.probability
        return _contaminated([1.0 - get("probability"), get("probability")], [1.0 - own, own], signal, rule)
    return _contaminated(
        _by_severity(get("probabilities"), severity),
        _by_severity(signal.probabilities, severity),
        signal,
        rule,
    )


def _by_severity(table: Any, severity: int) -> list[float]:
    if isinstance(table[0], list):
        return table[severity] if len(table) > 1 else table[0]
    return table


def _contaminated(own: list[float], background: list[float], signal: Signal, rule: When | None) -> tuple[float, ...]:
    c = signal.contamination if rule is not None else 0.0
    return tuple((1.0 - c) * p + c * q for p, q in zip(own, background, strict=True))
