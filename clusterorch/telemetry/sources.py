"""Here lives the opening of what is read: regular files up to the size they have now, pipes, standard input."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from clusterorch.errors import IngestError
from clusterorch.telemetry.budgets import Meter
from clusterorch.telemetry.streams import PIECE, Stopped, Stream
from clusterorch.telemetry.walking import STDIN

_SIZELESS = 1 << 20  # bytes read of a file that claims to be empty, as those of /proc do


@contextmanager
def opened(path: Path, meter: Meter) -> Iterator[Stream]:
    """The bytes of a file, read as they are asked for.

    A regular file is read up to the size that it had when it was opened: what is written meanwhile is left for the
    next time.  Holes in it are passed over.

    Raises:
        OSError: it cannot be opened.
        IngestError: standard input is asked for, and is a terminal or closed.
    """
    if path == STDIN:
        yield Stream(_counted(_standard_input().read, meter))
        return
    # A pipe that was named is waited for; one that took the place of a file since must not block.
    flags = 0 if stat.S_ISFIFO(path.stat().st_mode) else getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", buffering=0, opener=lambda name, mode: os.open(name, mode | flags)) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            yield Stream(_regular(file.fileno(), status, meter))
        else:
            yield Stream(_counted(lambda size: file.read(size) or b"", meter))


def _standard_input() -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise IngestError("-: there is no standard input; name a log file or a folder of logs")
    if sys.stdin.isatty():
        raise IngestError("-: standard input is a terminal; pipe logs into it, or name a file")
    return sys.stdin.buffer


def _counted(read: Callable[[int], bytes], meter: Meter) -> Callable[[int], bytes]:
    def counted(size: int) -> bytes:
        try:
            piece = read(min(size, PIECE))
        except OSError as error:
            raise Stopped("unreadable", f"cannot be read further: {error.strerror or error}") from error
        meter.read(len(piece))
        return piece

    return counted


def _regular(file: int, status: os.stat_result, meter: Meter) -> Callable[[int], bytes]:
    size = status.st_size or _SIZELESS
    sparse = getattr(status, "st_blocks", size) * 512 < status.st_size
    at = 0

    def read(most: int) -> bytes:
        nonlocal at
        if sparse and (data := min(_next_data(file, at), size)) > at:
            at = os.lseek(file, data, os.SEEK_SET)
            return b"\0"
        piece = os.read(file, min(most, size - at))
        at += len(piece)
        if not piece and at < size and os.fstat(file).st_size < status.st_size:
            raise Stopped("shrunk", "became shorter while it was read; what was read counts")
        return piece

    return _counted(read, meter)


def _next_data(file: int, at: int) -> int:
    """Where the next bytes lie that were ever written; where nobody can say, here."""
    try:
        return os.lseek(file, at, os.SEEK_DATA)
    except AttributeError:
        return at
    except OSError as error:
        return sys.maxsize if error.errno == errno.ENXIO else at
    finally:
        os.lseek(file, at, os.SEEK_SET)
