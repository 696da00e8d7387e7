"""Here live archives as people and attackers make them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterable
from importlib import import_module

Files = dict[str, bytes]
COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def tar(files: Files, form: int = tarfile.PAX_FORMAT) -> bytes:
    return tar_of([(plain(name, data), data) for name, data in files.items()], form)


def tar_of(members: Iterable[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def plain(name: str, data: bytes = b"") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.devmajor, member.devminor = kind, target, 1, 5
    return member, b""


class _Pipe(io.RawIOBase):
    """Something to write to that cannot seek, so that sizes follow the data."""

    def __init__(self, out: io.BytesIO) -> None:
        self._out = out

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        return self._out.write(data)


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED, *, streamed: bool = False, wide: bool = False) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(_Pipe(out) if streamed else out, "w", method) as archive:
        for name, data in files.items():
            with archive.open(_entry(name, method), "w", force_zip64=wide) as entry:
                entry.write(data)
    return out.getvalue()


def _entry(name: str, method: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = method
    return entry


def encrypted(files: Files) -> bytes:
    """A zip whose members say that they are encrypted."""
    data = bytearray(zipped(files))
    at = -1
    while (at := data.find(b"PK\x03\x04", at + 1)) >= 0:
        data[at + 6] |= 1
    return bytes(data)


def zstd(data: bytes) -> bytes:
    return import_module("zstandard").ZstdCompressor().compress(data)


def bomb(megabytes: int, layers: int = 1) -> bytes:
    """Zeros, packed over and over."""
    data = bytes(megabytes << 20)
    for _ in range(layers):
        data = gzip.compress(data)
    return data


def endless_header(size: int) -> bytes:
    """A tar whose extended header claims to be long: readers that load it whole run out of memory."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, size
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(size + -size % tarfile.BLOCKSIZE)
