"""Here lives a learned policy as a policy among others: it decides, and states its diagnosis."""

from __future__ import annotations

import numpy as np
import torch

from clusterorch.environment.episodes import Episodes
from clusterorch.learning.network import Policy
from clusterorch.learning.seeing import inputs_of, move_index
from clusterorch.policies.view import NO_MODE, NO_NODE, Choice, View


class Learned:
    """Plays a network on a batch of episodes.

    Args:
        policy: the network.
        episodes: that it plays.
        observe: what of them the agent sees; all that is shown if not given.
        sampled: draw moves from the policy; else take the likeliest.
        seed: of the draws.
    """

    name, needs = "learned", "belief"

    def __init__(
        self, policy: Policy, episodes: Episodes, *, observe: str | None = None, sampled: bool = False, seed: int = 0
    ) -> None:
        self.policy, self.episodes, self.observe, self.sampled = policy.eval(), episodes, observe, sampled
        self._index, self._state = move_index(episodes), policy.memory.fresh(episodes.batch)
        self._draws = torch.Generator().manual_seed(seed)
        self._modes = [*(mode.name for mode in episodes.world.network.spec.mode), NO_MODE]

    @torch.no_grad()
    def decide(self, view: View) -> Choice:
        """The likeliest move, or one drawn, and the mode that the diagnosis head takes it to be."""
        inputs = inputs_of(self.episodes, observe=self.observe)
        width = self.policy.shape.truth_features
        inputs = inputs._replace(truth=torch.zeros(len(inputs.job), width))  # the critic is not asked
        nodes, row = self.policy.rows(inputs)
        hidden, self._state = self.policy.memory.step(row, torch.from_numpy(view.begun), self._state)
        reading = self.policy.read(inputs, nodes, hidden, self._index)
        if self.sampled:
            moves = torch.multinomial(reading.logits.softmax(-1), 1, generator=self._draws)[:, 0]
        else:
            moves = reading.logits.argmax(-1)
        stated = [self._modes[i] for i in reading.modes.argmax(-1).tolist()]
        return Choice(moves.numpy(), stated, np.full(len(moves), NO_NODE, dtype=np.int64))
