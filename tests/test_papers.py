"""Every figure of a paper is drawn again from what lies under data/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "papers").glob("*/figure_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_figure_is_drawn_from_data_alone(script):
    target = ROOT / "build" / "papers" / script.parent.name / f"{script.stem}.png"
    target.unlink(missing_ok=True)
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert target.stat().st_size > 10_000


def test_every_paper_says_what_it_claims():
    for folder in {script.parent for script in SCRIPTS}:
        assert "Claim" in (folder / "README.md").read_text(encoding="utf-8")
