"""Small worlds for the tests of the simulator."""

from functools import cache

from clusterorch import models
from clusterorch.models import Model
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


def variants() -> list[str]:
    """Names of all variants."""
    return world().variants


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
