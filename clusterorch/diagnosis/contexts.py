"""Here lives the neighbourhood of a line: the lines around it, read again from its file when they are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from clusterorch.errors import IngestError
from clusterorch.telemetry.lines import Damage, clean_lines
from clusterorch.telemetry.readings import Reading
from clusterorch.telemetry.walking import walk

AROUND = 2  # lines shown before a line, and after it
LONGEST = 400  # characters kept of one
MOST_BYTES = 64 << 20  # read again of one file
MOST_LINES = 50
_STDIN = Path("-")  # what came from it is gone


class Context(NamedTuple):
    """A line with its neighbours, (number, text) each; both empty where the file could not be read again."""

    file: str
    line: int
    text: str
    before: list[tuple[int, str]]
    after: list[tuple[int, str]]


def contexts_of(readings: Iterable[Reading], paths: Sequence[Path], *, around: int = AROUND) -> list[Context]:
    """The neighbourhoods of lines, in the given order, each line once; at most `MOST_LINES` of them.

    A file that is gone, has changed, or is no plain file any more leaves its lines by themselves.
    """
    wanted = list(dict.fromkeys((r.file, r.line, r.text[:LONGEST]) for r in readings))[:MOST_LINES]
    try:
        places = dict(walk([path for path in paths if path != _STDIN], []))
    except IngestError:
        places = {}
    found: dict[str, dict[int, str]] = {}
    for file in {file for file, _, _ in wanted}:
        numbers = {n + k for f, n, _ in wanted if f == file for k in range(-around, around + 1)}
        found[file] = _lines(places[file], numbers) if file in places else {}
    return [_context(file, line, text, found[file], around) for file, line, text in wanted]


def _context(file: str, line: int, text: str, lines: dict[int, str], around: int) -> Context:
    # Where the line no longer says what it said, its neighbours are not what stood around it.
    if lines.get(line, "").strip() != text.strip():
        return Context(file, line, text, [], [])
    before = [(n, lines[n]) for n in range(line - around, line) if n in lines]
    return Context(file, line, text, before, [(n, lines[n]) for n in range(line + 1, line + around + 1) if n in lines])


def _lines(path: Path, numbers: set[int]) -> dict[int, str]:
    """The text of numbered lines, as far as they lie in the part that is read."""
    last, found, read = max(numbers), {}, 0
    if not path.is_file():  # a pipe would be waited for
        return {}
    try:
        with path.open("rb") as stream:
            for number, text in clean_lines(stream, Damage()):
                read += len(text) + 1
                if number in numbers and number not in found:
                    found[number] = text[:LONGEST]
                if number > last or read > MOST_BYTES:
                    break
    except (OSError, ValueError):
        return {}
    return found
