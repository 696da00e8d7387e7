"""Here lives the reader of nvidia-smi's full report: headings, and below them keys and words."""

from __future__ import annotations

import re
from typing import NamedTuple

from clusterorch.telemetry.entities import pci_name, uuid_name

_DEVICE = re.compile(r"\s{0,4}GPU (?P<pci>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_KEY = re.compile(r"(?P<indent>\s{0,40})(?P<key>[A-Z][\w./() -]{0,60}?)\s{0,60}: (?P<word>.{0,200})$")
_HEADING = re.compile(r"(?P<indent>\s{0,40})(?P<key>[A-Z][\w./() -]{2,60}?)\s{0,8}$")
_BEGINS = re.compile(r"={3,20}\s?NVSMI LOG\s?={3,20}|Attached GPUs\s{1,60}: \d")
_MOST_WORDS = 2000
PREFIX = "report/"
# What a report consists of; a fragment may begin with any of them.
_ANCHORS = (
    "Clocks Throttle Reasons", "Clocks Event Reasons", "ECC Errors", "Remapped Rows", "Retired Pages", "GPU Link Info",
    "HW Thermal Slowdown", "SW Thermal Slowdown", "HW Slowdown", "SW Power Cap", "GPU Current Temp",
    "Performance State", "Remapping Failure Occurred", "Replays Since Reset", "Temperature", "GPU Power Readings",
    "Power Readings",
    "FB Memory Usage", "PCIe Generation", "Link Width", "Volatile", "Utilization", "GPU T.Limit Temp", "PCI", "Clocks",
)  # fmt: skip


class Noted(NamedTuple):
    """A word of a report, and the line on which it stood."""

    word: str
    number: int
    text: str


class Report:
    """A report as it comes, line by line."""

    def __init__(self) -> None:
        self.inside = False
        self.pci: str | None = None
        self.uuid: str | None = None
        self.words: dict[str, Noted] = {}
        self._headings: list[tuple[int, str]] = []

    def opens(self, text: str) -> bool:
        """Whether a report, or a piece of one, begins with this line."""
        if _BEGINS.search(text) or _DEVICE.match(text):
            return True
        found = _KEY.match(text, 0, 300) or _HEADING.match(text, 0, 120)
        return found is not None and found["key"] in _ANCHORS and (len(found["indent"]) >= 4 or ":" not in text)

    def device(self, text: str) -> str | None:
        """The address, if the line says whose report follows."""
        found = _DEVICE.match(text, 0, 120)
        return pci_name(found["pci"]) if found else None

    def read(self, number: int, text: str) -> bool:
        """Take a line; False if it belongs to no report, which then has ended."""
        if _BEGINS.search(text):
            self._headings = []
            return True
        if found := _KEY.match(text, 0, 300):
            self._note(len(found["indent"]), found["key"], found["word"].strip(), number, text)
            return True
        if (found := _HEADING.match(text, 0, 120)) and (found["indent"] or found["key"] in _ANCHORS):
            self._under(len(found["indent"]))
            self._headings.append((len(found["indent"]), found["key"].strip().lower()))
            return True
        return False

    def taken(self) -> dict[str, Noted]:
        """The words of the device whose report has ended."""
        words, self.words, self._headings, self.uuid = self.words, {}, [], None
        return words

    def _under(self, indent: int) -> None:
        while self._headings and self._headings[-1][0] >= indent:
            self._headings.pop()

    def _note(self, indent: int, key: str, word: str, number: int, text: str) -> None:
        self._under(indent)
        if key == "GPU UUID":
            self.uuid = uuid_name(word)
        path = [heading for _, heading in self._headings] + [key.strip().lower()]
        for length in (1, 2, 3):
            name = PREFIX + "/".join(path[-length:])
            if length <= len(path) and len(self.words) < _MOST_WORDS:
                # A short name may stand below several headings: the first one counts.
                self.words.setdefault(name, Noted(word, number, text))
        if word in ("Active", "Not Active", "N/A"):
            self._headings.append((indent, key.strip().lower()))
