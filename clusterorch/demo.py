"""Here lives the demonstration: one incident played and watched, and the logs of a real one diagnosed."""

from __future__ import annotations

import contextlib
import tomllib
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

import clusterorch
from clusterorch import models
from clusterorch.diagnosis.diagnose import Diagnosis, default_incident_model, diagnose
from clusterorch.errors import ClusterorchError, OutputExists
from clusterorch.inference.filtering import SliceEvidence
from clusterorch.inference.lateness import LateFilter
from clusterorch.inference.priors import prior_of
from clusterorch.models import Model
from clusterorch.models.compile import Network
from clusterorch.models.rows import FIRST, KIND_OF_FAMILY
from clusterorch.models.spec import STREAMS
from clusterorch.reports.terminal import show_diagnosis
from clusterorch.reports.timeline import CAUSE, Belief, Mark, marks_of, show_beliefs, show_cascade
from clusterorch.reports.wording import terminal
from clusterorch.simulation.trace import Trace, simulate
from clusterorch.telemetry.events import CASCADE
from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

PICTURE = "incident.png"
_DATA = Path(clusterorch.__file__).parents[1] / "data"


def run(out: str | Path, *, force: bool = False, data: Path | None = None) -> Path:
    """Play, watch and diagnose; write the picture of the incident.

    Args:
        out: folder of the picture.
        force: replace a picture that is there.
        data: folder with `demo.toml` and `cases`; that of the checkout if None.

    Raises:
        ClusterorchError: there is no such folder: an installed copy comes without it.
        OutputExists: the picture is there already.
    """
    picture, data = Path(out) / PICTURE, data or _DATA
    if picture.exists() and not force:
        raise OutputExists(f"{picture} is there already: --force replaces it")
    chosen = _choices(data)
    console, played, logs = terminal(), chosen["incident"], data / "cases" / chosen["logs"]["case"] / "logs"
    # A first run compiles for a minute: two processes take half of that, and share the cache on disk.
    compiling = get_context("spawn").Process(target=_compile, args=(logs,), daemon=True)
    compiling.start()
    model = models.load("reference", layout=played["layout"], overlays=played["overlays"])
    trace = simulate(
        model, played["slices"], seed=played["seed"], fault=played["fault"], at=played["at"], command="demo"
    )
    marks = marks_of(trace.events, model)
    _heading(console, f"1. An incident on {played['layout']}, as it happened")
    show_cascade(marks, console)
    everyday = sum(1 for event in trace.events if event.source != CASCADE and not event.causes)
    console.print(Text(f"among {everyday} everyday lines; what is marked in the first lane nobody sees", style="dim"))
    _heading(console, "2. The same incident, as it is diagnosed from what has arrived by each slice")
    compiling.join()
    beliefs = watch(model, trace)
    show_beliefs(beliefs, console)
    _draw(picture, model, trace, marks, beliefs)
    console.print(Text(f"\npicture: {picture}"))
    _heading(console, f"3. The logs of a real incident: {chosen['logs']['case']}")
    show_diagnosis(_diagnosis(logs), console)
    return picture


def _choices(data: Path) -> dict[str, dict]:
    try:
        return tomllib.loads((data / "demo.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterorchError(
            f"{data / 'demo.toml'}: {error.strerror}; the demonstration needs the data folder of a checkout"
        ) from error


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold underline"))
    console.print()


def watch(model: Model, trace: Trace) -> list[Belief]:
    """Beliefs from the start and after each slice, given the cells that have arrived by its end."""
    network = model.network
    filter_ = LateFilter(network, max(1, *(s.max_delay for s in model.spec.stream)), prior=prior_of(network))
    arrival, seconds = arrivals(network, trace), model.spec.model.slice_seconds
    beliefs = [Belief(0.0, filter_.posterior().modes)]
    for t in range(trace.slices):
        due = {s: np.where(arrival[s] == t, trace.values[s], np.nan) for s in range(max(0, t - 8), t + 1)}
        published = {name: int(trace.published[name][t]) for name in ("phase", "job_class", "age_before")}
        ends = bool(trace.published["save_ends"][t])
        filter_.open_slice(SliceEvidence(due.pop(t), save_ends=ends, **published))
        filter_.arrive_many({s: values for s, values in due.items() if not np.isnan(values).all()})
        beliefs.append(Belief((t + 1) * seconds, filter_.posterior().modes))
    return beliefs


def arrivals(network: Network, trace: Trace) -> np.ndarray:
    """[T, width] slice in which each value arrives, with the cell of its stream and collector; -1 never."""
    stream = np.empty(network.width, dtype=np.int64)
    collector = np.full(network.width, -1, dtype=np.int64)  # the job's own, in the last column
    for s, signal in enumerate(network.spec.signal):
        own = slice(*network.signal_offset[s : s + 2])
        stream[own] = STREAMS.index(signal.stream)
        if KIND_OF_FAMILY[signal.family] != FIRST:
            collector[own] = network.layout.node_of(signal.entity)
    return trace.arrival[:, stream, collector]


def _draw(picture: Path, model: Model, trace: Trace, marks: list[Mark], beliefs: list[Belief]) -> None:
    from clusterorch.figures import incident  # matplotlib takes a while

    seen = [incident.Mark(e.time, e.source, e.kind, not e.causes) for e in trace.events if e.source != CASCADE]
    seen += [incident.Mark(time, stream, "a sample", everyday=True) for time, stream in _samples(model, trace)]
    seen += [incident.Mark(m.time, incident.CAUSE, m.text) for m in marks if m.lane == CAUSE]
    fault = next((m for m in marks if m.lane == CAUSE), None)
    incident.draw_incident(
        picture, np.array([b.time for b in beliefs]),
        {mode: np.array([b.modes[mode] for b in beliefs]) for mode in beliefs[0].modes}, seen,
        lanes={s.name: s.name for s in model.spec.stream}, onset=fault.time if fault else None,
        title=fault.text if fault else "a quiet job",
    )  # fmt: skip


def _samples(model: Model, trace: Trace) -> list[tuple[float, str]]:
    """Time and stream of the slices of which a stream that printed no line delivered samples."""
    seconds, found = model.spec.model.slice_seconds, []
    for stream in sorted({s.stream for s in model.spec.signal} - {event.source for event in trace.events}):
        own = [trace.signal(s.name) for s in model.spec.signal if s.stream == stream]
        given = ~np.isnan(np.concatenate(own, axis=1)).all(axis=1)
        found += [((t + 0.5) * seconds, stream) for t in np.flatnonzero(given).tolist()]
    return found


def _diagnosis(logs: Path) -> Diagnosis:
    return diagnose(default_incident_model(), read_paths([logs], load_formats(shipped_formats())))


def _compile(logs: Path) -> None:
    """Bring the kernels of the filter into the cache; whatever goes wrong is told by the one who waits."""
    with contextlib.suppress(BaseException):
        _diagnosis(logs)
