"""Files that mean harm: what they are, and that they do none."""

import gzip
import io
import json
import os
import random
import tarfile
import threading
import tracemalloc

import pytest

from clusterorch.errors import IngestError
from clusterorch.telemetry import gathering
from clusterorch.telemetry.budgets import Intake, Limits, Meter
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.streams import Stopped
from tests.telemetry.attacks import archives as made
from tests.telemetry.attacks import texts

FORMATS = load_formats(shipped_formats())
XID = texts.XID + b"\n"


def read(tmp_path, data, limits=None):
    (tmp_path / "folder").mkdir(exist_ok=True)
    (tmp_path / "folder" / "x").write_bytes(data)
    return read_paths([tmp_path / "folder"], FORMATS, limits)


def found(result):
    return [(finding.file, finding.kind) for finding in result.findings]


class Peak:
    """Python's own memory at its highest, in bytes."""

    def __enter__(self):
        tracemalloc.start()
        return self

    def __exit__(self, *_):
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


SMALL = Limits(ratio=50, ratio_from=1 << 20)


@pytest.mark.parametrize(
    "data",
    [made.bomb(10), made.bomb(10, 2), gzip.compress(made.tar({"a": bytes(10 << 20)}))],
    ids=["bomb", "nested", "tar"],
)
def test_a_bomb_is_defused(data, tmp_path):
    data = made.tar({"first.log": XID, "bomb": data, "last.log": XID})
    with Peak() as peak:
        result = read(tmp_path, data, SMALL)
    assert any(kind in ("bomb", "nested") for _, kind in found(result))
    assert result.readings[0].file == "x/first.log"
    assert peak.bytes < 8 << 20


def test_a_ratio_is_what_was_unpacked_to_what_came_from_disk():
    meter = Meter(Intake(gathering.Gathering(FORMATS), Limits(ratio=10, ratio_from=100)))
    meter.read(20)
    meter.unpacked(200)
    with pytest.raises(Stopped, match="over 10 times its size"):
        meter.unpacked(1)


def test_a_zip_whose_members_lie_over_one_another_yields_each_once(tmp_path):
    # The directory at the end names one member a thousand times; reading it would unpack a thousandfold.
    data = made.zipped({"a": XID})
    entry = data[data.find(b"PK\x01\x02") : data.find(b"PK\x05\x06")]
    result = read(tmp_path, data.replace(entry, entry * 1000))
    assert (len(result.readings), result.findings) == (1, [])


def test_a_pipe_of_zeros_ends_at_the_limit(tmp_path):
    result = read(tmp_path, gzip.compress(XID + bytes(10 << 20) + XID), Limits(bytes_read=1 << 20))
    assert found(result)[0] == ("x", "too_much")
    assert len(result.readings) == 1


def test_what_comes_after_the_limit_is_not_read(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in "abc":
        (tmp_path / "folder" / name).write_bytes(XID * 1000)
    size = len(XID) * 1000
    result = read_paths([tmp_path / "folder"], FORMATS, Limits(bytes_read=size * 3 // 2))
    assert [summary.file for summary in result.files] == ["a", "b"]
    assert found(result) == [("b", "too_much")]


def test_too_many_members_and_files_are_a_finding(tmp_path):
    result = read(tmp_path, made.tar({f"{at}.log": XID for at in range(50)}), Limits(files=20))
    assert (len(result.files), found(result)) == (19, [("", "too_many_files")])
    for at in range(30):
        (tmp_path / "folder" / f"{at}.log").write_bytes(XID)
    result = read_paths([tmp_path / "folder"], FORMATS, Limits(files=20))
    assert (len(result.files), found(result)) == (20, [("", "too_many_files")])


def test_folders_and_links_without_end_in_an_archive_count_as_members(tmp_path):
    members = [made.special(f"{at}", tarfile.DIRTYPE if at % 2 else tarfile.SYMTYPE, "x") for at in range(50)]
    assert ("", "too_many_files") in found(read(tmp_path, made.tar_of(members), Limits(files=20)))


def test_findings_without_end_are_counted(tmp_path):
    result = read(tmp_path, made.tar({f"{at}": b"" for at in range(50)}), Limits(findings_of_a_kind=10))
    assert len(result.findings) == 11
    assert result.findings[-1].text.startswith("40 more")


@pytest.mark.parametrize("name", ["../../x.log", "/etc/cron.d/x.log", "a/../../x.log", "..\\x.log", "C:\\x.log"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_names_that_lead_out_are_labels_and_nothing_is_written(kind, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = read(tmp_path, made.tar({name: XID}) if kind == "tar" else made.zipped({name: XID}))
    (reading,) = result.readings
    assert reading.file.startswith("x/")
    assert ".." not in reading.file
    assert found(result) == [(reading.file, "odd_path")]
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "x"]


def test_links_devices_and_pipes_in_an_archive_are_passed_over(tmp_path):
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
    members = [made.special(f"{at}.log", kind, "/etc/passwd") for at, kind in enumerate(kinds)]
    result = read(tmp_path, made.tar_of([*members, (made.plain("a.log", XID), XID)]))
    assert found(result) == [(f"x/{at}.log", "link") for at in range(5)]
    assert len(result.readings) == 1


@pytest.mark.parametrize("size", [100, 50 << 20])
def test_a_header_that_claims_to_be_long_takes_no_memory(size, tmp_path):
    data = gzip.compress(made.endless_header(size) + made.tar({"a.log": XID}))
    with Peak() as peak:
        result = read(tmp_path, data)
    assert len(result.readings) == 1
    assert peak.bytes < 8 << 20


def test_a_line_of_200_megabytes_is_read_in_bounded_memory(tmp_path):
    end, write = os.pipe()

    def pour():
        with os.fdopen(write, "wb") as pipe:
            pipe.write(XID)
            source = texts.Endless(200 << 20)
            while piece := source.read(1 << 18):
                pipe.write(piece)
            pipe.write(b"\n" + XID)

    writer = threading.Thread(target=pour)
    writer.start()
    with Peak() as peak:
        result = read_paths([f"/dev/fd/{end}"], FORMATS)
    writer.join()
    os.close(end)
    assert [reading.line for reading in result.readings] == [1, 3]
    assert [finding.kind for finding in result.findings] == ["truncated"]
    assert peak.bytes < 32 << 20


def test_nul_bytes_and_broken_utf8_leave_the_lines_around_them(tmp_path):
    result = read(tmp_path, XID + bytes(5000) + b"\n" + XID + b"\xff\xfe\xc0\xaf\xed\xa0\x80\n" + XID)
    assert [reading.line for reading in result.readings] == [1, 3, 5]
    assert found(result) == [("x", "damaged")]


@pytest.mark.parametrize("attack", [*texts.TERMINAL, *texts.MARKUP])
def test_nothing_that_moves_a_terminal_passes(attack, tmp_path):
    line = attack + b" NVRM: Xid (PCI:0000:61:00): 79, " + attack
    result = read(tmp_path, line + b"\n" + attack + b" unknown\n" + XID)
    said = json.dumps({"log": line.decode("utf-8", "replace"), "time": "2026-01-01T00:00:00Z"}).encode()
    wrapped = read(tmp_path, said + b"\n" + said.replace(b"NVRM", b"unknown"))
    kept = [reading.text for one in (result, wrapped) for reading in one.readings]
    kept += [line.text for one in (result, wrapped) for line in one.coverage.samples]
    assert len(kept) >= 3
    for text in kept:
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text.replace("\t", ""))


@pytest.mark.parametrize("name", ["\x1b[2J.log", "\x1b]0;owned\x07.log", "a\nb.log", "\u202egpj.log", "x\udcff.log"])
def test_names_of_files_and_members_are_safe_to_print(name, tmp_path):
    (tmp_path / "folder").mkdir()
    try:
        (tmp_path / "folder" / name).write_bytes(XID)
    except (OSError, UnicodeEncodeError):
        pytest.skip("the file system takes no such name")
    (tmp_path / "folder" / "x.tar").write_bytes(made.tar({name: XID}))
    result = read_paths([tmp_path / "folder"], FORMATS)
    assert len(result.readings) == 2
    assert all(reading.file.isprintable() for reading in result.readings)
    with pytest.raises(IngestError) as caught:
        read_paths([tmp_path / "folder" / name / "absent"], FORMATS)
    assert str(caught.value).isprintable()


def test_names_of_hosts_are_safe_to_print(tmp_path):
    hosts = (b"\x1b[2Jn17", b"<script>n18", b"n19\x07", b"n" * 5000)
    lines = [b"Jan  1 00:00:10 " + host + b" kernel: NVRM: Xid (PCI:0000:61:00): 79, x\n" for host in hosts]
    result = read(tmp_path, b"".join(lines))
    assert all(host.isprintable() and len(host) <= 128 for host in result.hosts)
    assert all((reading.entity.host or "").isprintable() for reading in result.readings)


def test_a_pickle_is_never_loaded(tmp_path):
    command = f"touch {tmp_path / 'owned'}"
    for data in texts.pickles(command):
        for packed in (data, gzip.compress(data), made.tar({"x.log": data}), made.zipped({"m/data.pkl": data})):
            result = read(tmp_path, packed)
            assert not result.readings
    assert not (tmp_path / "owned").exists()


def test_json_that_is_deep_or_wide_is_an_answer(tmp_path):
    for text in ("[" * 100_000, '{"a":' * 100_000, json.dumps({"version": "2.9", "entries": [[]] * 10_000})):
        assert read(tmp_path, text.encode()).coverage.lines <= 1


def test_clocks_that_jump_back_and_forth_are_an_answer(tmp_path):
    chance = random.Random(0)
    lines = [chance.choice(texts.CLOCKS) + b" " + texts.XID[15:] for _ in range(300)]
    result = read(tmp_path, b"\n".join(lines))
    assert len(result.readings) == 300
    assert all(reading.time is None or abs(reading.time) < 1e13 for reading in result.readings)


@pytest.mark.parametrize("unit", [b",", b"a,", b"0x", b"[ +1.000000] ", b"Thread 1 (a)", b"  f (f:1)", b"1.1.1.1:"])
def test_lines_made_of_one_thing_take_no_time_to_speak_of(unit, tmp_path):
    result = read(tmp_path, (unit * (60_000 // len(unit)) + b"\n") * 20)
    assert result.coverage.lines == 20


def test_a_pipe_in_a_folder_is_passed_over(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    assert found(read(tmp_path, XID)) == [("pipe", "not_a_file")]


def test_a_folder_deeper_than_paths_may_be_long_is_an_answer(tmp_path):
    before = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(300):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
        with open("x.log", "wb") as file:
            file.write(XID)
    finally:
        os.chdir(before)
    (tmp_path / "a.log").write_bytes(XID)
    result = read_paths([tmp_path], FORMATS)
    assert len(result.readings) == 1
    assert [finding.kind for finding in result.findings] == ["too_deep"]


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_very_many_small_files_are_read_in_bounded_memory(count, tmp_path):
    for at in range(count):
        (tmp_path / f"{at:06d}.log").write_bytes(XID if at % 2 else b"")
    with Peak() as peak:
        result = read_paths([tmp_path], FORMATS)
    assert len(result.readings) == count // 2
    assert len(result.findings) == 201
    assert peak.bytes < (8 << 20) + 4000 * count


def test_stacks_without_end_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_FRAMES", 25)
    dump = b'Process 1: x\nThread 1 (idle): "a"\n    f (f.py:1)\n    g (g.py:2)\n' * 3
    result = read(tmp_path, made.tar({f"{at}": dump for at in range(5)}))
    (finding,) = result.findings
    assert finding.text == "9 more lines of thread were counted but not kept"


def test_an_archive_that_holds_itself_ends(tmp_path):
    inner = made.tar({"a.log": XID})
    for _ in range(6):
        inner = gzip.compress(made.tar({"self.tar.gz": inner, "a.log": XID}))
    result = read(tmp_path, inner)
    assert [reading.file for reading in result.readings] == ["x/self.tar.gz/a.log", "x/a.log"]
    assert found(result) == [("x/self.tar.gz/self.tar.gz", "nested")]


def test_a_head_of_noise_is_an_answer_for_every_kind_of_file(tmp_path):
    chance = random.Random(1)
    for magic in (b"\x1f\x8b\x08", b"BZh91AY&SY", b"\xfd7zXZ\0", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xff\xfe"):
        for size in (0, 10, 100, 10_000):
            result = read(tmp_path, magic + chance.randbytes(size))
            assert result.findings or result.files


def test_standard_input_of_noise_is_an_ingest_error(monkeypatch):
    class Input:
        buffer = io.BytesIO(random.Random(2).randbytes(5000))
        closed = False

        @staticmethod
        def isatty():
            return False

    monkeypatch.setattr("sys.stdin", Input)
    with pytest.raises(IngestError, match="-: is binary data"):
        read_paths(["-"], FORMATS)
