"""Here lives the way from a file to the files in it: archives and compressed files are known by how they begin.

Nothing is unpacked to disk, and no member is held whole.  A name inside an archive is a label and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from clusterorch.telemetry import tars, zips
from clusterorch.telemetry.budgets import Intake, Meter
from clusterorch.telemetry.streams import Stopped, Stream
from clusterorch.telemetry.unpacking import MAGIC, Streams
from clusterorch.telemetry.walking import shown

_LONGEST_NAME = 300
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")  # what follows BZh and a digit


def leaves(label: str, source: Stream, intake: Intake, meter: Meter, nested: int = 0) -> Iterator[tuple[str, Stream]]:
    """(label, bytes) of every file in a file: of itself, if it is no archive.

    Each must be read before the next is asked for.  Members are labelled `archive/path/in/it`.  What cannot be
    read of an archive is a finding, and what came before it counts.

    Args:
        label: what the file is called.
        source: its bytes.
        intake: where costs and findings go.
        meter: of the file on disk.
        nested: how many archives lie around it.
    """
    try:
        kind = kind_of(source.head())
        if kind is None:
            yield label, source
        elif nested >= intake.limits.nesting:
            intake.note(label, "nested", f"lies in {nested} archives within each other: unpack one of them yourself")
        elif kind in ("tar", "zip"):
            yield from _members(label, kind, source, intake, meter, nested + 1)
        else:
            unpacked = Stream(Streams(source, kind, intake.limits.window_bytes, meter).read)
            inner = kind_of(unpacked.head())
            if inner == "tar":  # a compressed tar is one archive, not two
                yield from _members(label, inner, unpacked, intake, meter, nested + 1)
            else:
                yield from leaves(label, unpacked, intake, meter, nested + 1)
    except Stopped as stopped:
        intake.tell(label, stopped)


def kind_of(head: bytes) -> str | None:
    r"""`gzip`, `bzip2`, `xz`, `zstd`, `tar`, `zip`, or None for a file that holds no files that are read.

    >>> kind_of(b"PK\x03\x04"), kind_of(b"BZh is a word"), kind_of(b"")
    ('zip', None, None)
    """
    packed = next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)
    if packed == "bzip2" and not head[4:].startswith(_BZIP2_BLOCKS):
        return None
    if packed is not None:
        return packed
    if head.startswith(zips.MEMBER):
        return None if zips.holds_no_files(head) else "zip"
    return "tar" if tars.is_tar(head) else None


def _members(
    label: str, kind: str, source: Stream, intake: Intake, meter: Meter, nested: int
) -> Iterator[tuple[str, Stream]]:
    found = False
    for member in tars.members(source) if kind == "tar" else zips.members(source, meter):
        if not intake.admits():
            return
        name, odd = cleaned(member.name)
        if name is None or (member.stream is None and not member.problem):
            continue
        found = True
        inside = intake.own(f"{label}/{name}")
        if odd:
            intake.note(inside, "odd_path", "its name leads out of the archive; nothing is written anywhere")
        if member.stream is None:
            intake.note(inside, member.kind, member.problem)
        else:
            yield from leaves(inside, member.stream, intake, meter, nested)
    if not found:
        intake.note(label, "empty", "holds no file")


def cleaned(name: str) -> tuple[str | None, bool]:
    r"""The name of a member as a label, and whether it led out; None for a hidden file.

    >>> cleaned("./logs//a.log"), cleaned("../../etc/passwd"), cleaned("C:\\x\x1b.log"), cleaned("a/.git/x")
    (('logs/a.log', False), ('etc/passwd', True), ('x?.log', True), (None, False))
    """
    parts = name.replace("\\", "/").split("/")
    odd = ".." in parts or (len(parts) > 1 and (not parts[0] or parts[0].endswith(":")))
    kept = [part for part in parts if part not in ("", ".", "..") and not part.endswith(":")]
    if any(part.startswith(".") for part in kept):
        return None, odd
    return shown("/".join(kept)[-_LONGEST_NAME:] or "?"), odd
