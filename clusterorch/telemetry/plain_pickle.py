"""Here lives a loader of pickles that can build plain values and nothing else.

A pickle is a program.  This machine knows only the instructions that make dicts, lists, tuples, sets, texts,
bytes, numbers, booleans and None; every instruction that could import, call or extend anything is refused
before it takes effect.  Time and memory are bounded by what `Bounds` says, whatever the file holds.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_MARK = object()
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "STRING", "BINSTRING", "SHORT_BINSTRING")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_WIDEST_KEY = 1 << 60  # wider numbers may be chosen so that their hashes collide


class NotPlain(ValueError):
    """The pickle holds more than plain values, or more of them than allowed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a pickle may cost."""

    size: int = 256 << 20  # bytes of the file
    steps: int = 4_000_000  # instructions
    depth: int = 32  # containers inside one another
    values: int = 8_000_000  # values met when walking the result, shared ones each time
    bits: int = 128  # of a whole number


def load_plain(data: bytes, bounds: Bounds | None = None) -> Any:
    r"""The plain value that a pickle holds.

    Args:
        data: all bytes of the file.
        bounds: what it may cost; the default fits dumps of some hundred thousand records.

    Raises:
        NotPlain: it is damaged, holds anything else than plain values, or breaks a bound; says where and what.

    >>> load_plain(b"\x80\x02}X\x01\x00\x00\x00aK\x01s.")
    {'a': 1}
    >>> load_plain(b"cos\nsystem\n.")
    Traceback (most recent call last):
        ...
    clusterorch.telemetry.plain_pickle.NotPlain: byte 0: instruction GLOBAL could run code and is refused
    """
    bounds = bounds or Bounds()
    if len(data) > bounds.size:
        raise NotPlain(f"{len(data)} bytes are more than the {bounds.size} that are read")
    machine = _Machine(bounds)
    at = steps = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            at, steps = position or 0, steps + 1
            if steps > bounds.steps:
                raise NotPlain(f"more than {bounds.steps} instructions")
            machine.step(opcode.name, argument)
    except NotPlain as error:
        raise NotPlain(f"byte {at}: {error}") from None
    except (ValueError, OverflowError, UnicodeError, MemoryError) as error:
        raise NotPlain(f"after byte {at}: is damaged: {str(error)[:120]}") from None
    value = machine.result()
    _measure(value, bounds)
    return value


class _Machine:
    """The stack and the memo of a pickle; every step is one instruction."""

    def __init__(self, bounds: Bounds) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._bounds = bounds

    def result(self) -> Any:
        """What is left when the pickle has stopped."""
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise NotPlain("is damaged: does not end with one value")
        return self._stack[0]

    def step(self, name: str, argument: Any) -> None:
        """Carry out one instruction, or refuse it."""
        stack = self._stack
        if name in _NUMBERS:
            if isinstance(argument, int) and argument.bit_length() > self._bounds.bits:
                raise NotPlain(f"a number of {argument.bit_length()} bits")
            stack.append(argument)
        elif name in _TEXTS:
            stack.append(argument)
        elif name in _BYTES:
            stack.append(bytes(argument) if isinstance(argument, bytearray) else argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif not (self._remember(name, argument) or self._build(name) or self._fill(name)):
            raise NotPlain(f"instruction {name} could run code and is refused")

    def _remember(self, name: str, argument: Any) -> bool:
        if name in ("PROTO", "FRAME", "STOP"):
            return True
        if name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._top()
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._top()
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            if argument not in self._memo:
                raise NotPlain(f"is damaged: value {argument} was never kept")
            self._stack.append(self._memo[argument])
        elif name == "DUP":
            self._stack.append(self._top())
        elif name == "POP":
            self._pop(any_value=True)
        elif name == "POP_MARK":
            self._since_mark()
        else:
            return False
        return True

    def _build(self, name: str) -> bool:
        """Instructions that make a container out of what lies on the stack."""
        if name in _TUPLES:
            parts = [self._pop() for _ in range(_TUPLES[name])]
            self._stack.append(tuple(reversed(parts)))
        elif name == "TUPLE":
            self._stack.append(tuple(self._since_mark()))
        elif name == "LIST":
            self._stack.append(self._since_mark())
        elif name == "DICT":
            self._stack.append(dict(_pairs(self._since_mark())))
        elif name == "FROZENSET":
            self._stack.append(frozenset(map(_key, self._since_mark())))
        else:
            return False
        return True

    def _fill(self, name: str) -> bool:
        """Instructions that put values into a container below them."""
        if name == "APPEND":
            value = self._pop()
            self._container(list).append(value)
        elif name == "APPENDS":
            values = self._since_mark()
            self._container(list).extend(values)
        elif name == "SETITEM":
            value, key = self._pop(), self._pop()
            self._container(dict)[_key(key)] = value
        elif name == "SETITEMS":
            values = self._since_mark()
            self._container(dict).update(_pairs(values))
        elif name == "ADDITEMS":
            values = self._since_mark()
            self._container(set).update(map(_key, values))
        else:
            return False
        return True

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise NotPlain("is damaged: a value is missing")
        return self._stack[-1]

    def _pop(self, *, any_value: bool = False) -> Any:
        if not any_value or not self._stack:
            self._top()
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        values: list[Any] = []
        while self._stack:
            value = self._stack.pop()
            if value is _MARK:
                values.reverse()
                return values
            values.append(value)
        raise NotPlain("is damaged: a mark is missing")

    def _container(self, kind: type) -> Any:
        below = self._top()
        if type(below) is not kind:
            raise NotPlain(f"is damaged: a {kind.__name__} is missing")
        return below


def _pairs(values: list[Any]) -> list[tuple[Any, Any]]:
    if len(values) % 2:
        raise NotPlain("is damaged: a key has no value")
    return [(_key(key), value) for key, value in zip(values[::2], values[1::2], strict=True)]


def _key(value: Any) -> Any:
    """A value that may be looked up: nothing whose hash a hostile file could choose to collide."""
    if value is None or isinstance(value, str | bytes) or (isinstance(value, int) and abs(value) < _WIDEST_KEY):
        return value
    raise NotPlain(f"a {type(value).__name__} as a key")


def _measure(root: Any, bounds: Bounds) -> None:
    """Refuse what holds itself, lies too deep, or unfolds into too many values."""
    sizes: dict[int, int] = {}  # of finished containers, by identity; all stay alive through the root
    opened: set[int] = set()
    todo: list[tuple[Any, bool]] = [(root, False)]
    while todo:
        value, finished = todo.pop()
        if not isinstance(value, dict | list | tuple | set | frozenset):
            continue
        inside = [*value.values()] if isinstance(value, dict) else value
        if finished:
            opened.discard(id(value))
            sizes[id(value)] = total = 1 + sum(sizes.get(id(part), 1) for part in inside)
            if total > bounds.values:
                raise NotPlain(f"unfolds into more than {bounds.values} values")
        elif id(value) in opened:
            raise NotPlain("a container that holds itself")
        elif id(value) not in sizes:
            opened.add(id(value))
            if len(opened) > bounds.depth:
                raise NotPlain(f"containers more than {bounds.depth} deep")
            todo.append((value, True))
            todo.extend((part, False) for part in inside)
