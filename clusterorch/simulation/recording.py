"""Here lives the record of one instance: events with their causes, read off the kernels' decisions.

Nothing is decided here.  Only the moments inside a slice are drawn, from noise that nothing else
reads, so recording never changes a bit of what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clusterorch.probability.noise import causal_uniform
from clusterorch.simulation.channels import MECHANISM_MOMENT
from clusterorch.simulation.lines import LineRecorder
from clusterorch.simulation.plan import active
from clusterorch.simulation.simulator import Simulator
from clusterorch.simulation.state import AGAIN, CLEARED, COME, FORCED, NOTHING, REPLACED
from clusterorch.telemetry.events import CASCADE, Event

_SLOT_MOMENT = 1 << 20


class Recorder:
    """Turns every slice of one instance of a batch into events."""

    def __init__(self, simulator: Simulator, instance: int = 0) -> None:
        self.simulator, self.instance = simulator, instance
        self.events: list[Event] = []
        self._lines = LineRecorder(simulator, instance)
        self._active: dict[int, Event] = {}  # mechanisms that last, by number
        self._fault: Event | None = None
        self._place = "job 0"

    def record(self, action: Any = None, *, t: int | None = None) -> list[Event]:
        """Events of the newest slice, in order of time.

        action: what was taken before it.  t: its number, where the instance has a time of its own.
        """
        t, first = self.simulator.time - 1 if t is None else t, len(self.events)
        acted = self._act(t, action)
        self._slot(t, acted)
        transient = self._mechanisms(t)
        active = self._active | transient
        self.events += self._lines.record(t, active, len(self.events))
        fresh = sorted(self.events[first:], key=lambda event: (event.time, event.id))
        self.events[first:] = fresh
        return fresh

    def _add(self, t: int, moment: int, kind: str, payload: dict[str, Any], causes: tuple[Event, ...]) -> Event:
        """Append a change of the hidden state; it follows its causes inside the slice."""
        dt = self.simulator.network.spec.model.slice_seconds
        earliest = max([t * dt, *(cause.time for cause in causes)])
        key = self.simulator.state.key[self.instance]
        u = causal_uniform(t, MECHANISM_MOMENT, moment, key[0], key[1]) if moment >= 0 else 0.0
        time = earliest + u * ((t + 1) * dt - earliest)
        ids = tuple(sorted({cause.id for cause in causes}))
        event = Event(time, time, CASCADE, self._place, kind, payload, ids, len(self.events))
        self.events.append(event)
        return event

    def _act(self, t: int, action: Any) -> Event | None:
        if action is None:
            return None
        name, *target = (action,) if isinstance(action, str) else action
        event = self._add(t, -1, "action", {"name": name, "target": target[0] if target else None}, ())
        self.events[-1] = event = replace(event, entity="job 0")
        return event

    def _slot(self, t: int, acted: Event | None) -> None:
        state, b = self.simulator.state, self.instance
        left, entered = int(state.left[b]), int(state.entered[b])
        behind = () if acted is None else (acted,)
        if left and self._fault is not None:
            causes = (self._fault, *(behind if left == CLEARED else ()))
            payload = {"do": True} if left == REPLACED else {}
            end = self._add(t, -1 if left == CLEARED else _SLOT_MOMENT, "fault_end", payload, causes)
            self._all_off(t, (end,))
            self._fault = None
        if entered == AGAIN:
            kept = {m: e for m, e in self._active.items() if active(state.bits_before[b], m)}
            self._all_off(t, behind, kept)
            again = (self._fault,) if self._fault is not None else ()
            self._fault = self._add(t, -1, "fault", self._what() | {"again": True}, (*again, *behind))
        elif entered != NOTHING:
            self._place = self._site()
            payload = self._what() | ({"do": True} if entered == FORCED else {})
            self._fault = self._add(t, _SLOT_MOMENT + 1, "fault", payload, behind if entered == COME else ())

    def _site(self) -> str:
        state, b = self.simulator.state, self.instance
        return f"{self.simulator.network.blocks[state.variant[b]].variant.spec.site} {state.site[b]}"

    def _what(self) -> dict[str, Any]:
        state, b, network = self.simulator.state, self.instance, self.simulator.network
        variant = network.blocks[state.variant[b]].variant
        severity = network.spec.model.severities[state.severity[b]] if variant.spec.severity else None
        return {"variant": variant.name, "severity": severity}

    def _all_off(self, t: int, causes: tuple[Event, ...], kept: dict[int, Event] | None = None) -> None:
        kept = kept or {}
        for m, on in self._active.items():
            if m not in kept:
                self._add(t, m, "mechanism_off", {"name": self._name(m)}, (on, *causes))
        self._active = kept

    def _name(self, mechanism: int) -> str:
        return self.simulator.network.spec.mechanism[mechanism].name

    def _mechanisms(self, t: int) -> dict[int, Event]:
        """Changes of the slice, in causal order; returns the transient mechanisms that are on."""
        state, b, plan = self.simulator.state, self.instance, self.simulator.plan
        bits, sounding = state.bits[b], state.transient[b]
        transient: dict[int, Event] = {}
        for m in plan.order.tolist():
            payload = {"name": self._name(m)}
            if active(sounding, m):
                transient[m] = self._add(t, m, "mechanism_on", payload | {"transient": True}, tuple(self._behind(m)))
            elif active(bits, m) and m not in self._active:
                causes = tuple(self._behind(m))
                payload |= {} if causes else {"do": True}
                self._active[m] = self._add(t, m, "mechanism_on", payload, causes)
            elif m in self._active and not active(bits, m):
                self._add(t, m, "mechanism_off", payload, (self._active.pop(m),))
        return transient

    def _behind(self, mechanism: int) -> Iterator[Event]:
        """Parents whose edges arrived in this slice."""
        plan, arrived = self.simulator.plan, self.simulator.state.arrived[self.instance]
        for e in plan.incoming[plan.incoming_start[mechanism] : plan.incoming_start[mechanism + 1]].tolist():
            if arrived[e]:
                parent = int(plan.parent[e])
                event = self._active.get(parent) if parent >= 0 else self._fault
                if event is not None:
                    yield event
