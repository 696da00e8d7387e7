"""Here lives the cascade of a page: how the leading variant brings about what was seen, drawn as steps down.

Rows stand in causal order, each a step further in than its causes; what a mechanism shows stands below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import networkx as nx

from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis
from clusterorch.models import Model
from clusterorch.models.spec import When
from clusterorch.reports.markup import safe
from clusterorch.reports.wording import printable

_ROW, _STEP, _LEFT, _LETTER, _GAP = 25, 17, 12, 7.1, 16
_LONGEST = 52  # letters of a label
_EXPECTED = 0.3  # a sign likelier than this at the site is expected
_MOST_UNSEEN = 8
_HALTING = {"halted": ("stall", "block_save", "block_start"), "down": ("crash",)}


class Row(NamedTuple):
    """A box: kind is variant, mechanism or signal; seen: whether the logs show it; parents: rows it hangs from."""

    name: str
    kind: str
    title: str
    rank: int
    seen: bool
    parents: tuple[str, ...]


def leading_variant(diagnosis: Diagnosis) -> str | None:
    """The most probable variant of the leading mode; None if that is a job without any disturbance."""
    inside = {v: p for v, p in diagnosis.variants.items() if v.partition(".")[0] == diagnosis.leading and p > 0.0}
    if not inside:
        return None
    best = max(inside, key=lambda name: inside[name])
    quiet = diagnosis.modes[HEALTHY] - sum(inside.values()) if diagnosis.leading == HEALTHY else 0.0
    return best if inside[best] > quiet else None


def rows_of(diagnosis: Diagnosis, variant: str) -> tuple[list[Row], int]:
    """The cascade of a variant in order, and how many expected signs are left out for want of room."""
    model, graph = diagnosis.model, diagnosis.model.graph
    reached = nx.descendants(graph, variant)
    mechanisms = {name for name in reached if graph.nodes[name]["kind"] == "mechanism"}
    causes = graph.subgraph({variant, *mechanisms})
    order = _downwards(causes, variant)
    rank = {variant: 0}
    for name in order[1:]:
        rank[name] = 1 + max(rank[parent] for parent in causes.predecessors(name))
    seen = _shown_signals(diagnosis)
    hangs, likely = _signs(model, order, mechanisms)
    unseen = sorted(
        (name for name in hangs if name not in seen and likely[name] >= _EXPECTED), key=lambda n: -likely[n]
    )
    kept = {name for name in hangs if name in seen} | set(unseen[:_MOST_UNSEEN])
    rows = []
    for name in order:
        mine = [sign for sign, place in hangs.items() if place == name and sign in kept]
        title = graph.nodes[name]["title"] or name.partition(".")[2] or name
        shows = any(sign in seen for sign in mine)
        kind = graph.nodes[name]["kind"]
        rows.append(
            Row(name, kind, title, rank[name], shows, tuple(sorted(causes.predecessors(name), key=order.index)))
        )
        for sign in sorted(mine, key=lambda s: (s not in seen, -likely[s])):
            rows.append(Row(sign, "signal", model.signals[sign].title, rank[name] + 1, sign in seen, (name,)))
    return rows, len(unseen[_MOST_UNSEEN:])


def cascade(diagnosis: Diagnosis) -> str:
    """The drawing; empty if nothing has happened."""
    variant = leading_variant(diagnosis)
    if variant is None:
        return ""
    rows, left_out = rows_of(diagnosis, variant)
    place = {row.name: (_LEFT + _STEP * row.rank, _GAP + _ROW * number) for number, row in enumerate(rows)}
    width = max(place[row.name][0] + _width(row) for row in rows) + 2 * _LEFT
    height = _GAP + _ROW * len(rows)
    parts = [
        f'<div class="wide"><svg class="cascade" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" aria-label="Cascade of {safe(variant)}">'
    ]
    parts += [_elbow(place[parent], place[row.name], row) for row in rows for parent in row.parents]
    parts += [_box(row, *place[row.name]) for row in rows]
    parts.append("</svg></div>")
    key = "filled: the logs show it; outlined: hidden, or shown only by what follows; dashed: expected, not in the logs"
    more = f"; {left_out} more expected signs are not drawn" if left_out else ""
    return "".join(parts) + f'<p class="dim">{safe(key + more)}.</p>' + _unexplained(diagnosis, rows)


def _downwards(causes: nx.DiGraph, variant: str) -> list[str]:
    """Causes before effects, and each branch to its end before the next: a topological order, depth first."""
    waiting = {name: causes.in_degree(name) for name in causes}
    stack, order = [variant], []
    while stack:
        name = stack.pop()
        order.append(name)
        for child in sorted(causes.successors(name), key=lambda n: -causes.nodes[n]["index"]):
            waiting[child] -= 1
            if not waiting[child]:
                stack.append(child)
    return order


def _shown_signals(diagnosis: Diagnosis) -> set[str]:
    """Signals of which a reading shows more than that all is well."""
    declared = diagnosis.model.signals
    return {
        r.signal
        for r in diagnosis.ingested.readings
        if (signal := declared.get(r.signal)) and (r.value != signal.values[0] if signal.values else r.value != 0)
    } | {weight.reading.signal for weight in diagnosis.weights}


def _signs(model: Model, order: list[str], mechanisms: set[str]) -> tuple[dict[str, str], dict[str, float]]:
    """By signal: the last mechanism in order that a rule of it asks for, and how likely the rule makes it."""
    hangs: dict[str, str] = {}
    likely: dict[str, float] = {}
    effects = {name: model.mechanisms[name].effect for name in mechanisms}
    for signal in model.spec.signal:
        for rule in signal.when:
            needs = [name for name in rule.needs if name in mechanisms]
            if len(needs) < len(rule.needs):
                continue
            if not needs and rule.job in _HALTING:
                needs = [name for name in order if effects.get(name) in _HALTING[rule.job]][:1]
            if needs and (chance := _chance(rule)) > likely.get(signal.name, -1.0):
                hangs[signal.name], likely[signal.name] = max(needs, key=order.index), chance
    return hangs, likely


def _chance(rule: When) -> float:
    """How likely one entity shows a sign under a rule; a sample, always taken, comes after all lines."""

    def middle(value: list[float] | float) -> float:
        return value[len(value) // 2] if isinstance(value, list) else value

    if rule.probability is not None:
        return middle(rule.probability)
    if rule.probabilities is not None:
        own = rule.probabilities
        return 1.0 - (own[len(own) // 2][0] if isinstance(own[0], list) else own[0])
    if rule.told is not None:
        return middle(rule.told)
    if rule.speaks is not None:
        return 0.0  # whose line came first is no line of its own
    return _EXPECTED if rule.mean is not None else 0.0


def _label(row: Row) -> str:
    text = printable(row.title)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _width(row: Row) -> float:
    return 18 + (_LETTER + (row.kind == "variant")) * len(_label(row))


def _box(row: Row, x: float, y: float) -> str:
    kind = f"{row.kind} {'seen' if row.seen else 'unseen' if row.kind == 'signal' else 'hidden'}"
    shown = "in the logs" if row.seen else "not in the logs" if row.kind == "signal" else "hidden"
    round_ = 9 if row.kind == "signal" else 3
    return (
        f'<g class="{kind}"><title>{safe(f"{row.kind} {row.name}: {row.title}; {shown}")}</title>'
        f'<rect x="{x}" y="{y - 10}" width="{_width(row):.0f}" height="20" rx="{round_}"/>'
        f'<text x="{x + 9}" y="{y + 4}">{safe(_label(row))}</text></g>'
    )


def _elbow(parent: tuple[float, float], child: tuple[float, float], row: Row) -> str:
    x, top = parent[0] + 6, parent[1] + 10
    kind = "unseen" if row.kind == "signal" and not row.seen else "edge"
    return f'<path class="{kind}" d="M{x} {top}V{child[1]}H{child[0]}"/>'


def _unexplained(diagnosis: Diagnosis, rows: Iterable[Row]) -> str:
    """Signals that speak against the leading mode and have no place in its cascade."""
    drawn = {row.name for row in rows}
    total: dict[str, float] = {}
    for weight in diagnosis.weights:
        total[weight.reading.signal] = total.get(weight.reading.signal, 0.0) + weight.change[diagnosis.leading]
    odd = [name for name, nats in total.items() if name not in drawn and nats < 0.0]
    if not odd:
        return ""
    titles = "; ".join(diagnosis.model.signals[name].title for name in odd)
    return f"<p>Seen, and not part of this cascade: {safe(titles)}.</p>"
