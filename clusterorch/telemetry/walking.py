"""Here lives the walk over the paths a user gave: which files are read, and what is said about the others."""

from __future__ import annotations

import glob
import heapq
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from clusterorch.errors import IngestError
from clusterorch.telemetry.readings import Finding

STDIN = Path("-")
MOST_ENTRIES = 200_000  # of one folder; their names are sorted, and so held
DEEPEST = 32  # folders within folders
_PATTERN = ("*", "?", "[")


def walk(paths: Sequence[Path | str], findings: list[Finding], *, patient: bool = False) -> Iterator[tuple[str, Path]]:
    """(label, path) of every file to read, folders in sorted order, hidden files left out.

    A path that does not exist but holds `*`, `?` or `[` is a pattern that the shell left alone; `**` stands for
    any folders.  `-` is standard input.  A pipe is read where it was named, and passed over in folders.

    Args:
        paths: what a user named.
        findings: takes what is said about files in folders that are passed over.
        patient: whether a path that yields nothing (yet, or any more) is passed over.

    Raises:
        IngestError: a path that was given is missing, no file and no folder, or cannot be listed.
    """
    if not paths:
        raise IngestError("no path given: name a log file or a folder of logs")
    labels: Counter[str] = Counter()
    for given in map(Path, paths):
        try:
            yield from _given(given, findings, labels)
        except IngestError:
            if not patient:
                raise


def _given(given: Path, findings: list[Finding], labels: Counter[str]) -> Iterator[tuple[str, Path]]:
    if given == STDIN:
        yield _own("stdin", given, labels), given
        return
    for path in _named(given):
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            raise IngestError(f"{shown(path)}: cannot be opened: {_reason(error)}") from error
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
            yield _own(path.name, path, labels), path
        elif stat.S_ISDIR(mode):
            yield from _files(path, findings, labels)
        else:
            raise IngestError(f"{shown(path)}: is neither a file nor a folder")


def is_pattern(path: Path) -> bool:
    """Whether a path names files by a pattern; one that exists under that very name does not."""
    return any(character in str(path) for character in _PATTERN) and not os.path.lexists(path)


def _named(given: Path) -> Iterable[Path]:
    """The path itself, or what the pattern stands for; files within links are matched, as a shell does it."""
    try:
        if not is_pattern(given):
            return [given]
        # With recursive=True a few links to a parent folder would keep glob busy for ever.
        head, deep, tail = str(given).partition("**/")
        if not deep:
            found = _first(map(Path, glob.iglob(str(given))))
        else:
            folders = _first(map(Path, glob.iglob(head or ".")))
            inner = (path for folder in folders if folder.is_dir() for _, path in _folder(folder, []))
            found = _first(path for path in inner if path.match(tail))
    except (OSError, ValueError) as error:
        raise IngestError(f"{shown(given)}: cannot be looked for: {_reason(error)}") from error
    if not found:
        raise IngestError(f"{shown(given)}: no file matches this pattern")
    return found


def _first(paths: Iterable[Path]) -> list[Path]:
    return heapq.nsmallest(MOST_ENTRIES, paths)


def _files(folder: Path, findings: list[Finding], labels: Counter[str]) -> Iterator[tuple[str, Path]]:
    before, seen = len(findings), False
    for label, path in _folder(folder, findings):
        seen = True
        yield _own(label, path, labels), path
    if not seen and len(findings) == before:
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
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        folders, files = _listed(root, folder, findings)
        for name in files:
            path = Path(folder, name)
            if finding := _unfit(path, base):
                findings.append(Finding(_label(root, path), None, *finding))
            elif path.is_file():
                yield _label(root, path), path
        if folders and depth == DEEPEST:
            text = f"what lies more than {DEEPEST} folders deep is not read: name a folder further down"
            findings.append(Finding(_label(root, folder), None, "too_deep", text))
        else:
            waiting += [(Path(folder, name), depth + 1) for name in reversed(folders)]


def _listed(root: Path, folder: Path, findings: list[Finding]) -> tuple[list[str], list[str]]:
    """(folders, anything else) in a folder, each sorted; hidden ones left out."""
    try:
        with os.scandir(folder) as entries:
            visible = (entry for entry in entries if not entry.name.startswith("."))
            listed = heapq.nsmallest(
                MOST_ENTRIES + 1, ((entry.name, entry.is_dir(follow_symlinks=False)) for entry in visible)
            )
    except OSError as error:
        if folder == root:
            raise IngestError(f"{shown(root)}: cannot be listed: {_reason(error)}") from error
        findings.append(Finding(_label(root, folder), None, "unreadable", _reason(error)))
        return [], []
    if len(listed) > MOST_ENTRIES:
        text = f"only the first {MOST_ENTRIES} files of this folder are read"
        findings.append(Finding(_label(root, folder), None, "too_many_files", text))
    listed = listed[:MOST_ENTRIES]
    return [name for name, is_folder in listed if is_folder], [name for name, is_folder in listed if not is_folder]


def _unfit(path: Path, base: Path) -> tuple[str, str] | None:
    """(kind, text) of why a file in a folder is passed over, or None.  Links to folders lead nowhere new."""
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(base):
            return "link_outside", "a link that leads out of the folder is not followed; name what it leads to"
        mode = path.stat().st_mode
    except (OSError, RuntimeError, ValueError) as error:
        return "unreadable", _reason(error)
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return "not_a_file", "is neither a file nor a folder"


def _label(root: Path, path: Path) -> str:
    return shown(path.relative_to(root).as_posix() if path != root else root.name)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
