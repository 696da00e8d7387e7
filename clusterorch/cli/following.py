"""Here lives `diagnose --follow`: the diagnosis again whenever the logs say more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from clusterorch.reports.terminal import show_diagnosis, verdict
from clusterorch.reports.wording import Terminal, percent, printable

if TYPE_CHECKING:
    from clusterorch.diagnosis.dossier import Dossier


def show_following(
    dossiers: Iterable[Dossier],
    console: Terminal,
    *,
    top: int = 5,
    to_line: Callable[[Dossier], str] | None = None,
) -> int:
    """Show one diagnosis after the other until the keyboard interrupts.

    A terminal gets the view redrawn; anything else a line whenever what it says has changed; with `to_line`
    whatever that makes of every one.  Returns the exit code of the last diagnosis, 3 if there was none.
    """
    code = 3
    try:
        if to_line is None and console.is_terminal:
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
                for dossier in dossiers:
                    code = dossier.exit_code
                    live.update(_view(dossier, console, top), refresh=True)
            return code
        said = ""
        for dossier in dossiers:
            code = dossier.exit_code
            line = to_line(dossier) if to_line else _summary(dossier)
            if to_line or line != said:
                sys.stdout.write(f"{line}\n" if to_line else f"{datetime.now():%H:%M:%S} {line}\n")
                sys.stdout.flush()
                said = line
    except KeyboardInterrupt:
        pass  # the way in which following is ended
    return code


def _view(dossier: Dossier, console: Terminal, top: int) -> Text:
    with console.capture() as captured:
        show_diagnosis(dossier, console, top=top)
    return Text.from_ansi(captured.get())


def _summary(dossier: Dossier) -> str:
    """What changes when something has changed: the verdict and the likeliest place."""
    diagnosis = dossier.diagnosis
    place = ""
    if dossier.decided and diagnosis.sites:
        _, name, p = diagnosis.sites[0]
        place = f"; {printable(name)} {percent(p)}"
    return verdict(diagnosis) + place
