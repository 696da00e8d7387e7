"""The script that gathers evidence: shell that runs nothing but the commands, whatever hosts are called."""

import os
import shlex
import subprocess

import pytest

from clusterorch import models
from clusterorch.diagnosis.commands import Command, load_commands
from clusterorch.errors import ClusterorchError
from clusterorch.reports.gathering import Errand, gathering_script, quote


def command(shell="echo seen", runs_on="each suspected host", name="look"):
    return Command(
        name=name, title="look at it", shell=shell, runs_on=runs_on, shows="now", signals=["s"], streams=["k"]
    )


def run(tmp_path, script, **environment):
    """Run a script with an ssh that writes down the host it is given and runs the rest here."""
    tools, out = tmp_path / "tools", tmp_path / "out"
    tools.mkdir()
    ssh = tools / "ssh"
    ssh.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nprintf "%s\\n" "$1" >> "$CALLED"\nshift\nexec "$@"\n'
    )
    ssh.chmod(0o755)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "OUT": str(out),
        "CALLED": str(tmp_path / "called"),
    } | environment
    done = subprocess.run(
        ["sh", "-s"], input=script, text=True, capture_output=True, check=False, env=environment, cwd=tmp_path
    )
    called = (tmp_path / "called").read_text().splitlines() if (tmp_path / "called").exists() else []
    files = {file.name: file.read_text() for file in out.iterdir()} if out.exists() else {}
    return done, called, files


def test_the_whole_set_is_shell():
    commands = load_commands(models.load("reference", layout="1x2"))
    script = gathering_script([Errand(c, None, ()) for c in commands], "all")
    checked = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert all(f"# {c.title}" in script for c in commands)


def test_a_command_runs_on_each_host_and_its_words_land_in_a_file_of_its_own(tmp_path):
    places = ({"host": "n1", "rank": "3"}, {"host": "n2", "rank": "4"})
    script = gathering_script([Errand(command("echo rank {rank} on {host}"), 0.5, places)], "a test")
    done, called, files = run(tmp_path, script)
    assert (done.returncode, done.stderr, called) == (0, "", ["n1", "n2"])
    assert files == {"n1-look.log": "rank 3 on n1\n", "n2-look.log": "rank 4 on n2\n"}
    assert "0.50 nats" in script


HOSTILE = [
    "n1; touch owned",
    "$(touch owned)",
    "`touch owned`",
    "n1' ; touch owned '",
    'n1" && touch owned',
    "a b",
    "*",
]


@pytest.mark.parametrize("host", HOSTILE)
def test_a_hostile_name_stays_a_name(tmp_path, host):
    places = ({"host": host, "device": host},)
    script = gathering_script([Errand(command("printf '%s\\n' {device} {host}"), None, places)], "a test")
    done, called, files = run(tmp_path, script)
    assert called == [host]
    assert list(files.values()) == [f"{host}\n{host}\n"], done.stderr
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("host", ["n1\nreboot", "n1\x1b[2J", "-oProxyCommand=touch owned", "", "n\u202e1", "END\x00"])
def test_a_name_that_is_none_is_refused(host):
    with pytest.raises(ClusterorchError, match="no name for a shell command"):
        gathering_script([Errand(command("echo {host}"), None, ({"host": host},))], "a test")


def test_quoting_gives_back_the_name():
    for host in HOSTILE:
        assert shlex.split(quote(host)) == [host]


def test_a_host_that_no_line_names_is_asked_for(tmp_path):
    script = gathering_script([Errand(command("hostname > /dev/null; echo {host}"), None, ({},))], "a test")
    (tmp_path / "a").mkdir()
    done, called, _ = run(tmp_path / "a", script)
    assert called == []
    assert "set HOSTS" in done.stderr
    (tmp_path / "b").mkdir()
    done, called, files = run(tmp_path / "b", script, HOSTS="n1 n2")
    assert called == ["n1", "n2"]
    assert set(files) == {"n1-look.log", "n2-look.log"}


def test_what_cannot_be_filled_in_is_left_out_and_said():
    script = gathering_script([Errand(command("echo {pci}"), None, ({"host": "n1"},))], "a test")
    assert "# left out on n1: no line names its pci" in script
    assert "\non n1" not in script


def test_a_command_of_the_job_runs_here(tmp_path):
    done, called, files = run(tmp_path, gathering_script([Errand(command(runs_on="job"), None, ())], "a test"))
    assert (called, files, done.stderr) == ([], {"look.log": "seen\n"}, "")


def test_the_origin_cannot_leave_its_comment():
    script = gathering_script([], "a\nreboot")
    assert "\nreboot" not in script
