"""Here lives the simulate command: one episode, its trace, and its logs as people would have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape

from clusterorch.errors import InvalidIntervention
from clusterorch.models import Layout, Model, load
from clusterorch.models.ground import HEALTHY
from clusterorch.probability.noise import causal_uniform, stream_key
from clusterorch.simulation.cutting import counted, cut, draw_gaps, events_of, excerpt_protocol
from clusterorch.simulation.plan import active
from clusterorch.simulation.simulator import DEFAULT_ENTRY
from clusterorch.simulation.trace import TRACE_FILES, Trace, refuse_to_replace, simulate
from clusterorch.telemetry.events import CASCADE, Event
from clusterorch.telemetry.writing import PROTOCOLS, write_logs

LOGS = "logs"  # folder below the trace's
_MOST_SHOWN = 40
WRONG_CLOCKS = 0.05  # most seconds by which the clock of a host is wrong: kept by a time server of its own network


def run(
    fault: str | None = None, layout: str | Layout = "4x8", seed: int = 0, out: str | Path | None = None, *,
    logs: bool = False, protocol: str = "complete", do: Sequence[str] = (), slices: int = 240,
    at: int | None = None, start: str | None = None, model: str | Path = "reference",
    overlays: Sequence[str | Path] = (), force: bool = False,
    command: str | None = None, console: Console | None = None,
) -> Trace:  # fmt: skip
    """Simulate one episode, print its cascade, and keep it if asked.

    Args:
        fault: `mode.variant[/site[/severity]]`, or a mode, whose variant is then drawn by its share; None:
            whatever the declared hazards bring.
        layout: nodes x GPUs.
        seed: of the noise.
        out: folder for the trace; None: nothing is written.
        logs: write the logs too, below `out/logs`.
        protocol: how the logs show it: complete, covered, excerpt.
        do: interventions, as `NAME=VALUE@FROM:TO`.
        slices: how many.
        at: slice in which the fault enters; None: one in which it can.
        start: phase in which the job begins; None: steps, or what the fault needs.
        model: name or path of the model.
        overlays: names or paths, applied in order.
        force: replace files.
        command: the command line, noted in the metadata.
        console: where to print.

    Raises:
        InvalidIntervention: `fault`, `do`, `start` or `protocol` names what there is not.
        OutputExists: a file is there already, and not `force`.
    """
    if protocol not in PROTOCOLS:
        raise InvalidIntervention(f"protocol {protocol!r}: give one of {', '.join(PROTOCOLS)}")
    if logs and out is None:
        raise InvalidIntervention("logs need a folder to be written to: give out")
    if slices < 1:
        raise InvalidIntervention(f"{slices} slices: give 1 or more")
    folder = None if out is None else Path(out)
    if folder is not None:
        refuse_to_replace([folder / name for name in TRACE_FILES], force=force)
    loaded = load(model, layout=layout, overlays=overlays)
    fault = drawn_variant(loaded, fault, seed)
    usual = usual_entry(loaded, fault)
    start, at = usual[0] if start is None else start, usual[1] if at is None else at
    trace = simulate(loaded, slices, seed=seed, fault=fault, at=at, do=do, start=start, command=command)
    files: list[Path] = []
    if folder is not None:
        if logs:
            said = (trace.values, trace.published, trace.events)
            skew = WRONG_CLOCKS
            if protocol == "excerpt":
                said, skew = _pasted(loaded, trace, seed, at), 0.0
            files = write_logs(
                loaded, *said, folder / LOGS, protocol=protocol, seed=seed, skew=skew, force=force,
                pasted=protocol == "excerpt",
            )  # fmt: skip
        trace.save(folder, force=force)
    _show(trace, folder, files, console or Console(soft_wrap=True))
    return trace


def _pasted(model: Model, trace: Trace, seed: int, at: int) -> tuple[np.ndarray, dict[str, np.ndarray], list[Event]]:
    """What an excerpt shows that somebody cut out, from the first report on if there is one; one clock, the paste's."""
    gaps = draw_gaps(excerpt_protocol(model), seed)
    reports = [m for m, mechanism in enumerate(model.spec.mechanism) if mechanism.pulse]
    reported = np.any([active(trace.truth["bits"], m) for m in reports], axis=0) if reports else np.zeros(0, dtype=bool)
    room = max(0, trace.slices - 1 - at - sum(gaps))
    first = min(at, trace.slices - 1) + int(causal_uniform(0, 0, 1, *stream_key(seed, "excerpt", 0, 1)) * (room + 1))
    first = int(reported.argmax()) if reported.any() else first
    pasted = cut(model, trace, seed, first, gaps)
    return counted(model, pasted, trace.slices), trace.published, events_of(model, pasted)


def drawn_variant(model: Model, fault: str | None, seed: int) -> str | None:
    """The variant that a fault names; of a mode, one drawn by its share."""
    mode = model.modes.get((fault or "").split("/")[0])
    if mode is None or fault is None:
        return fault
    u, chosen = causal_uniform(0, 0, 0, *stream_key(seed, "variant", 0, 0)), mode.variant[0]
    passed = 0.0
    for variant in mode.variant:
        chosen = variant if passed <= u and variant.share > 0.0 else chosen
        passed += variant.share
    return ".".join((mode.name, chosen.name)) + fault[len(mode.name) :]


def usual_entry(model: Model, fault: str | None) -> tuple[str, int]:
    """Phase in which a job begins, and slice in which the fault then enters, so that it enters where it can.

    What may start in any phase enters a job that has stepped for a while.
    """
    mode, _, name = (fault or "").split("/")[0].partition(".")
    roots = model.spec.benign if mode == HEALTHY else model.modes[mode].variant if mode in model.modes else []
    phases = next((root.phases for root in roots if root.name == name and root.phases), None)
    return ("step", DEFAULT_ENTRY) if phases is None or "step" in phases else (phases[0], 0)


def _show(trace: Trace, folder: Path | None, files: Sequence[Path], console: Console) -> None:
    """The cascade, change by change, and where things were written."""
    for found in trace.faults:
        place = f"{found['site_kind']} {found['site']}"
        console.print(f"[bold]{found['variant']}[/] at {place} from slice {found['slice']} on")
    if not trace.faults:
        console.print("no fault started")
    hidden = [event for event in trace.events if event.source == CASCADE]
    for event in hidden[:_MOST_SHOWN]:
        name = event.payload.get("name") or event.payload.get("variant") or ""
        console.print(f"{event.time:9.1f} s  {event.kind:<13}  {escape(str(name))}  ({event.entity})")
    if len(hidden) > _MOST_SHOWN:
        console.print(f"... and {len(hidden) - _MOST_SHOWN} more changes")
    lines = len(trace.events) - len(hidden)
    console.print(f"{trace.slices} slices, {len(hidden)} changes, {lines} lines")
    if folder is not None:
        console.print(f"written to {escape(str(folder))}" + (f", logs in {len(files)} files" if files else ""))
