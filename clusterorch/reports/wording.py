"""Here lives wording: how probabilities, times, places in files and foreign text are put on a terminal."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta

from rich.console import Console
from rich.text import Text

from clusterorch.telemetry.readings import Reading
from clusterorch.telemetry.timestamps import NO_YEAR, find_stamp, year_of

COLUMNS = 100
_EPOCH = datetime(NO_YEAR, 1, 1)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEAD = 40  # characters at the head of a line in which its stamp may be left out


class Terminal(Console):
    """A console that lets a command end as one whose reader went away."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command."""
        raise BrokenPipeError


def terminal(*, width: int | None = None, markup: bool = False) -> Terminal:
    """The console for standard output, at most `COLUMNS` wide; prints what it is given, unless `markup`."""
    console = Terminal(highlight=markup, markup=markup, emoji=False, width=width)
    if width is None:
        console.width = min(COLUMNS, console.width) if console.is_terminal else COLUMNS
    return console


def printable(text: str) -> str:
    r"""Foreign text that cannot move the cursor, colour the screen or turn the writing around.

    >>> printable("a\tb\x1b[31m [bold]c")
    'a b\\x1b[31m [bold]c'
    """
    return "".join(_shown(character) for character in text.replace("\t", " "))


def _shown(character: str) -> str:
    if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def percent(p: float) -> str:
    """A probability that never rounds to certainty.

    >>> percent(1.0), percent(0.5), percent(0.0001), percent(0.0)
    ('>99.9 %', '50.0 %', '<0.1 %', '0 %')
    """
    if p <= 0.0:
        return "0 %"
    if p < 0.0005:
        return "<0.1 %"
    return ">99.9 %" if p >= 0.9995 else f"{100.0 * p:.1f} %"


def how_sure(p: float) -> str:
    """A probability of at least one half in a word.

    >>> how_sure(0.6), how_sure(0.95), how_sure(0.999)
    ('probably', 'very probably', 'almost certainly')
    """
    return "almost certainly" if p >= 0.99 else "very probably" if p >= 0.9 else "probably"


def bar(p: float, width: int, *, plain: bool = False) -> str:
    """A bar of `width` cells for a probability of 1; what is not negligible shows.

    >>> bar(0.5, 4), bar(0.001, 4), bar(0.0001, 4), bar(0.5, 4, plain=True)
    ('██  ', '▏   ', '    ', '##  ')
    """
    least = int(p >= 0.0005)
    if plain:
        return ("#" * max(round(p * width), least)).ljust(width)
    eighths = max(round(8 * width * min(max(p, 0.0), 1.0)), least)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def is_plain(console: Console) -> bool:
    """Whether the console can show letters of ASCII only."""
    return not console.encoding.lower().startswith("utf")


def when(reading: Reading) -> str:
    """The time a line shows, as far as it shows one."""
    if reading.time is None:
        return "no time"
    if reading.clock != "wall":
        return f"{reading.time:.1f} s on its own clock"
    moment = _EPOCH + timedelta(seconds=round(reading.time))
    return moment.strftime("%b %d %H:%M:%S" if year_of(reading.time) <= NO_YEAR else "%Y-%m-%d %H:%M:%S")


def where(reading: Reading) -> str:
    """File and line."""
    return f"{printable(reading.file)}:{reading.line}"


def says(text: str) -> Text:
    """What a line says, without the time at its head; cut off at the edge of the screen."""
    stamp = find_stamp(text)
    if stamp is not None and stamp.start < _HEAD // 4 and stamp.end < _HEAD:
        text = text[stamp.end :].lstrip("], \t")
    return Text(printable(text.strip()), no_wrap=True, overflow="ellipsis")
