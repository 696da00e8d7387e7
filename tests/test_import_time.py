"""Importing the package costs next to nothing."""

import json
import subprocess
import sys

HEAVY = {"pgmpy", "torch", "matplotlib", "numba", "pandas"}


def test_importing_the_package_loads_no_heavy_library():
    script = "import json, sys, clusterorch; print(json.dumps(sorted(sys.modules)))"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {module.partition(".")[0] for module in json.loads(outcome.stdout)}
    assert "clusterorch" in loaded
    assert not HEAVY & loaded
