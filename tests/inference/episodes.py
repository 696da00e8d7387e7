"""Here live episodes with known truth, and what a filter makes of them, under the three protocols.

Models are edited copies of the reference in which much happens within a few slices.  The believer's
model may be another than the one that the episodes are drawn from.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from clusterorch import models
from clusterorch.inference.coverage import CoveredFilter, info_lines, info_streams, silence
from clusterorch.inference.filtering import Filter
from clusterorch.inference.marks import Item, MarkFilter
from clusterorch.inference.plan import make_plan
from clusterorch.inference.priors import episode_prior
from clusterorch.models import Model
from clusterorch.models.compile import Network
from clusterorch.models.layout import ENTITY_KINDS
from clusterorch.models.spec import JOB_CLASSES, PHASES, ModelSpec, Protocol
from clusterorch.simulation import Simulator
from tests.inference.calibration import Ledger, TrueStates, label_priors, labels
from tests.inference.excerpt_twin import Twin, state_key, state_numbers
from tests.inference.worlds import LIMITS

SLICES, BATCH, INFO_SHARE, SPAN = 10, 500, 0.6, 20
DURATION = {"launch": 1, "init_comm": 1, "load": 1, "step": 3, "save": 2}  # slices
NEXT = {"launch": "init_comm", "init_comm": "load", "load": "step", "step": "save", "save": "step"}
LAUNCH, SAVE, STOP = (PHASES.index(name) for name in ("launch", "save", "stop"))
# Phases of the items of an excerpt; None: the logs do not tell.
TOLD: tuple[tuple[str | None, ...], ...] = (
    (None,) * 5,
    ("step",) * 5,
    ("launch", "launch", "init_comm", None, "step"),
    ("init_comm", "load", "load", "step", "save"),
    ("step", "save", "save", "stop", "stop"),
)
EXCERPT = Protocol(
    name="excerpt", title="", same_slice=0.4, gap_slices=2, long_share=0.2, long_slices=6, entity_contamination=0.02
)
KEPT = {
    "utilization", "temperature", "pcie_replay", "xid", "bus_lost_text", "nic_link_down", "link_errors",
    "kernel_chatter", "collective_mismatch", "peer_closed", "first_error", "step_time", "progress", "loss",
    "copy_saved", "python_error", "version_conflict", "store_timeout", "connect_failed", "thermal_flag",
    "pcie_below_max", "ecc_corrected", "storage_client", "loader_starved", "load_failed", "loss_jump", "discards",
    "heartbeat_stuck", "storage_full",
}  # fmt: skip
Raw = dict[str, Any]


@cache
def reference(layout: str, overlay: str) -> Model:
    """The reference model with a prior for episodes or for incidents."""
    return models.load("reference", layout=layout, overlays=[overlay])


def nothing(raw: Raw) -> None:
    """Leave the model as it is."""


def made(base: Model, raw: Raw, limits: dict[str, float]) -> Model:
    """A model out of edited tables."""
    spec = ModelSpec.model_validate(raw)
    return Model(spec, base.layout, base.path, base.overlays, raw, tuple(sorted(limits.items())))


def quick_delays(raw: Raw) -> None:
    """Geometric delays of about three slices."""
    for edge in raw["edge"]:
        if isinstance(edge.get("delay"), dict) and "geometric" in edge["delay"]:
            edge["delay"] = {"geometric": 40}


def live_world(edit: Callable[[Raw], None] = nothing, **limits: float) -> Model:
    """Incidents in one slice of twelve, three cells of ten lost, and few signals: little is certain."""
    base = reference("1x2", "episode")
    raw = copy.deepcopy(base.raw)
    raw["prior"]["incidents_per_hour"] = 20
    raw["job"] |= {f"{phase}_seconds": 15 * DURATION[phase] for phase in ("launch", "init_comm", "load", "save")}
    raw["job"]["save_every_seconds"] = 15 * DURATION["step"]
    raw["signal"] = [s for s in raw["signal"] if s["name"] in KEPT]
    for benign in raw["benign"]:
        benign["rate_per_1000_node_days"] = 1.5e5
    for variant in (v for mode in raw["mode"] for v in mode["variant"] if "recovers_per_hour" in v):
        variant["recovers_per_hour"] = 40
    for stream in raw["stream"]:
        stream["lost"] = 0.3
    quick_delays(raw)
    edit(raw)
    return made(base, raw, LIMITS | limits)


def excerpt_world(edit: Callable[[Raw], None] = nothing, layout: str = "2x2") -> Model:
    """Lines only; faults of up to five minutes before the first one, and quick restarts."""
    base = reference(layout, "incident")
    raw = copy.deepcopy(base.raw)
    raw["prior"] |= {"preroll_seconds": 300, "restart_seconds": 60}
    raw["signal"] = [s for s in raw["signal"] if s.get("lines", True)]
    quick_delays(raw)
    edit(raw)
    return made(base, raw, LIMITS)


def schedule(phase: int, clock: int, job: int) -> tuple[int, int, bool]:
    """The published machine of the live world."""
    if JOB_CLASSES[job] == "down":
        return STOP, 0, False
    if phase < 0:
        phase, clock = LAUNCH, 0
    elif JOB_CLASSES[job] == "moving" and phase != STOP:
        clock += 1
        if clock == DURATION[PHASES[phase]]:
            phase, clock = PHASES.index(NEXT[PHASES[phase]]), 0
    return phase, clock, phase == SAVE and clock == DURATION["save"] - 1


def cover(network: Network, values: np.ndarray, printed: np.ndarray) -> np.ndarray:
    """What the log shows: informational lines that are not printed look as if nothing had happened."""
    for k, stream in enumerate(info_streams(network)):
        hidden = info_lines(network, stream)[None, :] & ~printed[:, [k]] & ~np.isnan(values)
        values = np.where(hidden, silence(network), values)
    return values


def live(truth: Model, believer: Model, episodes: int, *, seed: int, covered: bool = False, share: float | None = None,
         late: int = 0) -> Ledger:  # fmt: skip
    """Simulated episodes and what a filter of the believer's model makes of them.

    Args:
        covered: whether streams keep informational lines back, each with probability 1 - INFO_SHARE.
        share: what the believer takes INFO_SHARE for; None: it takes the logs to be complete.
        late: slices by which the values reach the believer too late.
    """
    network, plan, prior = believer.network, make_plan(believer.network), episode_prior(believer.network)
    ledger = Ledger(network, label_priors(network, plan, prior, schedule, SLICES))
    edges = [f"{e.from_}>{e.to}" for e in truth.spec.edge]
    states = TrueStates(network, [m.name for m in truth.spec.mechanism], edges)
    label = np.array([0, *(ledger.names.index(b.variant.mode) for b in truth.network.blocks)])
    rng = np.random.default_rng(seed)
    for first in range(0, episodes, BATCH):
        onset = episode_prior(truth.network)
        simulator = Simulator(truth, BATCH, seed=seed, first_instance=first, onset=onset, start="launch")
        printed = rng.random((BATCH, len(info_streams(network)))) < INFO_SHARE
        mixed = None if share is None else CoveredFilter(network, share, batch=BATCH, prior=prior, plan=plan)
        f = mixed or Filter(network, batch=BATCH, prior=prior, plan=plan, strict=False)
        kept, seen = [], [np.full((BATCH, network.width), np.nan)] * late
        for _ in range(SLICES):
            record = simulator.step()
            seen.append(cover(network, record.values, printed) if covered else record.values.copy())
            weights = None if mixed is None else mixed.weights
            f.step_batch(seen.pop(0), record.phase, record.job_class, record.age_before, record.save_ends)
            predicted = (
                f._after if mixed is None else sum(weights[:, [s]] * g._after for s, g in enumerate(mixed.filters))
            )
            kept.append((predicted.copy(), f.belief.copy(), states.of(simulator.state)))
        ledger.episodes(kept, label[simulator.state.variant + 1])
        ledger.impossible += len(f.set_aside)
    return ledger


class Watched(MarkFilter):
    """Keeps the belief as it is before an item, and that before the first line for the next excerpt."""

    def __post_init__(self) -> None:
        self.before: dict[int | None, np.ndarray] = {}
        super().__post_init__()

    def _run_up(self, phase: int | None) -> None:
        if phase not in self.before:
            super()._run_up(phase)
            self.before[phase] = self.belief.copy()
        self.belief, self._begun = self.before[phase].copy(), True

    def advance(self, gap: float | None, phase: int | None = None) -> None:
        super().advance(gap, phase)
        self.predicted = self.belief + self.over

    def labels(self, told: Sequence[str | None], member: np.ndarray) -> np.ndarray:
        """[items, labels] probabilities before any line is read."""
        self.reset()
        found = []
        for phase in told:
            self.advance(None, None if phase is None else PHASES.index(phase))
            found.append(self.predicted @ member)
        return np.array(found)


def everything(network: Network) -> dict[str, np.ndarray]:
    """Every entity of the layout exists."""
    return {kind: np.ones(network.layout.count(kind), dtype=bool) for kind in ENTITY_KINDS}


def pasted(truth: Model, believer: Model, episodes: int, *, seed: int, again: float = 0.0, swap: bool = False,
           drawn_by: Protocol = EXCERPT) -> Ledger:  # fmt: skip
    """Excerpts drawn by the twin and what `MarkFilter` makes of them; their phases are those of `TOLD` in turn.

    Args:
        again: share of items that name a further entity of a kind shown before.
        swap: whether the believer reads each item one place too late.
        drawn_by: numbers of the protocol behind the excerpts; the believer takes them for `EXCERPT`.
    """
    network, twin = believer.hidden_network, Twin(truth.hidden_network, LIMITS, drawn_by, SPAN, seed, again)
    f, numbers = Watched(network, EXCERPT, everything(network), span=SPAN), state_numbers(network)
    names, member = labels(network)
    ledger, batch = Ledger(network, np.zeros((0, 0))), episodes // len(TOLD)
    for told in TOLD:
        ledger.priors = f.labels(told, member)
        rows = [([], [], []) for _ in told]
        label = np.zeros(batch, dtype=np.int64)
        for b in range(batch):
            drawn = twin.one(told)
            items = [replace(drawn.items[0], mark=None), *_late(drawn.items)] if swap else drawn.items
            f.reset()
            for row, item, job in zip(rows, items, drawn.states, strict=True):
                f.observe(item)
                number = numbers.get(state_key(twin, job.state), -1)
                for column, x in zip(row, (f.predicted, f.belief + f.over, number), strict=True):
                    column.append(x)
            label[b] = 0 if job.state.slot is None else names.index(job.state.slot[0])
        ledger.episodes([tuple(np.array(column) for column in row) for row in rows], label)
    return ledger


def _late(items: list[Item]) -> list[Item]:
    """All but the first, each with the line of the one before."""
    return [replace(later, mark=earlier.mark) for earlier, later in pairwise(items)]
