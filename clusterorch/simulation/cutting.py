"""Here lives the cutting of an excerpt out of an episode: which lines somebody pastes.

It is the law of the model's protocol `excerpt` (models/README.md, section 8), which the filter of excerpts conditions
on.  Between two lines pass 0 slices with probability `same_slice`, else a geometric number of mean `gap_slices`, or
with probability `long_share` of mean `long_slices`.  In the slice where that ends, the kind of the line is drawn among
the kinds not pasted yet in proportion to the probability that at least one entity shows it there; informational kinds
may come again once another kind was pasted.  Whom it names is drawn in proportion to the probabilities that they show
it, or with `entity_contamination` from all alike.  So a pasted line need not be one of those that the episode printed:
it is one that its state could print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from clusterorch.models import Model
from clusterorch.models.rows import CHORUS, DISCRETE, KIND_OF_FAMILY, Rows
from clusterorch.models.spec import Protocol, Signal
from clusterorch.probability.noise import causal_uniform, stream_key
from clusterorch.simulation.lines import describe
from clusterorch.simulation.plan import active as is_active
from clusterorch.simulation.trace import Trace
from clusterorch.telemetry.events import Event

FEWEST, MOST = 3, 12  # lines of an excerpt, each number as likely


class Pasted(NamedTuple):
    """One line of an excerpt: the slice whose state it shows, its kind, and whom it names."""

    slice: int
    signal: int
    value: int
    entity: int


class _Draws:
    """Uniform draws in order."""

    def __init__(self, seed: int) -> None:
        self._key, self._drawn = tuple(map(np.uint64, stream_key(seed, "excerpt", 0, 0))), 0

    def uniform(self) -> float:
        self._drawn += 1
        return float(causal_uniform(self._drawn, 0, 0, *self._key))

    def choose(self, weights: np.ndarray) -> int:
        sums = np.cumsum(weights)
        return int(min(np.searchsorted(sums, self.uniform() * sums[-1], side="right"), len(sums) - 1))


def excerpt_protocol(model: Model) -> Protocol:
    """The declared protocol of excerpts."""
    return next(protocol for protocol in model.spec.protocol if protocol.name == "excerpt")


def draw_gaps(protocol: Protocol, seed: int) -> list[int]:
    """Slices between the lines of an excerpt, one fewer than there are lines."""
    draws, gaps = _Draws(seed ^ 1), []
    most = int(3 * protocol.long_slices)

    def geometric(mean: float) -> int:
        p = min(1.0, 1.0 / mean)
        if p == 1.0:
            return 1
        whole = -np.expm1(most * np.log1p(-p))  # a gap is never longer than the filter allows
        return int(np.ceil(np.log1p(-draws.uniform() * whole) / np.log1p(-p)))

    for _ in range(FEWEST + int(draws.uniform() * (MOST - FEWEST + 1)) - 1):
        u = draws.uniform()
        if u < protocol.same_slice:
            gaps.append(0)
        else:
            long = u >= 1.0 - protocol.long_share
            gaps.append(max(1, geometric(protocol.long_slices if long else protocol.gap_slices)))
    return gaps


def cut(model: Model, trace: Trace, seed: int, first: int, gaps: Sequence[int]) -> list[Pasted]:
    """The lines of an excerpt whose first line shows the state of slice `first`; fewer where the episode ends before.

    Args:
        model: of the episode, on its layout.
        trace: the episode.
        seed: of the choice of lines.
        first: slice of the first line.
        gaps: slices from each line to the next.
    """
    draws, kinds = _Draws(seed), _Kinds(model, trace)
    stray = excerpt_protocol(model).entity_contamination
    pasted: list[Pasted] = []
    shown: set[int] = set()
    for t in np.cumsum([first, *gaps]).tolist():
        if t >= trace.slices:
            break
        chances, by_entity = kinds.at(t)
        left = np.array([0.0 if k in shown else p for k, p in enumerate(chances)])
        if not left.sum() > 0.0:
            break
        number = draws.choose(left)
        if number not in kinds.info:
            shown -= kinds.info  # something happened: going on after it is news again
        shown.add(number)
        signal, value = kinds.kinds[number]
        weights = by_entity(number)
        law = (1.0 - stray) * weights / weights.sum() + stray / len(weights)
        pasted.append(Pasted(t, signal, value, draws.choose(law)))
    return pasted


def events_of(model: Model, pasted: Sequence[Pasted]) -> list[Event]:
    """What to print for the lines of an excerpt, in their order."""
    dt, spec = model.spec.model.slice_seconds, model.spec
    events = []
    for number, line in enumerate(pasted):
        signal = spec.signal[line.signal]
        # Whole seconds at one place of every slice, so that the clocks of all programs tell the same gaps.
        time = (line.slice + 0.5) * dt // 1.0
        payload = describe(signal, float(line.value))
        events.append(
            Event(time, time, signal.stream, f"{signal.entity} {line.entity}", signal.name, payload, (), number)
        )
    return events


def counted(model: Model, pasted: Sequence[Pasted], slices: int) -> np.ndarray:
    """[slices, width] values of the lines that others print: counters of links, and what a line of the job carries."""
    network, values = model.network, np.full((slices, model.network.width), np.nan)
    for line in pasted:
        signal = model.spec.signal[line.signal]
        if signal.entity == "job" or (signal.entity == "link" and signal.stream == "network"):
            values[line.slice, int(network.signal_offset[line.signal]) + line.entity] = line.value
    return values


class _Kinds:
    """Chances of the kinds of lines in the states of an episode."""

    def __init__(self, model: Model, trace: Trace) -> None:
        self.model, self.trace, self.rows = model, trace, Rows(model.spec)
        self.kinds = list(_kinds(model.spec.signal))
        signals = model.spec.signal
        self.info = frozenset(k for k, (s, _) in enumerate(self.kinds) if signals[s].verbosity == "info")
        self._names = [m.name for m in model.spec.mechanism]

    def at(self, t: int) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
        """Of slice t: [kinds] chance that anybody shows each, and for a kind [entities] who would."""
        truth, published = self.trace.truth, self.trace.published
        words = truth["bits"][t] | truth["transient"][t]
        active = frozenset(name for m, name in enumerate(self._names) if is_active(words, m))
        situation = (active, int(truth["severity"][t]), int(published["phase"][t]), int(published["job_class"][t]))
        rows = [self.rows.by_relation(s, *situation) for s in range(len(self.model.spec.signal))]
        table, variant, site = self.rows.table(), int(truth["variant"][t]), int(truth["site"][t])
        kind = self.model.network.blocks[variant].variant.spec.site if variant >= 0 else None

        def relations(s: int) -> np.ndarray:
            entity = self.model.spec.signal[s].entity
            layout = self.model.layout
            if kind is None:
                return np.zeros(layout.count(entity), dtype=np.int64)
            return layout.relation(kind, site, entity)

        def by_entity(number: int) -> np.ndarray:
            s, value = self.kinds[number]
            return _shows(self.model.spec.signal[s], table, np.array(rows[s]), value)[relations(s)]

        chances = np.empty(len(self.kinds))
        for k, (s, value) in enumerate(self.kinds):
            chances[k] = _anybody(self.model.spec.signal[s], table, np.array(rows[s]), value, relations(s))
        return chances, by_entity


def _kinds(signals: Sequence[Signal]) -> Iterator[tuple[int, int]]:
    for s, signal in enumerate(signals):
        family = KIND_OF_FAMILY[signal.family]
        if not signal.lines:
            continue
        if family == CHORUS or signal.family in ("presence", "count"):
            yield s, 1
        elif family == DISCRETE:
            yield from ((s, value) for value in range(1, len(signal.values)))


def _shows(signal: Signal, table: np.ndarray, rows: np.ndarray, value: int) -> np.ndarray:
    """[3] chance that an entity at rest, near, at the site shows a kind; rows likewise."""
    if signal.family == "chorus":
        speaks = np.array([table[rows[r], 3 - r] for r in range(3)])
        return table[rows, 0] * speaks + (1.0 - table[rows, 0]) * table[rows, 4]
    return 1.0 - table[rows, 0] if signal.family == "count" else table[rows, value]


def _anybody(signal: Signal, table: np.ndarray, rows: np.ndarray, value: int, relations: np.ndarray) -> float:
    """Chance that at least one entity shows a kind."""

    def one_of(p: np.ndarray) -> float:
        return float(1.0 - np.prod(1.0 - p[relations]))

    if signal.family != "chorus":
        return one_of(_shows(signal, table, rows, value))
    told, speaks = table[rows[0], 0], np.array([table[rows[r], 3 - r] for r in range(3)])
    return float(told * one_of(speaks) + (1.0 - told) * one_of(table[rows, 4]))
