"""Here lives the environment of one instance, `clusterorch/GPUCluster-v0`."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from clusterorch.environment.episodes import Episodes
from clusterorch.environment.making import episodes_of
from clusterorch.environment.spaces import Arrays, observation_space, observe
from clusterorch.environment.truth import privileged_info
from clusterorch.errors import InvalidIntervention


class GPUCluster(gym.Env[Arrays, np.int64]):
    """A training job on a cluster that breaks sideways, seen through late and partial telemetry.

    ## Description
    A synchronous data-parallel job trains on `layout` nodes of GPUs with spares, leaf switches and rails, and saves a
    copy every half hour.  Failures of fifteen modes enter by the episode prior of the model, bring about cascades, and
    are seen through five streams of telemetry.  The agent decides every minute whether to act, and how.

    ## Action Space
    `Discrete(n)`: every declared action with every target, `env.unwrapped.moves.label(i)` tells which; 0 waits.
    `info["action_mask"]` and `action_masks()` tell which are legal; an illegal one does nothing and sets
    `info["invalid_action"]`.

    ## Observation Space
    A `Dict` of `Box`es: `nodes` [rows, nodes, features] and `job` [rows, features], one row a decision, in order of
    arrival, with ages; `present` [nodes] and `rows` [rows] are masks for padding.  With beliefs, of the exact posterior
    on what has arrived: `belief` [variants + 1], `belief_nodes` [nodes, modes], `belief_copies` [copies], `cures`
    [actions].  Every box has one axis, as the learners of others expect; `flat=False` keeps the shapes above.

    ## Starting State
    The job steps, somewhere between two copies; no failure is in the slot.

    ## Rewards
    In slices of healthy training: what was made and survives, less what was rolled back or lost since the newest copy,
    less a slice for each action that nothing called for.

    ## Episode End
    Never terminates; truncates after `hours`.  A job that is given up earns nothing from then on.

    ## Information
    `action_mask`, `slices` (played by the decision), `invalid_action`; on the last step `incident`, what the episode
    was worth.  With `privileged=True` also `truth` at every step.

    ## Arguments
    layout, spares, leaves, profile, model, overlays: of the world.  observe: "raw", "belief", "both", or "truth", which
    shows in place of a belief what is the case.  decision: slices between decisions.  hours: of an episode.  rows: of
    the window.  blackouts: whether collectors go silent at times.  pad_nodes: room for nodes in the observation.  flat:
    whether boxes have one axis.  first_instance: which of the instances of a seed this is.
    privileged: tell the truth in `info`.  render_mode: "ansi", "rgb_array" or "human".

    ## References
    models/README.md, sections 5 and 9.

    ## Version History
    v0: first version.
    """

    metadata = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012, as Gymnasium has it

    def __init__(
        self, *, layout: str = "4x8", spares: int = 1, leaves: int = 0, profile: str | None = None,
        model: str = "reference", overlays: tuple[str, ...] | list[str] = (), observe: str = "both", decision: int = 4,
        hours: float = 4.0, rows: int = 16, blackouts: bool = True, pad_nodes: int | None = None,
        flat: bool = True, first_instance: int = 0, domain: int | str = "environment", privileged: bool = False,
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InvalidIntervention(f"render_mode={render_mode!r}: give one of ansi, rgb_array, human")
        self.render_mode = render_mode
        self.episodes: Episodes = episodes_of(
            1, layout=layout, spares=spares, leaves=leaves, profile=profile, model=model, overlays=tuple(overlays),
            domain=domain, first_instance=first_instance, observe=observe, decision=decision, hours=hours,
            rows=rows, blackouts=blackouts, privileged=privileged,
        )  # fmt: skip
        self.observation_space = observation_space(self.episodes, pad_nodes, flat=flat)
        self.action_space = spaces.Discrete(self.moves.count)
        self._begun = self._ended = False
        self._renderer: Any = None

    @property
    def moves(self) -> Any:
        """The moves by number."""
        return self.episodes.world.moves

    def action_masks(self) -> np.ndarray:
        """[moves] bool, which moves are legal."""
        return self.episodes.world.masks()[0].astype(bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Begin an episode: the first of a seed, or the next one of the seed before."""
        super().reset(seed=seed)
        number = 0
        if seed is not None:
            self.episodes.reseed(seed)
        elif self._begun:
            number = int(self.episodes.world.episode[0]) + 1
        self.episodes.begin(np.array([0]), np.array([number]))
        self._begun, self._ended = True, False
        if self.render_mode == "human":
            self.render()
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        """Play until the next decision.

        Raises:
            InvalidIntervention: not a whole number among the actions.
        """
        if not self._begun:
            raise gym.error.ResetNeeded("call reset() before step()")
        number = action_number(action, self.moves.count)
        played = self.episodes.decide(np.array([number]), np.array([True]))
        self._ended = bool(played.ended[0])
        info = self._info() | {"slices": int(played.slices[0]), "invalid_action": bool(played.illegal[0])}
        if self._ended:
            info["incident"] = self.episodes.incident(0)
        if self.render_mode == "human":
            self.render()
        return self._observation(), float(played.reward[0]), False, self._ended, info

    def _observation(self) -> Arrays:
        return {name: array[0] for name, array in observe(self.episodes, self.observation_space).items()}

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"action_mask": self.episodes.world.masks()[0]}
        if self.episodes.settings.privileged:
            info["truth"] = privileged_info(self.episodes, 0)
        return info

    def render(self) -> Any:
        """The incident as text (`ansi`), or the racks as a picture (`rgb_array`, [H, W, 3] uint8; `human` shows it)."""
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a render_mode: give one to gymnasium.make")
            return None
        from clusterorch.environment.rendering import Renderer  # matplotlib is heavy, and only pictures need it

        if self._renderer is None:
            self._renderer = Renderer(self.episodes, 0)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Let go of the window, if there is one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def action_number(action: Any, count: int) -> int:
    """A whole number in 0..count - 1.

    Raises:
        InvalidIntervention: it is none, NaN included.
    """
    try:
        number = operator.index(action.item() if isinstance(action, np.ndarray) and action.size == 1 else action)
    except TypeError:
        raise InvalidIntervention(f"action {action!r}: give a whole number in 0..{count - 1}") from None
    if not 0 <= number < count:
        raise InvalidIntervention(f"action {number}: give a whole number in 0..{count - 1}")
    return number
