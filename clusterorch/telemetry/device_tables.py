"""Here lives the choice between the readers of device samples: which table a line belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clusterorch.telemetry.device_samples import Cell, DeviceSamples
from clusterorch.telemetry.exporter import comment, metric_of
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef, Place
from clusterorch.telemetry.smi_csv import Sheet, sheet_of, sheet_of_command
from clusterorch.telemetry.smi_report import Noted, Report
from clusterorch.telemetry.smi_table import Box, Monitor, monitor_of

_MOST_PLACES = 10_000


class Found(NamedTuple):
    """A value, and the line on which it stood, if that is not the line just read."""

    cell: Cell
    number: int | None = None
    text: str | None = None


class DeviceTables:
    """The tables of one file."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._samples = DeviceSamples(formats)
        self._sheet: Sheet | None = None
        self._report = Report()
        self._box = Box()
        self._monitor: Monitor | None = None
        self._host: str | None = None
        self.places: list[Place] = []
        self._placed: set[Place] = set()

    @property
    def inside(self) -> bool:
        """Whether the next line may belong to a table that began before it."""
        return self._sheet is not None or self._report.inside or self._monitor is not None or self._box.inside

    def read(self, number: int, text: str, host: str | None) -> list[Found] | None:
        """What a line of a table says, perhaps nothing; None if it belongs to none."""
        if (address := self._report.device(text)) is not None:
            found = self._close_report()
            self._report.inside, self._report.pci, self._host = True, address, host
            return found
        if self._sheet is not None and (cells := self._sheet.row(text, host)) is not None:
            self._place(self._sheet.place(text, host))
            return [Found(cell) for cell in cells]
        return self._enter(number, text, host)

    def command(self, text: str) -> None:
        """Remember which columns a command asks for: its rows may come without a header."""
        self._sheet = sheet_of_command(text, self._formats, self._samples) or self._sheet

    def taken_places(self) -> list[Place]:
        """The names that belong together, as far as not taken before."""
        places, self.places = self.places, []
        return places

    def ends(self) -> list[Found]:
        """What the end of a table yields: a line that belongs to none, or the end of the file."""
        self._monitor, self._box.inside = None, False
        if self._sheet is not None and not self._sheet.patient:
            self._sheet = None
        return self._close_report()

    def _enter(self, number: int, text: str, host: str | None) -> list[Found] | None:
        if (self._report.inside or self._report.opens(text)) and self._report.read(number, text):
            self._report.inside, self._host = True, host or self._host
            return []
        if self._box.inside or self._box.opens(text):
            words = self._box.read(text, host)
            if words is not None:
                self._box.inside = True
                if not words or self._box.device is None:
                    return []
                device = self._box.device
                self._place(Place(host, pci=device.name, index=device.index))
                return [Found(cell) for cell in self._samples.cells(words, device)]
        if (monitor := monitor_of(text)) is not None:
            self._monitor = monitor
            return []
        if self._monitor is not None:
            if (row := self._monitor.read(text, host)) is not None:
                return [Found(cell) for cell in self._samples.cells(row[1], row[0])]
            if self._monitor.skips(text):
                return []
        return self._metric_or_head(text, host)

    def _metric_or_head(self, text: str, host: str | None) -> list[Found] | None:
        if "{" in text and (metric := metric_of(text, host)) is not None and metric.name in self._formats.columns:
            pci, uuid, entity = metric.pci, metric.uuid, metric.entity
            if sum(name is not None for name in (pci, uuid, entity.index)) > 1:
                self._place(Place(entity.host, pci=pci, uuid=uuid, index=entity.index))
            cells = self._samples.cells({metric.name: metric.word}, entity, metric.labels) if metric.word else []
            return [Found(cell) for cell in cells]
        if text.startswith("# ") and comment(text):
            return []
        sheet = sheet_of(text, self._formats, self._samples) if "," in text else None
        if sheet is None and "--query-gpu" in text:
            self._sheet = sheet_of_command(text, self._formats, self._samples)
            return None  # the prompt names its host, which is for the patterns
        if sheet is not None:
            self._sheet = sheet
            return []
        return None

    def _close_report(self) -> list[Found]:
        report, device = self._report, EntityRef("gpu", self._host, self._report.pci or self._report.uuid)
        if report.pci and report.uuid:
            self._place(Place(self._host, pci=report.pci, uuid=report.uuid))
        words = report.taken()
        report.inside, report.pci = False, None
        return self._noted(words, device)

    def _noted(self, words: Mapping[str, Noted], device: EntityRef) -> list[Found]:
        cells = self._samples.cells({name: noted.word for name, noted in words.items()}, device)
        return [Found(cell, words[cell.at].number, words[cell.at].text) for cell in cells]

    def _place(self, place: Place | None) -> None:
        if place is not None and place not in self._placed and len(self._placed) < _MOST_PLACES:
            self._placed.add(place)
            self.places.append(place)
