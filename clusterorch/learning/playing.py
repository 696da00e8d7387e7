"""Here lives a learned policy as a policy among others: it decides, and states its diagnosis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from clusterorch.environment.episodes import OBSERVE, Episodes
from clusterorch.errors import InvalidAgent
from clusterorch.learning.agents import CONFIG, load_agent, read_config
from clusterorch.learning.network import Policy, Reading
from clusterorch.learning.seeing import inputs_of, move_index
from clusterorch.policies.view import NO_MODE, NO_NODE, Choice, View

_OF_A_RUN = ("best", "final", "last")  # folders whose names say nothing of the agent


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
    def read(self, view: View) -> Reading:
        """What the network answers to what is shown now, which it remembers."""
        inputs = inputs_of(self.episodes, observe=self.observe)
        width = self.policy.shape.truth_features
        inputs = inputs._replace(truth=torch.zeros(len(inputs.job), width))  # the critic is not asked
        nodes, row = self.policy.rows(inputs)
        hidden, self._state = self.policy.memory.step(row, torch.from_numpy(view.begun), self._state)
        return self.policy.read(inputs, nodes, hidden, self._index)

    def decide(self, view: View) -> Choice:
        """The likeliest move, or one drawn, and the mode that the diagnosis head takes it to be."""
        reading = self.read(view)
        if self.sampled:
            moves = torch.multinomial(reading.logits.softmax(-1), 1, generator=self._draws)[:, 0]
        else:
            moves = reading.logits.argmax(-1)
        stated = [self._modes[i] for i in reading.modes.argmax(-1).tolist()]
        return Choice(moves.numpy(), stated, np.full(len(moves), NO_NODE, dtype=np.int64))


def agent_observes(folder: Path) -> str:
    """What an agent sees of an episode: `raw`, `belief`, `both` or `truth`; make episodes that show it.

    Raises:
        InvalidAgent: there is no agent, or its configuration does not say.
    """
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "there is no such folder"
        raise InvalidAgent(f"{folder}: {found}; give the folder of an agent, which holds {CONFIG}")
    if not (folder / CONFIG).exists() and (folder / "best" / CONFIG).exists():
        raise InvalidAgent(f"{folder}: the folder of a training run; its best agent is {folder / 'best'}")
    config = read_config(folder)
    if "shape" not in config:
        raise InvalidAgent(f"{folder}: a checkpoint of a training run, and no agent; give the folder `best` beside it")
    run = config.get("run")
    observe = run.get("observe") if isinstance(run, dict) else None
    if observe not in OBSERVE:
        raise InvalidAgent(
            f"{folder / CONFIG}: run.observe is {observe!r}, and one of {', '.join(OBSERVE)} is needed; train it anew"
        )
    return observe


def agent_name(folder: Path) -> str:
    """What an agent is called; one that is told the truth says so."""
    path = folder.resolve()
    name = f"{path.parent.name}/{path.name}" if path.name in _OF_A_RUN else path.name
    return f"{name} (told the truth)" if agent_observes(folder) == "truth" else name


def agent_policy(folder: Path, episodes: Episodes, *, sampled: bool = False, seed: int = 0) -> Learned:
    """The agent of a folder as a policy for a batch of episodes.

    Args:
        folder: that `save_agent` wrote.
        episodes: that it is to play; they show at least what it observes (`agent_observes`).
        sampled: draw moves from the policy; else take the likeliest.
        seed: of the draws.

    Raises:
        InvalidAgent: it is missing or broken, the episodes do not show what it observes, or it was trained on a model
            of other signals, failures or actions.
    """
    observe = agent_observes(folder)
    policy, _ = load_agent(folder)
    check_fit(folder, policy, episodes, observe)
    learned = Learned(policy, episodes, observe=observe, sampled=sampled, seed=seed)
    learned.name, learned.needs = agent_name(folder), observe
    return learned


def check_fit(folder: Path, policy: Policy, episodes: Episodes, observe: str) -> None:
    """Make sure that an agent can be asked about episodes.

    Raises:
        InvalidAgent: they do not show what it observes, or are of a model with other signals, failures or actions.
    """
    inputs, spec, shape = inputs_of(episodes, observe=observe), episodes.world.network.spec, policy.shape
    for what, needed, found in (
        ("columns of a node", shape.node_features, inputs.nodes.shape[-1]),
        ("columns of the job", shape.job_features, inputs.job.shape[-1]),
        ("columns of a move", shape.move_features, inputs.moves.shape[-1]),
        ("actions", shape.actions, len(spec.action)),
        ("failure modes", shape.modes, len(spec.mode)),
        ("copies", shape.copies, episodes.world.network.layout.copies),
    ):
        if needed != found:
            raise InvalidAgent(
                f"{folder}: made for {needed} {what}, and model {spec.model.name} has {found}; "
                "give the model that it was trained on, or train it anew"
            )
