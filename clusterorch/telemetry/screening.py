"""Here lives the sieve in front of the patterns: most lines hold none of the texts that any pattern asks for.

Four bytes of every text are looked up at every position of a block of lines at once, with arrays; only lines
where they occur are looked at one by one.  The cost hardly depends on the number of patterns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

GRAM = 4
SCREENED = 8192  # characters of a line that are looked at
BATCH_LINES = 4096
BATCH_CHARACTERS = 1 << 20

# What ordinary prose is made of; grams of rarer characters are better sieves.
_COMMON = " etaoinshrdlucmfwygpb"
_MULTIPLIER = np.uint32(2654435761)
_SLOTS = 1 << 16


class Screen:
    """Tells which of many texts stand in which lines.

    >>> Screen(["NVRM: Xid", "iteration "]).hits(["a line", "[1.0] NVRM: Xid (PCI:0000:02:00): 79"])
    {1: [0]}
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)
        slots: dict[int, list[int]] = defaultdict(list)
        for number, text in enumerate(self._texts):
            slots[_slot(_rarest(text.encode()))].append(number)
        self._groups = list(slots.values())
        self._table = np.zeros(_SLOTS, dtype=np.uint16)
        for group, slot in enumerate(slots, 1):
            self._table[slot] = group

    def hits(self, lines: Sequence[str]) -> dict[int, list[int]]:
        """For each line that holds any of the texts, their numbers."""
        heads = [line if len(line) <= SCREENED else line[:SCREENED] for line in lines]
        block = np.frombuffer("\n".join(heads).encode("utf-8", "replace"), dtype=np.uint8)
        if block.size < GRAM:
            return {}
        groups = self._table[_slots(block)]
        at = np.flatnonzero(groups)
        breaks = np.flatnonzero(block == 10)
        pairs = np.unique(np.searchsorted(breaks, at) * _SLOTS + groups[at])
        found: dict[int, list[int]] = {}
        for pair in pairs.tolist():
            line, group = divmod(pair, _SLOTS)
            for number in self._groups[group - 1]:
                if self._texts[number] in heads[line]:
                    found.setdefault(line, []).append(number)
        for numbers in found.values():
            numbers.sort()
        return found


def batches(lines: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines in batches of bounded size."""
    batch: list[tuple[int, str]] = []
    characters = 0
    for line in lines:
        batch.append(line)
        characters += len(line[1])
        if len(batch) >= BATCH_LINES or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _slots(block: np.ndarray) -> np.ndarray:
    """The slot of the four bytes that begin at each position.  [N] -> [N - 3]"""
    wide = block.astype(np.uint32)
    grams = wide[:-3] | wide[1:-2] << 8 | wide[2:-1] << 16 | wide[3:] << 24
    return (grams * _MULTIPLIER) >> np.uint32(16)


def _slot(gram: bytes) -> int:
    return int(_slots(np.frombuffer(gram, dtype=np.uint8))[0])


def _rarest(text: bytes) -> bytes:
    grams = [text[at : at + GRAM] for at in range(len(text) - GRAM + 1)]
    if not grams:
        raise ValueError(f"{text!r} is shorter than {GRAM} bytes")
    return min(grams, key=lambda gram: sum(_COMMON[::-1].find(chr(byte)) + 1 for byte in gram))
