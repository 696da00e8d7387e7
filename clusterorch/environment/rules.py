"""Here live the rules of the job and its cluster in slices, as the model's table `[economy]` declares them."""

from __future__ import annotations

from typing import NamedTuple

from clusterorch.errors import InvalidModel
from clusterorch.models import Model
from clusterorch.probability.lifetimes import erlang_from_mean, geometric_from_mean, timer_slices


class Rules(NamedTuple):
    """`[economy]` in slices and chances a slice; one tuple for all kernels."""

    requeue: int  # slices from a crash until the scheduler starts the job by itself
    retries: int
    repair_stages: int
    repair: float  # chance that a stage of a repair ends
    frail: float
    tree: float  # step time, healthy ring = 1
    around: float
    false_intervention: float
    dark: float  # chance that a collector goes silent
    light: float  # chance that it speaks again
    dwell: int  # slices between two changes of topology
    least_nodes: int  # that a job can run on


def rules_of(model: Model, *, blackouts: bool = True) -> Rules:
    """The rules of a model on its layout.

    Args:
        model: with a table `[economy]`.
        blackouts: whether collectors go silent at times.

    Raises:
        InvalidModel: the model has no such table.
    """
    economy, dt = model.spec.economy, model.spec.model.slice_seconds
    if economy is None:
        raise InvalidModel(
            str(model.path), "economy", "missing", "add the table: what repairs, queues and detours cost"
        )
    return Rules(
        requeue=max(1, timer_slices(economy.requeue_seconds, dt)),
        retries=economy.retries,
        repair_stages=economy.repair_stages,
        repair=erlang_from_mean(economy.repair_stages, economy.repair_seconds, dt),
        frail=economy.frail,
        tree=economy.tree_slowdown,
        around=economy.around_slowdown,
        false_intervention=economy.false_intervention,
        dark=economy.dark if blackouts else 0.0,
        light=geometric_from_mean(economy.dark_seconds, dt),
        dwell=max(1, timer_slices(economy.dwell_seconds, dt)),
        least_nodes=max(1, -(-model.layout.nodes // 2)),
    )
