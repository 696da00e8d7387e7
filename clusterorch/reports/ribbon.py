"""Here lives the ribbon of a page: the posterior over the evidence as stacked bands, line after line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis
from clusterorch.reports.markup import safe
from clusterorch.reports.terminal import title_of
from clusterorch.reports.wording import percent, when, where
from clusterorch.telemetry.readings import Reading

SHADES = 9  # colours of the stylesheet
_HEIGHT, _TICKS = 180.0, 14.0
_MOST_COLUMNS = 300
_SHOWN = 0.02  # modes that never reach it are told together
_OTHERS = "others"
_LIGHT = 0.005  # nats

Step = tuple[Reading, Mapping[str, float]]


def ribbon(diagnosis: Diagnosis) -> str:
    """The posterior after each line; empty if no line told anything."""
    steps = _thinned(diagnosis.ribbon)
    if not steps:
        return ""
    bands = bands_of(diagnosis)
    width = float(len(steps))
    total = _HEIGHT + _TICKS
    parts = [
        f'<svg class="ribbon" viewBox="0 0 {width:g} {total:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="Posterior over modes after each of {len(diagnosis.ribbon)} lines">'
    ]
    below = [0.0] * len(steps)
    for name, kind in bands.items():
        above = [low + _share(modes, name, bands) for low, (_, modes) in zip(below, steps, strict=True)]
        if name == list(bands)[-1]:
            above = [1.0] * len(steps)
        parts.append(f'<path class="{kind}" d="{_outline(below, above)}"><title>{safe(name)}</title></path>')
        below = above
    parts.extend(_ticks(diagnosis, steps))
    parts.append(_onset(diagnosis, steps))
    for number, (reading, modes) in enumerate(steps):
        parts.append(
            f'<rect class="touch" x="{number}" y="0" width="1" height="{total:g}">'
            f"<title>{safe(_told(reading, modes))}</title></rect>"
        )
    first, last = steps[0][0], steps[-1][0]
    parts.append("</svg>")
    ends = f"<span>{safe(_end(first))}</span><span>{safe(_end(last))}</span>"
    return "".join(parts) + f'<div class="ends">{ends}</div>' + _key(diagnosis, bands)


def bands_of(diagnosis: Diagnosis) -> dict[str, str]:
    """Band by band from below: modes that showed anywhere, most probable at the end first, and their classes."""
    highest = dict(diagnosis.modes)
    for _, modes in diagnosis.ribbon:
        highest = {name: max(p, modes[name]) for name, p in highest.items()}
    ranked = sorted(diagnosis.modes, key=lambda name: (-diagnosis.modes[name], -highest[name], name))
    shown = [name for name in ranked if name != HEALTHY and highest[name] >= _SHOWN][:SHADES]
    bands = {name: f"b{number}" for number, name in enumerate(shown)}
    if len(shown) < len(ranked) - 1:
        bands[_OTHERS] = "bx"
    return bands | {HEALTHY: "bh"}


def _thinned(steps: Sequence[Step]) -> list[Step]:
    """At most so many steps as columns can be told apart, evenly spread, the last one kept."""
    if len(steps) <= _MOST_COLUMNS:
        return list(steps)
    spread = (len(steps) - 1) / (_MOST_COLUMNS - 1)
    return [steps[round(i * spread)] for i in range(_MOST_COLUMNS)]


def _share(modes: Mapping[str, float], name: str, bands: Mapping[str, str]) -> float:
    if name != _OTHERS:
        return modes[name]
    return sum(p for mode, p in modes.items() if mode not in bands)


def _outline(below: Sequence[float], above: Sequence[float]) -> str:
    """A band of steps: to the right along its upper edge, back along its lower one."""

    def y(p: float) -> str:
        return f"{_HEIGHT * (1.0 - min(p, 1.0)):.2f}"

    there = [f"L{i} {y(p)}L{i + 1} {y(p)}" for i, p in enumerate(above)]
    back = [f"L{i + 1} {y(p)}L{i} {y(p)}" for i, p in reversed(list(enumerate(below)))]
    return "M" + "".join(there + back)[1:] + "Z"


def _ticks(diagnosis: Diagnosis, steps: Sequence[Step]) -> list[str]:
    """A mark below each line that weighed something for or against the leading mode."""
    change: dict[tuple[str, int], float] = {}
    for weight in diagnosis.weights:
        place = (weight.reading.file, weight.reading.line)
        change[place] = change.get(place, 0.0) + weight.change[diagnosis.leading]
    marks = []
    for number, (reading, _) in enumerate(steps):
        nats = change.get((reading.file, reading.line), 0.0)
        if abs(nats) > _LIGHT:
            kind = "for" if nats > 0.0 else "against"
            marks.append(
                f'<line class="{kind}" x1="{number + 0.5}" x2="{number + 0.5}" y1="{_HEIGHT + 3:g}" '
                f'y2="{_HEIGHT + _TICKS:g}"/>'
            )
    return marks


def _onset(diagnosis: Diagnosis, steps: Sequence[Step]) -> str:
    reading = diagnosis.onset.reading
    at = next((i for i, (r, _) in enumerate(steps) if reading and (r.file, r.line) == (reading.file, reading.line)), -1)
    return "" if at < 0 else f'<line class="onset" x1="{at}" x2="{at}" y1="0" y2="{_HEIGHT:g}"/>'


def _told(reading: Reading, modes: Mapping[str, float]) -> str:
    ranked = sorted(modes.items(), key=lambda item: -item[1])[:3]
    said = ", ".join(f"{name} {percent(p)}" for name, p in ranked)
    return f"{where(reading)}, {when(reading)}: {said}"


def _end(reading: Reading) -> str:
    return where(reading) if reading.time is None else f"{when(reading)}, {where(reading)}"


def _key(diagnosis: Diagnosis, bands: Mapping[str, str]) -> str:
    entries = []
    for name, kind in bands.items():
        words = "all other modes" if name == _OTHERS else title_of(diagnosis.model, name)
        p = _share(diagnosis.modes, name, bands)
        entries.append(
            f'<li><span class="swatch {kind}"></span>{safe(words)} <span class="dim">{percent(p)}</span></li>'
        )
    marks = (
        '<li class="dim">below: <span class="for">|</span> a line for the leading mode, '
        '<span class="against">|</span> one against it; dashed: since when</li>'
    )
    return f'<ul class="key">{"".join(entries)}{marks}</ul>'
