"""Here live incidents of known cause: a folder of logs beside a `truth.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterorch.errors import IngestError

TRUTH, LOGS = "truth.json", "logs"
SETS = ("hard", "confirmed", "likely")


@dataclass(frozen=True)
class Incident:
    """One incident.

    mode: the cause.  near: a verdict that counts as a near miss, or None.  names: what a reported place must
    contain one of; empty: the place is not scored.  kind: how sure the cause is, one of `SETS`.
    """

    name: str
    folder: Path
    mode: str
    near: str | None
    names: tuple[str, ...]
    kind: str

    @property
    def logs(self) -> Path:
        """Folder of what the tool is given."""
        return self.folder / LOGS


def read_incidents(folder: str | Path) -> list[Incident]:
    """Every incident below a folder, by name.

    Raises:
        IngestError: there is none, or a truth cannot be read.
    """
    folder = Path(folder)
    found = [_incident(file) for file in sorted(folder.glob(f"*/{TRUTH}"))]
    if not found:
        raise IngestError(f"{folder}: no incident; give a folder of folders with {LOGS}/ and {TRUTH} in each")
    return found


def _incident(file: Path) -> Incident:
    try:
        truth = json.loads(file.read_text(encoding="utf-8"))
        site = truth.get("truth_site") or {}
        return Incident(
            file.parent.name, file.parent, truth["truth_mode"], truth.get("alt_mode"),
            tuple(site.get("names", ())), _kind(truth),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise IngestError(f"{file}: not the truth of an incident ({error!r}); it needs truth_mode and set") from error


def _kind(truth: dict[str, object]) -> str:
    """Named in `set`, or from how the source knows it: `hard` is a confirmed cause whose decisive line is authentic."""
    if isinstance(kind := truth.get("set"), str) and kind in SETS:
        return kind
    if truth.get("confidence") != "confirmed":
        return "likely"
    return "hard" if truth.get("decisive_provenance") == "format_seen" else "confirmed"


def rank_of_place(reported: Sequence[str], names: Sequence[str]) -> int | None:
    """Rank, from 1, of the first reported place that contains one of the names, ignoring case; None if none does.

    >>> rank_of_place(["rank 3 on n1", "gpu 0000:61:00 on n2"], ["0000:61:00"])
    2
    """
    wanted = [name.lower() for name in names]
    return next((i for i, place in enumerate(reported, 1) if any(w in place.lower() for w in wanted)), None)
