"""Here lives the drawing of simulated incidents of known cause: which fault, where, how it begins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clusterorch.models import Model
from clusterorch.models.ground import HEALTHY, variant_names
from clusterorch.models.spec import PHASES, ModelSpec
from clusterorch.probability.noise import causal_uniform, stream_key
from clusterorch.simulation.trace import Trace, simulate
from clusterorch.telemetry.printing import STAMPED_LIMITS

LAYOUTS = ("1x8", "2x4", "4x4")
SLICES = 120
EARLIEST, LATEST = 20, 70  # slices in which what may begin at any time begins
_DRAWS = 3  # slices within which what begins with the job begins
_STEP, _SAVE = "step", "save"
LIMIT_SIGNAL, LIMIT_TIMER = "limit_class", "watchdog"  # what states a limit, and the timer that it is of


@dataclass(frozen=True)
class Plan:
    """One incident to simulate; `number` and `seed` are those of its noise."""

    number: int
    seed: int
    layout: str
    mode: str
    variant: str
    at: int
    start: str
    do: tuple[str, ...] = field(default=())

    def simulate(self, model: Model, slices: int = SLICES, **options: Any) -> Trace:
        """The episode, on a model of this layout; nothing else begins in it."""
        nothing = np.zeros_like(model.network.onset)
        return simulate(
            model, slices, seed=self.seed, domain="round trip", first_instance=self.number, fault=self.variant,
            at=self.at, start=self.start, do=self.do, onset=nothing, **options,
        )  # fmt: skip


class Draws:
    """Uniform draws of one incident, in order."""

    def __init__(self, seed: int, number: int, domain: str) -> None:
        self._key = tuple(map(np.uint64, stream_key(seed, domain, number, 0)))
        self._drawn = 0

    def uniform(self) -> float:
        """The next draw in (0, 1)."""
        self._drawn += 1
        return float(causal_uniform(self._drawn, 0, 0, *self._key))

    def below(self, count: int) -> int:
        """A number in 0..count - 1, each as likely."""
        return min(int(self.uniform() * count), count - 1)

    def weighted(self, weights: np.ndarray) -> int:
        """A number in proportion to its weight."""
        sums = np.cumsum(weights)
        return int(min(np.searchsorted(sums, self.uniform() * sums[-1], side="right"), len(sums) - 1))


def planned(spec: ModelSpec, number: int, seed: int) -> Plan:
    """Incident number `number`: mode, its variant and the layout alike, `healthy` being one of the modes.

    What may begin in some phases only begins in one of these: with the job, or in a save that is made to begin then.
    """
    draws = Draws(seed, number, "incidents")
    by_mode: dict[str, list[str]] = {}
    for name in variant_names(spec):
        by_mode.setdefault(name.split(".")[0], []).append(name)
    modes = [mode.name for mode in spec.mode] + ([HEALTHY] if HEALTHY in by_mode else [])
    mode = modes[draws.below(len(modes))]
    variant = by_mode[mode][draws.below(len(by_mode[mode]))]
    layout = LAYOUTS[draws.below(len(LAYOUTS))]
    phases = phases_of(spec, variant)
    at = EARLIEST + draws.below(LATEST - EARLIEST)
    if not phases or _STEP in phases:
        return Plan(number, seed, layout, mode, variant, at, _STEP)
    if _SAVE in phases:
        return Plan(number, seed, layout, mode, variant, at, _STEP, (f"phase={_SAVE}@{at}:{at + 2}",))
    first = min(phases, key=PHASES.index)
    return Plan(number, seed, layout, mode, variant, draws.below(_DRAWS) if first == PHASES[0] else 0, first)


def phases_of(spec: ModelSpec, variant: str) -> tuple[str, ...]:
    """The phases in which a variant may begin; none if it may in any."""
    mode, _, name = variant.partition(".")
    declared = spec.benign if mode == HEALTHY else next(m.variant for m in spec.mode if m.name == mode)
    return tuple(next(one for one in declared if one.name == name).phases or ())


def one_limit(world: Model, plan: Plan) -> tuple[Model, Trace]:
    """The episode under the limit that its own lines state, and the model with that limit.

    A limit is published: the timer runs to it and every line prints it.  So the first class that a line of the episode
    draws is that of the whole episode, which is simulated again, same noise, with the timer set accordingly.
    """
    trace = plan.simulate(world)
    stated = trace.signal(LIMIT_SIGNAL)
    drawn = stated[np.nan_to_num(stated) > 0.0]
    if not len(drawn):
        return world, trace
    values = world.signals[LIMIT_SIGNAL].values
    name = values[int(drawn[0])]
    seconds = STAMPED_LIMITS[name] / 1000.0
    if seconds != next(t.seconds for t in world.spec.timer if t.name == LIMIT_TIMER):
        other = world.with_limits({LIMIT_TIMER: seconds})
        again = plan.simulate(other)
        if (np.nan_to_num(again.signal(LIMIT_SIGNAL)) > 0.0).any():
            world, trace = other, again
        else:  # under that limit nothing would have stated it
            name = _usual(world)
    return world, _stating(trace, values.index(name), name)


def _usual(world: Model) -> str:
    """The class of the limit that the model declares."""
    seconds = next(t.seconds for t in world.spec.timer if t.name == LIMIT_TIMER)
    return next((name for name, ms in STAMPED_LIMITS.items() if ms / 1000.0 == seconds), "usual")


def _stating(trace: Trace, number: int, name: str) -> Trace:
    """The same episode; whatever states a limit states this class."""
    start, stop = trace.metadata["signals"][LIMIT_SIGNAL]
    values = trace.values.copy()
    block = values[:, start:stop]
    block[np.nan_to_num(block) > 0.0] = float(number)
    events = [
        replace(e, payload=e.payload | {"class": number, "value": name}) if e.kind == LIMIT_SIGNAL else e
        for e in trace.events
    ]
    return replace(trace, values=values, events=events)
