import gzip
import json

import pytest

from clusterorch.errors import IngestError
from clusterorch.telemetry import whole_files
from clusterorch.telemetry.budgets import Limits
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.readings import FileSummary
from tests.telemetry.attacks import archives as made

FORMATS = load_formats(shipped_formats())
DATA = b"\x80\x02whole" + bytes(range(256)) * 2000


class Keeper:
    """Reads what begins like DATA, and keeps it."""

    def __init__(self):
        self.kept = []

    def recognises(self, head):
        return head.startswith(b"\x80\x02whole")

    def read(self, label, data, gathering):
        if data.endswith(b"bad"):
            raise IngestError(f"{label}: is bad; give a good one")
        self.kept.append((label, data))
        gathering.result.files.append(FileSummary(label))


@pytest.fixture
def keeper(monkeypatch):
    keeper = Keeper()
    monkeypatch.setattr(whole_files, "READERS", (keeper,))
    return keeper


def read(tmp_path, data, limits=None):
    (tmp_path / "x").write_bytes(data)
    return read_paths([tmp_path], FORMATS, limits)


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (DATA, "x"),
        (gzip.compress(DATA), "x"),
        (gzip.compress(made.tar({"d/dump": DATA})), "x/d/dump"),
        (made.zipped({"dump": DATA}, streamed=True), "x/dump"),
    ],
)
def test_a_file_that_is_read_whole_is_given_whole_wherever_it_lies(data, label, tmp_path, keeper):
    assert not read(tmp_path, data).findings
    assert keeper.kept == [(label, DATA)]


def test_a_file_too_large_to_be_read_whole_is_a_finding(tmp_path, keeper):
    limits = Limits(whole_file_bytes=len(DATA) - 1)
    assert [finding.kind for finding in read(tmp_path, DATA, limits).findings] == ["too_large"]
    assert not keeper.kept
    read(tmp_path, DATA, Limits(whole_file_bytes=len(DATA)))
    assert keeper.kept


def test_what_is_cut_or_bad_is_a_finding_and_an_error_if_given(tmp_path, keeper):
    for data, kind in ((gzip.compress(DATA)[:-400], "truncated"), (DATA + b"bad", "unreadable")):
        assert [finding.kind for finding in read(tmp_path, data).findings] == [kind]
        with pytest.raises(IngestError, match="x: "):
            read_paths([tmp_path / "x"], FORMATS)
    assert not keeper.kept


def test_lines_of_json_are_read_as_lines(tmp_path):
    lines = [json.dumps({"level": "info", "message": f"NVRM: Xid (PCI:0000:61:00): {code}, x"}) for code in (79, 48)]
    assert read(tmp_path, "\n".join(lines).encode()).coverage.lines == 2
