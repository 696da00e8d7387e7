"""Here lives the reading of tar archives, forwards only and in bounded memory.

The standard library's reader keeps a header of every member, and loads extended headers whole, however long they
claim to be.  Nothing is ever written, so a name can do no harm but in print.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clusterorch.telemetry.streams import Stopped, Stream, Window

_BLOCK = 512
_LONGEST_HEADER = 1 << 16  # bytes looked at of an extended header
_DAMAGED = "holds a damaged header; what came before is read"
_REGULAR = {b"0", b"\0", b"7", b"S"}
_LINKS = {b"1": "a link", b"2": "a link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_FOLDER, _LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL, _SPARSE = b"5", b"L", b"K", b"x", b"g", b"S"


class Member(NamedTuple):
    """A member of an archive: its name there, and what it holds or why that is not read; a folder has neither."""

    name: str
    stream: Stream | None
    problem: str = ""
    kind: str = ""


def is_tar(head: bytes) -> bool:
    """Whether a file begins with a header of tar: its checksum says so, with or without a magic word."""
    return len(head) >= _BLOCK and head[0] != 0 and _sound(head[:_BLOCK])


def members(source: Stream) -> Iterator[Member]:
    """The members, in order; each must be read before the next is asked for.

    Raises:
        Stopped: the archive is cut or damaged.
    """
    said: dict[str, str] = {}
    while len(header := source.exactly(_BLOCK)) == _BLOCK:
        if not header.strip(b"\0"):
            return
        if not _sound(header):
            raise Stopped("damaged_archive", _DAMAGED)
        kind, size = header[156:157], _number(header[124:136])
        window = Window(source, size)
        if kind in (_LONG_NAME, _EXTENDED):
            text = window.exactly(min(size, _LONGEST_HEADER))
            said |= _extended(text) if kind == _EXTENDED else {"path": _text(text)}
        elif kind in _REGULAR or kind in _LINKS:
            if kind == _SPARSE:
                _skip_map(source, header)  # its holes are left out
            size = _announced(said, size) if kind in _REGULAR else size
            window = Window(source, size)
            name = said.get("path") or _name(header)
            said = {}
            if problem := _LINKS.get(kind):
                yield Member(name, None, f"is {problem}, and not followed", "link")
            else:
                # Archives older than POSIX mark folders by their names.
                yield Member(name, None if name.endswith("/") else window)
        elif kind == _FOLDER:
            said = {}
            yield Member(_name(header), None)
        window.skip()
        Window(source, -size % _BLOCK).skip()
    if header:
        raise Stopped("truncated", "ends in the middle of a header; what came before is read")
    raise Stopped("truncated", "ends without an end mark; what came before is read")


def _sound(header: bytes) -> bool:
    try:
        claimed = int(header[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return claimed == sum(header) - sum(header[148:156]) + 8 * ord(" ")


def _number(field: bytes) -> int:
    """A number in octal, or in base 256 where octal has no room for it."""
    try:
        number = int.from_bytes(field[1:], "big") if field[0] == 0x80 else int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        number = -1
    if number < 0:
        raise Stopped("damaged_archive", _DAMAGED)
    return number


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def _extended(text: bytes) -> dict[str, str]:
    """What an extended header says of the next member: records of the form `length key=value`, newline."""
    said: dict[str, str] = {}
    at = 0
    while at < len(text):
        digits, _, _ = text[at : at + 16].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = text[at + len(digits) + 1 : at + length].partition(b"=")
        if not length or not equals:
            break
        if key in (b"path", b"size", b"GNU.sparse.name"):
            said["path" if key != b"size" else "size"] = value.rstrip(b"\n").decode("utf-8", "replace")
        at += length
    return said


def _announced(said: dict[str, str], size: int) -> int:
    announced = said.get("size", "")
    return int(announced) if announced.isascii() and announced.isdigit() and len(announced) < 20 else size


def _skip_map(source: Stream, header: bytes) -> None:
    more = header[482]
    while more and len(block := source.exactly(_BLOCK)) == _BLOCK:
        more = block[504]
