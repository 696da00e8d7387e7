"""Here lives the way from the bytes of a file to clean lines, in bounded memory.

Nothing in a file is trusted: lines may be endless, cut in the middle of a character, overwritten by progress
bars or full of terminal escapes, and a file may be no text at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clusterorch.telemetry.streams import Readable

LONGEST_LINE = 64 * 1024  # bytes kept of one line
BLOCK = 1 << 18
_HEAD = 8192  # bytes looked at to tell text from the rest
_MOST_CONTROL = 0.05  # share of control characters in text; escapes and blanks do not count
_MOST_NUL = 0.3

_UNREAD_ARCHIVE = "an archive of a kind that is not read (unpack it first)"
_MAGIC = {
    b"\x1f\x8b": "a compressed file",
    b"\xfd7zXZ": "a compressed file",
    b"\x28\xb5\x2f\xfd": "a compressed file",
    b"\x04\x22\x4d\x18": _UNREAD_ARCHIVE,  # lz4
    b"\x1f\x9d": _UNREAD_ARCHIVE,  # compress
    b"7z\xbc\xaf\x27\x1c": _UNREAD_ARCHIVE,
    b"Rar!\x1a\x07": _UNREAD_ARCHIVE,
    b"PK\x03\x04": "a zip that holds no logs, as torch files and office documents are",
    b"PK\x05\x06": "an empty zip",
    b"LPKSHHRH": "a journal of systemd (print it with journalctl --file)",
    b"\x7fELF": "a program or a core dump",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"%PDF-": "a PDF",
    b"PAR1": "a Parquet file",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy array",
    b"SQLite format 3\0": "a database",
}
_PICKLE = tuple(bytes((0x80, version)) for version in range(2, 6))
_CONTROL = bytes(code for code in range(32) if code not in b"\0\t\n\v\f\r\b\x07\x1b") + b"\x7f"
_NUL_BLOCK = re.compile(rb"\A\0+|\0{64,}|\0+\Z")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|[@-Z\\^_])?")
_UNPRINTABLE = dict.fromkeys((*range(9), *range(11, 32), 127, *range(128, 160)), " ")
_NEEDS_CARE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(slots=True)
class Damage:
    """What had to be cut or replaced to make lines out of a file."""

    truncated: int = 0
    undecodable: int = 0
    nul: int = 0


class Wrap(NamedTuple):
    """How one record is told that a terminal or a pager broke over several lines."""

    token: str
    starts: re.Pattern[str]
    ends: str | None
    continues: re.Pattern[str]
    most: int
    border: str | None = None


def not_text(head: bytes) -> str | None:
    r"""Why the head of a file says that it is no text, or None.

    >>> not_text(b"iteration 1 | loss 2.0"), not_text(b"\x80\x02}(X")
    (None, 'a pickled object')
    """
    if head.startswith(_PICKLE):
        return "a pickled object"
    if found := next((what for magic, what in _MAGIC.items() if head.startswith(magic)), None):
        return found
    head = head[:_HEAD]
    if not head:
        return None
    # A crash leaves blocks of NUL in a log; only NULs between characters speak against text.
    if head.count(0) > _MOST_NUL * len(head) and _NUL_BLOCK.sub(b"", head).count(0) > _MOST_NUL * len(head):
        return "binary data"
    if len(head) - len(head.translate(None, _CONTROL)) > _MOST_CONTROL * len(head):
        return "binary data"
    return None


def clean_lines(stream: Readable, damage: Damage, first: int = 1) -> Iterator[tuple[int, str]]:
    """(line number, text) of every line, numbered from `first`; progress bars in pieces, control characters gone."""
    number, numbered = first, 0
    for pieces, text in _blocks(stream, damage):
        if pieces is None:
            for line in text.split("\n"):
                yield number, line
                number += 1
            continue
        for line, ends in zip(text, pieces, strict=True):
            if numbered != number or line:
                yield number, line
                numbered = number
            number += ends


def _blocks(stream: Readable, damage: Damage) -> Iterator[tuple[Sequence[bool] | None, str | list[str]]]:
    """Blocks of whole lines: plain text, or lines beside which of them end with a line feed."""
    rest, skipping = b"", False
    while chunk := stream.read(BLOCK):
        if skipping:
            cut = min((at for at in (chunk.find(b"\n"), chunk.find(b"\r")) if at >= 0), default=-1)
            if cut < 0:
                continue
            chunk, skipping = chunk[cut:], False
        block = rest + chunk
        cut = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1))
        rest, block = block[cut + 1 :], block[: cut + 1]
        if len(rest) > LONGEST_LINE:
            block += rest[:LONGEST_LINE]
            rest, skipping = b"", True
            damage.truncated += 1
        if block:
            yield _decoded(block, damage)
    if rest:
        yield _decoded(rest[:LONGEST_LINE], damage)


def _decoded(block: bytes, damage: Damage) -> tuple[Sequence[bool] | None, str | list[str]]:
    text = block.decode("utf-8", "replace")
    if "\ufffd" in text:
        damage.undecodable += text.count("\ufffd") - block.count(b"\xef\xbf\xbd")
    if not _NEEDS_CARE.search(text) and text.endswith("\n") and (len(text) < LONGEST_LINE or _short(text)):
        return None, text[:-1]
    damage.nul += text.count("\0")
    pieces = block.splitlines(keepends=True)
    ends = [piece.endswith(b"\n") for piece in pieces]
    return ends, [_clean(piece, damage) for piece in pieces]


def _short(text: str) -> bool:
    """Whether no line is longer than what is kept of one."""
    at = 0
    while (end := text.rfind("\n", at, at + LONGEST_LINE)) >= 0:
        at = end + 1
    return at >= len(text)


def _clean(piece: bytes, damage: Damage) -> str:
    if len(piece) > LONGEST_LINE:
        piece = piece[:LONGEST_LINE]
        damage.truncated += 1
    return without_controls(piece.decode("utf-8", "replace").rstrip("\r\n"))


def without_controls(text: str) -> str:
    r"""A line without terminal escapes and control characters.

    >>> without_controls("\x1b[31mred\x1b[0m\x07")
    'red '
    """
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    return text.translate(_UNPRINTABLE)


class Joining:
    """Puts broken records together again, where what follows clearly continues them.

    A record that may go on in a later call is held back until `rest` is asked for.
    """

    def __init__(self, wraps: Sequence[Wrap]) -> None:
        self._wraps = wraps
        self._held: list[str] = []
        self._at = 0
        self._wrap: Wrap | None = None

    def lines(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Lines and whole records; the last record may be held back."""
        for number, text in lines:
            if self._wrap is not None:
                if self._continues(text):
                    if self._wrap.ends is not None and self._wrap.ends in text:
                        yield from self.rest()
                    continue
                yield from self.rest()
            for wrap in self._wraps:
                if wrap.token in text and (wrap.ends is None or wrap.ends not in text):
                    if wrap.starts.search(text):
                        self._at, self._held, self._wrap = number, [_without(wrap.border, text)], wrap
                    break
            if self._wrap is None:
                yield number, text

    def _continues(self, text: str) -> bool:
        assert self._wrap is not None
        piece = self._wrap.continues.search(text, 0, LONGEST_LINE)
        if not piece or len(self._held) >= self._wrap.most or self._wrap.starts.search(text):
            return False
        self._held.append(_without(self._wrap.border, text[piece.start("piece") :]).strip())
        return True

    def rest(self) -> Iterator[tuple[int, str]]:
        """The record that is held back, as far as it came."""
        if self._wrap is not None:
            yield self._at, " ".join(self._held)
        self._held, self._wrap = [], None


def _without(border: str | None, text: str) -> str:
    text = text.rstrip()
    return text if border is None else text.removesuffix(border).rstrip()


def joined(lines: Iterable[tuple[int, str]], wraps: Sequence[Wrap]) -> Iterator[tuple[int, str]]:
    """All lines, with broken records put together again."""
    joining = Joining(wraps)
    yield from joining.lines(lines)
    yield from joining.rest()
