"""Here lives what an action is good for: the table of failures by actions, in words."""

from __future__ import annotations

from typing import NamedTuple

from clusterorch.models.spec import Action, ModelSpec

CLEARS, MITIGATES, USELESS, HARMFUL = "clears", "mitigates", "useless", "harmful"
ENOUGH = 0.5  # probability from which an action is said to clear a failure


class Effect(NamedTuple):
    """What an action does to a failure at its best target: a word, and the probability that the failure ends."""

    word: str
    probability: float


def effect_of(action: Action, mode: str, variant: str) -> Effect:
    """What an action does to a variant, aimed as well as it can be, in a job that still runs.

    `clears` ends it with one half or more, `mitigates` with less, `useless` costs time at most, and `harmful` throws
    work or capacity away for nothing.
    """
    best = max(clears(action, mode, f"{mode}.{variant}", relation) for relation in ("site", "elsewhere"))
    if best > 0.0:
        return Effect(CLEARS if best >= ENOUGH else MITIGATES, best)
    return Effect(HARMFUL if action.restarts else USELESS, 0.0)


def clears(action: Action, mode: str, variant: str, relation: str) -> float:
    """Probability of the first row that matches a variant (`mode.name`) at the `site` or `elsewhere`; else 0."""
    for effect in action.effect:
        if {mode, variant} & set(effect.of) and effect.relation in ("any", relation):
            return effect.clears
    return 0.0


def effects(spec: ModelSpec) -> dict[str, dict[str, Effect]]:
    """By variant of a failure, by action; the scheduler's own start is no choice of anybody and left out."""
    actions = [action for action in spec.action if action.does != "requeue"]
    return {
        f"{mode.name}.{variant.name}": {a.name: effect_of(a, mode.name, variant.name) for a in actions}
        for mode in spec.mode
        for variant in mode.variant
    }
