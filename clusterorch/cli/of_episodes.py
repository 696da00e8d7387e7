"""Here lives what the commands that play an episode share: the world that it is played in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterorch.cli.commands import Repeated

if TYPE_CHECKING:
    from clusterorch.environment.episodes import Episodes


@dataclass(kw_only=True)
class OfEpisode:
    """Which episode of which world."""

    layout: str = "4x8"
    """Nodes x GPUs."""
    spares: int = 1
    """Nodes that stand by."""
    leaves: int = 0
    """Leaf switches; 0: one for 16 nodes."""
    profile: str | None = None
    """Site profile, whose mix of failures is used."""
    model: str = "reference"
    """Name of a model, or a file."""
    overlay: Repeated = ()
    """Overlay, a name or a file."""
    seed: int = 0
    """Of the noise, and of a policy that draws."""
    episode: int = 0
    """Which episode of the seed."""
    hours: float = 4.0
    """Length of the episode."""

    def episodes(self, **settings: Any) -> Episodes:
        """One instance of the world, not begun."""
        from clusterorch.environment.making import episodes_of

        return episodes_of(
            1, layout=self.layout, spares=self.spares, leaves=self.leaves, profile=self.profile, model=self.model,
            overlays=self.overlay, seed=self.seed, hours=self.hours, **settings,
        )  # fmt: skip
