import random

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.screening import BATCH_CHARACTERS, SCREENED, Screen, batches


def test_the_screen_finds_what_a_plain_search_finds():
    chance = random.Random(0)
    texts = ["".join(chance.choices("abc :", k=chance.randint(4, 7))) for _ in range(60)]
    texts = list(dict.fromkeys(texts))
    lines = ["".join(chance.choices("abc :\u2588", k=chance.randint(0, 80))) for _ in range(500)]
    expected = {
        number: found
        for number, line in enumerate(lines)
        if (found := [index for index, text in enumerate(texts) if text in line])
    }
    assert Screen(texts).hits(lines) == expected


def test_every_example_passes_the_screen_of_its_row():
    formats = load_formats(shipped_formats())
    texts = list(formats.groups)
    for row in formats.pattern.values():
        words = formats.screen.hits([row.example]).get(0, [])
        assert any(word < len(texts) and texts[word] in row.prefilter for word in words), row.name


@pytest.mark.parametrize("lines", [[], [""], ["", "", ""], ["ab"], ["\ud800 lone surrogate some text"]])
def test_blocks_too_short_or_odd_pass(lines):
    assert Screen(["some text"]).hits(lines) == ({0: [0]} if "some text" in "".join(lines) else {})


def test_only_the_head_of_a_line_is_looked_at():
    assert Screen(["some text"]).hits(["x" * SCREENED + "some text"]) == {}


def test_a_text_shorter_than_the_sieve_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        Screen(["abc"])


def test_batches_are_bounded_in_characters_and_keep_every_line():
    lines = [(number, "x" * 60_000) for number in range(100)]
    made = list(batches(iter(lines)))
    assert [line for batch in made for line in batch] == lines
    assert max(sum(len(text) for _, text in batch) for batch in made) < BATCH_CHARACTERS + 60_000
