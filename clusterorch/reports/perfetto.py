"""Here lives the export of an episode for Perfetto: Chrome's JSON, with arrows along the true causes.

A process is a node, the first one the job and its cluster; a thread is a rank.  Slices of one thread must nest, so
what can overlap has a thread of its own: the lines of an entity, and each fault and mechanism of an entity.  Times are
microseconds since the episode began.
Source: Trace Event Format, which Perfetto reads (perfetto.dev/docs/getting-started/other-formats).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from clusterorch.environment.books import HEADS
from clusterorch.environment.tables import EpisodeTrace
from clusterorch.models import Layout
from clusterorch.models.rows import CONTINUOUS, KIND_OF_FAMILY
from clusterorch.telemetry.events import CASCADE, Event

JOB = 1  # process of the job; node n is process n + 2
_FIRST_NODE = 2
_PHASES, _CLASSES, _MOVES, _DIAGNOSIS = 1, 2, 3, 4  # threads of the job
_EXTRA = 1000  # first thread of what needs one of its own
_SHORTEST = 0.001  # seconds that a line is drawn long
_OF_RANK = ("gpu", "rank")

Entry = dict[str, Any]


def perfetto(trace: EpisodeTrace) -> str:
    """The text of the file."""
    layout = Layout.parse(
        trace.metadata["layout"], spares=trace.metadata["spares"], leaves=trace.metadata["leaves"],
        **trace.metadata["layout_options"],
    )  # fmt: skip
    threads = _Threads(layout)
    entries = [*_job(trace, layout), *_counters(trace, layout)]
    places = {}
    for entry, event in _cascade(trace, threads):
        entries.append(entry)
        places[event.id] = entry
    entries += _arrows(trace, places)
    entries.sort(key=lambda entry: (entry["ts"], -entry.get("dur", 0)))
    told = {"schema": f"{trace.metadata['kind']}/{trace.metadata['schema_version']}", "layout": str(layout)}
    told |= {key: str(trace.metadata[key]) for key in ("clusterorch", "model", "seed", "episode", "starts")}
    return json.dumps({"traceEvents": [*threads.names(), *entries], "displayTimeUnit": "ms", "otherData": told}) + "\n"


class _Threads:
    """Processes and threads, and their names."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._extra: dict[tuple[int, str], int] = {}

    def process(self, entity: str) -> int:
        kind, number = entity.split()
        nodes = self.layout.node_of(kind)
        node = int(nodes[int(number)]) if int(number) < len(nodes) else -1
        return JOB if node < 0 else node + _FIRST_NODE

    def own(self, entity: str, what: str) -> tuple[int, int]:
        """Process and thread of something that an entity has beside its phases."""
        process, kind, number = self.process(entity), *entity.split()
        name = f"rank {number}: {what}" if kind in _OF_RANK else f"{entity}: {what}"
        return process, self._extra.setdefault((process, name), _EXTRA + len(self._extra))

    def names(self) -> Iterator[Entry]:
        """Metadata events."""
        processes = {JOB: "job", **{n + _FIRST_NODE: f"node {n}" for n in range(self.layout.nodes)}}
        for pid, name in processes.items():
            yield _meta(pid, 0, "process_name", {"name": name})
            yield _meta(pid, 0, "process_sort_index", {"sort_index": pid})
        named = {_PHASES: "phase", _CLASSES: "class", _MOVES: "moves", _DIAGNOSIS: "diagnosis"}
        threads = [(JOB, tid, name) for tid, name in named.items()]
        gpus = self.layout.gpus
        ranks = self.layout.nodes * gpus
        threads += [(r // gpus + _FIRST_NODE, _rank_thread(r), f"rank {r}") for r in range(ranks)]
        threads += [(pid, tid, name) for (pid, name), tid in self._extra.items()]
        for pid, tid, name in threads:
            yield _meta(pid, tid, "thread_name", {"name": name})
            yield _meta(pid, tid, "thread_sort_index", {"sort_index": tid})


def _rank_thread(rank: int) -> int:
    """Threads are told apart by number over all processes, as in any trace of one machine."""
    return 100_000 + rank


def _meta(pid: int, tid: int, what: str, arguments: Entry) -> Entry:
    return {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": what, "args": arguments}


def _slice(pid: int, tid: int, name: str, start: float, stop: float, category: str, told: Entry) -> Entry:
    """A slice from and until a moment in seconds."""
    begin = round(start * 1e6)
    entry = {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category, "ts": begin}
    return entry | {"dur": max(round(stop * 1e6) - begin, 0), "args": told}


def _job(trace: EpisodeTrace, layout: Layout) -> Iterator[Entry]:
    """Phases of the job and of each rank, its class, moves and the leading diagnosis."""
    truth, end = trace.rows("truth"), trace.slices * trace.slice_seconds
    for start, stop, phase in _runs(truth, "phase"):
        yield _slice(JOB, _PHASES, phase, start, stop, "phase", {})
        for rank in range(layout.nodes * layout.gpus):
            yield _slice(rank // layout.gpus + _FIRST_NODE, _rank_thread(rank), phase, start, stop, "phase", {})
    for start, stop, name in _runs(truth, "job_class"):
        yield _slice(JOB, _CLASSES, name, start, stop, "class", {})
    for row in trace.rows("recovery"):
        if row["move"] != trace.metadata["waits"]:
            stop = row["time"] + row["slices"] * trace.slice_seconds
            told = {key: row[key] for key in ("legal", "reward", "stated_mode", "stated_node")}
            yield _slice(JOB, _MOVES, row["move"], row["time"], stop, "move", told)
    beliefs = trace.rows("diagnosis")
    for row, after in zip(beliefs, [*beliefs[1:], {"time": end}], strict=True):
        mode = max(trace.metadata["modes"], key=lambda name: row[f"p.{name}"])
        told = {"p": row[f"p.{mode}"], "node": row["node"], "p_node": row["p_node"], "entropy": row["entropy"]}
        if after["time"] > row["time"]:
            yield _slice(JOB, _DIAGNOSIS, mode, row["time"], after["time"], "diagnosis", told)


def _runs(rows: list[Entry], column: str) -> Iterator[tuple[float, float, str]]:
    """Stretches of slices with one value: from, until, value."""
    start = 0.0
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        if after is None or after[column] != row[column]:
            yield start, row["time"], row[column]
            start = row["time"]


def _counters(trace: EpisodeTrace, layout: Layout) -> Iterator[Entry]:
    """Tokens kept and how each slice was spent; of every node the mean of its samples, when they were measured."""
    for row in trace.rows("truth"):
        at = round((row["time"] - trace.slice_seconds) * 1e6)
        yield _counter(JOB, "kept tokens", at, {"slices": row["kept"]})
        yield _counter(JOB, "slice", at, {head: row[head] for head in HEADS})
    for row in trace.rows("diagnosis"):
        at = round(row["time"] * 1e6)
        yield _counter(JOB, "belief", at, {mode: row[f"p.{mode}"] for mode in trace.metadata["modes"]})
    families = {name: KIND_OF_FAMILY[told["family"]] for name, told in trace.metadata["signals"].items()}
    sums: dict[tuple[str, int, float], list[float]] = defaultdict(list)
    for row in trace.rows("telemetry"):
        if families.get(row["signal"]) == CONTINUOUS and row["value"] is not None:
            node = int(layout.node_of(row["entity"])[row["number"]])
            sums[row["signal"], JOB if node < 0 else node + _FIRST_NODE, row["time"]].append(row["value"])
    for (signal, pid, time), values in sums.items():
        yield _counter(pid, signal, round((time - trace.slice_seconds) * 1e6), {"mean": sum(values) / len(values)})


def _counter(pid: int, name: str, ts: int, values: dict[str, float]) -> Entry:
    return {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": ts, "args": values}


def _cascade(trace: EpisodeTrace, threads: _Threads) -> Iterator[tuple[Entry, Event]]:
    """A slice for every fault and mechanism while it lasts, and for every line; each with its event."""
    over: dict[int, float] = {}  # of an event the moment it was over
    for event in trace.events:
        if event.kind in ("fault_end", "mechanism_off") or event.payload.get("again"):
            for cause in event.causes:
                over.setdefault(cause, event.time)
    dt, end, points = trace.slice_seconds, trace.slices * trace.slice_seconds, defaultdict(list)
    for event in trace.events:
        if event.source != CASCADE:
            points[threads.own(event.entity, f"{event.source} lines")].append(event)
        elif event.kind in ("fault", "mechanism_on"):
            # What is transient is over with its slice; a later one must not overlap it.
            last = (event.time // dt + 1) * dt if event.payload.get("transient") else end
            fault = event.kind == "fault"
            pid, tid = threads.own(event.entity, "fault" if fault else _called(event))
            stop, category = min(over.get(event.id, end), last), "fault" if fault else "mechanism"
            yield _slice(pid, tid, _called(event), event.time, stop, category, event.payload), event
        else:
            points[threads.own(event.entity, "done" if event.kind == "action" else "over")].append(event)
    for (pid, tid), told in points.items():
        told.sort(key=lambda event: (event.time, event.id))
        for event, after in zip(told, [*told[1:], None], strict=True):
            stop = min(event.time + _SHORTEST, end if after is None else after.time)
            arguments = event.payload | {"arrival": event.arrival}
            category = event.kind if event.source == CASCADE else "line"
            yield _slice(pid, tid, _called(event), event.time, max(stop, event.time), category, arguments), event


def _called(event: Event) -> str:
    """Name of what happened: a variant, a mechanism, an action, or the signal of a line."""
    return str(event.payload.get("variant") or event.payload.get("name") or event.kind)


def _arrows(trace: EpisodeTrace, places: dict[int, Entry]) -> Iterator[Entry]:
    """A flow from every cause to what it brought about.  It leaves inside the cause's slice, at its beginning."""
    number = 0
    for event in trace.events:
        for cause in event.causes:
            if cause not in places or event.id not in places:
                continue
            number += 1
            source, target = places[cause], places[event.id]
            shared = {"name": "cause", "cat": "cause", "id": number}
            yield shared | {"ph": "s", "pid": source["pid"], "tid": source["tid"], "ts": source["ts"]}
            yield shared | {"ph": "f", "bp": "e", "pid": target["pid"], "tid": target["tid"], "ts": target["ts"]}
