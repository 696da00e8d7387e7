"""Here lives the walk over the paths a user gave: which files are read, and what is said about the others."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterorch.errors import IngestError
from clusterorch.telemetry.readings import Finding

MOST_FILES = 100_000


def walk(paths: Sequence[Path | str], findings: list[Finding]) -> Iterator[tuple[str, Path]]:
    """(label, path) of every regular file, folders in sorted order, hidden files left out.

    Raises:
        IngestError: a path that was given is missing, no file and no folder, or cannot be listed.
    """
    if not paths:
        raise IngestError("no path given: name a log file or a folder of logs")
    labels: Counter[str] = Counter()
    for given in map(Path, paths):
        try:
            mode = given.stat().st_mode
        except (OSError, ValueError) as error:
            raise IngestError(f"{shown(given)}: cannot be opened: {_reason(error)}") from error
        if stat.S_ISREG(mode):
            yield _own(given.name, given, labels), given
        elif stat.S_ISDIR(mode):
            yield from _files(given, findings, labels)
        else:
            raise IngestError(f"{shown(given)}: is neither a file nor a folder")


def _files(folder: Path, findings: list[Finding], labels: Counter[str]) -> Iterator[tuple[str, Path]]:
    seen = 0
    for label, path in _folder(folder, findings):
        seen += 1
        if seen > MOST_FILES:
            text = f"only the first {MOST_FILES} files are read"
            findings.append(Finding(shown(folder), None, "too_many_files", text))
            return
        yield _own(label, path, labels), path
    if not seen and not findings:
        raise IngestError(f"{shown(folder)}: holds no file that could be read")


def _own(label: str, path: Path, labels: Counter[str]) -> str:
    """A label that no other file has."""
    label = shown(label)
    labels[label] += 1
    if labels[label] == 1:
        return label
    return f"{shown(path.parent.name)}/{label} ({labels[label]})"


def shown(path: Path | str) -> str:
    r"""A path as text that is safe to print: what is no character becomes a question mark.

    >>> shown("logs/a\x1b[31m.log")
    'logs/a?[31m.log'
    """
    text = os.fsencode(str(path)).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)


def _folder(root: Path, findings: list[Finding]) -> Iterator[tuple[str, Path]]:
    base = root.resolve()

    def unreadable(error: OSError) -> None:
        if error.filename is not None and Path(error.filename) == root:
            raise IngestError(f"{shown(root)}: cannot be listed: {_reason(error)}") from error
        findings.append(Finding(_label(root, Path(error.filename or root)), None, "unreadable", _reason(error)))

    for folder, folders, files in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith("."):
                continue
            label = _label(root, path)
            try:
                inside = not path.is_symlink() or path.resolve(strict=True).is_relative_to(base)
                regular = stat.S_ISREG(path.stat().st_mode)
            except (OSError, RuntimeError, ValueError) as error:
                findings.append(Finding(label, None, "unreadable", _reason(error)))
                continue
            if not inside:
                findings.append(
                    Finding(label, None, "link_outside", "a link that leads out of the folder is not followed")
                )
            elif not regular:
                findings.append(Finding(label, None, "not_a_file", "is neither a file nor a folder"))
            else:
                yield label, path


def _label(root: Path, path: Path) -> str:
    return shown(path.relative_to(root).as_posix() if path != root else root.name)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
