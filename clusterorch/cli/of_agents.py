"""Here lives what the commands that use trained agents share: how an agent is told from a policy, and what it takes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from clusterorch.errors import ClusterorchError

_NEEDS = ("torch", "safetensors")


def shipped_agents() -> dict[str, Path]:
    """Folders of the agents that ship with the package, by name."""
    from clusterorch.models.reading import models_folder

    return {file.parent.name: file.parent for file in sorted((models_folder() / "policies").glob("*/config.json"))}


def is_agent(policy: str) -> bool:
    """Whether a policy is meant as an agent: one that ships, or no policy's name and a folder or like a path."""
    from clusterorch.policies.running import POLICIES

    if policy in POLICIES or policy.endswith(".toml"):
        return False
    looks_like_a_path = any(mark in policy for mark in (os.sep, os.altsep) if mark)
    return Path(policy).is_dir() or looks_like_a_path or policy in shipped_agents()


def agent_folder(agent: str | Path) -> Path:
    """The folder that is meant; where there is none, the agent of that name that ships."""
    path = Path(agent)
    return path if path.exists() else shipped_agents().get(str(agent), path)


def check_learning() -> None:
    """Make sure that agents can be loaded.

    Raises:
        ClusterorchError: what they need is not installed.
    """
    for name in _NEEDS:
        if find_spec(name) is None:
            raise ClusterorchError(f"agents need {name}: pip install 'clusterorch[train]'")
