import io
import tracemalloc

import pytest

from clusterorch.telemetry.lines import BLOCK, LONGEST_LINE, Damage, clean_lines, joined, not_text
from clusterorch.telemetry.patterns import load_formats, shipped_formats

WRAPS = load_formats(shipped_formats()).wraps


def lines_of(data: bytes):
    damage = Damage()
    return list(clean_lines(io.BytesIO(data), damage)), damage


def texts(data: bytes) -> list[str]:
    return [text for _, text in lines_of(data)[0] if text]


def test_plain_lines_keep_their_numbers():
    found, _ = lines_of(b"one\n\nthree\nfour")
    assert [(number, text) for number, text in found if text] == [(1, "one"), (3, "three"), (4, "four")]


def test_overwritten_progress_bars_become_pieces_of_one_line():
    found, _ = lines_of(b"first\n 10%|#\r 20%|##\r 30%|###Traceback (most\nlast\r\n")
    assert [(n, t) for n, t in found if t] == [
        (1, "first"),
        (2, " 10%|#"),
        (2, " 20%|##"),
        (2, " 30%|###Traceback (most"),
        (3, "last"),
    ]


def test_colours_titles_and_control_characters_vanish():
    assert texts(b"\x1b[31;1mred\x1b[0m \x1b]0;title\x07text\x00\x01end\n") == ["red text  end"]


def test_an_unfinished_escape_does_not_swallow_the_line():
    assert texts(b"a\x1b[31\nb\x1b\nc\x1b]0;no end of title\n")[0].startswith("a")


def test_invalid_utf8_is_replaced_and_counted():
    found, damage = lines_of(b"caf\xe9 \xff\xfe ok\n")
    assert found[0][1] == "caf\ufffd \ufffd\ufffd ok"
    assert damage.undecodable == 3


def test_a_replacement_character_that_was_in_the_file_is_no_damage():
    assert lines_of("fine \ufffd\n".encode())[1].undecodable == 0


def test_characters_cut_by_a_block_border_survive():
    data = b"x" * (BLOCK - 1) + "\u2588".encode() + b"\n"
    data = b"\n".join(data[at : at + 1000] for at in range(0, len(data) - 4, 1000)) + "\nbar \u2588\u2588\n".encode()
    assert texts(data)[-1] == "bar \u2588\u2588"


@pytest.mark.parametrize("size", [LONGEST_LINE + 1, BLOCK, 3 * BLOCK + 17])
def test_a_long_line_is_cut_and_what_follows_is_kept(size):
    found, damage = lines_of(b"before\n" + b"y" * size + b"\nafter\n")
    kept = [(number, text) for number, text in found if text]
    assert [number for number, _ in kept] == [1, 2, 3]
    assert len(kept[1][1]) <= LONGEST_LINE
    assert kept[2][1] == "after"
    assert damage.truncated == 1


class Endless(io.RawIOBase):
    """Megabytes without a line feed, made as they are read."""

    def __init__(self, size, piece=b"z" * 65536):
        self._left, self._piece = size, piece

    def read(self, size=-1):
        take = min(self._left, size)
        self._left -= take
        return (self._piece * (take // len(self._piece) + 1))[:take]


@pytest.mark.parametrize(
    ("piece", "megabytes"),
    [(b"z" * 65536, 100), (b"\0" * 65536, 100), (b"\x1b[" * 4096, 100), (b" 1%|#\r" * 4096, 1)],
)
def test_a_hundred_megabytes_without_an_end_of_line_are_read_in_bounded_memory(piece, megabytes):
    tracemalloc.start()
    try:
        damage = Damage()
        total = sum(len(text) > 0 for _, text in clean_lines(Endless(megabytes << 20, piece), damage))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total >= 0
    assert peak < 32 << 20


@pytest.mark.parametrize(
    ("head", "is_text"),
    [
        (b"iteration 1 | loss 2.0\n", True),
        (b"\x1b[32mgreen\x1b[0m\r\n" * 10, True),
        (b"log before a crash\n" + b"\0" * 4096, True),
        (b"\0" * 4096 + b"log after a crash\n", True),
        ("10%|\u2588\u2588 | 1/2\r".encode() * 100, True),
        (b"caf\xe9\n" * 100, True),
        (b"\x80\x02}(X\x07\0\0\0version", False),
        (b"\x1f\x8b\x08\0\0\0", False),
        (b"PK\x03\x04...", False),
        (b"\x7fELF\x02\x01", False),
        (bytes(range(256)) * 32, False),
        (b"a\0b\0c\0d\0" * 100, False),
        (b"", True),
    ],
)
def test_text_is_told_from_the_rest(head, is_text):
    assert (not_text(head) is None) == is_text


def together(text: str) -> list[str]:
    return [line for _, line in joined(enumerate(text.split("\n"), 1), WRAPS)]


def test_an_iteration_in_three_pieces_is_one_record():
    whole = together(
        "[default7]: iteration    21223/  120000 | consumed samples: 17617270 | elapsed time (s): 105.09 |\n"
        "[default7]: learning rate: 5.961E-05 | global batch size:  2048 | lm loss: 2.422739E+00 | a b: 1 |\n"
        "[default7]: num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        "something else"
    )
    assert len(whole) == 2
    assert "lm loss: 2.422739E+00" in whole[0]
    assert whole[0].endswith("number of nan iterations:   0 |")


def test_whole_iterations_are_not_joined():
    line = " iteration    1/  9 | lm loss: 2.4E+00 | number of nan iterations:   0 |"
    assert together(f"{line}\n{line}\nx") == [line, line, "x"]


@pytest.mark.parametrize("prefix", ["[  12.5] NVRM: ", "NVRM: ", "                           "])
def test_a_driver_sentence_over_three_lines_is_one_record(prefix):
    whole = together(
        "[  12.5] NVRM: The NVIDIA GPU 0000:5e:00.0\n"
        f"{prefix}(PCI ID: 10de:20b0) installed in this system has\n"
        f"{prefix}fallen off the bus and is not responding to commands.\n"
        "[  12.6] NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
    )
    assert len(whole) == 2
    assert "0000:5e:00.0 (PCI ID: 10de:20b0) installed in this system has fallen off the bus" in whole[0]


def test_lines_that_do_not_continue_a_record_are_left_alone():
    lines = "NVRM: The NVIDIA GPU 0000:5e:00.0\nan ordinary line\n iteration 1/ 2 | a: 1 |\nTraceback (most"
    assert together(lines) == lines.split("\n")
