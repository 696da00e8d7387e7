"""Here lives the check that no line can make a line pattern slow.

Python's regular expressions backtrack.  A repeat is harmless when what it repeats and what follows it
begin with different characters: giving a character back then fails at once.  Every other repeat multiplies
the work by its length, so the product over those is bounded; nesting is refused, and so is everything that
needs memory (backreferences, lookaround).  Lines are matched over their first `LONGEST_MATCHED` characters.
"""

import re
from re import _constants as op
from re import _parser as parser
from typing import Any

LONGEST_MATCHED = 4096
MOST_BACKTRACKS = LONGEST_MATCHED + 1
LONG_REPEAT = 16  # repeats up to here may nest

_ALL = (1 << 129) - 1  # one bit for each ASCII character, the last for all others
_OTHER = 1 << 128
_CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda character: character.isalnum() or character == "_",
}
_NEGATED = {
    op.CATEGORY_NOT_DIGIT: op.CATEGORY_DIGIT,
    op.CATEGORY_NOT_SPACE: op.CATEGORY_SPACE,
    op.CATEGORY_NOT_WORD: op.CATEGORY_WORD,
}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


class NotLinear(ValueError):
    """A regular expression whose work is not bounded by the length of the line."""


def check(regex: str) -> re.Pattern[str]:
    r"""Compile a regular expression that is safe on hostile lines.

    Raises:
        NotLinear: it is malformed, needs memory, nests open repeats, or may backtrack too often.

    >>> check(r"Xid \(PCI:(?P<pci>[0-9a-f:.]+)\): (?P<code>\d+)").groups
    2
    >>> check(r"x(a+)+b")
    Traceback (most recent call last):
        ...
    clusterorch.telemetry.linearity.NotLinear: nests one open repeat in another
    """
    try:
        compiled = re.compile(regex)
        tree = parser.parse(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise NotLinear(f"is no regular expression: {error}") from error
    if compiled.flags & (re.IGNORECASE | re.DOTALL):
        raise NotLinear("sets flags, which are not supported")
    if _open_start(list(tree)):
        raise NotLinear("begins with an open repeat; begin with a literal or with ^")
    cost, _, _ = _sequence(list(tree), follow=0)
    if cost > MOST_BACKTRACKS:
        raise NotLinear(f"may backtrack {cost} times; bound its repeats or let the next character end them")
    return compiled


def _open_start(items: list[Any]) -> bool:
    """Whether every start position may scan far before it fails."""
    for code, argument in items:
        if code is op.AT:
            return False
        if code is op.SUBPATTERN:
            if argument[3] and _open_start(list(argument[3])):
                return True
            if _nullable(list(argument[3])):
                continue
            return False
        if code in _REPEATS:
            if argument[1] is op.MAXREPEAT or argument[1] > 64:
                return True
            if argument[0] == 0:
                continue
        return False
    return False


def _nullable(items: list[Any]) -> bool:
    return _sequence(items, follow=0)[2]


def _sequence(items: list[Any], follow: int, repeated: bool = False) -> tuple[int, int, bool]:  # noqa: FBT001, FBT002
    """(backtracks, characters it may begin with, whether it may be empty)."""
    cost, first, empty = 1, 0, True
    for item in reversed(items):
        after = first | (follow if empty else 0)
        item_cost, item_first, item_empty = _item(item, after, repeated)
        cost *= item_cost
        first = item_first | (first if item_empty else 0)
        empty = empty and item_empty
    return cost, first, empty


def _item(item: tuple[Any, Any], follow: int, repeated: bool) -> tuple[int, int, bool]:  # noqa: FBT001
    code, argument = item
    if code is op.LITERAL:
        return 1, _bit(argument), False
    if code is op.NOT_LITERAL:
        return 1, _ALL & ~_bit(argument) if argument < 128 else _ALL, False
    if code is op.ANY:
        return 1, _ALL & ~_bit(10), False
    if code is op.IN:
        return 1, _set(argument), False
    if code is op.AT:
        return 1, 0, True
    if code is op.SUBPATTERN:
        if argument[1] or argument[2]:
            raise NotLinear("sets flags, which are not supported")
        return _sequence(list(argument[3]), follow, repeated)
    if code is op.ATOMIC_GROUP:
        return _sequence(list(argument), follow, repeated)
    if code is op.BRANCH:
        return _branch(argument[1], follow, repeated)
    if code in _REPEATS:
        return _repeat(code, argument, follow, repeated)
    raise NotLinear("needs memory or looks around (backreference, lookahead, lookbehind, condition)")


def _branch(options: list[Any], follow: int, repeated: bool) -> tuple[int, int, bool]:  # noqa: FBT001
    parts = [_sequence(list(option), follow, repeated) for option in options]
    seen, overlap = 0, False
    for _, first, empty in parts:
        overlap = overlap or empty or bool(seen & first)
        seen |= first
    costs = [cost for cost, _, _ in parts]
    return (sum(costs) if overlap and repeated else max(costs)), seen, any(empty for _, _, empty in parts)


def _repeat(code: Any, argument: tuple[Any, Any, Any], follow: int, repeated: bool) -> tuple[int, int, bool]:  # noqa: FBT001
    least, most, inner = argument
    is_open = most is op.MAXREPEAT or most > LONG_REPEAT
    if is_open and repeated:
        raise NotLinear("nests one open repeat in another")
    _, first, inner_empty = _sequence(list(inner), follow=0)
    again = first if most is op.MAXREPEAT or most > 1 else 0
    cost, _, _ = _sequence(list(inner), again | follow, repeated or is_open)
    if most is op.MAXREPEAT or most > LONGEST_MATCHED:
        most = LONGEST_MATCHED
    if inner_empty and most > 1:
        raise NotLinear("repeats something that may be empty")
    ambiguous = code is not op.POSSESSIVE_REPEAT and first & follow and most > least
    choices = most - least + 1 if ambiguous else 1
    return cost * choices, first, least == 0


def _bit(character: int) -> int:
    return 1 << character if character < 128 else _OTHER


def _set(members: list[Any]) -> int:
    mask, negate = 0, False
    for code, argument in members:
        if code is op.NEGATE:
            negate = True
        elif code is op.LITERAL:
            mask |= _bit(argument)
        elif code is op.RANGE:
            for character in range(argument[0], min(argument[1], 128) + 1):
                mask |= _bit(character)
        elif code is op.CATEGORY:
            mask |= _category(argument)
    return (_ALL & ~mask) | _OTHER if negate else mask


def _category(name: Any) -> int:
    member = _CATEGORIES[_NEGATED.get(name, name)]
    mask = sum(1 << code for code in range(128) if member(chr(code)))
    return (_ALL & ~mask if name in _NEGATED else mask) | _OTHER
