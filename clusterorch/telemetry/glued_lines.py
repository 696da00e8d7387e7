"""Here lives the way from a line on which a progress bar and a message stand together back to the two that were meant.

A bar does not end its line, so whatever another writer says next is glued to it, its own prefixes and times included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_END_OF_A_BAR = re.compile(
    r"(?:it|s|step|steps|batch|examples|samples|tokens|B|iB)/(?:s|it|step)\b[^\[\]]{0,400}\](?: ?(?=[\[{^A-Z<\x1b]))"
)
_LONGEST_BAR = 2048


def unglued(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    r"""Numbered lines; what was written behind a bar comes as a line of its own, of the same number.

    >>> list(unglued([(7, " 41%|####1     | 512/1250 [08:11<11:48,  1.04it/s]Traceback (most recent call last):")]))
    [(7, ' 41%|####1     | 512/1250 [08:11<11:48,  1.04it/s]'), (7, 'Traceback (most recent call last):')]
    >>> list(unglued([(8, "100%|##########| 9/9 [00:01<00:00,  9.1it/s] done")]))
    [(8, '100%|##########| 9/9 [00:01<00:00,  9.1it/s] done')]
    """
    for number, text in lines:
        if "%|" not in text or "]" not in text:
            yield number, text
            continue
        bar = _END_OF_A_BAR.search(text, 0, _LONGEST_BAR)
        while bar is not None:
            yield number, text[: bar.end()].rstrip()
            text = text[bar.end() :].removeprefix("^C")
            bar = _END_OF_A_BAR.search(text, 0, _LONGEST_BAR) if "%|" in text else None
        if text:
            yield number, text
