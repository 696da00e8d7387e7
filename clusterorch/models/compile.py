"""Here lives the compiler: a grounded model becomes plain arrays for the kernels.

State vector: `none`, then a block for each variant, laid out [severity][configuration][site], so
that everything a kernel does to a block runs along sites.  A hypothesis is likely in so far as it
differs from the background: for each phase, each distinct choice of rows is one *pattern*, and
its log-likelihood ratio is needed once for each site, however many configurations share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from clusterorch.causal.slices import MOVING, components, job_class
from clusterorch.models.configurations import Chain, expand, make_context
from clusterorch.models.ground import GroundedVariant, ground, limit_slices
from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.models.rows import KIND_OF_FAMILY, Rows, Situation
from clusterorch.models.spec import PHASES, Action, ModelSpec
from clusterorch.probability.lifetimes import onset_probability

REST, NEAR, SITE = range(3)


class Pattern(NamedTuple):
    """Rows that differ from the background of a phase: (signal, row at rest, near, at the site)."""

    site_kind: str
    terms: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Block:
    """Where a variant lies in the state vector, and its chain."""

    variant: GroundedVariant
    chain: Chain
    offset: int
    sites: int
    classes: np.ndarray  # [configurations, phases] job class

    @property
    def levels(self) -> int:
        """Number of severities."""
        return len(self.variant.severities)

    @property
    def size(self) -> int:
        """Number of states."""
        return self.levels * len(self.chain.configurations) * self.sites

    def shape(self) -> tuple[int, int, int]:
        """(severities, configurations, sites)."""
        return self.levels, len(self.chain.configurations), self.sites


@dataclass(frozen=True)
class Network:
    """A model on a layout, ready for the kernels.  Everything in it is derived."""

    spec: ModelSpec
    layout: Layout
    blocks: tuple[Block, ...]
    states: int
    limits: tuple[int, ...]  # distinct timers, slices, shortest first
    hidden_age: bool
    rows: np.ndarray = field(repr=False)  # [rows, width]
    row_signal: np.ndarray = field(repr=False)
    row_why: tuple[tuple[str, ...], ...] = field(repr=False)
    background: np.ndarray = field(repr=False)  # [phases, signals] row with an empty slot
    patterns: tuple[tuple[Pattern, ...], ...] = field(repr=False)  # by phase
    emissions: tuple[np.ndarray, ...] = field(repr=False)  # by block: [phase, level, configuration, component]
    weights: tuple[np.ndarray, ...] = field(repr=False)  # by block: [configuration, component]
    signal_offset: np.ndarray = field(repr=False)  # [signals + 1] into the flat vector of values
    onset: np.ndarray = field(repr=False)  # [phases, variants] probability a slice, stationary
    mix: np.ndarray = field(repr=False)  # [variants] shares of an incident, given one happens

    @property
    def width(self) -> int:
        """Length of the flat vector of values of one slice."""
        return int(self.signal_offset[-1])

    def slice_of(self, signal: int) -> slice:
        """Where a signal's entities lie in the flat vector."""
        return slice(int(self.signal_offset[signal]), int(self.signal_offset[signal + 1]))

    def signal_index(self, name: str) -> int:
        """Number of a signal by name."""
        return next(i for i, signal in enumerate(self.spec.signal) if signal.name == name)


def signal_entities(spec: ModelSpec, layout: Layout, signal: int) -> int:
    """How many values a signal has in a slice: one an entity; a first speaker is one value."""
    declared = spec.signal[signal]
    return 1 if declared.family == "first_speaker" else layout.count(declared.entity)


def compile_network(
    spec: ModelSpec, layout: Layout, *, limits: dict[str, float] | None = None, hidden_age: bool = False
) -> Network:
    """Compile a model for a layout.

    Args:
        spec: the checked model.
        layout: the cluster.
        limits: seconds that replace declared timers, by name (a limit printed in a log).
        hidden_age: count the age of a halt inside the state instead of reading it as published.
    """
    distinct = tuple(sorted(set(limit_slices(spec, limits).values())))
    variants = ground(spec, layout.nodes, layout.copies, limits)
    rows = Rows(spec)
    background = np.array(
        [
            [rows.of(s, Situation(frozenset(), 1, phase, MOVING, REST)) for s in range(len(spec.signal))]
            for phase in range(len(PHASES))
        ]
    )
    blocks, offset = [], 1
    patterns: list[dict[Pattern, int]] = [{} for _ in PHASES]
    emissions, weights = [], []
    for variant in variants:
        chain = expand(variant.law, distinct, hidden_age=hidden_age)
        block = _block(variant, chain, offset, layout)
        offset += block.size
        blocks.append(block)
        chosen, shares = _emissions(block, rows, background, patterns)
        emissions.append(chosen)
        weights.append(shares)
    sizes = [signal_entities(spec, layout, s) for s in range(len(spec.signal))]
    onset, mix = _onset(variants, spec.model.slice_seconds)
    return Network(
        spec=spec, layout=layout, blocks=tuple(blocks), states=offset, limits=distinct, hidden_age=hidden_age,
        rows=rows.table(), row_signal=rows.signals(), row_why=tuple(rows.why), background=background,
        patterns=tuple(tuple(p) for p in patterns), emissions=tuple(emissions), weights=tuple(weights),
        signal_offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), onset=onset, mix=mix,
    )  # fmt: skip


def _block(variant: GroundedVariant, chain: Chain, offset: int, layout: Layout) -> Block:
    classes = np.array(
        [
            [job_class(chain.law, c.bits, make_context(phase, 0, False)) for phase in range(len(PHASES))]
            for c in chain.configurations
        ]
    )
    return Block(variant, chain, offset, layout.count(variant.spec.site), classes)


def _emissions(
    block: Block, rows: Rows, background: np.ndarray, patterns: list[dict[Pattern, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Pattern and share of every component of every configuration, by phase and severity."""
    law, configurations = block.chain.law, block.chain.configurations
    parts = [components(law, c.bits) for c in configurations]
    most = max(len(p) for p in parts)
    chosen = np.zeros((len(PHASES), block.levels, len(configurations), most), dtype=np.int64)
    shares = np.zeros((len(configurations), most))
    known: dict[tuple[frozenset[str], int, int, int], int] = {}
    for c, configuration in enumerate(configurations):
        lasting = {m.name for i, m in enumerate(law.mechanisms) if configuration.bits >> i & 1}
        for k, (share, transients) in enumerate(parts[c]):
            shares[c, k] = share
            active = frozenset(lasting | set(transients))
            for phase in range(len(PHASES)):
                job = int(block.classes[c, phase])
                for level, severity in enumerate(block.variant.severity_levels):
                    key = (active, severity, phase, job)
                    if key not in known:
                        pattern = _pattern(block.variant.spec.site, rows, background[phase], *key)
                        known[key] = patterns[phase].setdefault(pattern, len(patterns[phase]))
                    chosen[phase, level, c, k] = known[key]
    return chosen, shares


def _pattern(
    site_kind: str,
    rows: Rows,
    background: np.ndarray,
    active: frozenset[str],
    severity: int,
    phase: int,
    job: int,
) -> Pattern:
    terms = []
    for signal in range(len(rows.spec.signal)):
        chosen = rows.by_relation(signal, active, severity, phase, job)
        if any(row != background[signal] for row in chosen):
            terms.append((signal, *chosen))
    return Pattern(site_kind, tuple(terms))


def _onset(variants: list[GroundedVariant], slice_seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Competing hazards: p_v = (1 - exp(-L dt)) l_v / L among the variants that may start in a phase."""
    onset = np.zeros((len(PHASES), len(variants)))
    for phase in range(len(PHASES)):
        rates = np.array([v.rate_per_hour if phase in v.phases else 0.0 for v in variants])
        total = float(rates.sum())
        if total > 0.0:
            onset[phase] = onset_probability(total, slice_seconds) * rates / total
    shares = np.array([v.incident_share for v in variants])
    return onset, shares / shares.sum()


def entity_kind_index(kind: str) -> int:
    """Number of an entity kind in `ENTITY_KINDS`."""
    return ENTITY_KINDS.index(kind)


def family_kinds(spec: ModelSpec) -> np.ndarray:
    """[signals] CONTINUOUS, DISCRETE, CHORUS or FIRST."""
    return np.array([KIND_OF_FAMILY[signal.family] for signal in spec.signal], dtype=np.int64)


def brought_shares(network: Network, action: Action) -> np.ndarray:
    """[variants] probability that what is put in place of the target has each fault."""
    if action.brings is None:
        return np.zeros(len(network.blocks))
    of = set(action.brings.of)
    rates = [b.variant.rate_per_hour if {b.variant.name, b.variant.mode} & of else 0.0 for b in network.blocks]
    return action.brings.probability * np.array(rates) / sum(rates)
