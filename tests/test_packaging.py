"""An installed copy works far from the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

USE_IT = """
import sys
from pathlib import Path

import clusterorch
from clusterorch import models

assert Path(clusterorch.__file__).is_relative_to(sys.argv[1]), clusterorch.__file__
assert "reference" in models.available(), models.available()
models.load("reference", layout="1x2")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel holds, as an installer would lay it out."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    result = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_holds_the_package_and_its_models_only(installed):
    entries = {entry.name for entry in installed.iterdir()}
    assert {entry for entry in entries if not entry.endswith(".dist-info")} == {"clusterorch"}
    shipped = {file.relative_to(ROOT / "models") for file in (ROOT / "models").rglob("*.toml")}
    assert shipped
    packed = {file.relative_to(installed / "clusterorch/_models") for file in installed.rglob("_models/**/*.toml")}
    assert packed == shipped


def test_an_installed_copy_finds_its_own_models(installed, tmp_path):
    outcome = subprocess.run(
        [sys.executable, "-c", USE_IT, str(installed)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
