"""Here lives the export of an episode as OpenMetrics text: what monitoring would have scraped, and the belief.

Nothing of the truth is told.  Telemetry stands at the time it was measured.  Of a class or a count the first sample,
each one above 0 and each return to 0 are written; what was not delivered is not there.
Source: OpenMetrics 1.0 (prometheus/OpenMetrics, specification/OpenMetrics.md).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from clusterorch.environment.delivery import background, delivered
from clusterorch.environment.replaying import model_of_trace
from clusterorch.environment.tables import EpisodeTrace
from clusterorch.models.rows import CONTINUOUS, KIND_OF_FAMILY
from clusterorch.models.spec import JOB_CLASSES, PHASES

_PREFIX = "clusterorch"
_UNUSABLE = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric family.  samples: of each set of labels (time in seconds since the episode began, value)."""

    name: str
    kind: str  # gauge, counter, stateset
    help: str
    samples: dict[Labels, list[tuple[float, float]]]


def openmetrics(trace: EpisodeTrace) -> str:
    """The text of the file.

    Raises:
        InvalidTrace: the model of the trace, which names its signals, is no longer there as it was.
    """
    starts = datetime.fromisoformat(trace.metadata["starts"]).replace(tzinfo=UTC).timestamp()
    families = [*_telemetry(trace), *_published(trace), *_moves(trace), _belief(trace)]
    lines = [line for family in families for line in _written(family, starts)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _written(family: Family, starts: float) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}"
    yield f"# HELP {family.name} {_escaped(family.help)}"
    suffix = "_total" if family.kind == "counter" else ""
    for labels, samples in family.samples.items():
        told = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
        name = f"{family.name}{suffix}" + (f"{{{told}}}" if told else "")
        for time, value in samples:
            yield f"{name} {_number(value)} {starts + time:.3f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _telemetry(trace: EpisodeTrace) -> Iterator[Family]:
    """A family a signal, labelled by entity and node."""
    network = model_of_trace(trace.metadata, str(trace.folder or "the trace")).network
    (values, _), nothing = delivered(trace, network), background(network)
    dt = trace.slice_seconds
    for s, signal in enumerate(network.spec.signal):
        nodes, samples = network.layout.node_of(signal.entity), {}
        continuous = KIND_OF_FAMILY[signal.family] == CONTINUOUS
        block = values[:, network.slice_of(s)]
        for e in range(block.shape[1]):
            taken = np.flatnonzero(~np.isnan(block[:, e]) & ~np.isinf(block[:, e]))
            if not continuous:
                taken = _telling(block[:, e], taken, float(nothing[network.slice_of(s)][0]))
            if len(taken):
                labels = [("stream", signal.stream), (signal.entity, str(e))]
                if signal.entity != "node" and nodes[e % len(nodes)] >= 0:
                    labels.append(("node", str(nodes[e])))
                samples[tuple(labels)] = [((t + 1) * dt, float(block[t, e])) for t in taken]
        if samples:
            said = signal.title or signal.name
            classes = ", ".join(f"{i} {value}" for i, value in enumerate(signal.values))
            yield Family(_name(signal.name), "gauge", f"{said}: {classes}" if classes else said, samples)


def _telling(column: np.ndarray, taken: np.ndarray, nothing: float) -> np.ndarray:
    """Of the samples of a class: the first, those that say something, and the first after each that say nothing."""
    says = column[taken] != nothing
    before = np.concatenate([[True], says[:-1]])[: len(taken)]
    return taken[says | before]


def _name(signal: str) -> str:
    return f"{_PREFIX}_{_UNUSABLE.sub('_', signal)}"


def _published(trace: EpisodeTrace) -> Iterator[Family]:
    """What is published of the job, by decision."""
    rows = trace.rows("recovery")
    for column, states in (("phase", PHASES), ("job_class", JOB_CLASSES)):
        name = f"{_PREFIX}_{column}"
        samples: dict[Labels, list[tuple[float, float]]] = {
            ((name, state),): [(row["time"], float(row[column] == state)) for row in rows] for state in states
        }
        yield Family(name, "stateset", f"{column.replace('_', ' ')} of the job", samples)
    told = {
        "copies_held": "copies of the training state that are held", "copy_age": "slices since the newest copy",
        "spares": "nodes that stand by", "working": "nodes in the job", "halted": "slices that the job has stood still",
        "failures": "starts by the scheduler since the newest copy", "lost": "whether the job is given up",
    }  # fmt: skip
    for column, said in told.items():
        samples = {(): [(row["time"], float(row[column])) for row in rows if row[column] is not None]}
        yield Family(f"{_PREFIX}_{'job_' if column in ('lost', 'halted') else ''}{column}", "gauge", said, samples)


def _moves(trace: EpisodeTrace) -> Iterator[Family]:
    """Moves so far by kind, and the reward of each decision where it ended."""
    rows, waits, dt = trace.rows("recovery"), trace.metadata["waits"], trace.slice_seconds
    kinds = sorted({row["move"].partition(":")[0] for row in rows if row["move"] != waits})
    yield Family(f"{_PREFIX}_moves", "counter", "moves made", _counted(rows, kinds, waits))
    reward = {(): [(row["time"] + row["slices"] * dt, row["reward"]) for row in rows]}
    yield Family(f"{_PREFIX}_reward", "gauge", "reward of the decision, slices of healthy training", reward)


def _counted(rows: list[dict[str, Any]], kinds: Iterable[str], waits: str) -> dict[Labels, list[tuple[float, float]]]:
    counts: dict[str, int] = defaultdict(int)
    samples: dict[Labels, list[tuple[float, float]]] = {}
    for kind in kinds:
        told = samples.setdefault((("action", kind),), [])
        for row in rows:
            if row["move"] != waits and row["legal"] and row["move"].partition(":")[0] == kind:
                counts[kind] += 1
            told.append((row["time"], float(counts[kind])))
    return samples


def _belief(trace: EpisodeTrace) -> Family:
    samples: dict[Labels, list[tuple[float, float]]] = {
        (("mode", mode),): [(row["time"], row[f"p.{mode}"]) for row in trace.rows("diagnosis")]
        for mode in trace.metadata["modes"]
    }
    return Family(f"{_PREFIX}_belief", "gauge", "probability of each failure mode given what has arrived", samples)
