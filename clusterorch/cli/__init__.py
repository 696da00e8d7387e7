"""Here lives the command line.  What a command needs is imported when it runs, so that help costs nothing."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from clusterorch import __version__
from clusterorch.cli import collecting, commands, model_commands, playing, trace_commands, training
from clusterorch.errors import ClusterorchError

PROGRAM = commands.PROGRAM
FAILED, INTERRUPTED, PIPE_CLOSED = 2, 130, 141  # the last two as a shell counts: 128 + signal
_FRAME = "╭╮╰╯│─"


@dataclass
class Models:
    """Check, show, draw and export models; has commands of its own."""


@dataclass
class Traces:
    """Record, show and export episodes of the environment; has commands of its own."""


MODELS = {
    "check": model_commands.Check,
    "show": model_commands.Show,
    "actions": model_commands.Actions,
    "sources": model_commands.Sources,
    "picture": model_commands.Picture,
    "export": model_commands.Export,
}
TRACES = {"record": trace_commands.Record, "show": trace_commands.Show, "export": trace_commands.Export}
GROUPS = {"model": MODELS, "trace": TRACES}
COMMANDS = {
    "diagnose": commands.Diagnose,
    "collect": collecting.Collect,
    "simulate": commands.Simulate,
    "model": Models,
    "play": playing.Play,
    "trace": Traces,
    "train": training.Train,
    "whatif": trace_commands.WhatIf,
    "demo": commands.Demo,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 done, or what the command itself ends with; 2 it cannot be done as asked, which one line says;
        130 interrupted; 141 the reader went away.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of ASCII shows what it can
    try:
        command = _parse(list(sys.argv[1:] if argv is None else argv))
        code = 0 if command is None else command.run() or 0
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still to be flushed when the interpreter ends has nowhere to go.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except ClusterorchError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError:
        return _fail("not enough memory; a smaller layout needs less")
    return code


def _parse(words: list[str]) -> Any:
    """The command that was asked for; None if the question was answered already."""
    if words == ["--version"]:
        print(PROGRAM, __version__)
        return None
    program, offered = PROGRAM, COMMANDS
    if words and words[0] in GROUPS:
        program, offered, words = f"{PROGRAM} {words[0]}", GROUPS[words[0]], words[1:]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                offered, prog=program, args=words, config=(tyro.conf.FlagCreatePairsOff,),
                description="A causal model of how distributed training fails, and what it can be asked.",
            )  # fmt: skip
    except SystemExit as end:
        if end.code:
            raise ClusterorchError(_first_sentence(complaint.getvalue(), program)) from None
        return None


def _first_sentence(framed: str, program: str) -> str:
    """What a framed complaint of several lines says above its first rule."""
    said = []
    for line in framed.splitlines():
        text = line.strip(f"{_FRAME} ")
        if text and not line.startswith("╭"):
            said.append(text)
        elif said:
            break
    return f"{' '.join(said) or 'cannot be read'}; see {program} --help"


def _fail(message: str) -> int:
    line = "".join(c if c.isprintable() else " " for c in message)
    print(f"{PROGRAM}: error: {' '.join(line.split())}", file=sys.stderr)
    return FAILED
