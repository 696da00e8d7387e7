"""Here lives the slow twin of the filter: a walk over every draw that models/README.md declares.

It holds the belief as a dictionary from whole states to probabilities and reads nothing but
the declared model and its layout.  Numbers in brackets are sections of that page.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from clusterorch.errors import ImpossibleEvidence
from clusterorch.models.layout import Layout
from clusterorch.models.spec import ModelSpec
from tests.reference import emissions
from tests.reference.draws import Draws, Slot, State

Outcome = tuple[State, frozenset[str]]  # a state, and the transient mechanisms that are on


@dataclass
class Slice:
    """What is known of one slice.

    Values, last samples (in the unit of the value) and gaps are arrays over the entities of a
    signal: nan = not delivered or no sample, inf = delivered and empty, classes as 0, 1, ...;
    a first speaker is one number, -1 for nobody.
    """

    phase: str
    save_ends: bool = False
    job_class: str | None = None  # None: not published
    age_before: int | None = None  # None: not published, the state counts it
    action: tuple[str, int | None] | None = None  # name and target; target k of a copy is copy k
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    last: Mapping[str, np.ndarray] = field(default_factory=dict)
    gap: Mapping[str, np.ndarray] = field(default_factory=dict)
    soft: Callable[[State], float] | None = None  # a further likelihood factor


@dataclass
class Result:
    """The posterior after a slice, the log evidence of the slice in nats, and the transient mechanisms."""

    posterior: dict[State, float]
    log_evidence: float
    transient: dict[str, float]


def walk_filter(
    spec: ModelSpec,
    layout: Layout,
    slices: Sequence[Slice],
    timer_slices: Mapping[str, int],
    onset: tuple[Sequence[float], Mapping[str, float]] | None = None,
    only: str | None = None,
) -> list[Result]:
    """Filter by enumeration.

    Args:
        timer_slices: n of each timer.
        onset: total onset probability of each slice, and how it is shared among "mode.variant";
            None: the hazards of the model.
        only: a "mode.variant" that alone may start; the probability of the others stays in `none`.
    """
    draws = Draws(spec, layout, timer_slices, only)
    hidden = any(now.age_before is None for now in slices)
    belief = {State(None, frozenset(), (0,) * len(spec.edge), 0, 0 if hidden else None): 1.0}
    results = []
    for t, now in enumerate(slices):
        starts = draws.hazards(now.phase) if onset is None else draws.shared(onset[0][t], onset[1])
        joint: dict[Outcome, float] = defaultdict(float)
        for before, weight in belief.items():
            age = before.age if now.age_before is None else now.age_before
            ways = draws.one_slice(before, starts, now.phase, age, now.action, save_ends=now.save_ends)
            for chance, after, sounding in ways:
                joint[after, sounding] += weight * chance
        results.append(_condition(draws, now, joint, t))
        belief = results[-1].posterior
    return results


def _condition(draws: Draws, now: Slice, joint: Mapping[Outcome, float], t: int) -> Result:
    """Bayes' rule on the evidence of one slice."""
    heard = cache(partial(_log_likelihood, draws, now))
    logs = {}
    for (state, sounding), weight in joint.items():
        job_class = draws.job_class(state.active, now.phase)
        soft = 1.0 if now.soft is None else now.soft(state)
        if weight > 0 and soft > 0 and now.job_class in (None, job_class):
            log = math.log(weight) + math.log(soft) + heard(state.slot, state.active | sounding, job_class)
            if log > -math.inf:
                logs[state, sounding] = log
    if not logs:
        raise ImpossibleEvidence(f"slice {t}: no state explains what was seen")
    peak = max(logs.values())
    total = math.fsum(math.exp(log - peak) for log in logs.values())
    posterior: dict[State, float] = defaultdict(float)
    transient = {m.name: 0.0 for m in draws.spec.mechanism if m.transient}
    for (state, sounding), log in logs.items():
        share = math.exp(log - peak) / total
        posterior[state] += share
        for name in sounding:
            transient[name] += share
    return Result(dict(posterior), peak + math.log(total), transient)


def _log_likelihood(draws: Draws, now: Slice, slot: Slot | None, on: frozenset[str], job_class: str) -> float:
    """Log probability of every value delivered in a slice (3)."""
    kind, level, site = None, emissions.MIDDLE, 0
    if slot is not None:
        (*root, level, site) = slot
        kind = draws.variant[tuple(root)].site
    world = emissions.World(draws.layout, now.phase, job_class, on, kind, site, level)
    logs = []
    for signal in draws.spec.signal:
        if signal.name in now.values:
            values = np.asarray(now.values[signal.name], dtype=float)
            none = np.full(values.shape, math.nan)
            last, gap = now.last.get(signal.name, none), now.gap.get(signal.name, none)
            logs.append(emissions.log_likelihood(signal, world, values, last, gap))
    return -math.inf if -math.inf in logs else math.fsum(logs)
