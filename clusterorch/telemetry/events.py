"""Here lives the event record: one clock for what happens and for what is printed about it.

A trace's events carry its true cascade: `causes` are the events that brought an event about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx

from clusterorch.errors import IngestError

CASCADE = "cascade"  # the source of what no collector sees: fault slot, mechanisms, actions


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the hidden state, or a line that a tool prints.

    time: seconds since the episode began.  arrival: seconds at which the collector delivers it;
    of what no collector sees, the time itself.  source: a stream, or `CASCADE`.  entity: kind and
    number, "gpu 12".  kind: of a line its signal, else `fault`, `fault_end`, `mechanism_on`,
    `mechanism_off` or `action`.  causes: ids of the events behind it, empty for background.
    """

    time: float
    arrival: float
    source: str
    entity: str
    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    causes: tuple[int, ...] = ()
    id: int = 0


def cascade_graph(events: Iterable[Event]) -> nx.DiGraph:
    """The true cascade: an edge from each cause to each effect.

    Nodes are ids; their attributes are the fields of the event.
    """
    graph = nx.DiGraph()
    for event in events:
        graph.add_node(event.id, **{k: v for k, v in asdict(event).items() if k not in ("id", "causes")})
        graph.add_edges_from((cause, event.id) for cause in event.causes)
    return graph


def write_events(events: Iterable[Event], file: str | Path) -> None:
    """Write JSON lines, one event a line."""
    with Path(file).open("w", encoding="utf-8") as out:
        for event in events:
            out.write(json.dumps(asdict(event), ensure_ascii=False) + "\n")


def read_events(file: str | Path) -> Iterator[Event]:
    """Read JSON lines.

    Raises:
        IngestError: the file cannot be opened, or a line is not an event.
    """
    try:
        with Path(file).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _event(line, f"{file}:{number}")
    except OSError as error:
        raise IngestError(f"{file}: {error.strerror}") from error


def _event(line: str, where: str) -> Event:
    try:
        fields = json.loads(line)
        return Event(**fields | {"causes": tuple(fields["causes"])})
    except (ValueError, TypeError, KeyError) as error:
        raise IngestError(f"{where}: not an event ({error})") from error
