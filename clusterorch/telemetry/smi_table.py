"""Here lives the reader of the tables that people paste: nvidia-smi's box and the monitors of nvidia-smi and DCGM."""

from __future__ import annotations

import re

from clusterorch.telemetry.entities import pci_name
from clusterorch.telemetry.readings import EntityRef

_HEAD = re.compile(
    r"\|\s{1,4}(?P<index>\d{1,4})\s{1,4}(?P<name>\S.{0,60}?)\s{0,40}\|\s{0,4}(?P<pci>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:"
    r"[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s{1,4}\S{1,4}\s{1,4}\|\s{0,24}(?P<ecc>\S{1,12})\s{0,4}\|"
)
_BODY = re.compile(
    r"\|\s{0,4}(?P<fan>\d{1,3}%|N/A|ERR!|\[N/A\])\s{1,6}(?P<temp>\d{1,3}C|N/A|ERR!)\s{1,6}(?P<perf>P\d{1,2}|N/A|ERR!)"
    r"\s{1,24}(?P<power>\d{1,5}W|N/A|ERR!|Unknown Error)\s{0,4}/\s{0,4}(?P<cap>\d{1,5}W|N/A|ERR!)\s{0,4}\|"
    r"\s{0,12}(?P<used>\d{1,8})MiB\s{0,2}/\s{0,8}(?P<total>\d{1,8})MiB\s{0,4}\|\s{0,12}(?P<util>\d{1,3}%|N/A|ERR!)"
)
_FRAME = re.compile(
    r"\s{0,2}(?:\+[-=+]{8,200}\+?|\|[-=+]{8,200}[|+]"
    r"|\|\s{0,4}(?:NVIDIA-SMI|GPU  |Fan |Processes:|No running|  |\d{1,3} ).{0,160}\|)\s*$"
)
TABLE, DMON, DCGMI = "table/", "dmon/", "dcgmi/"
_MONITOR = re.compile(
    r"# ?(?:(?:Date|Time|YYYYMMDD|HH:MM:SS)\s{1,12}){0,2}(?P<kind>gpu|Entity)\s{1,12}(?P<names>\S.{0,400})$"
)
_STAMPED = re.compile(r"\s{0,4}20\d{6}\s{1,4}\d\d:\d\d:\d\d\s{1,4}")
_UNITS = re.compile(r"#? ?(?:(?:YYYYMMDD|HH:MM:SS)\s{1,12}){0,2}(?:Idx|ID)\b")
_ROW = re.compile(r"\s{0,8}(?:GPU |GPU-)?(?P<index>\d{1,4})\s{1,16}(?P<words>\S.{0,400})$")


class Box:
    """The table of nvidia-smi without arguments: two lines for each device."""

    def __init__(self) -> None:
        self.device: EntityRef | None = None
        self.inside = False
        self._words: dict[str, str] = {}

    def opens(self, text: str) -> bool:
        """Whether a line is the frame or the head of such a table."""
        return text.lstrip()[:1] in ("|", "+") and bool(_HEAD.match(text.strip()) or _FRAME.match(text))

    def read(self, text: str, host: str | None) -> dict[str, str] | None:
        """The words of a device once its second line is there, an empty table before; None for other lines."""
        text = text.strip()
        if head := _HEAD.match(text, 0, 300):
            self.device = EntityRef("gpu", host, pci_name(head["pci"]), int(head["index"]))
            self._words = {TABLE + "ecc": head["ecc"]}
            return {}
        if self.device is not None and (body := _BODY.match(text, 0, 300)):
            words = self._words | {TABLE + name: word for name, word in body.groupdict().items()}
            self._words = {}
            return words
        return {} if _FRAME.match(text, 0, 300) else None


class Monitor:
    """A monitor: a head with short names, then a row for each device and sample."""

    def __init__(self, prefix: str, names: list[str]) -> None:
        self.names = [prefix + name for name in names]

    def read(self, text: str, host: str | None) -> tuple[EntityRef, dict[str, str]] | None:
        """The device and the words of a row; None for other lines."""
        found = _ROW.match(_STAMPED.sub("", text[:500], count=1))
        if found is None:
            return None
        words = found["words"].split()
        if len(words) != len(self.names):
            return None
        return EntityRef("gpu", host, None, int(found["index"])), dict(zip(self.names, words, strict=True))

    @staticmethod
    def skips(text: str) -> bool:
        """Whether a line only repeats the head or gives the units."""
        return bool(_UNITS.match(text, 0, 200) or _MONITOR.match(text, 0, 500))


def monitor_of(text: str) -> Monitor | None:
    """The monitor that a line is the head of, or None."""
    found = _MONITOR.match(text.strip(), 0, 500)
    if found is None:
        return None
    return Monitor(DMON if found["kind"] == "gpu" else DCGMI, found["names"].split())
