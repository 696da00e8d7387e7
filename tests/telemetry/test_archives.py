import gzip
import io
import lzma
import sys
import tarfile
import zipfile

import pytest

from clusterorch.errors import IngestError
from clusterorch.telemetry import unpacking
from clusterorch.telemetry.budgets import Intake, Limits, Meter
from clusterorch.telemetry.gathering import Gathering
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.streams import Stopped, Stream
from tests.telemetry.attacks import archives as made

FORMATS = load_formats(shipped_formats())
LOG = b"a line\n[   12.500000] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n"
OTHER = b"[   13.500000] NVRM: Xid (PCI:0000:61:00): 48, x\n"
FILES = {"logs/a.log": LOG, "logs/deep/b.log": OTHER}


def read(tmp_path, data, limits=None):
    (tmp_path / "given").write_bytes(data)
    return read_paths([tmp_path / "given"], FORMATS, limits)


def read_in_folder(tmp_path, data, limits=None):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(data)
    return read_paths([tmp_path / "folder"], FORMATS, limits)


def places(result):
    return [(reading.file, reading.line, reading.value) for reading in result.readings]


def found(result):
    return [(finding.file, finding.kind) for finding in result.findings]


BOTH = [("given/logs/a.log", 2, "lost"), ("given/logs/deep/b.log", 1, "memory")]


@pytest.mark.parametrize("packing", sorted(made.COMPRESSORS))
def test_a_packed_file_is_known_by_its_content(packing, tmp_path):
    assert places(read(tmp_path, made.COMPRESSORS[packing](LOG))) == [("given", 2, "lost")]


@pytest.mark.parametrize("packing", ["plain", *sorted(made.COMPRESSORS)])
def test_a_tar_is_read_member_by_member(packing, tmp_path):
    pack = made.COMPRESSORS.get(packing, bytes)
    result = read(tmp_path, pack(made.tar(FILES)))
    assert [(file, line) for file, line, _ in places(result)] == [(file, line) for file, line, _ in BOTH]
    assert not result.findings


@pytest.mark.parametrize("data", [LOG, made.tar({"a.log": LOG})], ids=["file", "tar"])
def test_zstd_is_read_where_its_package_is(data, tmp_path):
    pytest.importorskip("zstandard")
    result = read(tmp_path, made.zstd(data) + made.zstd(data[:0]))
    assert [(line, value) for _, line, value in places(result)] == [(2, "lost")]
    big = made.zstd(OTHER * 50_000)
    assert len(read(tmp_path, big).readings) == 50_000
    with pytest.raises(IngestError, match="cannot be unpacked"):
        read(tmp_path, big[:20] + b"\xff" * 200)
    with pytest.raises(IngestError, match="cannot be unpacked"):
        read(tmp_path, big, Limits(window_bytes=2048))


def test_zstd_without_its_package_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(IngestError, match=r"pip install 'clusterorch\[zstd\]'"):
        read(tmp_path, b"\x28\xb5\x2f\xfd" + bytes(40))
    result = read_in_folder(tmp_path, made.tar({"a.log.zst": b"\x28\xb5\x2f\xfd" + bytes(40), "b.log": LOG}))
    assert found(result) == [("x/a.log.zst", "unreadable")]
    assert places(result) == [("x/b.log", 2, "lost")]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ["a.log", "d" * 60 + "/" + "n" * 90, "d/" + "\u00e9" * 30 + ".log"])
def test_every_dialect_of_tar_gives_the_names_that_the_standard_library_gives(form, name, tmp_path):
    result = read(tmp_path, made.tar({name: LOG, "z.log": OTHER}, form))
    assert [file for file, _, _ in places(result)] == [f"given/{name}", "given/z.log"]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_size_without_room_in_octal_is_read(form, tmp_path):
    huge = tarfile.TarInfo("huge.log")
    huge.size = 9 << 33
    data = huge.tobuf(form) + LOG
    result = read(tmp_path, data)
    assert places(result) == [("given/huge.log", 2, "lost")]
    assert found(result) == [("given/huge.log", "truncated")]


def test_the_holes_of_a_sparse_member_are_left_out(tmp_path):
    header = bytearray(made.plain("sparse.log", LOG).tobuf(tarfile.GNU_FORMAT))
    header[156:157], header[482] = b"S", 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data = bytes(header) + bytes(504) + b"\1" + bytes(7) + bytes(512) + LOG.ljust(512, b"\0")
    assert places(read(tmp_path, data + made.tar({"z.log": OTHER})))[0] == ("given/sparse.log", 2, "lost")
    assert len(read(tmp_path, data + made.tar({"z.log": OTHER})).readings) == 2


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("wide", [False, True])
def test_a_zip_is_read_member_by_member(method, wide, tmp_path):
    result = read(tmp_path, made.zipped(FILES, method, wide=wide))
    assert [(file, line) for file, line, _ in places(result)] == [(file, line) for file, line, _ in BOTH]
    assert not result.findings


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_that_was_written_into_a_pipe_is_read(wide, method, tmp_path):
    result = read(tmp_path, made.zipped({**FILES, "empty": b""}, method, streamed=True, wide=wide))
    assert len(result.readings) == 2
    assert found(result) == [("given/empty", "empty")]


def test_what_a_zip_member_hides_is_a_finding_and_the_others_are_read(tmp_path):
    lzma_member = made.zipped({"odd.log": LOG}, zipfile.ZIP_LZMA)
    for data, kind in ((made.encrypted({"odd.log": LOG}), "encrypted"), (lzma_member, "unreadable")):
        member = data[: data.find(b"PK\x01\x02")]
        result = read(tmp_path, member + made.zipped({"b.log": OTHER}))
        assert found(result) == [("given/odd.log", kind)]
        assert [file for file, _, _ in places(result)] == ["given/b.log"]


def test_a_zip_member_that_hides_its_end_ends_the_reading(tmp_path):
    hidden = made.zipped({"odd.log": LOG}, zipfile.ZIP_STORED, streamed=True)
    result = read(tmp_path, made.zipped({"a.log": LOG}).split(b"PK\x01\x02")[0] + hidden)
    assert [file for file, _, _ in places(result)] == ["given/a.log"]
    assert found(result) == [("given/odd.log", "unreadable"), ("given", "damaged_archive")]


def test_a_packed_log_within_a_packed_tar_is_read_and_one_deeper_is_not(tmp_path):
    inner = gzip.compress(LOG)
    once = gzip.compress(made.tar({"a.log.gz": inner}))
    assert places(read(tmp_path, once)) == [("given/a.log.gz", 2, "lost")]
    twice = made.zipped({"x.tgz": gzip.compress(made.tar({"a.log": LOG}))})
    assert places(read(tmp_path, twice)) == [("given/x.tgz/a.log", 2, "lost")]
    result = read(tmp_path, made.tar({"x.zip": made.zipped({"a.log.gz": inner}), "b.log": OTHER}))
    assert found(result) == [("given/x.zip/a.log.gz", "nested")]
    assert [file for file, _, _ in places(result)] == ["given/b.log"]


def test_packed_files_that_follow_one_another_are_one(tmp_path):
    for compress in made.COMPRESSORS.values():
        result = read(tmp_path, compress(LOG) + compress(OTHER) + bytes(1000))
        assert (len(result.readings), result.findings) == (2, [])
        result = read(tmp_path, compress(LOG) + b"something else")
        assert (len(result.readings), found(result)) == (1, [("given", "damaged_archive")])


@pytest.mark.parametrize("cut", range(5, 100, 10))
@pytest.mark.parametrize("kind", ["gz", "tar", "tar.gz", "zip", "streamed"])
def test_what_came_before_a_cut_is_kept(kind, cut, tmp_path):
    text = b"".join(b"[%5d.500000] NVRM: Xid (PCI:0000:61:00): 79, x\n" % at for at in range(2000))
    files = {"a.log": text, "b.log": text}
    data = {
        "gz": lambda: gzip.compress(text),
        "tar": lambda: made.tar(files),
        "tar.gz": lambda: gzip.compress(made.tar(files)),
        "zip": lambda: made.zipped(files),
        "streamed": lambda: made.zipped(files, streamed=True),
    }[kind]()
    whole = [(reading.file, reading.line) for reading in read(tmp_path, data).readings]
    result = read_in_folder(tmp_path, data[: len(data) * cut // 100])
    some = [(reading.file.replace("x", "given", 1), reading.line) for reading in result.readings]
    assert some == whole[: len(some)]
    assert len(some) >= len(whole) * (cut - 10) / 100
    assert {finding.kind for finding in result.findings} == {"truncated"} or some == whole


def test_a_damaged_header_ends_a_tar(tmp_path):
    data = bytearray(made.tar({"a.log": LOG, "b.log": LOG, "c.log": LOG}, tarfile.GNU_FORMAT))
    data[1024] ^= 1  # the second header
    result = read(tmp_path, bytes(data))
    assert [file for file, _, _ in places(result)] == ["given/a.log"]
    assert found(result) == [("given", "damaged_archive")]


def test_why_a_stream_stopped_is_the_same_every_time():
    meter = Meter(Intake(Gathering(FORMATS), Limits()))
    cut = unpacking.Unpacked(Stream(io.BytesIO(gzip.compress(LOG)[:-20]).read), lambda: unpacking.Inflate(31), meter)
    reasons = []
    for _ in range(3):
        with pytest.raises(Stopped) as caught:
            Stream(cut.read).exactly(1 << 20)
        reasons.append(caught.value)
    assert len(set(map(id, reasons))) == 1


def test_members_of_one_name_have_labels_of_their_own(tmp_path):
    data = made.tar_of([(made.plain("a.log", LOG), LOG), (made.plain("./a.log", OTHER), OTHER)])
    assert [file for file, _, _ in places(read(tmp_path, data))] == ["given/a.log", "given/a.log (2)"]


def test_hidden_members_and_folders_are_passed_over(tmp_path):
    data = made.zipped({"d/": b"", "d/.git/x.log": LOG, "__MACOSX/._a.log": LOG, "d/a.log": LOG})
    result = read(tmp_path, data)
    assert (len(result.readings), result.findings) == (1, [])


@pytest.mark.parametrize("name", ["model/data.pkl", "[Content_Types].xml", "META-INF/"])
def test_zips_that_are_no_archives_of_logs_are_not_opened(name, tmp_path):
    data = made.zipped({name: b"\x80\x02}q\0." if "pkl" in name else b"", "version": LOG})
    with pytest.raises(IngestError, match="torch files and office documents"):
        read(tmp_path, data)
    assert found(read_in_folder(tmp_path, data)) == [("x", "binary")]


def test_binary_and_empty_members_are_findings(tmp_path):
    result = read(tmp_path, made.tar({"core": b"\x7fELF" + bytes(99), "x.pkl": b"\x80\x04K\x01.", "e": b"", "a": LOG}))
    assert found(result) == [("given/core", "binary"), ("given/x.pkl", "binary"), ("given/e", "empty")]
    assert "pickled object" in result.findings[1].text


@pytest.mark.parametrize(
    "data", [gzip.compress(b""), made.tar({"d/": b""}), gzip.compress(LOG)[:10]], ids=["nothing", "folder", "head"]
)
def test_an_archive_that_holds_nothing_is_an_error_if_it_was_given(data, tmp_path):
    with pytest.raises(IngestError, match="given: "):
        read(tmp_path, data)
    assert len(read_in_folder(tmp_path, data).findings) == 1


def test_an_xz_file_may_not_ask_for_all_memory(tmp_path):
    greedy = lzma.compress(LOG, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 512 << 20}])
    with pytest.raises(IngestError, match=r"[Mm]emory"):
        read(tmp_path, greedy)


def test_a_full_answer_of_zlib_does_not_hide_what_it_still_holds():
    data = b"".join(b"%d\n" % at for at in range(50_000))
    for size in (1, 7, 4096):
        inflate, out = unpacking.Inflate(31), b""
        source = io.BytesIO(gzip.compress(data[: size * 3000]))
        while not inflate.eof:
            out += inflate.decompress(source.read(64) if inflate.needs_input else b"", size)
        assert out == data[: size * 3000]
