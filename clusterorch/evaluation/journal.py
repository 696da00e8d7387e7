"""Here lives the journal of a measurement: one line a result, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from clusterorch.errors import OutputExists
from clusterorch.models import Model

MOST_WORKERS = 2
Record = dict[str, Any]


def made_with(model: Model, **options: Any) -> Record:
    """What it takes to make the same results again: the model, the formats, and the options of the run."""
    formats = hashlib.sha256(b"".join(file.read_bytes() for file in model.format_files)).hexdigest()
    return {"model": model.name, "sha256": model.sha256, "formats_sha256": formats, **options}


def provenance(command: Iterable[str]) -> Record:
    """Command, interpreter and commit (with `+` if files differ from it); no commit outside a checkout."""
    return {"command": list(command), "python": platform.python_version(), "commit": _commit()}


def _commit() -> str | None:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


class Journal:
    """Results by key, in a file that is only ever added to.

    Args:
        file: JSON lines; the first one says what the results were made with.
        made: of this run.
        restart: begin anew, whatever is there.

    Raises:
        OutputExists: the file holds results that were made with something else, and not `restart`.
    """

    def __init__(self, file: Path, made: Record, *, restart: bool = False) -> None:
        self.file, self.made = file, json.loads(json.dumps(made))
        self.records: dict[str, Record] = {}
        if restart or not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"made_with": self.made}) + "\n", encoding="utf-8")
            return
        lines = file.read_text(encoding="utf-8").splitlines()
        first, *rest = [one for one in map(_parsed, lines) if one is not None] or [{}]
        if first.get("made_with") != self.made:
            raise OutputExists(
                f"{file} holds results of another model, format or option; give another folder, or --restart"
            )
        self.records = {one["key"]: one for one in rest}
        if lines and not file.read_text(encoding="utf-8").endswith("\n"):  # a line that was cut off stays cut off
            with file.open("a", encoding="utf-8") as stream:
                stream.write("\n")

    def add(self, record: Record) -> None:
        """Add a result, which has a `key`; it is on disk afterwards."""
        self.records[record["key"]] = record
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def fill(self, keys: Iterable[str], work: Callable[[str], Record], *, workers: int = 1) -> Iterator[Record]:
        """Do what is missing, in processes of their own if there are several workers; yields each as it is added."""
        missing = [key for key in keys if key not in self.records]
        if workers <= 1 or len(missing) < 2:
            for key in missing:
                self.add(work(key))
                yield self.records[key]
            return
        global _work
        _work = work  # what the processes inherit: a bound method drags compiled models along, which are better shared
        with ProcessPoolExecutor(min(workers, MOST_WORKERS), mp_context=get_context("fork")) as pool:
            for record in pool.map(_inherited, missing):
                self.add(record)
                yield record


_work: Callable[[str], Record] | None = None


def _inherited(key: str) -> Record:
    assert _work is not None
    return _work(key)


def _parsed(line: str) -> Record | None:
    """A line, or None if the run ended in the middle of it."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
