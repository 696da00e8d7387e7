"""Edits of the raw tables of a model, to be applied one at a time."""

from collections.abc import Callable
from typing import Any

from tests.models import tiny

Edit = Callable[[dict[str, Any]], object]


def of(kind: str, name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda raw: tiny.named(raw[kind], name)


def put(kind: str, name: str, **values: Any) -> Edit:
    return lambda raw: of(kind, name)(raw).update(values)


def rule(signal: str, index: int = 0, **values: Any) -> Edit:
    return lambda raw: of("signal", signal)(raw)["when"][index].update(values)


def without(kind: str, name: str) -> Edit:
    return lambda raw: raw[kind].remove(of(kind, name)(raw))


def again(kind: str, name: str) -> Edit:
    return lambda raw: raw[kind].append(dict(of(kind, name)(raw)))


def add(kind: str, **table: Any) -> Edit:
    return lambda raw: raw[kind].append(table)


def edge(start: str, end: str, **values: Any) -> Edit:
    return add("edge", **{"from": start, "to": end, "assumed": "a test", **values})


def both(*edits: Edit) -> Edit:
    return lambda raw: [edit(raw) for edit in edits]


def rename(kind: str, old: str, new: str) -> Edit:
    return lambda raw: of(kind, old)(raw).update(name=new)
