import os
import shutil

import pytest

from clusterorch.errors import IngestError
from clusterorch.telemetry.budgets import Limits
from clusterorch.telemetry.following import QUIET_POLLS, Following, follow
from clusterorch.telemetry.lines import LONGEST_LINE
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def xid(code, pci="0000:61:00"):
    return f"[   12.500000] NVRM: Xid (PCI:{pci}): {code}, x\n"


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def places(following):
    return [(reading.file, reading.line, reading.text.split("): ")[1][:2]) for reading in following.snapshot().readings]


def test_a_snapshot_comes_at_once_and_then_with_every_news(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79))
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            append(log, xid(48))

    snapshots = follow([tmp_path], FORMATS, poll_seconds=7.0, sleep=sleep)
    assert len(next(snapshots).readings) == 1
    assert [reading.line for reading in next(snapshots).readings] == [1, 2]
    assert slept == [7.0, 7.0, 7.0]


def test_what_is_followed_says_the_same_as_what_is_read_at_once(tmp_path):
    (tmp_path / "train.log").write_text("")
    (tmp_path / "dmesg.log").write_text("")
    iteration = (
        " iteration 1/ 9 | consumed samples: 1 | elapsed time (s): 105.09 |\n"
        " learning rate: 5.961E-05 | lm loss: nan | a b: 1 |\n"
        " num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )
    following = Following([tmp_path], FORMATS)
    for at, line in enumerate((xid(79) + iteration + xid(48, "0000:62:00") + iteration).splitlines(keepends=True)):
        append(tmp_path / ("dmesg.log" if "NVRM" in line else "train.log"), line[:9])
        following.poll()
        append(tmp_path / ("dmesg.log" if "NVRM" in line else "train.log"), line[9:])
        following.poll()
        following.snapshot()
        if at == 9:
            break
    following.poll()

    def said(ingested):
        return {(r.file, r.line, r.time, r.signal, r.value, r.text) for r in ingested.readings}

    once, followed = read_paths([tmp_path], FORMATS), following.snapshot()
    assert said(followed) == said(once)
    assert {s.file: s for s in followed.files} == {s.file: s for s in once.files}
    assert followed.coverage.streams == once.coverage.streams


def test_a_table_goes_on_after_a_pause(tmp_path):
    log = tmp_path / "smi.csv"
    log.write_text("index, pci.bus_id, temperature.gpu, power.draw [W]\n0, 00000000:01:00.0, 62, 171.20 W\n")
    following = Following([log], FORMATS)
    for _ in range(QUIET_POLLS + 5):
        following.poll()
        following.snapshot()
    append(log, "0, 00000000:01:00.0, 95, 171.20 W\n")
    following.poll()
    once, followed = read_paths([log], FORMATS), following.snapshot()
    assert [(r.line, r.value) for r in followed.readings] == [(r.line, r.value) for r in once.readings]
    assert len({reading.line for reading in once.readings}) == 2
    assert followed.places == once.places


def test_a_last_line_counts_once_it_ends(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79)[:-5])
    following = Following([log], FORMATS)
    assert not following.poll()
    append(log, xid(79)[-5:])
    assert following.poll()
    assert places(following) == [("a.log", 1, "79")]


def test_a_last_line_that_nobody_ends_counts_after_a_while(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79).strip())
    following = Following([log], FORMATS)
    assert [following.poll() for _ in range(QUIET_POLLS + 2)] == [False] * QUIET_POLLS + [True, False]
    assert places(following) == [("a.log", 1, "79")]


def test_files_that_appear_are_taken_in(tmp_path):
    following = Following([tmp_path, tmp_path / "sub" / "*.txt"], FORMATS)
    assert not following.poll()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text(xid(79))
    assert following.poll()
    assert places(following) == [("sub/b.txt", 1, "79")]


@pytest.mark.parametrize("folder", [True, False])
def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_start(folder, tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79))
    following = Following([tmp_path if folder else log], FORMATS)
    following.poll()
    append(log, xid(48))
    log.rename(tmp_path / "a.log.1")
    log.write_text("a line\n" + xid(94))
    assert following.poll()
    append(tmp_path / "a.log.1", xid(95))
    append(log, xid(63))
    assert following.poll()
    assert sorted(places(following)) == [
        ("a.log", 1, "79"),
        ("a.log", 2, "48"),
        ("a.log", 3, "95"),
        ("a.log (2)", 2, "94"),
        ("a.log (2)", 3, "63"),
    ]


def test_a_shortened_file_is_new_and_its_copy_goes_on(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79) * 2)
    following = Following([tmp_path], FORMATS)
    following.poll()
    append(log, xid(48))
    shutil.copy(log, tmp_path / "a.log.1")
    os.truncate(log, 0)
    append(log, xid(94))
    following.poll()
    following.poll()
    assert sorted(places(following)) == [
        ("a.log", 1, "79"),
        ("a.log", 2, "79"),
        ("a.log", 3, "48"),
        ("a.log (2)", 1, "94"),
    ]


def test_a_file_that_begins_otherwise_is_new_even_if_it_is_longer(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79))
    following = Following([log], FORMATS)
    following.poll()
    with log.open("r+") as file:  # same inode
        file.write(xid(48) + xid(94))
    following.poll()
    assert places(following) == [("a.log", 1, "79"), ("a.log (2)", 1, "48"), ("a.log (2)", 2, "94")]


def test_a_file_cut_back_to_a_long_head_is_new(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79) * 100)
    following = Following([log], FORMATS)
    following.poll()
    os.truncate(log, len(xid(79)) * 40)
    following.poll()
    assert [summary.file for summary in following.snapshot().files] == ["a.log", "a.log (2)"]


def test_a_record_that_may_go_on_counts_when_nothing_follows(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(" iteration 1/ 9 | consumed samples: 1 | lm loss: nan | elapsed time (s): 105.09 |\n")
    following = Following([log], FORMATS)
    assert not following.poll()
    assert following.poll()
    assert following.snapshot().coverage.lines == 1


def test_no_more_files_are_followed_than_the_limit(tmp_path):
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_text(xid(79))
    following = Following([tmp_path], FORMATS, Limits(files=2))
    following.poll()
    assert [reading.file for reading in following.snapshot().readings] == ["a.log", "b.log"]
    assert [finding.kind for finding in following.snapshot().findings] == ["too_many_files"]


def test_a_file_that_vanishes_keeps_its_readings(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(xid(79))
    following = Following([log], FORMATS)
    following.poll()
    log.unlink()
    assert not following.poll()
    result = following.snapshot()
    assert len(result.readings) == 1
    assert [(summary.file, summary.lines) for summary in result.files] == [("a.log", 1)]


def test_archives_are_read_once_when_they_have_stopped_growing(tmp_path):
    import gzip

    following = Following([tmp_path], FORMATS)
    packed = gzip.compress((xid(79) * 1000).encode())
    (tmp_path / "a.log.gz").write_bytes(packed[:40])
    assert not following.poll()
    (tmp_path / "a.log.gz").write_bytes(packed)
    assert not following.poll()
    assert following.poll()
    assert len(following.snapshot().readings) == 1000
    assert not following.poll()
    (tmp_path / "a.log.gz").write_bytes(packed + packed)
    assert following.poll()
    assert [finding.kind for finding in following.snapshot().findings] == ["changed"]


def test_a_line_without_end_is_cut_and_not_held(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("x" * (3 * LONGEST_LINE))
    following = Following([log], FORMATS)
    assert following.poll()
    append(log, "\n" + xid(79))
    assert following.poll()
    result = following.snapshot()
    assert [reading.line for reading in result.readings] == [2]
    assert [finding.kind for finding in result.findings] == ["truncated"]


def test_snapshots_do_not_change_what_comes_later(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("Dec 31 23:59:50 n17 kernel: NVRM: Xid (PCI:0000:61:00): 45, x\n")
    following = Following([log], FORMATS)
    following.poll()
    first = following.snapshot()
    assert following.snapshot() == first
    append(log, "[Thu Jan  1 00:00:10 2026] NVRM: Xid (PCI:0000:61:00): 79, x\n")
    following.poll()
    late, early = following.snapshot().readings[1].time, following.snapshot().readings[0].time
    assert late - early == 20
    assert len(first.readings) == 1


def test_what_cannot_be_followed_is_an_ingest_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, problem in (("-", "pipe"), (tmp_path / "pipe", "pipe"), (tmp_path / "absent", "no such file")):
        with pytest.raises(IngestError, match=problem):
            next(follow([path], FORMATS))
