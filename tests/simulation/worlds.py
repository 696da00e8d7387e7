"""Small worlds for the tests of the simulator."""

from functools import cache
from typing import Any

import pytest

from clusterorch import models
from clusterorch.models import Model
from clusterorch.models.spec import Delay, Edge
from clusterorch.simulation import Simulator


@cache
def world(layout: str = "2x2") -> Model:
    """The reference model as it ships."""
    return models.load("reference", layout=layout)


def changed(model: Model, **tables) -> Model:
    """The same model with tables of its declaration replaced; unchecked."""
    spec = model.spec.model_copy(update=tables)
    return Model(spec, model.layout, model.path, model.overlays, model.raw, model.limits)


@cache
def quick(layout: str = "1x1") -> Model:
    """One signal, saves every three slices, a watchdog of four slices: for the law of the hidden state."""
    model = world(layout).with_limits({"watchdog": 60.0, "heartbeat": 45.0, "transport": 30.0})
    job = model.spec.job.model_copy(update={"save_every_seconds": 45.0, "save_seconds": 30.0})
    return changed(model, job=job, signal=model.spec.signal[:1])


@cache
def twisted() -> Model:
    """`quick` with what the reference model does not use.

    Erlang delays, edges of some phases, several slow edges into one mechanism, blocked saves, more heals.
    """
    model = quick()
    edges = []
    for number, edge in enumerate(model.spec.edge):
        if edge.delay.geometric and not edge.recurrent and edge.delay.geometric > 15:
            stages = 2 + number % 2
            edge = edge.model_copy(update={"delay": Delay(erlang=(stages, 20.0 * stages))})
        elif edge.recurrent or number % 3 == 0:
            edge = edge.model_copy(update={"phases": ["step"] if number % 2 else ["save", "load"]})
        edges.append(edge)
    declared = {(e.from_, e.to) for e in edges}
    shortcuts = dict.fromkeys((a.from_, b.to) for a in edges for b in edges if "." in a.from_ and a.to == b.from_)
    transient = {m.name for m in model.spec.mechanism if m.transient}
    for start, end in shortcuts:
        if (start, end) not in declared and end not in transient:
            edges.append(Edge.model_validate({"from": start, "to": end, "gate": 0.8, "delay": {"erlang": [2, 60.0]}}))
    mechanisms = []
    for number, mechanism in enumerate(model.spec.mechanism):
        if mechanism.effect == "none" and not mechanism.transient:
            effect = {0: "block_save", 1: "block_start"}.get(number % 3, "none")
            mechanism = mechanism.model_copy(update={"effect": effect, "heals": mechanism.heals or 60.0})
        mechanisms.append(mechanism)
    return changed(model, edge=edges, mechanism=mechanisms)


def variants() -> list[str]:
    """Names of all variants."""
    return world().variants


def each_mode() -> list[Any]:
    """All variants as parameters: that of each mode with the most configurations, and marked `long` the others."""
    blocks = world().network.blocks
    richest = {}
    for block in sorted(blocks, key=lambda b: -len(b.chain.configurations)):
        richest.setdefault(block.variant.mode, block.variant.name)
    names = [block.variant.name for block in blocks]
    return [pytest.param(n, marks=[] if n in richest.values() else pytest.mark.long) for n in names]


def run(simulator: Simulator, slices: int, *names: str) -> dict:
    """[T, B, ...] copies of arrays of the state."""
    kept = {name: [] for name in names}
    for _ in range(slices):
        simulator.step()
        for name in names:
            kept[name].append(getattr(simulator.state, name).copy())
    return kept


def with_effect(model: Model, effect: str) -> str:
    """A mechanism with this effect on the job that brings no other about."""
    parents = {e.from_ for e in model.spec.edge}
    own = [m.name for m in model.spec.mechanism if m.effect == effect]
    return next((name for name in own if name not in parents), own[0])
