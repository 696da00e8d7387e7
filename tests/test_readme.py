"""Every command that README.md shows works: it is parsed out of the page and run in order."""

import re
import shlex
from pathlib import Path

import pytest

from clusterorch import cli
from clusterorch.evaluation.__main__ import main as measure

ROOT = Path(__file__).resolve().parents[1]
_ELSEWHERE = {"pip", "git", "cd", "source"}  # set-up of an environment, which is there already


def commands(page):
    """Words of every command in the page's ```sh blocks, comments and prompts left out."""
    found = []
    for block in re.findall(r"^```(?:sh|bash|shell)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["$"]:
                words = words[1:]
            if words:
                found.append(words)
    return found


def targets(makefile):
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A place to write in that looks like the checkout to a command that reads."""
    for name in ("data", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.filterwarnings("ignore")  # those of libraries that only an export needs
def test_every_command_of_the_readme_works(checkout, capsys):
    known = targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    for words in commands((ROOT / "README.md").read_text(encoding="utf-8")):
        program, *rest = words
        if program == "make":
            assert {word for word in rest if "=" not in word} <= known, words
        elif program == "clusterorch":
            assert cli.main(rest) == 0, (words, capsys.readouterr().err)
        elif words[:3] == ["python", "-m", "clusterorch.evaluation"]:
            assert measure(words[3:]) == 0, words
        else:
            assert program in _ELSEWHERE, f"no test knows how to run {words}"


def test_commands_are_found_in_blocks_of_shell_only():
    page = (
        "clusterorch not\n\n```sh\n# a comment\n$ clusterorch diagnose \\\n    logs --top 3  # why\n\n"
        "make test\n```\n"
        "```python\nclusterorch.not_this()\n```\n```bash\nmake bench WORKERS=2\n```\n"
    )
    assert commands(page) == [
        ["clusterorch", "diagnose", "logs", "--top", "3"],
        ["make", "test"],
        ["make", "bench", "WORKERS=2"],
    ]


def test_targets_are_read_from_the_makefile():
    assert {"demo", "test", "bench", "setup"} <= targets((ROOT / "Makefile").read_text(encoding="utf-8"))
