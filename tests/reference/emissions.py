"""Here lives the slow twin of the signals: models/README.md section 3, entity by entity.

`log_likelihood(signal, world, values, last, gap)` is the log probability, in nats, of what one
signal delivered in one slice; continuous families count per unit of x, where x is the value, or
log(value / baseline) for a log ratio.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

from clusterorch.models.layout import Layout
from clusterorch.models.spec import Signal

MIDDLE = 1  # the level a variant without severities, or an empty slot, reads


@dataclass(frozen=True)
class World:
    """What the signals of a slice depend on; `site_kind` is None where the slot is empty."""

    layout: Layout
    phase: str
    job_class: str
    active: frozenset[str]
    site_kind: str | None
    site: int
    severity: int


def log(probability: float) -> float:
    """Natural logarithm, with log 0 = -inf."""
    return math.log(probability) if probability > 0 else -math.inf


@cache
def normal(x: float, mean: float, sd: float) -> float:
    """Log density of N(mean, sd**2)."""
    return float(stats.norm.logpdf(x, mean, sd))


def place_of(layout: Layout, kind: str, entity: int) -> dict[str, int]:
    """The node, leaf and rail of one thing, where it has them."""
    if kind in ("gpu", "rank"):
        node = entity // layout.gpus
        return {"node": node, "leaf": int(layout.leaf_of_node[node])}
    if kind == "link":
        node = entity // layout.rails
        return {"node": node, "leaf": int(layout.leaf_of_node[node]), "rail": entity % layout.rails}
    if kind == "node":
        return {"node": entity, "leaf": int(layout.leaf_of_node[entity])}
    return {kind: entity} if kind in ("leaf", "rail") else {}


@cache
def relation(layout: Layout, site_kind: str | None, site: int, kind: str, entity: int) -> str:
    """How an entity stands to the site: the table of section 3."""
    if site_kind is None:
        return "rest"
    here, there = place_of(layout, site_kind, site), place_of(layout, kind, entity)
    same_node = there.get("node", -1) == here.get("node", -2)
    if site_kind in ("gpu", "rank", "link"):
        if kind == "node":
            return "site" if same_node else "rest"
        alike = {site_kind, kind} <= {"gpu", "rank"} or site_kind == kind
        if alike and site == entity:
            return "site"
        return "node" if kind in ("gpu", "rank", "link") and same_node else "rest"
    if site_kind == kind:
        return "site" if site == entity else "rest"
    if site_kind in ("node", "leaf", "rail"):
        return "site" if there.get(site_kind, -1) == here[site_kind] else "rest"
    return "rest"


KEYS = (
    "mean", "sd", "absent", "probability", "probabilities", "told", "speak", "quiet", "speaks", "weight",
)  # fmt: skip
_known: dict[int, tuple[Signal, frozenset[str], dict[tuple[Any, ...], dict[str, Any]]]] = {}


def parameters(signal: Signal, world: World, stands: str | None) -> dict[str, Any]:
    """The parameters of one entity; `stands` is None for a signal with one value for all members."""
    if id(signal) not in _known:  # the signal is kept, so that no other gets its id
        asked = frozenset(m for rule in signal.when for m in (*rule.needs, *rule.absent_mechanisms))
        _known[id(signal)] = signal, asked, {}
    _, asked, found = _known[id(signal)]
    key = stands, world.active & asked, world.phase, world.job_class, world.severity
    if key not in found:
        found[key] = _parameters(signal, world, stands)
    return found[key]


def _parameters(signal: Signal, world: World, stands: str | None) -> dict[str, Any]:
    for rule in signal.when:
        where = rule.where == "all" or rule.where == stands or (rule.where == "others" and stands in ("node", "rest"))
        if stands is None and rule.where != "all":
            raise ValueError(f"{signal.name}: a rule for all members at once cannot say where")
        if (
            where
            and all(name in world.active for name in rule.needs)
            and not any(name in world.active for name in rule.absent_mechanisms)
            and (rule.phases is None or world.phase in rule.phases)
            and (rule.job is None or rule.job == world.job_class)
        ):
            break
    else:
        rule = signal
    named = {}
    for key in KEYS:
        own, given = getattr(signal, key), getattr(rule, key)
        named[key] = by_severity(own if given is None else given, key, world.severity)
    return named


def by_severity(value: Any, key: str, severity: int) -> Any:
    """One level of a parameter that is listed by severity; any other as it is."""
    if not isinstance(value, list):
        return value
    if key != "probabilities":
        return value[severity]
    return value if not isinstance(value[0], list) else value[severity if len(value) == 3 else 0]


def log_likelihood(signal: Signal, world: World, values: np.ndarray, last: np.ndarray, gap: np.ndarray) -> float:
    """Log probability of the delivered values of one signal; nan is no delivery."""
    if signal.family == "chorus":
        return _chorus(signal, world, values)
    if signal.family == "first_speaker":
        return _first_speaker(signal, world, values)
    total = []
    for entity, value in enumerate(values):
        if not math.isnan(value):
            chosen = parameters(signal, world, _stands(signal, world, entity))
            if signal.family in ("gaussian", "log_ratio"):
                total.append(_continuous(signal, chosen, value, last[entity], gap[entity]))
            else:
                total.append(_table(signal, chosen, int(value), world.severity))
    return math.fsum(total) if -math.inf not in total else -math.inf


def _stands(signal: Signal, world: World, entity: int) -> str:
    return relation(world.layout, world.site_kind, world.site, signal.entity, entity)


def _continuous(signal: Signal, chosen: dict[str, Any], value: float, last: float, gap: float) -> float:
    absent = chosen["absent"] or 0.0
    if math.isinf(value):
        return log(absent)
    if signal.family == "log_ratio":
        value, last = math.log(value / (signal.baseline or 1.0)), math.log(last / (signal.baseline or 1.0))
    mean, sd, memory = chosen["mean"], chosen["sd"], 0.0
    if not math.isnan(last):
        memory = signal.memory**gap
        mean = mean + memory * (last - mean)
    regular = normal(value, mean, sd * math.sqrt(1 - memory**2))
    strange = normal(value, signal.outlier.mean, signal.outlier.sd)
    share = signal.outlier.probability
    return log(1 - absent) + float(np.logaddexp(log(1 - share) + regular, log(share) + strange))


def _table(signal: Signal, chosen: dict[str, Any], value: int, severity: int) -> float:
    if signal.family == "presence":
        rule, background = chosen["probability"], by_severity(signal.probability, "probability", severity)
        rule, background = (1 - rule, rule), (1 - background, background)
    else:
        rule, background = (
            chosen["probabilities"],
            by_severity(signal.probabilities, "probabilities", severity),
        )
    share = signal.contamination
    return log((1 - share) * rule[value] + share * background[value])


def _chorus(signal: Signal, world: World, values: np.ndarray) -> float:
    chosen = parameters(signal, world, None)
    told, quiet = log(chosen["told"]), log(1 - chosen["told"])
    heard = False
    for member, spoke in enumerate(values):
        if not math.isnan(spoke):
            heard = True
            speaks = getattr(chosen["speak"], _stands(signal, world, member))
            told += log(speaks if spoke else 1 - speaks)
            quiet += log(chosen["quiet"] if spoke else 1 - chosen["quiet"])
    return float(np.logaddexp(told, quiet)) if heard else 0.0


def _first_speaker(signal: Signal, world: World, values: np.ndarray) -> float:
    first = values[0]
    if math.isnan(first):
        return 0.0
    chosen = parameters(signal, world, None)
    if first < 0:
        return log(1 - chosen["speaks"])
    members = range(world.layout.count(signal.entity))
    weights = [getattr(chosen["weight"], _stands(signal, world, member)) for member in members]
    return log(chosen["speaks"]) + log(weights[int(first)]) - log(math.fsum(weights))
