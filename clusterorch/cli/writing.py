"""Here lives the writing of files for commands: whole or not at all, and over nothing by accident."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from clusterorch.errors import ClusterorchError, OutputExists


def refuse_to_replace(path: Path, *, force: bool) -> None:
    """Raise `OutputExists` if there is a file already, unless forced; a folder is never replaced."""
    if path.is_dir():
        raise OutputExists(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise OutputExists(f"{path} is there already: --force replaces it")


def write_whole(path: Path, writer: Callable[[Path], object], *, force: bool) -> None:
    """Write a file whole or not at all; its folder is made.

    Raises:
        OutputExists: as `refuse_to_replace`.
        ClusterorchError: it cannot be written; the error names the file that was asked for.
    """
    refuse_to_replace(path, force=force)
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(part)
        part.replace(path)
    except OSError as error:
        raise ClusterorchError(f"{path}: cannot be written: {error.strerror or error}; name another place") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
