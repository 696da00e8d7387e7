"""Here lives advice: which action would probably clear what has happened, and what it costs.

Advice is expected clearance under the belief: the effects of `[[action.effect]]`, averaged over variants, places and
poisoned copies, for the best target of each action.  It weighs no cost against it and looks no step ahead: that is
decision theory, which needs the job's own stakes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clusterorch.diagnosis.diagnose import Diagnosis
from clusterorch.diagnosis.universe import Universe
from clusterorch.inference.actions import ActionKernel, action_kernel
from clusterorch.inference.beliefs import Belief
from clusterorch.models.ground import HEALTHY
from clusterorch.models.spec import Action

WORTH = 0.5  # an action that is not likelier than this to clear a failure is worse than gathering evidence


@dataclass(frozen=True)
class Option:
    """An action on its best target.

    clears: probability that there is a failure and that the action ends it.
    left: probability that there is a failure and that the action leaves it.
    """

    name: str
    title: str
    target: str
    cost: str
    clears: float
    left: float


@dataclass(frozen=True)
class Advice:
    """best: what to do; `waits` if that is nothing.  options: every action that clears something, best first.

    no_failure: probability that there is no failure, so that an action would be for nothing.
    """

    best: Option
    waits: bool
    options: list[Option]
    no_failure: float

    @property
    def second(self) -> Option | None:
        """The next best action."""
        others = [option for option in self.options if option != self.best]
        return others[0] if others else None


def advise(diagnosis: Diagnosis) -> Advice | None:
    """The action that most probably clears the failure; none if the belief or the model's actions are missing.

    Waiting is advised if no action clears a failure with at least probability `WORTH`: one half, so that what is
    done is likelier to help than to be for nothing.
    """
    belief, universe = diagnosis.belief, diagnosis.universe
    if belief is None or universe is None or not belief.network.spec.action:
        return None
    healthy = belief.modes[HEALTHY]
    options = [_best_target(action, belief, universe) for action in belief.network.spec.action if _acts(action)]
    options = sorted((o for o in options if o.clears > 0.0), key=lambda option: -option.clears)
    waits = not options or options[0].clears < WORTH
    idle = next((a for a in belief.network.spec.action if not _acts(a)), None)
    waiting = Option(
        idle.name if idle else "wait", idle.title if idle else "do nothing", "", idle.cost if idle else "the time",
        0.0, 1.0 - healthy,
    )  # fmt: skip
    return Advice(waiting if waits else options[0], waits, options, healthy)


def _acts(action: Action) -> bool:
    return action.target != "none" and action.does != "requeue"


def _best_target(action: Action, belief: Belief, universe: Universe) -> Option:
    layout = belief.network.layout
    count = layout.targets(action.target)
    clears = [_cleared(belief, action_kernel(belief.network, action.name, target)) for target in range(count)]
    target = int(np.argmax(clears))
    return Option(
        action.name, action.title, target_label(action.target, target, universe), action.cost, clears[target],
        max(1.0 - belief.modes[HEALTHY] - clears[target], 0.0),
    )  # fmt: skip


def _cleared(belief: Belief, kernel: ActionKernel) -> float:
    """Probability that a failure is there and ends; a poisoned copy that is loaded brings it back."""
    total, start = 0.0, 0
    for block in belief.network.blocks:
        clears = kernel.clears[start : start + block.sites]
        start += block.sites
        if block.variant.benign or not clears.any():
            continue
        poisoned = np.array([c.poisoned for c in block.chain.configurations])
        clean = (poisoned <= kernel.discards) if kernel.restarts else np.ones(len(poisoned), dtype=bool)
        total += float((belief.block(block).sum(axis=0)[clean] * clears).sum())
    return total


def target_label(kind: str, target: int, universe: Universe) -> str:
    """What to call the target of an action, in the words of the logs."""
    if kind == "rail":
        rails = universe.layout.rails
        named = [number for what, number in sorted(universe.names) if what == "link" and number % rails == target]
        return f"the rail of {universe.label('link', named[0])}" if named else "a rail not named in these logs"
    if kind in ("node", "leaf"):
        return universe.label(kind, target)
    if kind == "copy":
        return "the newest copy" if target == 0 else f"the copy {target} before the newest"
    return f"the {kind}"
