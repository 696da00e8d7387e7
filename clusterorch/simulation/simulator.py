"""Here lives the simulator: a batch of jobs, advanced slice by slice by the kernels."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from clusterorch.errors import InvalidIntervention
from clusterorch.models import Model
from clusterorch.models.spec import PHASES
from clusterorch.probability.noise import stream_key
from clusterorch.simulation.emission import emit
from clusterorch.simulation.interventions import Do, Fault, compile_do, parse_fault
from clusterorch.simulation.kernels import advance
from clusterorch.simulation.plan import causal_plan
from clusterorch.simulation.signals import signal_plan
from clusterorch.simulation.situations import Situations, look_up
from clusterorch.simulation.state import State, new_state

DEFAULT_ENTRY = 20  # slice in which a given fault enters the slot


class SliceRecord(NamedTuple):
    """What everybody may know of a slice.  Views of the simulator's arrays: copy what is to be kept."""

    values: np.ndarray  # [B, width] NaN not delivered, inf delivered without a value
    phase: np.ndarray  # [B]
    job_class: np.ndarray  # [B]
    age_before: np.ndarray  # [B] slices of halt before this one
    save_ends: np.ndarray  # [B] 0 or 1: the last slice of a save
    saved: np.ndarray  # [B] 0 or 1: a copy was completed
    held: np.ndarray  # [B] copies held
    progress: np.ndarray  # [B] slices of healthy training done and kept
    arrival: np.ndarray  # [B, streams, nodes + 1] slice in which each cell arrives, -1 never


class Onset(Protocol):
    """When faults start: a prior over variants, slice by slice."""

    def onset(self, t: int, phase: int) -> np.ndarray:
        """[variants] probability of starting in slice t, given an empty slot before."""


class Simulator:
    """A batch of independent jobs under one model.

    Instance i of the batch is number `first_instance + i` of its domain; it is the same, to the bit,
    in any batch.

    Args:
        model: the model on its layout.
        batch: number of instances.
        seed, domain, episode: of the noise.
        first_instance: number of the first instance.
        fault: put into the slot at slice `at`: one `mode.variant[/site[/severity]]` for all, or one
            for each instance (None: none).
        onset: [phases, variants] probabilities of starting, or an `Onset`; the declared hazards if None.
        do: interventions, see `clusterorch.simulation.interventions`.
        start: phase in whose first slice the job begins.

    Raises:
        InvalidIntervention: `fault`, `do` or `start` names what the model does not have.
    """

    def __init__(
        self, model: Model, batch: int = 1, *, seed: int = 0, domain: int | str = "simulate", first_instance: int = 0,
        episode: int = 0, fault: str | Fault | Sequence[str | Fault | None] | None = None,
        at: int | Sequence[int] = DEFAULT_ENTRY, onset: np.ndarray | Onset | None = None,
        do: Sequence[str | Do] = (), start: str = "step",
    ) -> None:  # fmt: skip
        if start not in PHASES:
            raise InvalidIntervention(f"start phase {start!r}: give one of {', '.join(PHASES)}")
        network = model.network
        self.model, self.network, self.time = model, network, 0
        self.plan = causal_plan(network, dict(model.limits))
        self.signals = signal_plan(network)
        self.situations = Situations(network)
        self._noise, self._start, self._do = (seed, domain, first_instance), start, tuple(do)
        self._onset = network.onset if onset is None else onset
        if isinstance(self._onset, np.ndarray):
            self._cumulated_once = np.cumsum(self._onset, axis=1)
        self._actions = [a.name for a in network.spec.action]
        self.do = compile_do(network, do, _entries(network, fault, at, batch))
        self.state: State = new_state(network, self._keys(batch, episode), start)

    def reset(
        self, episode: int, *, fault: str | Fault | Sequence[str | Fault | None] | None = None,
        at: int | Sequence[int] = DEFAULT_ENTRY,
    ) -> None:  # fmt: skip
        """Begin another episode of the same instances, under the same interventions."""
        batch = self.batch
        self.do = compile_do(self.network, self._do, _entries(self.network, fault, at, batch))
        self.state, self.time = new_state(self.network, self._keys(batch, episode), self._start), 0

    def _keys(self, batch: int, episode: int) -> np.ndarray:
        """[B, 2] key of every instance."""
        seed, domain, first = self._noise
        return np.array([stream_key(seed, domain, first + b, episode) for b in range(batch)], dtype=np.uint64)

    @property
    def batch(self) -> int:
        """Number of instances."""
        return self.state.variant.shape[0]

    def step(self, action: Any = None) -> SliceRecord:
        """Advance every instance by one slice.

        Args:
            action: taken before the slice: a name, a (name, target) pair, or for each instance one of
                these or None.  A target is a node, or for a roll-back a copy, the newest being 0.

        Raises:
            InvalidIntervention: no such action or target.
        """
        times = np.full(self.batch, self.time, dtype=np.int64)
        self.step_each(times, *self._parse(action))
        self.time += 1
        state = self.state
        return SliceRecord(
            state.values, state.phase, state.job_class, state.age_before, state.save_ends, state.saved, state.held,
            state.progress, state.arrival,
        )  # fmt: skip

    def step_each(self, times: np.ndarray, actions: np.ndarray, targets: np.ndarray, *, telemetry: bool = True) -> None:
        """Advance every instance by a slice of its own.

        times: [B] number of the slice in its episode, -1: it rests.  actions, targets: [B] by number, -1 none.
        Without `telemetry` the hidden state alone moves on: nothing of it depends on what was printed.
        """
        state = self.state
        advance(self.plan, self.do, self._cumulated(int(times.max())), state, times, actions, targets)
        if not telemetry:
            return
        if look_up(self.situations.table, state, times):
            new = (state.situation < 0) & (times >= 0)
            active = (state.bits | state.transient)[new]
            self.situations.learn(active, state.severity[new], state.phase[new], state.job_class[new])
            look_up(self.situations.table, state, times)
        emit(self.plan, self.signals, self.situations.table, self.do, state, times)

    @property
    def noise(self) -> tuple[int, int | str, int]:
        """Root seed, domain and number of the first instance."""
        return self._noise

    def reseed(self, seed: int) -> None:
        """What begins from now on is of another root seed."""
        self._noise = (seed, *self._noise[1:])

    def begin(self, rows: np.ndarray, episodes: np.ndarray) -> None:
        """Begin further episodes of some instances.  [n] rows, [n] numbers of episodes"""
        seed, domain, first = self._noise
        keys = [stream_key(seed, domain, first + int(b), int(e)) for b, e in zip(rows, episodes, strict=True)]
        fresh = new_state(self.network, np.array(keys, dtype=np.uint64).reshape(-1, 2), self._start)
        for column, new in zip(self.state, fresh, strict=True):
            column[rows] = new

    def _cumulated(self, t: int) -> np.ndarray:
        """[phases, variants] onset probabilities, cumulated over variants."""
        if not isinstance(self._onset, np.ndarray):
            return np.cumsum([self._onset.onset(t, phase) for phase in range(len(PHASES))], axis=1)
        return self._cumulated_once

    def _parse(self, action: Any) -> tuple[np.ndarray, np.ndarray]:
        numbers, targets = np.full((2, self.batch), -1, dtype=np.int64)
        if action is None:
            return numbers, targets
        whole = isinstance(action, str) or (isinstance(action, tuple) and isinstance(action[0], str))
        each = [action] * self.batch if whole else list(action)
        if len(each) != self.batch:
            raise InvalidIntervention(f"{len(each)} actions for {self.batch} instances")
        for b, one in enumerate(each):
            if one is not None:
                numbers[b], targets[b] = self._action(*((one,) if isinstance(one, str) else one))
        return numbers, targets

    def _action(self, name: str, target: int | None = None) -> tuple[int, int]:
        if name not in self._actions:
            near = difflib.get_close_matches(name, self._actions, cutoff=0.4) or self._actions
            raise InvalidIntervention(f"no action is named {name!r}; near it: {', '.join(near)}")
        number = self._actions.index(name)
        layout, kind = self.network.layout, self.network.spec.action[number].target
        most = layout.targets(kind)
        if target is None and kind not in ("none", "job"):
            raise InvalidIntervention(f"action {name} needs a target: a {kind} in 0..{most - 1}")
        target = 0 if target is None else operator.index(target)
        if not 0 <= target < most:
            raise InvalidIntervention(f"action {name}: {kind} {target} is not in 0..{most - 1}")
        return number, target


def _entries(network: Any, fault: Any, at: Any, batch: int) -> np.ndarray | None:
    """[B, 4] variant, site, severity, slice of the faults that are put into slots."""
    if fault is None:
        return None
    each = [fault] * batch if isinstance(fault, str | Fault) else list(fault)
    slices = np.broadcast_to(np.asarray(at, dtype=np.int64), (batch,))
    if len(each) != batch:
        raise InvalidIntervention(f"{len(each)} faults for {batch} instances")
    if slices.min() < 0:
        raise InvalidIntervention(f"a fault at slice {slices.min()}: give 0 or more")
    entries = np.full((batch, 4), -1, dtype=np.int64)
    for b, one in enumerate(each):
        if one is not None:
            entries[b] = (*parse_fault(network, one).row(), slices[b])
    return entries
