"""Here lives the way from a line that a collector wrapped into JSON back to the line that a program wrote.

The journal, Docker and the shippers of logs keep a line in one field, its time and its host in others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from clusterorch.telemetry.lines import without_controls
from clusterorch.telemetry.timestamps import find_stamp

_MESSAGES = ("MESSAGE", "message", "log", "msg", "line", "textPayload", "log_message")
_MARKS = tuple(f'"{name}"' for name in _MESSAGES)
_TIMES = (
    "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP", "time", "ts", "timestamp", "@timestamp", "receiveTimestamp",
    "date",
)  # fmt: skip
_HOSTS = ("_HOSTNAME", "hostname", "host", "node", "nodename", "node_name", "instance", "computer")
_PROGRAMS = ("SYSLOG_IDENTIFIER", "_COMM", "ident", "program", "appname", "unit")
# Fields that only say where a line came from; any other structure means that the object is no wrapped line.
_ENVELOPE = {
    "kubernetes", "labels", "tags", "resource", "docker", "host", "agent", "ecs", "fields", "metadata", "stream",
    "input", "container", "cloud", "attributes", "resources", "log", "event",
}  # fmt: skip
_LONGEST = 64 * 1024
_MOST_PIECES = 1000


def unwrapped(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Numbered lines, those that came wrapped into JSON as their programs wrote them."""
    for number, text in lines:
        plain = _plain(text) if text[:1] == "{" and any(mark in text for mark in _MARKS) else None
        if plain is None:
            yield number, text
            continue
        for piece in plain.split("\n", _MOST_PIECES):
            yield number, without_controls(piece)  # JSON may spell out what the raw line could not hold


def _plain(text: str) -> str | None:
    """The line in an object, with time and host in front as the journal prints them, or None if there is none."""
    if len(text) > _LONGEST or not text.rstrip().endswith("}"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    message = next((m for name in _MESSAGES if (m := _text(record.get(name)))), None)
    if message is None or not _only_wraps(record):
        return None
    message = message.rstrip("\n")
    if find_stamp(message) is not None and not message.startswith("["):
        return message
    time, host = _time(record), _host(record)
    if time is None:
        return message
    if host is None:
        return f"{time} {message}"
    program = next((str(record[name]) for name in _PROGRAMS if record.get(name)), "kernel")
    program = program if program == "kernel" else f"{program.split()[0][:60]}[1]"
    return f"{time} {host} {program}: {message}"


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, list) and value and all(isinstance(code, int) and 0 <= code < 256 for code in value):
        return bytes(value).decode("utf-8", "replace")  # as the journal exports what is no text
    return None


def _only_wraps(record: Mapping[str, Any]) -> bool:
    if "MESSAGE" in record:
        return True
    structured = [name for name, value in record.items() if isinstance(value, dict | list) and name not in _ENVELOPE]
    return not structured and "xid" not in record and "HealthEvent" not in (record.get("event") or ())


def _time(record: Mapping[str, Any]) -> str | None:
    """The time of a record as an ISO time; numbers count seconds, or thousandths of them and so on, since 1970."""
    for name in _TIMES:
        value = record.get(name)
        if isinstance(value, str) and (stamp := find_stamp(value)) is not None and stamp.clock == "wall":
            return value[stamp.start : stamp.end]
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        while number > 1e11:
            number /= 1000.0
        if 1e9 < number < 1e10:
            return f"{datetime.fromtimestamp(number, UTC):%Y-%m-%dT%H:%M:%S.%f}"
    return None


def _host(record: Mapping[str, Any]) -> str | None:
    """The host of a record: a field of its own, or one of what describes where the line came from."""
    places = [record, *(record[name] for name in ("kubernetes", "resource", "labels") if name in record)]
    for place in places:
        for name in _HOSTS if isinstance(place, dict) else ():
            value = place.get(name)
            if isinstance(value, dict):
                value = value.get("name") or value.get("hostname")
            if isinstance(value, str) and value and " " not in value and len(value) < 200:
                return value
    return None
