"""Here lives the way from the bytes of a file to clean lines, in bounded memory.

Nothing in a file is trusted: lines may be endless, cut in the middle of a character, overwritten by progress
bars or full of terminal escapes, and a file may be no text at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

LONGEST_LINE = 64 * 1024  # bytes kept of one line
BLOCK = 1 << 18
_HEAD = 8192  # bytes looked at to tell text from the rest
_MOST_CONTROL = 0.05  # share of control characters in text; escapes and blanks do not count
_MOST_NUL = 0.3

_MAGIC = (
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x7fELF",
    b"\x89PNG",
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"\xff\xfe",
    b"\xfe\xff",
)
_PICKLE = tuple(bytes((0x80, version)) for version in range(2, 6))
_CONTROL = bytes(code for code in range(32) if code not in b"\0\t\n\v\f\r\b\x07\x1b") + b"\x7f"
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


def not_text(head: bytes) -> str | None:
    r"""Why the head of a file says that it is no text, or None.

    >>> not_text(b"iteration 1 | loss 2.0"), not_text(b"\x80\x02}(X")
    (None, 'a pickled object')
    """
    if head.startswith(_PICKLE):
        return "a pickled object"
    if head.startswith(_MAGIC):
        return "a compressed or binary file"
    head = head[:_HEAD]
    if not head:
        return None
    if head.count(0) > _MOST_NUL * len(head) and head.strip(b"\0").count(0) > _MOST_NUL * len(head):
        return "binary data"
    if len(head) - len(head.translate(None, _CONTROL)) > _MOST_CONTROL * len(head):
        return "binary data"
    return None


def clean_lines(stream: BinaryIO, damage: Damage) -> Iterator[tuple[int, str]]:
    """(line number, text) of every line; progress bars cut into pieces, control characters gone."""
    number, numbered = 1, 0
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


def _blocks(stream: BinaryIO, damage: Damage) -> Iterator[tuple[Sequence[bool] | None, str | list[str]]]:
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
    text = piece.decode("utf-8", "replace").rstrip("\r\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    return text.translate(_UNPRINTABLE)


def joined(lines: Iterator[tuple[int, str]], wraps: Sequence[Wrap]) -> Iterator[tuple[int, str]]:
    """Put broken records together again, where what follows clearly continues them."""
    held: list[str] = []
    at, wrap = 0, None
    for number, text in lines:
        if wrap is not None:
            piece = wrap.continues.search(text, 0, LONGEST_LINE)
            if piece and len(held) < wrap.most and not wrap.starts.search(text):
                held.append(text[piece.start("piece") :].strip())
                if wrap.ends is None or wrap.ends not in text:
                    continue
                yield at, " ".join(held)
                held, wrap = [], None
                continue
            yield at, " ".join(held)
            held, wrap = [], None
        for candidate in wraps:
            if candidate.token in text and (candidate.ends is None or candidate.ends not in text):
                if candidate.starts.search(text):
                    at, held, wrap = number, [text.rstrip()], candidate
                break
        if wrap is None:
            yield number, text
    if wrap is not None:
        yield at, " ".join(held)
