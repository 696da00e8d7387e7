"""Here live streams of bytes that can be looked into before they are read, cut off, and trusted not to raise."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Protocol

HEAD = 8192  # bytes that tell what a file is
PIECE = 1 << 18  # bytes asked for at once

_MARKS = {  # the longer marks first: one of UTF-32 begins like one of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}


class Readable(Protocol):
    """Anything with bytes in it."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


class Stopped(Exception):
    """Reading cannot go on; what was read before counts.  `kind` and `text` make a finding."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text
        self.told = False


class Stream:
    """Bytes that are read once, whose head can be looked at first.

    >>> import io
    >>> stream = Stream(io.BytesIO(b"head and tail").read)
    >>> stream.head(4), stream.read(4), stream.exactly(9)
    (b'head', b'head', b' and tail')
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = b""

    def head(self, size: int = HEAD) -> bytes:
        """The next bytes, which stay to be read; fewer at the end.

        Raises:
            Stopped: nothing at all could be read.
        """
        try:
            while len(self._held) < size and (piece := self._read(size - len(self._held))):
                self._held += piece
        except Stopped:
            if not self._held:
                raise
        return self._held[:size]

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end.

        Raises:
            Stopped: the source is damaged, or a limit was met.
        """
        piece = self._held or self._read(size)
        self._held = piece[size:]
        return piece[:size]

    def unread(self, data: bytes) -> None:
        """Put bytes back in front."""
        self._held = data + self._held

    def exactly(self, size: int) -> bytes:
        """So many bytes; fewer at the end.  For sizes that the caller bounds.

        Raises:
            Stopped: as `read`.
        """
        pieces = []
        while size and (piece := self.read(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


class Window(Stream):
    """The next bytes of another stream, as many as were announced."""

    def __init__(self, source: Stream, size: int) -> None:
        super().__init__(self._next)
        self._source = source
        self._left = size
        self._cut: Stopped | None = None

    def _next(self, size: int) -> bytes:
        if not self._left or not size:
            return b""
        piece = self._source.read(min(size, self._left))
        if not piece:
            self._cut = self._cut or Stopped("truncated", "ends in the middle of a file; what came before is read")
            raise self._cut
        self._left -= len(piece)
        return piece

    def skip(self) -> None:
        """Pass over what is left.

        Raises:
            Stopped: the source ends before.
        """
        while self.read(PIECE):
            pass


class Guarded:
    """A stream that ends where it would raise; `tell` hears why."""

    def __init__(self, stream: Stream, tell: Callable[[Stopped], None]) -> None:
        self._stream = stream
        self._tell = tell

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end, or once reading cannot go on."""
        try:
            return self._stream.read(size)
        except Stopped as stopped:
            self._tell(stopped)
            return b""


def encoding_of(head: bytes) -> str | None:
    r"""The encoding that a byte order mark announces, or None.

    >>> encoding_of(b"\xff\xfeX\0i\0d\0"), encoding_of(b"Xid")
    ('utf-16', None)
    """
    return next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)


def recoded(stream: Stream, encoding: str) -> Stream:
    """The same text in UTF-8, without the mark; what is no character becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    ended = False

    def read(size: int) -> bytes:
        nonlocal ended
        while not ended:
            piece = stream.read(min(size, PIECE))
            ended = not piece
            if text := decoder.decode(piece, final=ended):
                return text.encode("utf-8", "replace")
        return b""

    return Stream(read)
