"""Here live runs of policies: by name, over numbered episodes that are the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clusterorch.environment.episodes import Episodes
from clusterorch.environment.making import episodes_of
from clusterorch.errors import InvalidIntervention
from clusterorch.policies.believing import QMDP, MostLikelyCause
from clusterorch.policies.oracle import Oracle
from clusterorch.policies.plain import Random, Wait
from clusterorch.policies.runbook import Runbook, load_runbook
from clusterorch.policies.view import NO_MODE, Policy, view_of

RUNBOOKS = ("restart", "timeout", "vendor")
POLICIES = ("wait", "random", *RUNBOOKS, "most_likely_cause", "qmdp", "oracle")
_NEEDS_BELIEF = ("most_likely_cause", "qmdp")


def observes(name: str) -> str:
    """What the environment must show for a policy."""
    return "belief" if name in _NEEDS_BELIEF else "raw"


def policy_named(name: str, episodes: Episodes, seed: int = 0) -> Policy:
    """A policy for a batch of episodes.

    Raises:
        InvalidIntervention: there is no policy of that name, or the episodes keep no belief for it.
    """
    if name not in POLICIES and not name.endswith(".toml"):
        raise InvalidIntervention(
            f"no policy is named {name!r}; there are {', '.join(POLICIES)}, runbook files, and agents (models/policies)"
        )
    if name in _NEEDS_BELIEF and episodes.believer is None:
        raise InvalidIntervention(f"policy {name} decides on beliefs: make the episodes with observe='belief'")
    if name in ("wait", "random"):
        return Wait() if name == "wait" else Random(seed=seed)
    if name == "oracle":
        return Oracle(episodes.model, episodes.settings.decision)
    if name == "most_likely_cause":
        assert episodes.believer is not None
        return MostLikelyCause(episodes.model, episodes.believer)
    if name == "qmdp":
        assert episodes.believer is not None
        policy = QMDP(episodes.model, episodes.believer, episodes.settings.decision)
        episodes.worth[:] = policy.worth()
        return policy
    return Runbook(load_runbook(name))


def run_policy(
    name: str, numbers: Sequence[int], *, watch: Callable[[Episodes, int], None] | None = None,
    make: Callable[[Episodes], Policy] | None = None, seed: int = 0, **arguments: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Play an episode of each of some consecutive instances under a policy.

    Args:
        name: of the policy.
        numbers: of the instances, consecutive.
        make: makes the policy from its episodes; by its name if not given.
        watch: called after every decision with the episodes and the slice.
        seed: root seed of the noise, and of a policy that draws.
        **arguments: of `episodes_of`, without `observe`.

    Returns:
        For each what the episode was worth (`Episodes.incident`), its number and the policy, and of the first move the
        slice (`acted`), the mode then stated and the true one, and whether they are the same (`understood`).
    """
    if list(numbers) != list(range(numbers[0], numbers[0] + len(numbers))):
        raise InvalidIntervention("numbers of instances must follow each other")
    arguments = {"observe": observes(name)} | arguments
    episodes = episodes_of(len(numbers), first_instance=numbers[0], seed=seed, **arguments)
    policy = policy_named(name, episodes, seed) if make is None else make(episodes)
    rows = np.arange(len(numbers))
    episodes.begin(rows, np.zeros(len(rows), dtype=np.int64))
    running = np.ones(len(rows), dtype=bool)
    firsts: list[dict[str, Any]] = [dict.fromkeys(("understood", "stated", "truth", "acted")) for _ in rows]
    while running.any():
        view = view_of(episodes, truth=policy.needs == "truth")
        choice = policy.decide(view)
        _judge(episodes, choice.moves, choice.modes, running, firsts)
        running &= ~episodes.decide(np.where(running, choice.moves, 0), running).ended
        if watch is not None:
            watch(episodes, int(view.time.max()))
    found = []
    for b in rows:
        found.append(episodes.incident(int(b)) | {"number": int(numbers[b]), "policy": name} | firsts[b])
    return found


def _judge(
    episodes: Episodes, moves: np.ndarray, modes: list[str], running: np.ndarray, firsts: list[dict[str, Any]]
) -> None:
    """Note of the first move of each instance when it is made, and what is said then to be the matter."""
    for b in np.flatnonzero(running & (moves != 0)):
        if firsts[b]["acted"] is None:
            v = int(episodes.world.state.variant[b])
            block = episodes.world.network.blocks[v] if v >= 0 else None
            truth = NO_MODE if block is None else block.variant.mode
            firsts[b].update(
                understood=modes[b] == truth, stated=modes[b], truth=truth, acted=int(episodes.world.books.time[b])
            )
