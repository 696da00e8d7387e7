"""Here lives the reader of Flight Recorder dumps: which collectives a rank enqueued, started and completed.

A dump is a pickle or JSON of plain containers, one file a rank.  Versions differ in their keys; what is missing
is taken as unknown.  The relations between the dumps of a job are in `desync`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from clusterorch.errors import IngestError
from clusterorch.telemetry.dumps import Dump, Membership, Record
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.plain_pickle import NotPlain, load_plain
from clusterorch.telemetry.readings import FileSummary, LimitMark, Place

_PICKLE = tuple(bytes((0x80, version)) for version in range(2, 6))
_KEYS = (b"pg_config", b"pg_status", b"nccl_comm_state", b"collective_seq_id", b"profiling_name")
_RANK_IN_NAME = re.compile(r"(?:^|\D)(?P<rank>\d{1,6})(?:\.[A-Za-z]{1,10}){0,2}$|rank[_-]?(?P<named>\d{1,6})(?!\d)")
_PAIR = re.compile(r"(?:send|recv) \d{1,7}(?:->|<-)(?P<other>\d{1,7})")
_MEMBER = re.compile(r"\d{1,7}")
_MOST_MEMBERS = 100_000
_MOST_RECORDS = 200_000
_MOST_GROUPS = 20_000
_KEPT_DONE = 256  # completed records of a group that are kept to compare with those of peers
_LONGEST_NAME = 96
_WHOLE = range(-(1 << 63), 1 << 64)


class FlightRecorderReader:
    """Reads dumps of PyTorch's Flight Recorder."""

    def recognises(self, head: bytes) -> bool:
        """Whether a file begins like a dump: a pickle or a JSON object with one of its keys."""
        if not head.startswith(_PICKLE) and head.lstrip()[:1] != b"{":
            return False
        return any(key in head for key in _KEYS)

    def read(self, label: str, data: bytes, gathering: Gathering) -> None:
        """Keep what a dump says for the relations between ranks.

        Raises:
            IngestError: it is damaged, no dump, or holds more than plain values.
        """
        value = _load(label, data)
        if isinstance(value, list):
            value = {"entries": value}  # the first versions dumped the records alone
        if not isinstance(value, dict) or not isinstance(value.get("entries", []), list):
            raise IngestError(f"{label}: is no Flight Recorder dump: has no list of entries; give the file as dumped")
        gathering.order += 1
        dump = _dump(label, gathering.order, value)
        gathering.dumps.append(dump)
        _summarise(dump, value, gathering)


def _load(label: str, data: bytes) -> Any:
    try:
        if data.startswith(_PICKLE):
            return load_plain(data)
        return json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: math.nan)
    except NotPlain as error:
        raise IngestError(f"{label}: is not read: {error}; give a dump as PyTorch writes it") from error
    except (ValueError, RecursionError) as error:
        raise IngestError(f"{label}: is no JSON: {str(error)[:120]}; give the whole file") from error


def _dump(label: str, order: int, value: dict[str, Any]) -> Dump:
    groups: dict[str, Membership] = {}
    for name, config in list(_mapping(value.get("pg_config")).items())[:_MOST_GROUPS]:
        config = config if isinstance(config, dict) else {}
        members = _members(config.get("ranks"))
        description = _text(config.get("desc") or config.get("description"))
        groups[_text(name)] = Membership(description=description, members=members)
    status = {
        _text(name): (_whole(said.get("last_enqueued_collective")), _whole(said.get("last_completed_collective")))
        for name, said in list(_mapping(value.get("pg_status")).items())[:_MOST_GROUPS]
        if isinstance(said, dict)
    }
    dump = Dump(label, order, None, groups, status)
    entries = [entry for entry in value.get("entries", [])[-_MOST_RECORDS:] if isinstance(entry, dict)]
    timed = any(_whole(entry.get("time_discovered_started_ns")) is not None for entry in entries)
    for entry in entries:
        _enter(dump, entry, timed=timed)
    for group in groups.values():
        _settle(group, status)
    dump.rank = _rank(label, groups)
    return dump


def _enter(dump: Dump, entry: dict[str, Any], *, timed: bool) -> None:
    local = _text(entry.get("pg_id"))
    said = entry.get("process_group")
    name = _text(said[0]) if isinstance(said, list | tuple) and said else local
    if name not in dump.groups and len(dump.groups) >= _MOST_GROUPS:
        return
    group = dump.groups.setdefault(name, Membership())
    group.local_id = local or group.local_id
    if isinstance(said, list | tuple) and len(said) > 1:
        group.description = group.description or _text(said[1])
    dump.records += 1
    operation = _text(entry.get("profiling_name"))
    state = entry.get("state")
    done = state == "completed" or _whole(entry.get("time_discovered_completed_ns")) is not None
    dump.waits += not done
    if entry.get("is_p2p") is True or operation.rsplit(":", 1)[-1].startswith(("send", "recv")):
        group.pairwise = True
        if not done:
            dump.last_partner = _partner(operation, group.members)
            group.partners |= {dump.last_partner} - {None}
        return
    if not done:
        dump.last_partner = None
    sequence = _whole(entry.get("collective_seq_id", entry.get("seq_id")))
    if sequence is None:
        return
    started = (state == "started" or _whole(entry.get("time_discovered_started_ns")) is not None) if timed else None
    record = Record(
        sequence,
        operation,
        _text(entry.get("input_sizes")) + _text(entry.get("input_dtypes")),
        done,
        started,
        _whole(entry.get("timeout_ms")),
        _whole(entry.get("record_id", entry.get("id"))) or 0,
    )
    (group.done if done else group.pending)[sequence] = record
    if len(group.done) > 2 * _KEPT_DONE:
        group.done = dict(sorted(group.done.items())[-_KEPT_DONE:])


def _partner(operation: str, members: tuple[int, ...]) -> int | None:
    """The rank at the other end of a send or receive, which counts within its group."""
    found = _PAIR.search(operation)
    if found is None:
        return None
    place = int(found["other"])
    if not members:
        return place
    return members[place] if place < len(members) else None


def _settle(group: Membership, status: dict[str, tuple[int | None, int | None]]) -> None:
    """The last collective that was enqueued, and the last that was completed."""
    enqueued, completed = (None, None) if group.pairwise else status.get(group.local_id or "", (None, None))
    seen = [*group.pending, *group.done]
    enqueued = max([*seen, *([enqueued] if enqueued is not None else [])], default=None)
    if completed is None and group.pending:
        completed = min(group.pending) - 1
    group.enqueued = enqueued
    group.completed = max([*group.done, *([completed] if completed is not None else [])], default=None)


def _rank(label: str, groups: dict[str, Membership]) -> int | None:
    """Whose dump it is: the only member of all its groups, or the number in the file's name."""
    common: set[int] | None = None
    for group in groups.values():
        if group.members:
            common = set(group.members) if common is None else common & set(group.members)
    if common and len(common) == 1:
        return next(iter(common))
    found = _RANK_IN_NAME.search(label.rsplit("/", 1)[-1])
    return int(found["rank"] or found["named"]) if found else None


def _summarise(dump: Dump, value: dict[str, Any], gathering: Gathering) -> None:
    result = gathering.result
    lines = len(value.get("entries", [])) + 1  # the head counts as one
    result.files.append(FileSummary(dump.file, lines, lines, 0, {"nccl"}))
    result.coverage.lines += lines
    result.coverage.recognised += lines
    result.coverage.streams["nccl"] = result.coverage.streams.get("nccl", 0) + lines
    result.places.append(Place(rank=dump.rank, ranks=dump.world or None))
    if dump.rank is None:
        gathering.note(dump.file, "no_rank", "neither its name nor its groups say which rank wrote this dump")
    limits = [record.limit_ms for group in dump.groups.values() for record in group.pending.values() if record.limit_ms]
    said = {mark.seconds for mark in result.limits if mark.timer == "watchdog"}
    if limits and (seconds := min(limits) / 1000) not in said and seconds > 0:
        text = f"timeout_ms {min(limits)} of a pending collective"
        result.limits.append(LimitMark(dump.file, 1, None, dump.order, "watchdog", seconds, text, "flight_recorder"))


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _members(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [int(word) for word in _MEMBER.findall(value[: 8 * _MOST_MEMBERS])]
    if not isinstance(value, list | tuple):
        return ()
    return tuple(sorted({rank for rank in value[:_MOST_MEMBERS] if isinstance(rank, int)}))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _WHOLE else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value[:_LONGEST_NAME].decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        value = str(value[:8]) if not any(isinstance(part, dict | set) for part in value[:8]) else ""
    text = value if isinstance(value, str) else str(value)
    return "".join(character if character.isprintable() else "?" for character in text[:_LONGEST_NAME])
