"""Here lives the trace of an episode: four Parquet tables, the true cascade, and what it takes to play it again.

The tables are joined by time alone, seconds since the episode began.  Slice t is over at `(t + 1) * slice_seconds`,
which is the time of its rows; a decision stands at the end of the slices before it.  So what a policy could know at a
decision is what of `telemetry` has `arrival <= time`.

telemetry   delivered values only.  A row of signal `cells` says that a cell (stream, collector, slice) was delivered;
            a value of a delivered cell without a row is nothing: class 0, not told, no sample, nobody.
truth       per slice, of the world.
diagnosis   per decision, of the filter; append-only.
recovery    per decision: what was published, what the policy stated, its move, and what it brought.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterorch.environment.books import HEADS
from clusterorch.errors import ClusterorchError, IngestError, InvalidTrace, OutputExists
from clusterorch.telemetry.events import Event, read_events, write_events

if TYPE_CHECKING:
    import pyarrow as pa

KIND, SCHEMA_VERSION = "clusterorch.trace", 1
TABLES = ("telemetry", "truth", "diagnosis", "recovery")
CELLS = "cells"  # the signal of the rows that say what was delivered
EVENTS, METADATA = "events.jsonl", "metadata.json"
_NEEDED = (
    "clusterorch", "model", "overlays", "sha256", "limits", "layout", "spares", "leaves", "layout_options", "settings",
    "seed", "domain", "instance", "episode", "starts", "slice_seconds", "signals", "waits", "scheduler", "do", "moves",
)  # fmt: skip
_VERSION_KEY = b"clusterorch.schema_version"
_AGAIN = "record it again, or read it with the version of clusterorch that wrote it"


@dataclass(frozen=True)
class EpisodeTrace:
    """One episode of the environment.

    tables: by name, see the module.  events: the true cascade with its causes.  metadata: what it takes to play the
    episode again.  folder: where it was read from.
    """

    tables: dict[str, pa.Table] = field(repr=False)
    events: list[Event] = field(repr=False)
    metadata: dict[str, Any] = field(repr=False)
    folder: Path | None = None

    @property
    def slices(self) -> int:
        """Slices played."""
        return self.tables["truth"].num_rows

    @property
    def slice_seconds(self) -> float:
        """Length of a slice."""
        return float(self.metadata["slice_seconds"])

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as plain values."""
        return self.tables[table].to_pylist()

    def same_as(self, other: EpisodeTrace) -> bool:
        """Whether both tell the same to the bit: tables and cascade."""
        return self.events == other.events and all(self.tables[name].equals(other.tables[name]) for name in TABLES)


def schemas(modes: list[str]) -> dict[str, pa.Schema]:
    """Columns of the tables.  modes: of the model, `healthy` included."""
    pa = arrow()
    number, text, whole, yes = pa.float64(), pa.string(), pa.int32(), pa.bool_()
    columns: dict[str, list[tuple[str, Any]]] = {
        "telemetry": [
            ("time", number), ("arrival", number), ("slice", whole), ("stream", text), ("entity", text),
            ("number", whole), ("signal", text), ("value", number),
        ],
        "truth": [
            ("time", number), ("slice", whole), ("variant", text), ("mode", text), ("site_kind", text), ("site", whole),
            ("node", whole), ("severity", text), ("phase", text), ("job_class", text), ("poisoned_copies", whole),
            *((head, number) for head in HEADS), ("rolled_back", number), ("false_move", yes), ("kept", number),
            ("lost", yes), ("incident_since", whole), ("recovered_after", whole),
        ],
        "diagnosis": [
            ("time", number), *((f"p.{mode}", number) for mode in modes), ("variant", text), ("p_variant", number),
            ("node", whole), ("p_node", number), ("entropy", number),
        ],
        "recovery": [
            ("time", number), ("move", text), ("legal", yes), ("reward", number), ("slices", whole), ("phase", text),
            ("job_class", text), ("halted", whole), ("copies_held", whole), ("copy_age", whole), ("topology", text),
            ("spares", whole), ("working", whole), ("in_repair", text), ("failures", whole), ("lost", yes),
            ("until_requeue", whole), ("stated_mode", text), ("stated_node", whole),
        ],
    }  # fmt: skip
    told = {_VERSION_KEY: str(SCHEMA_VERSION).encode()}
    return {name: pa.schema(fields, metadata=told) for name, fields in columns.items()}


def arrow() -> Any:
    """The library pyarrow, imported when a trace is first made or read.

    Raises:
        ClusterorchError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise ClusterorchError("traces need pyarrow: pip install 'clusterorch[report]'") from None
    return pyarrow


def write_trace(trace: EpisodeTrace, folder: str | Path, *, force: bool = False) -> Path:
    """Write a trace into a folder of its own, whole or not at all.

    Raises:
        OutputExists: something is there, and not `force`; or it is no trace, which is never replaced.
        ClusterorchError: the folder cannot be written.
    """
    arrow()
    import pyarrow.parquet as parquet

    folder = Path(folder)
    refuse(folder, force=force)
    part, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{what}") for what in ("part", "old"))
    try:
        part.mkdir(parents=True)
        for name in TABLES:
            parquet.write_table(trace.tables[name], part / f"{name}.parquet", compression="zstd")
        write_events(trace.events, part / EVENTS)
        text = json.dumps(trace.metadata, indent=1, ensure_ascii=False, allow_nan=False)
        (part / METADATA).write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(old)
        try:
            part.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        raise ClusterorchError(f"{folder}: cannot be written: {error.strerror or error}; name another place") from error
    finally:
        for left in (part, *((old,) if folder.exists() else ())):  # what was there goes once the new one stands
            with contextlib.suppress(OSError):
                shutil.rmtree(left)
    return folder


def refuse(folder: Path, *, force: bool) -> None:
    """Raise `OutputExists` if a trace cannot be put there: something else is there, or a trace and not `force`."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not (folder / METADATA).is_file() or not (folder / f"{TABLES[0]}.parquet").is_file():
        raise OutputExists(f"{folder} is there already and is no trace: name another folder")
    if not force:
        raise OutputExists(f"{folder} is there already; force replaces it")


def read_trace(folder: str | Path) -> EpisodeTrace:
    """Read what `write_trace` wrote.

    Raises:
        InvalidTrace: a file is missing, cut short, of another schema version, or something else.
    """
    folder = Path(folder)
    metadata = _metadata(folder)
    expected = schemas(metadata["modes"])
    tables = {name: _table(folder / f"{name}.parquet", expected[name]) for name in TABLES}
    try:
        events = list(read_events(folder / EVENTS))
    except IngestError as error:
        raise InvalidTrace(str(folder / EVENTS), str(error), "the events of a trace", "record it again") from error
    return EpisodeTrace(tables, events, metadata, folder)


def _metadata(folder: Path) -> dict[str, Any]:
    file = folder / METADATA
    if not folder.is_dir():
        raise InvalidTrace(str(folder), "no folder", "the folder of a trace", "name what `clusterorch trace` wrote")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        kind, version, modes = found["kind"], found["schema_version"], found["modes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidTrace(
            str(file), f"nothing readable ({type(error).__name__})", "the metadata of a trace", _AGAIN
        ) from error
    if kind != KIND or not isinstance(modes, list):
        raise InvalidTrace(str(file), f"kind {kind!r}", f"kind {KIND!r}", "name the folder of an episode's trace")
    _same_version(file, version)
    missing = [key for key in _NEEDED if key not in found]
    if missing:
        raise InvalidTrace(str(file), f"nothing about {', '.join(missing[:4])}", "what every trace tells", _AGAIN)
    try:
        datetime.fromisoformat(found["starts"])
        if not found["slice_seconds"] > 0:
            raise ValueError
    except (TypeError, ValueError) as error:
        raise InvalidTrace(
            str(file), "no such clock", "a time in `starts` and `slice_seconds` above 0", _AGAIN
        ) from error
    return found


def _same_version(file: Path, version: Any) -> None:
    if version != SCHEMA_VERSION:
        raise InvalidTrace(str(file), f"schema version {version!r}", f"schema version {SCHEMA_VERSION}", _AGAIN)


def _table(file: Path, expected: pa.Schema) -> pa.Table:
    pa = arrow()
    import pyarrow.parquet as parquet

    if not file.is_file():
        raise InvalidTrace(str(file), "no file", "a table of a trace", "record it again; a trace has four tables")
    try:
        table = parquet.ParquetFile(file).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise InvalidTrace(str(file), f"a damaged file ({said})", "a whole Parquet file", "record it again") from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode(errors="replace")
    _same_version(file, int(version) if version.isdigit() else version)
    if not table.schema.equals(expected):
        odd = sorted(set(table.schema.names) ^ set(expected.names)) or ["their types"]
        raise InvalidTrace(str(file), f"other columns ({', '.join(odd[:4])})", f"version {SCHEMA_VERSION}'s", _AGAIN)
    return table.replace_schema_metadata(expected.metadata)
