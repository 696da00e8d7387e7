"""Here lives what the commands that use trained agents share: how an agent is told from a policy, and what it takes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from clusterorch.errors import ClusterorchError

_NEEDS = ("torch", "safetensors")


def is_agent(policy: str) -> bool:
    """Whether a policy is meant as the folder of an agent: it has no name, and is a folder or looks like a path."""
    from clusterorch.policies.running import POLICIES

    if policy in POLICIES or policy.endswith(".toml"):
        return False
    return Path(policy).is_dir() or any(mark in policy for mark in (os.sep, os.altsep) if mark)


def check_learning() -> None:
    """Make sure that agents can be loaded.

    Raises:
        ClusterorchError: what they need is not installed.
    """
    for name in _NEEDS:
        if find_spec(name) is None:
            raise ClusterorchError(f"agents need {name}: pip install 'clusterorch[train]'")
