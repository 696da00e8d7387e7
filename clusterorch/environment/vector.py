"""Here lives the environment of many instances at once: the same kernels as for one, the same trajectories."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from clusterorch.environment.making import episodes_of
from clusterorch.environment.spaces import Arrays, observation_space, observe
from clusterorch.environment.truth import privileged_info
from clusterorch.errors import InvalidIntervention

MOST_INSTANCES = 4096


class GPUClusterVector(VectorEnv[Arrays, np.ndarray, np.ndarray]):
    """`num_envs` instances of `GPUCluster`; instance i of a seed is number `first_instance + i` of it.

    Arguments are those of `clusterorch.environment.cluster.GPUCluster`, and

        num_envs: 1 to 4,096.
        autoreset_mode: what happens to an instance whose episode has ended.

    With NEXT_STEP the step after the last one begins the next episode and ignores the action (`info["reset"]`); with
    SAME_STEP the last step does, and `final_obs` and `final_info` tell how it ended; with DISABLED the caller resets
    with `options={"reset_mask": ...}`.  Infos are those of single instances as arrays, with a mask `_name` of who
    has each, as Gymnasium's own vectors put them together.
    """

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        pad_nodes: int | None = None, flat: bool = True, render_mode: str | None = None, **arguments: Any,
    ) -> None:  # fmt: skip
        if not isinstance(num_envs, int | np.integer) or not 1 <= num_envs <= MOST_INSTANCES:
            raise InvalidIntervention(f"num_envs={num_envs!r}: give a whole number from 1 to {MOST_INSTANCES}")
        if render_mode is not None:
            raise InvalidIntervention(f"render_mode={render_mode!r}: a vector is not rendered; take one instance")
        self.num_envs, self.render_mode = num_envs, None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self.episodes = episodes_of(num_envs, **arguments)
        self.single_observation_space = observation_space(self.episodes, pad_nodes, flat=flat)
        self.single_action_space = spaces.Discrete(self.episodes.world.moves.count)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._begun = False
        self._ended = np.zeros(num_envs, dtype=bool)

    def action_masks(self) -> np.ndarray:
        """[B, moves] bool, which moves are legal."""
        return self.episodes.world.masks().astype(bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Begin episodes: the first ones of a seed, or the next ones.

        Raises:
            InvalidIntervention: the seed is not one whole number, or `reset_mask` is not a mask of the instances.
        """
        rows = np.arange(self.num_envs)
        if options and "reset_mask" in options:
            mask = np.asarray(options["reset_mask"])
            if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
                raise InvalidIntervention(f"reset_mask: give {self.num_envs} truth values, one of them true")
            if not self._begun and not mask.all():
                raise InvalidIntervention("reset_mask: the first reset begins every instance, give none")
            rows = np.flatnonzero(mask)
        if seed is not None:
            if not isinstance(seed, int | np.integer) or seed < 0:
                raise InvalidIntervention(f"seed={seed!r}: give one whole number from 0 on, for all instances")
            self.episodes.reseed(int(seed))
        numbers = self.episodes.world.episode[rows] + 1 if self._begun and seed is None else np.zeros(len(rows))
        self.episodes.begin(rows, numbers.astype(np.int64))
        self._begun = True
        self._ended[rows] = False
        return observe(self.episodes, self.single_observation_space), self._info()

    def step(self, actions: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play every instance until its next decision.

        Raises:
            InvalidIntervention: not one whole number among the actions for each instance.
        """
        if not self._begun:
            raise gym.error.ResetNeeded("call reset() before step()")
        moves = self._checked(actions)
        if self.autoreset_mode == AutoresetMode.DISABLED and self._ended.any():
            raise InvalidIntervention(f"{int(self._ended.sum())} episodes have ended: reset them with a reset_mask")
        again = self._ended.copy()
        played = self.episodes.decide(moves, ~again)
        ended = played.ended.copy()
        info: dict[str, Any] = {
            "slices": played.slices.copy(), "_slices": ~again, "invalid_action": played.illegal.copy(),
            "_invalid_action": ~again, "reset": again, "_reset": np.ones(self.num_envs, dtype=bool),
        }  # fmt: skip
        for b in np.flatnonzero(ended):
            info = self._add_info(info, {"incident": self.episodes.incident(int(b))}, int(b))
        self._next(np.flatnonzero(again))
        if self.autoreset_mode == AutoresetMode.SAME_STEP and ended.any():
            info = self._final(info, np.flatnonzero(ended), played.slices, played.illegal)
            self._next(np.flatnonzero(ended))
            self._ended[:] = False
        else:
            self._ended = ended.copy()
        found = observe(self.episodes, self.single_observation_space)
        nothing = np.zeros(self.num_envs, dtype=bool)
        return found, played.reward.copy(), nothing, ended, info | self._info()

    def _next(self, rows: np.ndarray) -> None:
        if len(rows):
            self.episodes.begin(rows, self.episodes.world.episode[rows] + 1)

    def _final(
        self, info: dict[str, Any], rows: np.ndarray, slices: np.ndarray, illegal: np.ndarray
    ) -> dict[str, Any]:  # fmt: skip
        """Add what the last step of some instances told.  [n] rows"""
        last, masks = observe(self.episodes, self.single_observation_space), self.episodes.world.masks()
        for b in rows.tolist():
            told: dict[str, Any] = {
                "action_mask": masks[b], "slices": int(slices[b]), "invalid_action": bool(illegal[b]),
                "incident": self.episodes.incident(b),
            }  # fmt: skip
            if self.episodes.settings.privileged:
                told["truth"] = privileged_info(self.episodes, b)
            final = {"final_obs": {name: array[b] for name, array in last.items()}, "final_info": told}
            info = self._add_info(info, final, b)
        return info

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        given = np.asarray(actions)
        count = self.single_action_space.n
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise InvalidIntervention(
                f"actions of shape {given.shape} and type {given.dtype}: give {self.num_envs} whole numbers"
            )
        if given.min() < 0 or given.max() >= count:
            wrong = given[(given < 0) | (given >= count)][0]
            raise InvalidIntervention(f"action {wrong}: give whole numbers in 0..{count - 1}")
        return given.astype(np.int64)

    def _info(self) -> dict[str, Any]:
        masks = self.episodes.world.masks()
        info: dict[str, Any] = {"action_mask": masks, "_action_mask": np.ones(self.num_envs, dtype=bool)}
        for b in range(self.num_envs if self.episodes.settings.privileged else 0):
            info = self._add_info(info, {"truth": privileged_info(self.episodes, b)}, b)
        return info
