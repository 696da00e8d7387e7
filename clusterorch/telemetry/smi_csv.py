"""Here lives the reader of nvidia-smi's CSV: which column means what is declared in the formats."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterorch.telemetry.device_samples import Cell, DeviceSamples
from clusterorch.telemetry.entities import pci_name, uuid_name
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef, Place

_MOST_COLUMNS = 512
_TELLING = 8  # declared columns that make a table, however many others it has
_QUERY = re.compile(r"--query-gpu[= ]['\"]?(?P<names>[\w.,]{3,4000})")


class Sheet:
    """A table whose columns are known, from its header or from the command that made it.

    It ends with the first line of another width; with `patient`, after the first row.
    """

    def __init__(
        self, names: Sequence[str], formats: Formats, samples: DeviceSamples | None = None, *, patient: bool = False
    ) -> None:
        self.names = list(names)
        self.patient = patient
        self._samples = samples or DeviceSamples(formats)
        self._roles = {
            row.role: at for at, name in enumerate(self.names) for row in formats.columns.get(name, []) if row.role
        }

    def row(self, text: str, host: str | None) -> list[Cell] | None:
        """What a line of the table says, or None if it is no such line."""
        cells = [cell.strip() for cell in text.split(",", _MOST_COLUMNS)]
        if len(cells) != len(self.names):
            return None
        self.patient = False
        return self._samples.cells(dict(zip(self.names, cells, strict=True)), self.device(cells, host))

    def device(self, cells: Sequence[str], host: str | None) -> EntityRef:
        """The device that a row is about."""
        index = self._role("index", cells)
        whole = int(index) if index.isascii() and index.isdigit() and len(index) < 6 else None
        name = pci_name(self._role("pci", cells)) or uuid_name(self._role("uuid", cells))
        return EntityRef("gpu", self._role("host", cells) or host, name, whole)

    def place(self, text: str, host: str | None) -> Place | None:
        """The names that a row gives to its device, if it gives more than one."""
        cells = [cell.strip() for cell in text.split(",", _MOST_COLUMNS)]
        entity = self.device(cells, host)
        pci, uuid = pci_name(self._role("pci", cells)), uuid_name(self._role("uuid", cells))
        several = sum(name is not None for name in (pci, uuid, entity.index)) > 1
        return Place(entity.host, pci=pci, uuid=uuid, index=entity.index) if several else None

    def _role(self, role: str, cells: Sequence[str]) -> str:
        at = self._roles.get(role)  # type: ignore[call-overload]
        return cells[at] if at is not None else ""


def sheet_of(text: str, formats: Formats, samples: DeviceSamples | None = None) -> Sheet | None:
    """The table that a line is the header of, or None.

    A header has at least two columns that the formats declare.
    """
    if text.count(",") < 1 or text.count(",") > _MOST_COLUMNS:
        return None
    names = [cell.split("[", 1)[0].strip() for cell in text.split(",")]
    known = sum(name in formats.columns for name in names)
    return Sheet(names, formats, samples) if known >= 2 and (known * 2 >= len(names) or known >= _TELLING) else None


def sheet_of_command(text: str, formats: Formats, samples: DeviceSamples | None = None) -> Sheet | None:
    """The table that a command line asks for: its rows may come without a header."""
    found = _QUERY.search(text, 0, 4096)
    if found is None:
        return None
    names = [name for name in found["names"].split(",") if name]
    known = sum(name in formats.columns for name in names)
    return Sheet(names, formats, samples, patient=True) if known and known * 2 >= len(names) > 1 else None
