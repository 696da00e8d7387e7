"""Here lives the reader of counter dumps: what a counter rose by, and whether it stands high."""

from __future__ import annotations

import re
from typing import NamedTuple

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import JOB, EntityRef
from clusterorch.telemetry.rows import Counter

_COUNTER = re.compile(
    r"\s{0,24}(?:\[\d{1,3}\]:? ?)?(?:(?P<path>\S{0,200})/)?(?P<name>[A-Za-z][A-Za-z0-9_]{2,80})"
    r"(?:(?:\.nic)?[.:=\s]{1,80})(?P<before>\d{1,20})(?:\s{0,8}-+>\s{0,8}(?P<after>\d{1,20}))?\s{0,8}$"
)
_PATH = re.compile(r"(?:^|/)(?P<device>[A-Za-z]\w{1,31})/(?:ports/\d{1,3}/)?(?:hw_)?(?:counters|statistics)$")
_HEAD = re.compile(r"==> (?P<path>/\S{1,200})/(?P<name>\w{3,80}) <==$")
_NUMBER = re.compile(r"\s{0,8}(?P<number>\d{1,20})\s{0,8}$")
_PAIR = re.compile(r"\[(?P<name>[A-Za-z]\w{2,60}) == (?P<number>\d{1,20})")
_FABRIC_PORT = re.compile(r"\s{0,8}GUID (?P<guid>0x[0-9a-f]{4,16}) port (?P<port>\d{1,3}|ALL):")
_RDMA = re.compile(r"(?:link|dev) (?P<device>[A-Za-z]\w{1,31})/\d{1,3} (?P<pairs>[a-z]\w{2,60} \d.{0,3800})$")
_WORDS = re.compile(r"(?P<name>[a-z]\w{2,60}) (?P<number>\d{1,20})(?: |$)")
_METRIC = re.compile(
    r"node_(?:infiniband|ethtool)_(?P<name>[a-z]\w{2,80}?)(?:_total)?\{(?P<labels>.{0,1000})\} "
    r"(?P<number>\d{1,20})(?:\.0)?(?: \d{1,16})?\s{0,4}$"
)
_LABEL = re.compile(r'(?P<key>device|instance|node|Hostname|hostname)="(?P<word>[^"]{1,120})"')
_ENABLED = re.compile(r"\s{0,8}enabled(?P<bits>(?:\s{1,8}[01]){8})\s{0,8}$")
_PRIORITY = re.compile(r"pri(?:o|ority_)?(?P<priority>[0-7])")
_MOST_REMEMBERED = 100_000
_Name = tuple[str | None, str | None, str]


class Rise(NamedTuple):
    """A counter of a device that rose or stands high, or what follows from it."""

    signal: str
    by: int
    entity: EntityRef
    row: str


class Counters:
    """Counters of one file; a dump that comes twice gives the difference."""

    def __init__(self, formats: Formats) -> None:
        self._known = formats.counters
        self._seen: dict[_Name, int] = {}
        self._standing: set[tuple[EntityRef, str]] = set()
        self._head: tuple[str, str] | None = None
        self._protected: dict[str | None, str] = {}  # host -> a digit for each priority
        self._dropped: dict[tuple[str | None, int], Counter] = {}

    @property
    def waiting(self) -> bool:
        """Whether the next line is the number of a counter that this line names."""
        return self._head is not None

    def read(self, text: str, host: str | None, device: str | None) -> list[Rise] | None:
        """What a line says, or None if it is no counter that the formats know.

        A number that stands alone says what it rose by only where a later one follows: the counter may have
        stood there for months.
        """
        if (head := self._head) is not None:
            self._head = None
            if number := _NUMBER.match(text, 0, 60):
                return self._one(head[1], int(number["number"]), None, host, _device_of(head[0]) or device)
        if text.startswith("==> ") and (begun := _HEAD.match(text, 0, 400)):
            known = begun["name"] in self._known
            self._head = (begun["path"], begun["name"]) if known else None
            return [] if known else None
        if enabled := _ENABLED.match(text, 0, 120):
            return self._protect(host, "".join(enabled["bits"].split()))
        found = _COUNTER.match(text, 0, 400)
        if found is not None and found["name"] in self._known:
            after = int(found["after"]) if found["after"] else None
            mine = _device_of(found["path"] or "") or device
            return self._one(found["name"], int(found["before"]), after, host, mine)
        if text.startswith("node_") and (metric := _METRIC.match(text, 0, 1200)) and metric["name"] in self._known:
            labels = {label["key"]: label["word"] for label in _LABEL.finditer(metric["labels"])}
            own = next((labels[key] for key in ("node", "Hostname", "hostname", "instance") if key in labels), host)
            own = own.split(":", 1)[0] if own else None
            return self._one(metric["name"], int(metric["number"]), None, own, labels.get("device", device))
        return self._many(text, host, device)

    def _many(self, text: str, host: str | None, device: str | None) -> list[Rise] | None:
        """Counters that stand on one line: a port of a fabric, or a link as `rdma statistic` shows it."""
        if " == " in text and (port := _FABRIC_PORT.match(text, 0, 120)):
            if port["port"] == "ALL":  # the sum over a switch: its ports follow
                return []
            where = device if host is not None and device else f"{port['guid']} port {port['port']}"
            pairs = _PAIR.finditer(text, 0, 2000)
        elif found := _RDMA.match(text, 0, 4000):
            where, pairs = found["device"], _WORDS.finditer(found["pairs"])
        else:
            return None
        named = [pair for pair in pairs if pair["name"] in self._known]
        rises = [self._one(pair["name"], int(pair["number"]), None, host, where) for pair in named]
        return [rise for some in rises for rise in some] if named else None

    def _one(self, name: str, before: int, after: int | None, host: str | None, device: str | None) -> list[Rise]:
        row, key = self._known[name], (host, device, name)
        entity = EntityRef("link", host, device)
        first, stated = after is None and key not in self._seen, after is not None
        if after is None:
            after, before = before, self._seen.get(key, before)
        if len(self._seen) < _MOST_REMEMBERED or key in self._seen:
            self._seen[key] = after
        rises = []
        if row.signal is not None and after > before:
            rises.append(Rise(row.signal, after - before, entity, row.name))
        # What rises is told as that; only a number that does not is told as standing.
        stands = row.standing is not None and after >= row.standing_from
        fresh = stated or (entity, row.standing) not in self._standing  # a line that gives both numbers says it anew
        if stands and row.standing and (first or after == before) and fresh:
            self._standing.add((entity, row.standing))
            rises.append(Rise(row.standing, 1, entity, row.name))
        if row.unprotected and (rises or stands) and (priority := _PRIORITY.search(name)):
            number = int(priority["priority"])
            rises += self._unprotected(host, number, row)
        return rises

    def _protect(self, host: str | None, bits: str) -> list[Rise]:
        """Note which priorities have flow control; drops may have been seen before."""
        self._protected[host] = bits
        seen = [(number, row) for (at, number), row in self._dropped.items() if at == host]
        return [rise for number, row in seen for rise in self._unprotected(host, number, row)]

    def _unprotected(self, host: str | None, number: int, row: Counter) -> list[Rise]:
        bits = self._protected.get(host)
        if bits is None:
            self._dropped[host, number] = row
            return []
        if bits[number] == "1" or (JOB, f"{host} {number}") in self._standing or row.unprotected is None:
            return []
        self._standing.add((JOB, f"{host} {number}"))
        return [Rise(row.unprotected, 1, JOB, row.name)]


def _device_of(path: str) -> str | None:
    found = _PATH.search(path)
    return found["device"] if found else None
