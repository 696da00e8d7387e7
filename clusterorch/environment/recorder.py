"""Here lives the recording of an episode while it is played: what becomes its trace.

The recorder only reads.  What the filter believes is written at each decision as it then is, and never again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from clusterorch import __version__
from clusterorch.environment.believer import Believer
from clusterorch.environment.books import HEADS, IN_JOB, IN_REPAIR
from clusterorch.environment.delivery import to_columns
from clusterorch.environment.episodes import Decision, Episodes
from clusterorch.environment.tables import KIND, SCHEMA_VERSION, EpisodeTrace, arrow, schemas, write_trace
from clusterorch.errors import ClusterorchError
from clusterorch.inference.beliefs import Belief
from clusterorch.models import Model
from clusterorch.models.ground import HEALTHY
from clusterorch.models.reading import locate, locate_overlay
from clusterorch.models.spec import JOB_CLASSES, PHASES
from clusterorch.simulation.recording import Recorder

STARTS = datetime(2025, 3, 4, 12, 0, 0)  # the episode's zero on the wall clock
TOPOLOGIES = ("ring", "tree", "detour")

Row = dict[str, Any]


@dataclass
class _Record:
    """What has been recorded of the running episode."""

    cascade: Recorder
    believer: Believer | None  # of its own, where the episodes keep none
    standing: Row  # what is published now, before the next decision
    values: list[np.ndarray] = field(default_factory=list)
    arrival: list[np.ndarray] = field(default_factory=list)
    truth: list[Row] = field(default_factory=list)
    diagnosis: list[Row] = field(default_factory=list)
    recovery: list[Row] = field(default_factory=list)


class TraceRecorder:
    """Records one instance of a batch of episodes, from its next beginning on.

    Args:
        episodes: to listen to; the environment's own are `env.unwrapped.episodes`.
        instance: number in the batch.
        starts: the episode's zero on the wall clock.

    A vector environment that resets by itself in the step that ends an episode begins the next record with it.
    """

    def __init__(self, episodes: Episodes, instance: int = 0, *, starts: datetime = STARTS) -> None:
        self.episodes, self.instance, self.starts = episodes, instance, starts
        self._stated: tuple[str | None, int | None] = (None, None)
        self._record: _Record | None = None
        episodes.listeners.append(self)
        episodes.recorders.append(self)

    def stop(self) -> None:
        """Record no more; what has been recorded stays."""
        self.episodes.listeners.remove(self)
        self.episodes.recorders.remove(self)

    def state_diagnosis(self, mode: str | None, node: int | None = None) -> None:
        """What the policy states with its next move.  node: None or -1 none.

        Raises:
            ClusterorchError: no such mode or node.
        """
        network = self.episodes.world.network
        modes = [HEALTHY, *(m.name for m in network.spec.mode)]
        if mode is not None and mode not in modes:
            raise ClusterorchError(f"no mode is named {mode!r}: state one of {', '.join(modes)}")
        if node is not None and not -1 <= node < network.layout.nodes:
            raise ClusterorchError(f"node {node} is not in 0..{network.layout.nodes - 1}")
        self._stated = (mode, None if node is None or node < 0 else int(node))

    def begun(self, episodes: Episodes, rows: np.ndarray) -> None:
        """Start afresh if the instance begins an episode."""
        if self.instance not in rows:
            return
        world = episodes.world
        own = None if episodes.infers else Believer(world.network, world.moves, world.prior, 1)
        self._stated = (None, None)
        self._record = _Record(Recorder(world.simulator, self.instance), own, self._published())
        self._diagnose(self._record)

    def listen(self, episodes: Episodes, running: np.ndarray) -> None:
        """Take in a slice."""
        b, record = self.instance, self._record
        if record is None or not running[b]:
            return
        world, at = episodes.world, slice(b, b + 1)
        state, table = world.state, world.moves.table
        t, taken = int(world.books.time[b]) - 1, int(world.taken[b])
        record.values.append(state.values[b].copy())
        record.arrival.append(state.arrival[b].copy())
        action = None
        if table.action[taken] >= 0:
            spec = world.network.spec.action[table.action[taken]]
            action = spec.name if spec.target in ("none", "job") else (spec.name, int(table.target[taken]))
        record.cascade.record(action, t=t)
        record.truth.append(self._true(t))
        if record.believer is not None:
            record.believer.record(
                np.array([True]), state.values[at], state.arrival[at], state.phase[at], state.job_class[at],
                state.age_before[at], state.save_ends[at], world.taken[at], state.proneness[at], state.share[at],
            )  # fmt: skip

    def decided(self, episodes: Episodes, moves: np.ndarray, deciding: np.ndarray, decision: Decision) -> None:
        """Take in a decision that has been played."""
        b, record = self.instance, self._record
        if record is None or not deciding[b]:
            return
        mode, node = self._stated
        record.recovery.append(
            record.standing
            | {
                "move": episodes.world.moves.label(int(moves[b])), "legal": not decision.illegal[b],
                "reward": float(decision.reward[b]), "slices": int(decision.slices[b]),
                "stated_mode": mode, "stated_node": node,
            }
        )  # fmt: skip
        self._stated = (None, None)
        record.standing = self._published()
        self._diagnose(record)

    def _time(self, slices: int) -> float:
        return slices * float(self.episodes.world.network.spec.model.slice_seconds)

    def _published(self) -> Row:
        world, b = self.episodes.world, self.instance
        state, books = world.state, world.books
        now, held = int(books.time[b]), int(state.held[b])
        waits = bool(books.was_down[b]) and not books.lost[b]
        return {
            "time": self._time(now), "phase": PHASES[state.phase[b]], "job_class": JOB_CLASSES[state.job_class[b]],
            "halted": int(state.age[b]), "copies_held": held,
            "copy_age": now - int(books.copy_time[b, 0]) if held else None, "topology": TOPOLOGIES[books.detour[b]],
            "spares": int(books.spares[b] + books.frail_spares[b]), "working": int((books.place[b] == IN_JOB).sum()),
            "in_repair": " ".join(str(n) for n in np.flatnonzero(books.place[b] == IN_REPAIR)),
            "failures": int(books.failures[b]), "lost": bool(books.lost[b]),
            "until_requeue": max(int(books.requeue_at[b]) - now, 0) if waits else None,
        }  # fmt: skip

    def _true(self, t: int) -> Row:
        world, b = self.episodes.world, self.instance
        state, books, network = world.state, world.books, world.network
        v, since, after = int(state.variant[b]), int(books.incident[b]), int(books.recovered[b])
        fault: Row = dict.fromkeys(("variant", "mode", "site_kind", "site", "node", "severity"))
        if v >= 0:
            variant, site = network.blocks[v].variant, int(state.site[b])
            node = int(network.layout.node_of(variant.spec.site)[site])
            severity = network.spec.model.severities[state.severity[b]] if variant.spec.severity else None
            fault = {
                "variant": variant.name, "mode": variant.mode, "site_kind": variant.spec.site, "site": site,
                "node": node if node >= 0 else None, "severity": severity,
            }  # fmt: skip
        return fault | {
            "time": self._time(t + 1), "slice": t, "phase": PHASES[state.phase[b]],
            "job_class": JOB_CLASSES[state.job_class[b]], "poisoned_copies": int(state.poisoned[b]),
            **{head: float(books.heads[b, i]) for i, head in enumerate(HEADS)},
            "rolled_back": float(books.discarded[b]), "false_move": bool(books.false_moves[b]),
            "kept": float(books.good[b]), "lost": bool(books.lost[b]), "incident_since": since if since >= 0 else None,
            "recovered_after": after if after >= 0 else None,
        }  # fmt: skip

    def _diagnose(self, record: _Record) -> None:
        """Append what the filter believes now; of the believer alone."""
        network = self.episodes.world.network
        kept, b = (record.believer, 0) if record.believer else (self.episodes.believer, self.instance)
        assert kept is not None
        belief = Belief(network, kept.believe(np.array([b]))[b].copy())
        variants = {"none": belief.empty} | belief.variants
        variant = max(variants, key=variants.__getitem__)
        nodes = np.zeros(network.layout.nodes)
        for (kind, site), p in belief.sites().items():
            node = int(network.layout.node_of(kind)[site])
            if node >= 0:
                nodes[node] += p
        node = int(nodes.argmax())
        record.diagnosis.append(
            {
                "time": self._time(int(kept.time[b])),
                **{f"p.{mode}": p for mode, p in belief.modes.items()},
                "variant": variant, "p_variant": variants[variant],
                "node": node if nodes[node] > 0.0 else None, "p_node": float(nodes[node]), "entropy": belief.entropy,
            }
        )  # fmt: skip

    def trace(self) -> EpisodeTrace:
        """The trace so far.

        Raises:
            ClusterorchError: no episode has begun since the recorder listens.
        """
        pa, record = arrow(), self._record
        if record is None:
            raise ClusterorchError("nothing is recorded yet: begin an episode, with reset(), after making the recorder")
        columns = schemas(self._modes())
        tables = {
            name: pa.Table.from_pylist(getattr(record, name), schema=columns[name])
            for name in ("truth", "diagnosis", "recovery")
        }
        delivered = to_columns(self.episodes.world.network, record.values, record.arrival)
        tables["telemetry"] = pa.Table.from_pydict(delivered, schema=columns["telemetry"])
        moves = [row["move"] for row in record.recovery]
        return EpisodeTrace(tables, list(record.cascade.events), self._metadata(moves))

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the trace so far; see `clusterorch.environment.tables.write_trace`."""
        return write_trace(self.trace(), folder, force=force)

    def _modes(self) -> list[str]:
        return [*(mode.name for mode in self.episodes.world.network.spec.mode), HEALTHY]

    def _metadata(self, moves: list[str]) -> Row:
        episodes, world = self.episodes, self.episodes.world
        model, layout = episodes.model, episodes.model.layout
        (seed, domain, first), spec = world.simulator.noise, world.network.spec
        return {
            "kind": KIND, "schema_version": SCHEMA_VERSION, "clusterorch": __version__, **names_of(model),
            "sha256": model.sha256, "limits": dict(model.limits), "layout": str(layout), "spares": layout.spares,
            "leaves": layout.leaves,
            "layout_options": {k: getattr(layout, k) for k in ("rails", "storage", "copies")},
            "settings": asdict(episodes.settings), "seed": int(seed),
            "domain": domain, "instance": int(first) + self.instance, "episode": int(world.episode[self.instance]),
            "starts": self.starts.isoformat(), "slice_seconds": spec.model.slice_seconds,
            "horizon": episodes.horizon, "modes": self._modes(), "waits": world.moves.label(0),
            "signals": {s.name: {"family": s.family, "values": s.values} for s in spec.signal},
            "scheduler": world.moves.label(world.moves.requeue), "do": [], "moves": moves,
        }  # fmt: skip


def names_of(model: Model) -> Row:
    """Name of a model, its overlays and its site profile, as `load` reads them again; files stay files."""
    name, overlays = model.path.stem, [path.stem for path in model.overlays]
    named = _is(locate, name, model.path)
    files = [str(p.absolute()) for p in model.overlays]
    overlays = [o if _is(locate_overlay, o, p) else f for o, p, f in zip(overlays, model.overlays, files, strict=True)]
    profile = next((o.removeprefix("site_") for o in overlays if o.startswith("site_")), None)
    return {"model": name if named else str(model.path.absolute()), "overlays": overlays, "profile": profile}


def _is(find: Any, name: str, path: Path) -> bool:
    try:
        return bool(find(name) == path)
    except ClusterorchError:
        return False
