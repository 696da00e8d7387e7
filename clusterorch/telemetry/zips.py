"""Here lives the reading of zip archives, forwards only: from pipes, from within archives, and when cut short.

The directory at the end of a zip is never looked at, so neither its size nor members that overlap can do harm.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from clusterorch.telemetry.budgets import Meter
from clusterorch.telemetry.streams import Stopped, Stream, Window
from clusterorch.telemetry.tars import Member
from clusterorch.telemetry.unpacking import Inflate, Unpacked

MEMBER, _DIRECTORY, _ENDS = b"PK\x03\x04", b"PK\x01\x02", (b"PK\x05\x06", b"PK\x06\x06")
_DESCRIPTOR = b"PK\x07\x08"
_FIXED = 26  # bytes of a header after its mark
_STORED = 0
_METHODS = {8: lambda: Inflate(-zlib.MAX_WBITS), 12: bz2.BZ2Decompressor}
_ENCRYPTED, _SIZE_FOLLOWS, _UTF8 = 1, 1 << 3, 1 << 11
_WIDE = 0xFFFFFFFF  # the size stands in the extra field
# A torch file is a zip around a pickle; the others are zips that nobody means as an archive of logs.
_NO_ARCHIVES = {
    "data.pkl": "a torch file",
    "[Content_Types].xml": "an office document",
    "META-INF/": "a Java archive",
    "mimetype": "a document",
}


class _Header(NamedTuple):
    flags: int
    method: int
    size: int  # packed, 0 if it follows the data
    name: str


def holds_no_files(head: bytes) -> str | None:
    """What a zip is, if its first member says that it is no archive of files; else None."""
    name = _name(head[30 : 30 + int.from_bytes(head[26:28], "little")], 0)
    return next((what for part, what in _NO_ARCHIVES.items() if f"/{name}".endswith(f"/{part}")), None)


def members(source: Stream, meter: Meter) -> Iterator[Member]:
    """The members, in order; each must be read before the next is asked for.

    Raises:
        Stopped: the archive is cut or damaged, or a member hides where the next one begins.
    """
    while (mark := source.exactly(4)) == MEMBER:
        header = _header(source)
        packed = Window(source, header.size)
        unknown = header.flags & _SIZE_FOLLOWS and not header.size
        make = _METHODS.get(header.method)
        if header.flags & _ENCRYPTED or (make is None and header.method != _STORED) or (unknown and make is None):
            yield Member(header.name, None, *_unreadable(header))
            if unknown:
                raise Stopped("damaged_archive", f"does not say where {header.name!r} ends; what follows is not read")
        elif header.name.endswith("/"):
            yield Member(header.name, None)
        elif make is None:
            yield Member(header.name, packed)
        else:
            unpacked = Unpacked(source if unknown else packed, make, meter)
            yield Member(header.name, Stream(unpacked.read))
            while unknown and not unpacked.ended:
                unpacked.read(1 << 16)
        packed.skip()
        if header.flags & _SIZE_FOLLOWS:
            _skip_descriptor(source)
    if mark != _DIRECTORY and mark not in _ENDS:
        kind = "damaged_archive" if len(mark) == 4 else "truncated"
        raise Stopped(kind, "breaks off between two members; what came before is read")


def _header(source: Stream) -> _Header:
    fixed = source.exactly(_FIXED)
    lengths = int.from_bytes(fixed[22:24], "little"), int.from_bytes(fixed[24:26], "little")
    name, extra = source.exactly(lengths[0]), source.exactly(lengths[1])
    if len(fixed) < _FIXED or len(name) < lengths[0] or len(extra) < lengths[1]:
        raise Stopped("truncated", "ends in the middle of a header; what came before is read")
    flags, method = int.from_bytes(fixed[2:4], "little"), int.from_bytes(fixed[4:6], "little")
    size = int.from_bytes(fixed[14:18], "little")
    return _Header(flags, method, _wide(extra) if size == _WIDE else size, _name(name, flags))


def _wide(extra: bytes) -> int:
    """The packed size in the extra field of a large member."""
    while len(extra) >= 4:
        field, length = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:4], "little")
        if field == 1 and length >= 16:
            return int.from_bytes(extra[12:20], "little")
        extra = extra[4 + length :]
    raise Stopped("damaged_archive", "holds a member without a size; what came before is read")


def _name(name: bytes, flags: int) -> str:
    return name.decode("utf-8" if flags & _UTF8 else "cp437", "replace")


def _unreadable(header: _Header) -> tuple[str, str]:
    if header.flags & _ENCRYPTED:
        return "is encrypted: unpack it yourself", "encrypted"
    if header.method == _STORED:
        return "has no size", "unreadable"
    return f"is packed with method {header.method}, which is not read: unpack it yourself", "unreadable"


def _skip_descriptor(source: Stream) -> None:
    """Pass over checksum and sizes after a member: 12 or 20 bytes, with or without a mark."""
    head = source.head(28)
    start = 4 if head.startswith(_DESCRIPTOR) else 0
    for length in (start + 12, start + 20):
        if head[length : length + 2] == b"PK":
            source.exactly(length)
            return
    raise Stopped("truncated", "breaks off between two members; what came before is read")
