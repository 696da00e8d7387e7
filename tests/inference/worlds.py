"""Small hot worlds for the inference tests: rates high enough that everything happens within a few slices."""

from __future__ import annotations

import copy
import math

import numpy as np

from clusterorch.inference.actions import action_kernel
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.priors import OnsetPrior
from clusterorch.inference.transition import NO_CLASS
from clusterorch.models.compile import Network, compile_network
from clusterorch.models.ground import limit_slices
from clusterorch.models.layout import Layout
from clusterorch.models.reading import locate, read
from clusterorch.models.spec import JOB_CLASSES, PHASES, ModelSpec
from tests.reference.walk import Slice, State

STARTING = {"launch": "init_comm", "init_comm": "load", "load": "step"}
LIMITS = {"transport": 30.0, "heartbeat": 45.0, "watchdog": 60.0}


def hot_spec() -> ModelSpec:
    """The reference model with hazards of about one start in three slices, and quick recoveries and delays."""
    _, raw = read(locate("reference"), [])
    raw = copy.deepcopy(raw)
    for mode in raw["mode"]:
        mode["rate_per_1000_node_days"] = 3e5
        for variant in mode["variant"]:
            if "recovers_per_hour" in variant:
                variant["recovers_per_hour"] = 40
    for benign in raw["benign"]:
        benign["rate_per_1000_node_days"] = 2e5
    for edge in raw["edge"]:
        if isinstance(edge.get("delay"), dict) and "geometric" in edge["delay"]:
            edge["delay"] = {"geometric": 40}
        if edge["to"] == "weights_poisoned" and edge["from"].endswith("bad_batch"):
            edge["delay"] = {"erlang": [2, 45]}
    return ModelSpec.model_validate(raw)


def hot_network(layout: Layout, *, hidden_age: bool = False) -> Network:
    """The hot model compiled with limits of two to four slices."""
    return compile_network(hot_spec(), layout, limits=LIMITS, hidden_age=hidden_age)


def random_values(network: Network, rng: np.random.Generator, phase: str, missing: float) -> np.ndarray:
    """Values drawn near rows picked at random, so that every hypothesis explains some of them."""
    values = np.full(network.width, math.nan)
    background = network.background[PHASES.index(phase)]
    for s, signal in enumerate(network.spec.signal):
        rows = np.flatnonzero(network.row_signal == s)
        for e in range(network.signal_offset[s], network.signal_offset[s + 1]):
            row = network.rows[rows[rng.integers(len(rows))] if rng.random() < 0.15 else background[s]]
            if signal.family in ("gaussian", "log_ratio"):
                values[e] = math.inf if rng.random() < row[2] else row[0] + row[1] * rng.normal()
            elif signal.family == "first_speaker":
                values[e] = rng.integers(network.layout.count(signal.entity)) if rng.random() < row[0] else -1
            elif signal.family == "chorus":
                values[e] = rng.random() < (0.7 if rng.random() < row[0] else row[4])
            else:
                width = {"presence": 2, "count": 5}.get(signal.family, len(signal.values))
                values[e] = min(int(np.searchsorted(np.cumsum(row[:width]), rng.random())), width - 1)
    values[rng.random(network.width) < missing] = math.nan
    return values


class Pair:
    """The same evidence for the filter and for the walk.

    Published classes are picked among those that the filter still thinks possible, so that most
    sequences can be explained to the end; what they are does not bear on the comparison.
    """

    def __init__(
        self, network: Network, seed: int, slices: int, *, classes: bool = True, actions: bool = False,
        start: str = "step", prior: OnsetPrior | None = None, missing: float = 0.25,
    ) -> None:  # fmt: skip
        self.network = network
        self.rng = np.random.default_rng(seed)
        self.evidence: list[SliceEvidence] = []
        self.slices: list[Slice] = []
        self.last = np.full(network.width, math.nan)
        self.gap = np.zeros(network.width)
        scout = Filter(network, prior=prior)
        phase, job, age = start, "moving", 0
        for t in range(slices):
            action = self._action() if actions and t in (2, 4) else None
            kernel = action_kernel(network, *action) if action else None
            phase = self._phase(t, phase, job, slices)
            if kernel is not None and kernel.restarts:
                phase, age = "launch", 0
            ends = phase == "save" and t == 3
            values = random_values(network, self.rng, phase, missing)
            if t % 4 == 3:
                values[:] = math.nan
            job = self._class(scout, SliceEvidence(values, PHASES.index(phase), ends, NO_CLASS, age, kernel))
            self._add(values, phase, job if classes else None, age, ends, action, kernel)
            scout.step(self.evidence[-1])
            age = age + 1 if job == "halted" else 0

    def _action(self) -> tuple[str, int]:
        name = str(self.rng.choice([a.name for a in self.network.spec.action]))
        kind = next(a.target for a in self.network.spec.action if a.name == name)
        return name, int(self.rng.integers(self.network.layout.targets(kind)))

    def _phase(self, t: int, phase: str, job: str, slices: int) -> str:
        if job == "down":
            return "stop"
        if job == "halted" or t == 0:
            return phase
        if phase in STARTING:
            return STARTING[phase]
        return "save" if t in (2, 3) and slices > 4 and phase in ("step", "save") else "step"

    def _class(self, scout: Filter, one: SliceEvidence) -> str:
        kept = scout.belief.copy(), scout.last.copy(), scout.gap.copy(), scout.time
        scout.step(one)
        found, mass = scout.posterior(), np.zeros(3)
        mass[0] = found.vector[0]
        for block in self.network.blocks:
            by_configuration = found.block(block).sum(axis=(0, 2))
            np.add.at(mass, block.classes[:, one.phase], by_configuration)
        scout.belief[:], scout.last[:], scout.gap[:], scout.time = kept
        chance = np.where(mass > 1e-9, np.array([0.5, 0.42, 0.08]), 0.0)
        return JOB_CLASSES[int(self.rng.choice(3, p=chance / chance.sum()))]

    def _add(self, values, phase, job, age, ends, action, kernel) -> None:
        network = self.network
        self.evidence.append(
            SliceEvidence(
                values,
                PHASES.index(phase),
                ends,
                NO_CLASS if job is None else JOB_CLASSES.index(job),
                age,
                kernel,
            )
        )
        parts = [(s.name, network.slice_of(i)) for i, s in enumerate(network.spec.signal)]
        seen = {name: self._in_units(name, values[at]) for name, at in parts}
        last = {name: self._in_units(name, self.last[at]) for name, at in parts}
        gap = {name: np.where(self.gap[at] > 0, self.gap[at], math.nan) for name, at in parts}
        hidden = network.hidden_age
        self.slices.append(Slice(phase, ends, job, None if hidden else age, action, seen, last, gap))
        for i, signal in enumerate(network.spec.signal):
            if signal.family in ("gaussian", "log_ratio"):
                at = network.slice_of(i)
                taken = np.isfinite(values[at])
                self.last[at] = np.where(taken, values[at], self.last[at])
                self.gap[at] = np.where(taken, 1, np.where(self.gap[at] > 0, self.gap[at] + 1, 0))

    def _in_units(self, name: str, values: np.ndarray) -> np.ndarray:
        """The walk reads a log ratio in the unit of its value."""
        signal = next(s for s in self.network.spec.signal if s.name == name)
        return (signal.baseline or 1.0) * np.exp(values) if signal.family == "log_ratio" else values.copy()

    @property
    def timers(self) -> dict[str, int]:
        """Slices of each timer."""
        return limit_slices(self.network.spec, LIMITS)


def as_states(network: Network, belief: np.ndarray) -> dict[tuple, float]:
    """A belief vector keyed by what its states declare."""
    found = {("none",): float(belief[0])}
    for block in network.blocks:
        law = block.chain.law
        mass = belief[block.offset : block.offset + block.size].reshape(block.shape())
        for level, severity in enumerate(block.variant.severity_levels):
            for c, configuration in enumerate(block.chain.configurations):
                active = frozenset(m.name for i, m in enumerate(law.mechanisms) if configuration.bits >> i & 1)
                stages = frozenset(
                    (edge.name, stage) for edge, stage in zip(law.edges, configuration.stages, strict=True) if stage
                )
                for site in range(block.sites):
                    key = (
                        block.variant.name,
                        severity,
                        site,
                        active,
                        stages,
                        configuration.poisoned,
                        configuration.age,
                    )
                    found[key] = found.get(key, 0.0) + float(mass[level, c, site])
    return {key: p for key, p in found.items() if p > 0.0}


def walked_states(spec: ModelSpec, posterior: dict[State, float], *, hidden_age: bool) -> dict[tuple, float]:
    """The walk's posterior under the same keys."""
    names = [f"{edge.from_}>{edge.to}" for edge in spec.edge]
    longest = max(limit_slices(spec, LIMITS).values())  # an older halt is past every limit
    found: dict[tuple, float] = {}
    for state, p in posterior.items():
        key: tuple = ("none",)
        if state.slot is not None:
            mode, variant, severity, site = state.slot
            stages = frozenset((n, s) for n, s in zip(names, state.stages, strict=True) if s)
            age = min(state.age, longest) if hidden_age else 0
            key = (f"{mode}.{variant}", severity, site, state.active, stages, state.poisoned, age)
        found[key] = found.get(key, 0.0) + p
    return {key: p for key, p in found.items() if p > 0.0}


def assert_same(mine: dict[tuple, float], theirs: dict[tuple, float], tolerance: float) -> None:
    """Equal as distributions, each state within the tolerance."""
    worst = max(
        ((abs(mine.get(k, 0.0) - theirs.get(k, 0.0)), k) for k in mine.keys() | theirs.keys()),
        key=lambda x: x[0],
    )
    assert worst[0] <= tolerance, f"{worst[1]}: {mine.get(worst[1])} against {theirs.get(worst[1])}"
