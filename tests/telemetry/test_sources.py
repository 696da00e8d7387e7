import io
import os
import sys
import threading

import pytest

from clusterorch.errors import IngestError
from clusterorch.telemetry import reading, walking
from clusterorch.telemetry.budgets import Intake, Limits, Meter
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.sources import opened
from clusterorch.telemetry.streams import Stopped
from tests.telemetry.attacks import archives as made

FORMATS = load_formats(shipped_formats())
XID = "[   12.500000] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n"


def files(result):
    return [summary.file for summary in result.files]


def kinds(result):
    return sorted(finding.kind for finding in result.findings)


def meter():
    return Meter(Intake(Gathering(FORMATS), Limits()))


class Input:
    """Standard input with bytes in it."""

    def __init__(self, data=b"", *, terminal=False):
        self.buffer = io.BytesIO(data)
        self.closed = False
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize("data", [XID.encode(), made.COMPRESSORS["gz"](XID.encode())], ids=["plain", "packed"])
def test_a_dash_is_standard_input(data, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Input(data))
    result = read_paths(["-"], FORMATS)
    assert [(r.file, r.line) for r in result.readings] == [("stdin", 1)]


def test_a_zip_can_come_through_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Input(made.zipped({"a.log": XID.encode()})))
    assert files(read_paths(["-"], FORMATS)) == ["stdin/a.log"]


@pytest.mark.parametrize(
    ("stdin", "problem"), [(Input(terminal=True), "is a terminal"), (Input(), "is empty"), (None, "no standard input")]
)
def test_standard_input_that_gives_nothing_is_an_ingest_error(stdin, problem, monkeypatch):
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(IngestError, match=problem):
        read_paths(["-"], FORMATS)


def test_a_pattern_that_the_shell_left_alone_is_expanded(tmp_path):
    for name in ("b.log", "a.log", "c.txt", ".d.log", "deep/e.log", "deep/er/f.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(XID)
    assert files(read_paths([tmp_path / "*.log"], FORMATS)) == ["a.log", "b.log"]
    assert files(read_paths([tmp_path / "[ab].log"], FORMATS)) == ["a.log", "b.log"]
    assert files(read_paths([tmp_path / "**/*.log"], FORMATS)) == ["a.log", "b.log", "e.log", "f.log"]
    assert files(read_paths([tmp_path / "**/er/*.log"], FORMATS)) == ["f.log"]
    assert files(read_paths([tmp_path / "d*"], FORMATS)) == ["e.log", "er/f.log"]
    with pytest.raises(IngestError, match="no file matches"):
        read_paths([tmp_path / "*.nothing"], FORMATS)


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    (tmp_path / "a[1].log").write_text(XID)
    assert files(read_paths([tmp_path / "a[1].log"], FORMATS)) == ["a[1].log"]


def test_links_that_go_round_do_not_keep_a_pattern_busy(tmp_path):
    for name in "abcdefgh":
        (tmp_path / name).symlink_to(tmp_path)
    (tmp_path / "x.log").write_text(XID)
    assert files(read_paths([tmp_path / "**/*.log"], FORMATS)) == ["x.log"]
    assert files(read_paths([tmp_path], FORMATS)) == ["x.log"]


def test_a_named_pipe_is_read_where_it_was_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(XID,))
    writer.start()
    assert len(read_paths([tmp_path / "pipe"], FORMATS).readings) == 1
    writer.join()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_an_ingest_error(path):
    with pytest.raises(IngestError, match="neither a file nor a folder"):
        read_paths([path], FORMATS)


def test_one_bad_file_among_several_is_a_finding(tmp_path):
    (tmp_path / "a.log").write_text(XID)
    (tmp_path / "b.pkl").write_bytes(b"\x80\x04K\x01.")
    result = read_paths([tmp_path / "b.pkl", tmp_path / "a.log"], FORMATS)
    assert (files(result), kinds(result)) == (["a.log"], ["binary"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_text_with_a_byte_order_mark_is_decoded(encoding, tmp_path):
    text = "NVRM: Xid (PCI:0000:61:00): 79, x\ncaf\u00e9 \U0001f600\n" * 20_000
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    (tmp_path / "a.log").write_bytes((mark + text).encode(encoding))
    result = read_paths([tmp_path / "a.log"], FORMATS)
    assert len(result.readings) == 20_000
    assert result.readings[0].text.startswith("NVRM")
    assert not result.findings


def test_utf16_that_is_cut_within_a_character_is_read_up_to_there(tmp_path):
    (tmp_path / "a.log").write_bytes((XID * 3).encode("utf-16")[:-3])
    assert len(read_paths([tmp_path], FORMATS).readings) == 3


def test_utf16_without_a_mark_is_a_finding(tmp_path):
    (tmp_path / "a.log").write_bytes(XID.encode("utf-16-le"))
    assert kinds(read_paths([tmp_path], FORMATS)) == ["binary"]


def test_a_file_that_grows_is_read_up_to_where_it_ended(tmp_path):
    (tmp_path / "a.log").write_text("1234")
    with opened(tmp_path / "a.log", meter()) as stream, (tmp_path / "a.log").open("a") as file:
        assert stream.read(2) == b"12"
        file.write("5678")
        file.flush()
        assert stream.exactly(100) == b"34"


def test_a_file_that_shrinks_is_read_up_to_there(tmp_path):
    (tmp_path / "a.log").write_text("1234")
    with opened(tmp_path / "a.log", meter()) as stream:
        assert stream.read(2) == b"12"
        os.truncate(tmp_path / "a.log", 3)
        assert stream.read(10) == b"3"
        with pytest.raises(Stopped, match="became shorter"):
            stream.read(10)


def test_a_file_that_shrinks_keeps_what_was_read_of_it(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text(XID * 10_000)
    read, count = os.read, []

    def shrinking(descriptor, size):
        count.append(size)
        if len(count) == 2:
            os.truncate(tmp_path / "a.log", 300_000)
        return read(descriptor, size)

    monkeypatch.setattr("clusterorch.telemetry.sources.os.read", shrinking)
    result = read_paths([tmp_path], FORMATS)
    assert kinds(result) == ["shrunk"]
    assert len(result.readings) == 300_000 // len(XID)


def test_a_file_that_vanishes_before_it_is_opened_is_a_finding(tmp_path, monkeypatch):
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(XID)

    def vanishing(*arguments, **named):
        for label, path in walking.walk(*arguments, **named):
            if label == "a.log":
                path.unlink()
            yield label, path

    monkeypatch.setattr(reading, "walk", vanishing)
    result = read_paths([tmp_path], FORMATS)
    assert (files(result), kinds(result)) == (["b.log"], ["unreadable"])


def test_a_pipe_that_took_the_place_of_a_file_does_not_block(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text(XID)
    real = os.open

    def swapping(path, flags, *rest):
        if str(path).endswith("a.log"):
            os.unlink(path)
            os.mkfifo(path)
        return real(path, flags, *rest)

    monkeypatch.setattr("clusterorch.telemetry.sources.os.open", swapping)
    assert kinds(read_paths([tmp_path], FORMATS)) == ["empty"]


def test_a_file_that_may_not_be_read_is_a_finding_and_an_error_if_given(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text(XID)

    def refusing(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("clusterorch.telemetry.sources.os.open", refusing)
    assert kinds(read_paths([tmp_path], FORMATS)) == ["unreadable"]
    with pytest.raises(IngestError, match="Permission denied"):
        read_paths([tmp_path / "a.log"], FORMATS)


def test_a_disk_that_fails_ends_the_file_and_not_the_reading(tmp_path, monkeypatch):
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(XID)
    failures = iter([OSError(5, "Input/output error")])
    read = os.read

    def failing(descriptor, size):
        for failure in failures:
            raise failure
        return read(descriptor, size)

    monkeypatch.setattr("clusterorch.telemetry.sources.os.read", failing)
    result = read_paths([tmp_path], FORMATS)
    assert (files(result), kinds(result)) == (["b.log"], ["unreadable"])


def test_what_came_before_a_disk_failed_counts(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text(XID * 10_000)
    read, count = os.read, []

    def failing(descriptor, size):
        count.append(size)
        if len(count) == 3:
            raise OSError(5, "Input/output error")
        return read(descriptor, size)

    monkeypatch.setattr("clusterorch.telemetry.sources.os.read", failing)
    result = read_paths([tmp_path], FORMATS)
    assert (files(result), kinds(result)) == (["a.log"], ["unreadable"])
    assert len(result.readings) > 1000


def test_holes_of_a_sparse_file_are_passed_over(tmp_path):
    with (tmp_path / "a.log").open("wb") as file:
        file.write(XID.encode())
        file.seek(1 << 40)
        file.write(b"\n" + XID.encode())
        file.truncate(1 << 41)
    result = read_paths([tmp_path], FORMATS)
    assert [reading.line for reading in result.readings] == [1, 3]


def test_a_file_of_no_size_that_holds_something_is_read():
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs /proc")
    assert read_paths(["/proc/self/status"], FORMATS).coverage.lines > 10


def test_folders_too_deep_and_links_that_lead_out_are_findings(tmp_path, monkeypatch):
    monkeypatch.setattr(walking, "DEEPEST", 3)
    inside = tmp_path / "inside"
    deep = inside / "1/2/3/4"
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent, tmp_path):
        (folder / "x.log").write_text(XID)
    (inside / "out").symlink_to(tmp_path)
    result = read_paths([inside], FORMATS)
    assert files(result) == ["1/2/3/x.log"]
    assert [(finding.file, finding.kind) for finding in result.findings] == [
        ("out", "link_outside"),
        ("1/2/3", "too_deep"),
    ]


def test_a_folder_with_more_entries_than_are_listed_gives_the_first_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(walking, "MOST_ENTRIES", 3)
    for name in "edcba":
        (tmp_path / name).write_text(XID)
    result = read_paths([tmp_path], FORMATS)
    assert (files(result), kinds(result)) == (["a", "b", "c"], ["too_many_files"])
