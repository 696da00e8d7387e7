"""Here lives the control problem: a job on a cluster that breaks, as a Gymnasium environment.

Importing the package registers `clusterorch/GPUCluster-v0` and its easy and hard siblings.
"""

import gymnasium as gym

ENTRY, VECTOR = "clusterorch.environment.cluster:GPUCluster", "clusterorch.environment.vector:GPUClusterVector"
LEVELS = {
    "clusterorch/GPUCluster-v0": {},
    "clusterorch/GPUClusterEasy-v0": {"layout": "1x8", "blackouts": False, "hours": 2.0},
    "clusterorch/GPUClusterHard-v0": {"layout": "8x8", "leaves": 2, "hours": 8.0},
}


def register() -> None:
    """Make the environments known to Gymnasium."""
    for name, arguments in LEVELS.items():
        if name not in gym.registry:
            gym.register(id=name, entry_point=ENTRY, vector_entry_point=VECTOR, kwargs=dict(arguments))


register()
