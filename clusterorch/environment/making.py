"""Here lives how an environment comes from plain arguments: names of models, layouts and profiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from clusterorch.environment.episodes import Episodes, Settings
from clusterorch.errors import InvalidIntervention, InvalidLayout
from clusterorch.models import Layout, Model, load

EPISODE = "episode"  # overlay of the episode prior
_PROFILES = "site_"


@lru_cache(maxsize=16)
def model_of(
    layout: str, spares: int, leaves: int, profile: str | None, model: str = "reference", overlays: tuple[str, ...] = ()
) -> Model:
    """A model for episodes on a layout, with the mix of failures of a site profile.

    Raises:
        InvalidLayout: not of the form NODESxGPUS, or a number out of range.
        UnknownModel: no such model, profile or overlay.
    """
    if not isinstance(layout, str):
        raise InvalidLayout(f"layout {layout!r}: write it as NODESxGPUS, for example 4x8")
    grounded = Layout.parse(layout, spares=spares, leaves=leaves)
    return load(model, layout=grounded, overlays=[*([_PROFILES + profile] if profile else []), EPISODE, *overlays])


def episodes_of(
    batch: int = 1, *, layout: str = "4x8", spares: int = 1, leaves: int = 0, profile: str | None = None,
    model: str = "reference", overlays: Sequence[str] = (), seed: int = 0, domain: int | str = "environment",
    first_instance: int = 0, **settings: Any,
) -> Episodes:  # fmt: skip
    """A batch of episodes from plain arguments; `settings` are those of `Settings`.

    Raises:
        InvalidLayout, UnknownModel: as `model_of`.
        InvalidIntervention: a setting or `first_instance` is out of range.
    """
    if not isinstance(first_instance, int | np.integer) or first_instance < 0:
        raise InvalidIntervention(f"first_instance={first_instance!r}: give a whole number from 0 on")
    made = model_of(layout, spares, leaves, profile, model, tuple(overlays))
    return Episodes(made, batch, Settings(**settings), seed=seed, domain=domain, first_instance=first_instance)
