"""Here lives a simulated episode: telemetry, truth and events, and the folder they are kept in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clusterorch.errors import IngestError, OutputExists
from clusterorch.models import Model
from clusterorch.models.spec import PHASES, STREAMS
from clusterorch.simulation.recording import Recorder
from clusterorch.simulation.simulator import Simulator
from clusterorch.telemetry.events import Event, read_events, write_events

PUBLISHED = ("phase", "job_class", "age_before", "save_ends", "saved", "held", "progress")
TRUTH = ("variant", "severity", "site", "bits", "transient", "poisoned", "entered")
TRACE_FILES = ("trace.npz", "events.jsonl", "truth.json", "metadata.json")


@dataclass(frozen=True)
class Trace:
    """T slices of one job.

    values: [T, width], see `Network.signal_offset`; NaN not delivered, inf delivered without a value.
    arrival: [T, streams, nodes + 1] slice in which a cell arrives, -1 never; the last column is the job's.
    published, truth: arrays [T] by name, see `PUBLISHED` and `TRUTH`; mechanisms are bits by number of
    the file, in two words (`clusterorch.simulation.plan.active`).
    faults: what entered the slot, in order.  metadata: what it takes to make the same trace again.
    """

    values: np.ndarray = field(repr=False)
    arrival: np.ndarray = field(repr=False)
    published: dict[str, np.ndarray] = field(repr=False)
    truth: dict[str, np.ndarray] = field(repr=False)
    faults: list[dict[str, Any]]
    events: list[Event] = field(repr=False)
    metadata: dict[str, Any]

    @property
    def slices(self) -> int:
        """Number of slices."""
        return len(self.values)

    def signal(self, name: str) -> np.ndarray:
        """[T, entities] values of one signal."""
        start, stop = self.metadata["signals"][name]
        return self.values[:, start:stop]

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write `trace.npz`, `events.jsonl`, `truth.json` and `metadata.json` into a folder.

        Raises:
            OutputExists: one of them is there already, and not `force`.
        """
        folder = Path(folder)
        refuse_to_replace([folder / name for name in TRACE_FILES], force=force)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {f"published.{k}": v for k, v in self.published.items()}
        arrays |= {f"truth.{k}": v for k, v in self.truth.items()}
        np.savez_compressed(folder / "trace.npz", values=self.values, arrival=self.arrival, **arrays)
        write_events(self.events, folder / "events.jsonl")
        _write_json(folder / "truth.json", {"faults": self.faults})
        _write_json(folder / "metadata.json", self.metadata)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        """Read what `save` wrote.

        Raises:
            IngestError: a file is missing or is not what `save` writes.
        """
        folder = Path(folder)
        try:
            with np.load(folder / "trace.npz", allow_pickle=False) as stored:
                arrays = dict(stored)
            faults = json.loads((folder / "truth.json").read_text(encoding="utf-8"))["faults"]
            metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
            published = {k: arrays[f"published.{k}"] for k in PUBLISHED}
            truth = {k: arrays[f"truth.{k}"] for k in TRUTH}
            values, arrival = arrays["values"], arrays["arrival"]
        except (OSError, ValueError, KeyError) as error:
            raise IngestError(f"{folder}: not a trace ({error})") from error
        return cls(values, arrival, published, truth, faults, list(read_events(folder / "events.jsonl")), metadata)


def refuse_to_replace(files: list[Path], *, force: bool) -> None:
    """Raise `OutputExists` if one of the files exists, unless forced."""
    there = [file for file in files if file.exists()]
    if there and not force:
        raise OutputExists(f"{there[0]} exists; give another folder, or force")


def _write_json(file: Path, what: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(what, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def simulate(
    model: Model, slices: int, *, record: bool = True, actions: Mapping[int, Any] | None = None,
    command: str | None = None, **options: Any,
) -> Trace:  # fmt: skip
    """Simulate one job.

    Args:
        model: the model on its layout.
        slices: how many.
        record: whether to keep events.
        actions: what is taken before which slice, as for `Simulator.step`.
        command: the command line to note in the metadata.
        **options: of `Simulator`, except `batch`.
    """
    simulator = Simulator(model, 1, **options)
    recorder = Recorder(simulator) if record else None
    state, network = simulator.state, simulator.network
    values, arrival = np.empty((slices, network.width)), np.empty((slices, *state.arrival.shape[1:]), dtype=np.int32)
    kept = {n: np.empty((slices, *(a := getattr(state, n)).shape[1:]), dtype=a.dtype) for n in (*PUBLISHED, *TRUTH)}
    faults: list[dict[str, Any]] = []
    for t in range(slices):
        action = (actions or {}).get(t)
        simulator.step(action)
        values[t], arrival[t] = state.values[0], state.arrival[0]
        for name, column in kept.items():
            column[t] = getattr(state, name)[0]
        if state.entered[0]:
            faults.append(_fault(simulator, t))
        if recorder is not None:
            recorder.record(action)
    return Trace(
        values, arrival, {k: kept[k] for k in PUBLISHED}, {k: kept[k] for k in TRUTH}, faults,
        recorder.events if recorder else [], _metadata(model, slices, actions or {}, command, options),
    )  # fmt: skip


def _fault(simulator: Simulator, t: int) -> dict[str, Any]:
    """Root and proximate label of the fault in the slot."""
    state, network = simulator.state, simulator.network
    variant = network.blocks[state.variant[0]].variant
    site = int(state.site[0])
    node = int(network.layout.node_of(variant.spec.site)[site])
    severity = network.spec.model.severities[state.severity[0]] if variant.spec.severity else None
    return {
        "slice": t, "mode": variant.mode, "variant": variant.name, "severity": severity,
        "site_kind": variant.spec.site, "site": site, "node": node if node >= 0 else None,
        "proximate": variant.spec.proximate, "benign": variant.benign,
    }  # fmt: skip


def _metadata(
    model: Model, slices: int, actions: Mapping[int, Any], command: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    network, layout = model.network, model.layout
    spans = {s.name: network.signal_offset[i : i + 2].tolist() for i, s in enumerate(network.spec.signal)}
    plain = {k: v if isinstance(v, int | float | str | None) else str(v) for k, v in options.items() if k != "do"}
    return {
        "model": model.name, "sha256": model.sha256, "layout": str(layout),
        "layout_options": {k: getattr(layout, k) for k in ("rails", "leaves", "spares", "storage", "copies")},
        "limits": dict(model.limits), "slice_seconds": network.spec.model.slice_seconds, "slices": slices,
        "seed": options.get("seed", 0), "options": plain, "do": [str(d) for d in options.get("do", ())],
        "actions": {str(t): action for t, action in actions.items()}, "command": command,
        "signals": spans, "streams": list(STREAMS), "phases": list(PHASES),
        "mechanisms": [m.name for m in network.spec.mechanism], "variants": [b.variant.name for b in network.blocks],
    }  # fmt: skip
