"""Here lives the script that gathers missing evidence: shell text, most telling command first.  Nothing is run here.

What comes from logs, names of hosts and devices above all, gets into the script only quoted, and never with a
control character in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from clusterorch.diagnosis.commands import Command
from clusterorch.errors import ClusterorchError
from clusterorch.reports.wording import printable

_HEAD = """\
#!/bin/sh
# Gathers evidence for `clusterorch diagnose`, most telling first.  Read it, then run it where ssh reaches the hosts.
# It reads and changes nothing there; what it finds goes below OUT, for: clusterorch diagnose OUT
# {origin}
set -u
OUT=${{OUT:-evidence}}
HOSTS=${{HOSTS:-}}  # hosts of the job, separated by blanks, for what the logs tie to no host
mkdir -p -- "$OUT" || exit 1

on() {{  # HOST FILE, the command on standard input
    ssh -o BatchMode=yes -o ConnectTimeout=10 -- "$1" sh -s > "$OUT/$2" || echo "$1: $2 is incomplete" >&2
}}
each() {{  # FILE, the command on standard input: on every host of HOSTS
    command=$(cat)
    [ -n "$HOSTS" ] || echo "$1 is left out: set HOSTS" >&2
    for host in $HOSTS; do
        printf '%s\\n' "$command" | on "$host" "$host-$1"
    done
}}
here() {{  # FILE, the command on standard input
    sh -s > "$OUT/$1" || echo "$1 is incomplete" >&2
}}
"""
_END = "END_OF_COMMAND"


class Errand(NamedTuple):
    """A command to put into the script.

    gain: nats it is expected to give, None if nobody has asked yet.
    places: names by placeholder for each host it runs on; without `host` where no line names one; none: anywhere.
    """

    command: Command
    gain: float | None
    places: tuple[dict[str, str], ...]


def gathering_script(errands: Sequence[Errand], origin: str) -> str:
    """The script.

    Args:
        errands: what to gather, in order.
        origin: a line that says what the order rests on.

    Raises:
        ClusterorchError: a name holds a control character, or would be read as an option.
    """
    return "\n".join([_HEAD.format(origin=printable(origin)), *map(_errand, errands)])


def _errand(errand: Errand) -> str:
    command = errand.command
    worth = "" if errand.gain is None else f", {errand.gain:.2f} nats expected"
    lines = [f"# {command.title}{worth}: shows {', '.join(command.signals)}"]
    if command.runs_on == "job":
        return "\n".join([*lines, _heredoc("here", f"{command.name}.log", command.line({}))]) + "\n"
    named = [names for names in errand.places if "host" in names]
    for names in named:
        quoted = {what: quote(name) for what, name in names.items()}
        if missing := [what for what in command.placeholders if what not in quoted]:
            lines.append(f"# left out on {printable(names['host'])}: no line names its {' and '.join(missing)}")
            continue
        file = f"{re.sub('[^A-Za-z0-9._-]', '_', names['host'])}-{command.name}.log"
        lines.append(_heredoc(f"on {quoted['host']}", file, command.line(quoted)))
    if not named or len(named) < len(errand.places):
        if set(command.placeholders) <= {"host"}:
            lines.append(_heredoc("each", f"{command.name}.log", command.line({"host": '"$(hostname)"'})))
        elif not named:
            wanted = " and ".join(what for what in command.placeholders if what != "host")
            lines.append(f"# left out: no line names the {wanted} to ask for")
    return "\n".join(lines) + "\n"


def _heredoc(call: str, file: str, line: str) -> str:
    # The delimiter is quoted: nothing in the line is expanded before it reaches the shell that runs it.
    return f"{call} {shlex.quote(file)} <<'{_END}'\n{line}\n{_END}"


def quote(name: str) -> str:
    """A name from a log as one word of a shell.

    Raises:
        ClusterorchError: it holds a control character, is empty, or begins with a dash.

    >>> quote("n17"), quote("n17; reboot")
    ('n17', "'n17; reboot'")
    """
    if not name or not name.isprintable() or name.startswith("-"):
        raise ClusterorchError(f"{name!r} is no name for a shell command: it is empty, an option, or not printable")
    return shlex.quote(name)
