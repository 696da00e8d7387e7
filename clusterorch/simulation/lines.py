"""Here lives the record of the lines of a slice: which value was printed by whom, and what lies behind it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterorch.causal.slices import DOWN, HALTED
from clusterorch.models.rows import CONTINUOUS, FIRST, matching_rule
from clusterorch.models.spec import Signal, When
from clusterorch.probability.noise import causal_uniform
from clusterorch.simulation.channels import KIND_SHIFT, MOMENT
from clusterorch.simulation.plan import HALTING_PHASES, SAVE
from clusterorch.simulation.plan import active as in_words
from clusterorch.telemetry.events import Event

if TYPE_CHECKING:
    from clusterorch.simulation.simulator import Simulator


class LineRecorder:
    """Lines of one instance.  A value is a line unless it is the first of its kind: no, none, nobody."""

    def __init__(self, simulator: Simulator, instance: int) -> None:
        self.simulator, self.instance = simulator, instance
        network = simulator.network
        families = simulator.signals.family
        self._signals = [s for s, x in enumerate(network.spec.signal) if x.lines and families[s] != CONTINUOUS]
        self._relation = lru_cache(maxsize=512)(network.layout.relation)

    def record(self, t: int, active: dict[int, Event], first_id: int) -> list[Event]:
        """Lines of slice t.  active: the event that switched on each mechanism that is on."""
        events: list[Event] = []
        for s in self._signals:
            start, stop = self.simulator.network.signal_offset[s : s + 2].tolist()
            values = self.simulator.state.values[self.instance, start:stop]
            if self.simulator.signals.family[s] == FIRST:
                speaker = float(values[0])
                if speaker >= 0.0:
                    events.append(self._line(t, s, int(speaker), speaker, active, first_id + len(events)))
                continue
            for e in np.flatnonzero(values > 0.0).tolist():
                events.append(self._line(t, s, e, float(values[e]), active, first_id + len(events)))
        return self._speak_first(t, events)

    def _line(self, t: int, s: int, e: int, value: float, active: dict[int, Event], number: int) -> Event:
        simulator, b = self.simulator, self.instance
        signal, dt = simulator.network.spec.signal[s], simulator.network.spec.model.slice_seconds
        row, behind = self._reason(s, e, active)
        key = simulator.state.key[b]
        u = causal_uniform(t, MOMENT, s << KIND_SHIFT | e, key[0], key[1])
        earliest = max([t * dt, *(cause.time for cause in behind)])
        time = earliest + u * ((t + 1) * dt - earliest)
        payload = describe(signal, value) | {"row": row}
        ids = tuple(sorted({cause.id for cause in behind}))
        entity = f"{signal.entity} {e}"
        return Event(time, self._arrival(s, e, time), signal.stream, entity, signal.name, payload, ids, number)

    def _arrival(self, s: int, e: int, time: float) -> float:
        """A cell arrives whole at the end of a slice."""
        signals, dt = self.simulator.signals, self.simulator.network.spec.model.slice_seconds
        on_node = int(signals.on_node[s])
        column = e // on_node if on_node else -1
        at = int(self.simulator.state.arrival[self.instance, signals.stream[s], column])
        return max(time, (at + 1) * dt)

    def _reason(self, s: int, e: int, active: dict[int, Event]) -> tuple[int, list[Event]]:
        """The row that was read, and the activations that its rule asks for."""
        simulator, b, network = self.simulator, self.instance, self.simulator.network
        state, signal = simulator.state, network.spec.signal[s]
        relation = 0
        if state.variant[b] >= 0 and signal.family not in ("chorus", "first_speaker"):
            site_kind = network.blocks[state.variant[b]].variant.spec.site
            relation = int(self._relation(site_kind, int(state.site[b]), signal.entity)[e])
        situation, rows = simulator.situations.known[state.situation[b]]
        rule = matching_rule(signal, situation._replace(relation=relation))
        return int(rows[s, relation]), [] if rule is None else self._behind(rule, active)

    def _behind(self, rule: When, active: dict[int, Event]) -> list[Event]:
        names = {m.name: i for i, m in enumerate(self.simulator.network.spec.mechanism)}
        wanted = [names[name] for name in rule.needs]
        if rule.job is not None:
            plan, state, b = self.simulator.plan, self.simulator.state, self.instance
            job_class, phase = int(state.job_class[b]), int(state.phase[b])
            masks = [mask for of, mask in ((DOWN, plan.crash), (HALTED, plan.stall)) if of == job_class]
            if job_class == HALTED:
                masks += [plan.block_save] if phase == SAVE else []
                masks += [plan.block_start] if HALTING_PHASES >> phase & 1 else []
            wanted += [m for m in active if any(in_words(mask, m) for mask in masks)]
        return [active[m] for m in dict.fromkeys(wanted) if m in active]

    def _speak_first(self, t: int, events: list[Event]) -> list[Event]:
        """Where somebody spoke first, the other members' lines of that stream come after his."""
        spec = self.simulator.network.spec
        dt = spec.model.slice_seconds
        for signal in spec.signal:
            speakers = [e for e in events if e.kind == signal.name and signal.family == "first_speaker"]
            for speaker in speakers:
                kinds = {x.name for x in spec.signal if (x.stream, x.entity) == (signal.stream, signal.entity)}
                own = [e.time for e in events if e.entity == speaker.entity and e.kind in kinds]
                first = min(own)
                for i, event in enumerate(events):
                    if event.kind in kinds and event.entity != speaker.entity and event.time < first:
                        share = (event.time - t * dt) / dt
                        later = first + (((t + 1) * dt) - first) * share
                        events[i] = replace(event, time=later, arrival=max(event.arrival, later))
        return events


def describe(signal: Signal, value: float) -> dict[str, Any]:
    """What a value of a signal says, as the payload of an event."""
    if signal.family == "first_speaker":
        return {"member": int(value)}
    if signal.family in ("gaussian", "log_ratio"):
        return {"value": None if value == np.inf else value}
    payload: dict[str, Any] = {"class": int(value)}
    if signal.family == "categorical":
        payload["value"] = signal.values[int(value)]
    return payload
