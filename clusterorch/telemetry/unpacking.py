"""Here lives the unpacking of compressed streams, piece by piece: gzip, bzip2, xz, zstd, and the methods of zip.

Sizes that a file claims are not believed, and no decompressor may take more memory than `Limits.window_bytes`.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from clusterorch.telemetry.budgets import Meter
from clusterorch.telemetry.streams import PIECE, Stopped, Stream

_FED = 4096  # bytes unpacked at once: a damaged stream loses what this much would have given
_CUT = "ends in the middle of its data; what came before is read"
_NO_ZSTD = "is packed with zstd, which needs one more package: pip install 'clusterorch[zstd]'"

MAGIC = {b"\x1f\x8b\x08": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Decompressor(Protocol):
    """What bz2, lzma and compression.zstd have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the packed data has been met."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes without more packed bytes."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What followed the packed data."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next unpacked bytes."""
        ...


class Inflate:
    """zlib's decompressor in the shape of the others."""

    def __init__(self, wbits: int) -> None:
        self._zlib = zlib.decompressobj(wbits)
        self._pending = False

    @property
    def eof(self) -> bool:
        """Whether the end of the packed data has been met."""
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes without more packed bytes."""
        return not self._pending

    @property
    def unused_data(self) -> bytes:
        """What followed the packed data."""
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next unpacked bytes."""
        out = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        # A full answer may have left bytes inside zlib even when it took all of the input.
        self._pending = len(out) == max_length
        return out


class Unpacked:
    """What one packed stream holds."""

    def __init__(self, source: Stream, make: Callable[[], Decompressor], meter: Meter) -> None:
        self._source = source
        self._decompressor = make()
        self._meter = meter
        self._stopped: Stopped | None = None
        self.ended = False

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end.

        Raises:
            Stopped: the stream is cut or damaged, or a limit was met; again at every later call.
        """
        if self._stopped is not None:
            raise self._stopped
        if size < 1:  # to zlib a limit of 0 is none
            return b""
        try:
            out = self._next(min(size, PIECE))
            self._meter.unpacked(len(out))
        except Stopped as stopped:
            self._stopped = stopped
            raise
        except Exception as error:  # each library has errors of its own, and zstd's may not be imported
            self._stopped = Stopped("damaged_archive", f"cannot be unpacked further: {_reason(error)}")
            raise self._stopped from error
        return out

    def _next(self, size: int) -> bytes:
        while not self.ended:
            packed = b""
            if self._decompressor.needs_input and not (packed := self._source.read(_FED)):
                raise Stopped("truncated", _CUT)
            out = self._decompressor.decompress(packed, size)
            if self._decompressor.eof:
                self.ended = True
                self._source.unread(self._decompressor.unused_data)
            if out:
                return out
        return b""


class Streams:
    """All packed streams that follow one another in a file, as gzip, bzip2 and xz files may."""

    def __init__(self, source: Stream, kind: str, limit: int, meter: Meter) -> None:
        self._source = source
        self._meter = meter
        self._magic = next(magic for magic, name in MAGIC.items() if name == kind)
        self._make = {
            "gzip": lambda: Inflate(zlib.MAX_WBITS | 16),
            "bzip2": bz2.BZ2Decompressor,
            "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, limit),
            "zstd": lambda: _zstd(limit),
        }[kind]
        self._unpacked = Unpacked(source, self._make, meter)
        self._stopped: Stopped | None = None

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end.

        Raises:
            Stopped: as `Unpacked.read`; or the stream is followed by something else.
        """
        if self._stopped is not None:
            raise self._stopped
        while True:
            if piece := self._unpacked.read(size):
                return piece
            if not (rest := self._source.head()):
                return b""
            if rest.startswith(self._magic):
                self._unpacked = Unpacked(self._source, self._make, self._meter)
            elif rest.strip(b"\0"):
                self._stopped = Stopped("damaged_archive", "is followed by other bytes, which are not read")
                raise self._stopped
            else:
                self._source.read(len(rest))  # zeros that fill up a block of a tape or a disk


class _Framed:
    """The decompressor of the zstandard package in the shape of the others, one frame long."""

    def __init__(self, zstandard: Any, limit: int) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=limit).decompressobj()
        self._held = b""
        self._out = b""

    @property
    def eof(self) -> bool:
        return self._frame.eof and not self._out

    @property
    def needs_input(self) -> bool:
        return not self._held and not self._out

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + self._held

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._held += data
        if not self._out and self._held:
            # This interface has no limit on what one call gives; a block of zstd, at most 128 KiB, takes 3
            # bytes, so that 64 bytes give 3 MiB at most.
            fed, self._held = self._held[:64], self._held[64:]
            self._out = self._frame.decompress(fed)
        out, self._out = self._out[:max_length], self._out[max_length:]
        return out


def _zstd(limit: int) -> Decompressor:
    try:
        return import_module("compression.zstd").ZstdDecompressor(options=_window(limit))
    except ImportError:  # Python before 3.14
        pass
    try:
        zstandard = import_module("zstandard")
    except ImportError as error:
        raise Stopped("unreadable", _NO_ZSTD) from error
    return _Framed(zstandard, limit)


def _window(limit: int) -> dict[Any, int]:
    parameter = import_module("compression.zstd").DecompressionParameter.window_log_max
    return {parameter: limit.bit_length() - 1}


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
