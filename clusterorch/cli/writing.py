"""Here lives the writing of files for commands: whole or not at all, and over nothing by accident."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from clusterorch.errors import OutputExists


def refuse_to_replace(path: Path, *, force: bool) -> None:
    """Raise `OutputExists` if there is a file already, unless forced; a folder is never replaced."""
    if path.is_dir():
        raise OutputExists(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise OutputExists(f"{path} is there already: --force replaces it")


def write_whole(path: Path, writer: Callable[[Path], object], *, force: bool) -> None:
    """Write a file whole or not at all."""
    refuse_to_replace(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        writer(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
