"""Here live the readers of files that only make sense whole: dumps of a structure, not lines of text.

Most files are streams of lines.  A few hold one object (a Flight Recorder dump, say) and are known by how they
begin.  A reader of such a kind is added to `READERS`; each is asked once a file, before the file is taken for
text or for binary data, and gets all bytes of it, unpacked, whatever it lay in: a folder, an archive, a pipe.
Files above `Limits.whole_file_bytes` are not given to it; a finding says so.
"""

from __future__ import annotations

from typing import Protocol

from clusterorch.telemetry.flight_recorder import FlightRecorderReader
from clusterorch.telemetry.gathering import Gathering


class WholeFileReader(Protocol):
    """Reads one kind of file that is no stream of lines."""

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins like this is of the kind.  Must be quick and must not raise.

        Args:
            head: the first bytes of the file, at most 8 KiB; all of a shorter file.
        """
        ...

    def read(self, label: str, data: bytes, gathering: Gathering) -> None:
        """Put what a file says into the gathering, its `FileSummary` (in `gathering.result.files`) included.

        The bytes are hostile: nothing in them may be executed, and what is kept must be bounded
        (`gathering.room`).

        Args:
            label: what the file is called in findings and readings.
            data: all of the file, at most `Limits.whole_file_bytes`.
            gathering: where readings, places and findings go; `gathering.order` rises by one a record.

        Raises:
            IngestError: the file is not what its head promised.  It names the label, what is wrong and the
                way out.  Where a folder or archive was given, it becomes a finding `unreadable`.
        """
        ...


READERS: tuple[WholeFileReader, ...] = (FlightRecorderReader(),)


def whole_file_reader(head: bytes) -> WholeFileReader | None:
    """The first reader that recognises a head, or None."""
    return next((reader for reader in READERS if reader.recognises(head)), None)
