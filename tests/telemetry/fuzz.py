"""Here lives the search for files that break the reader: `python -m tests.telemetry.fuzz --inputs 100000 --seed 0`.

An input is made from its number alone, so that what was found can be made again with `--seed NUMBER --inputs 1`.
Anything but an `IngestError` or a sound result is a find.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

from clusterorch.errors import IngestError
from clusterorch.telemetry.budgets import Limits
from clusterorch.telemetry.following import Following
from clusterorch.telemetry.patterns import Formats, load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.readings import Ingested
from tests.telemetry.attacks import archives, texts

CASES = Path(__file__).parents[2] / "data" / "cases"
LONGEST = 20_000  # bytes of an input, before it is packed
SLOWEST = 5.0  # seconds an input may take; most take a millisecond
LIMITS = Limits(files=50, bytes_read=8 << 20, ratio=100, ratio_from=1 << 20, whole_file_bytes=1 << 20)
ODD = [
    "\u00b2",
    "\u0663",
    "\u00bd",
    "-",
    "1e999",
    "nan",
    "0x",
    "9" * 400,
    "",
    " ",
    "\u2028",
    "\ud7ff",
    "%s",
    "[N/A]",
    "\0",
]


@cache
def formats() -> Formats:
    return load_formats(shipped_formats())


@cache
def cases() -> list[bytes]:
    files = sorted(path for path in CASES.glob("*/logs/**/*") if path.is_file())
    assert files, CASES
    return [path.read_bytes()[:LONGEST] for path in files]


@cache
def examples() -> list[str]:
    tables = (formats().pattern, formats().column, formats().wait)
    rows = [row for table in tables for row in table.values()]
    return [example for row in rows if (example := getattr(row, "example", None))]


def mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 8)):
        at, length = chance.randint(0, len(data)), chance.choice([1, 1, 2, 8, 100])
        piece = data[at : at + length]
        data = data[:at] + _instead(piece, chance) + data[at + length :]
    return data


def _instead(piece: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(7)
    if kind == 0:
        return b""
    if kind == 1:
        return chance.randbytes(len(piece))
    if kind == 2:
        return piece * chance.choice([2, 3, 50])
    if kind == 3:
        return chance.choice(ODD).encode("utf-8", "replace")
    if kind == 4:
        return chance.choice([b"\n", b"\r", b"\r\n", b"\0", b",", b" ", b"\t", b"\x1b["])
    if kind == 5:
        return piece + chance.choice(texts.CLOCKS + texts.TERMINAL + texts.MARKUP)
    return bytes(byte ^ 1 << chance.randrange(8) for byte in piece)


def from_case(chance: random.Random) -> bytes:
    data = chance.choice(cases())
    start = chance.randrange(max(1, len(data)))
    return mutated(data[start if chance.random() < 0.5 else 0 :], chance)


def from_rows(chance: random.Random) -> bytes:
    lines = [mutated(chance.choice(examples()).encode(), chance) for _ in range(chance.randint(1, 20))]
    return chance.choice([b"\n", b"\n", b"\r", b""]).join(lines) + b"\n"


def noise(chance: random.Random) -> bytes:
    alphabet = chance.choice(
        [bytes(range(256)), b"\0\n\r\x1b[]m;", b" 0123456789:-.,[]+\n", bytes(range(32, 127)) + b"\n"]
    )
    return bytes(chance.choices(alphabet, k=chance.randint(0, 3000)))


def sheet(chance: random.Random) -> bytes:
    """A table of random columns, with rows of the right and the wrong width."""
    known = sorted(formats().columns)
    names = [chance.choice(known) for _ in range(chance.randint(1, 12))]
    cells = [
        "0",
        "1",
        "P0",
        "Active",
        "Not Active",
        "99 %",
        "300.1 W",
        "00000000:61:00.0",
        "0x4",
        "2026/01/01 00:00:00.0",
    ]
    lines = [", ".join(names)]
    for _ in range(chance.randint(0, 20)):
        width = len(names) + chance.choice([0, 0, 0, 0, 1, -1])
        lines.append(", ".join(chance.choice(cells + ODD) for _ in range(width)))
    return mutated("\n".join(lines).encode("utf-8", "replace"), chance)


def stacks(chance: random.Random) -> bytes:
    """Dumps of threads, with frames that hang in the air."""
    parts = ["Process 17: python x.py", "Python v3.11.7 (/usr/bin/python)", 'Thread 0x7F (idle): "MainThread"']
    parts += ["Thread 17 (active)", "    all_reduce (torch/distributed/distributed_c10d.py:2806)", "    f (x)", ""]
    parts += ["  port_rcv_errors: 17", "link_downed 3 -> 9", "symbol_error=0", "rx_discards_phy: " + "9" * 20]
    return mutated("\n".join(chance.choice(parts) for _ in range(chance.randint(1, 60))).encode(), chance)


def packed(chance: random.Random) -> bytes:
    """An archive, whole or with flipped bytes."""
    maker = chance.choice([from_case, from_rows, noise])
    names = ["a.log", "../b.log", "d/" * chance.randint(0, 9) + "c", "\x1b[2J", "n" * 300, "d/", "x.gz", "data.pkl"]
    files = {chance.choice(names): maker(chance)[:4000] for _ in range(chance.randint(1, 4))}
    for name in list(files):
        if name.endswith("/"):
            files[name] = b""
    kind = chance.randrange(4)
    if kind == 0:
        data = archives.tar(files, chance.choice([1, 2]))  # GNU, PAX: the third refuses long names
    elif kind == 1:
        data = archives.zipped(files, chance.choice([0, 8, 12]), streamed=chance.random() < 0.5)
    else:
        data = next(iter(files.values()))
    for _ in range(chance.choice([0, 1, 1, 2])):
        data = archives.COMPRESSORS[chance.choice(sorted(archives.COMPRESSORS))](data)
    return mutated(data, chance)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "case": from_case,
    "rows": from_rows,
    "noise": noise,
    "sheet": sheet,
    "stacks": stacks,
    "packed": packed,
}


def read(kind: str, number: int, folder: Path) -> Ingested | None:
    """Read the input of a kind and a number; None for an `IngestError`.

    Raises:
        Exception: the reader broke, or what it gives is unsound.
    """
    chance = random.Random(f"{kind} {number}")
    data = KINDS[kind](chance)
    path = folder / "input"
    start = time.process_time()
    try:
        result = _followed(path, data, chance) if chance.random() < 0.1 else _read(path, data)
    except IngestError as error:
        result, said = None, str(error)
    else:
        check(result)
        said = ""
    assert said.isprintable()
    assert time.process_time() - start < SLOWEST, "took too long"
    return result


def _read(path: Path, data: bytes) -> Ingested:
    path.write_bytes(data)
    return read_paths([path], formats(), LIMITS)


def _followed(path: Path, data: bytes, chance: random.Random) -> Ingested:
    """What is read of a file that grows by bits, and now and then becomes shorter."""
    path.write_bytes(b"")
    following = Following([path], formats(), LIMITS)
    at = 0
    while at < len(data):
        step = chance.randint(1, max(1, len(data) // 4))
        with path.open("ab") as file:
            file.write(data[at : at + step])
        at += step
        if chance.random() < 0.1:
            path.write_bytes(data[:at][-50:])
        following.poll()
        check(following.snapshot())
    following.poll()
    return following.snapshot()


def check(result: Ingested) -> None:
    """What holds for every result."""
    coverage = result.coverage
    assert coverage.recognised + coverage.unrecognised == coverage.lines
    assert [reading.order for reading in result.readings] == sorted(reading.order for reading in result.readings)
    for reading in result.readings:
        assert str(reading.entity)
        assert len(reading.text) <= 400
        assert "\x1b" not in reading.text
        assert reading.file.isprintable()
        assert reading.time is None or math.isfinite(reading.time)
    for finding in result.findings:
        assert finding.file.isprintable()
        assert finding.text.isprintable(), finding.text


def main() -> int:
    """Read many inputs; print how many of each outcome there were, and what broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each kind")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no more are read")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="may be repeated; all if not given")
    arguments = parser.parse_args()
    outcomes: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.seed, arguments.seed + arguments.inputs):
            if time.monotonic() - start > 60 * arguments.minutes:
                break
            for kind in arguments.kind or KINDS:
                try:
                    result = read(kind, number, Path(folder))
                    outcomes["refused" if result is None else "with readings" if result.readings else "without"] += 1
                except Exception:
                    outcomes["broken"] += 1
                    print(f"--kind {kind} --seed {number} --inputs 1", traceback.format_exc(limit=-3), sep="\n")
    print(f"{sum(outcomes.values())} inputs in {time.monotonic() - start:.0f} s: {dict(outcomes)}")
    return 1 if outcomes["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
