"""Commands of a model: what may stand in their file, and how each mistake is told."""

import shutil
import subprocess

import pytest

from clusterorch import models
from clusterorch.diagnosis.commands import Command, load_commands
from clusterorch.errors import InvalidModel
from clusterorch.models.reading import locate

ROW = """
[[command]]
name = "look"
title = "look at it"
shell = "cat /proc/{rank}/status ${HOME} | awk '{print $1}'"
runs_on = "one host"
shows = "past"
signals = ["xid"]
streams = ["kernel"]
"""


def model_with(folder, text):
    """The reference model with other commands."""
    source = locate("reference").parent
    shutil.copytree(source, folder / "models")
    (folder / "models/commands.toml").write_text(text)
    return models.load(
        folder / "models/reference.toml", layout="1x2", overlays=[folder / "models/overlays/incident.toml"]
    )


def test_the_commands_that_ship_are_sound_and_their_shell_is_shell():
    commands = load_commands(models.load("reference", layout="1x2"))
    assert len(commands) >= 8
    for command in commands:
        line = command.line(dict.fromkeys(command.placeholders, "x"))
        checked = subprocess.run(["sh", "-n"], input=line, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), command.name


def test_placeholders_are_told_from_the_braces_of_a_shell(tmp_path):
    given = ROW.replace("awk '{print $1}'", "awk '{print $1}' {host}")
    [command] = load_commands(model_with(tmp_path, given))
    assert command.placeholders == ("host", "rank")
    assert command.line({"host": "n1", "rank": "3"}) == "cat /proc/3/status ${HOME} | awk '{print $1}' n1"


def test_a_model_that_names_no_file_has_no_commands(tmp_path):
    model = model_with(tmp_path, ROW)
    text = (tmp_path / "models/reference.toml").read_text()
    (tmp_path / "models/reference.toml").write_text(text.replace('commands = ["commands.toml"]', ""))
    assert load_commands(model) == []


WRONG = {
    "a missing column": (ROW.replace('shows = "past"\n', ""), "command.look.shows"),
    "an unknown column": (ROW + 'cost = "much"\n', "command.look.cost"),
    "an unknown place": (ROW.replace("one host", "the moon"), "command.look.runs_on"),
    "an unknown signal": (ROW.replace('"xid"', '"xidd"'), "near it: xid"),
    "an unknown stream": (ROW.replace('["kernel"]', '["kernal"]'), "no stream 'kernal'"),
    "an unknown placeholder": (ROW.replace("{rank}", "{node}"), "knows no {node}"),
    "two lines": (ROW.replace("cat ", "cat \\n"), "control character"),
    "no signal": (ROW.replace('["xid"]', "[]"), "command.look.signals"),
    "one name twice": (ROW + ROW, "stands there twice"),
    "the order of lines": (ROW.replace('"xid"', '"first_error"'), "order of lines"),
    "a sample of the past": (ROW.replace('"xid"', '"temperature"'), "is a sample"),
    "another table": (ROW + "[[comand]]\n", "comand"),
    "one table": (ROW.replace("[[command]]", "[command]"), "write [[command]]"),
    "no TOML": ("[[command", "syntax"),
}


@pytest.mark.parametrize(("text", "named"), WRONG.values(), ids=WRONG)
def test_a_mistake_names_the_file_the_row_and_the_way_out(tmp_path, text, named):
    with pytest.raises(InvalidModel) as caught:
        load_commands(model_with(tmp_path, text))
    assert named in str(caught.value)
    assert "commands.toml" in str(caught.value)
    assert "; " in str(caught.value)


def test_a_command_is_frozen():
    command = Command.model_validate({
        "name": "a", "title": "t", "shell": "ls", "runs_on": "job", "shows": "now", "signals": ["s"], "streams": ["k"],
    })  # fmt: skip
    with pytest.raises(ValueError, match="frozen"):
        command.shell = "rm"
