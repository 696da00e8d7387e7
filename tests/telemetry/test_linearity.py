import random
import re
import time

import pytest

from clusterorch.telemetry.linearity import LONGEST_MATCHED, NotLinear, check
from clusterorch.telemetry.patterns import load_formats, shipped_formats

ROWS = list(load_formats(shipped_formats()).pattern.values())


@pytest.mark.parametrize(
    "regex",
    [
        r"x(a+)+b",
        r"x(a*)*b",
        r"x(?:a|a)+b.*c.*d",
        r"x(a|aa)+$b.*.*",
        r"x.*y.*z",
        r"x(?:\w+\s?)*y",
        r"x(\w)\1",
        r"x(?=y)",
        r"x(?<!y)z",
        r"x(y)?(?(1)a|b)",
        r"\s+x",
        r"(?i)x",
        r"x(?i:y)",
        r"x(?:a?){50}b",
        r"x[",
        r"x{99999999999999}",
    ],
)
def test_a_pattern_that_a_line_could_make_slow_is_refused(regex):
    with pytest.raises(NotLinear):
        check(regex)


@pytest.mark.parametrize(
    "regex",
    [
        r"Xid \(PCI:(?P<pci>[0-9a-f:.]+)\): (?P<code>\d+)",
        r"^\s+File \"[^\"]+\", line \d+",
        r"x.*y",
        r"x.{0,60}y.{0,60}z",
        r"x(?:ab|cd)+e",
        r"x\w++y.*z",
        r"x(?:\d{1,3}\.){3}\d{1,3}",
    ],
)
def test_a_pattern_with_bounded_work_is_compiled(regex):
    assert check(regex).pattern == regex


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_line_makes_a_shipped_pattern_slow(row):
    regex, chance = re.compile(row.regex), random.Random(row.name)
    pieces = [
        row.example,
        *row.prefilter,
        row.example[: len(row.example) // 2],
        row.example[-20:],
        " ",
        "1",
        "a",
        "1.",
        ": ",
    ]
    lines = [(piece * LONGEST_MATCHED)[:LONGEST_MATCHED] for piece in pieces if piece]
    lines += ["".join(chance.choices(pieces, k=400))[:LONGEST_MATCHED] for _ in range(5)]
    start = time.process_time()
    for line in lines:
        regex.search(line)
    assert time.process_time() - start < 0.05 * len(lines)
