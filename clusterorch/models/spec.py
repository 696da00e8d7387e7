"""Here lives the shape of a model file: what may stand in it, checked once when it is read.

`models/README.md` says what the tables mean. Below this border nothing is checked again.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from clusterorch.models.declared import (
    SEVERITIES,
    BySeverity,
    Count,
    Declared,
    Name,
    NonNegative,
    Number,
    Positive,
    Probability,
    ProbabilityBySeverity,
    Table,
    bare,
)
from clusterorch.models.economy import Economy

SiteKind = Literal["gpu", "node", "link", "leaf", "rail", "communicator", "rank", "storage", "checkpoint", "job"]
Relation = Literal["site", "node", "rest", "others", "all"]
JobClass = Literal["moving", "halted", "down"]
Effect = Literal["none", "slow", "stall", "crash", "block_save", "block_start", "poison"]
STREAMS = ("nccl", "kernel", "smi", "network", "checkpoint")
PHASES = ("launch", "init_comm", "load", "step", "eval", "save", "stop", "queued")
RELATIONS = ("rest", "node", "site")
JOB_CLASSES = ("moving", "halted", "down")
_INSTANT = 1e-3  # seconds, shorter than any slice


class Header(Declared):
    """`[model]`."""

    name: Name
    version: int = Field(ge=1)
    summary: str
    slice_seconds: Positive
    severities: list[str] = Field(min_length=SEVERITIES, max_length=SEVERITIES)


class Job(Declared):
    """`[job]`: the published schedule, seconds."""

    launch_seconds: Positive
    init_comm_seconds: Positive
    load_seconds: Positive
    save_every_seconds: Positive
    save_seconds: Positive
    copies: Annotated[int, BeforeValidator(bare), Field(ge=1, le=8)]


class StreamSpec(Declared):
    """`[[stream]]`: one collector; delays in slices."""

    name: Literal["nccl", "kernel", "smi", "network", "checkpoint"]
    title: str
    lost: Probability
    delay: NonNegative
    max_delay: Count


class Timer(Declared):
    """`[[timer]]`: a limit on slices of halt, seconds."""

    name: Name
    seconds: Positive
    title: str = ""


class Variant(Declared):
    """`[[mode.variant]]`: one cascade of a mode."""

    name: Name
    title: str = ""
    site: SiteKind
    share: Probability = 1.0
    severity: Annotated[list[Probability], BeforeValidator(bare)] | None = None
    phases: list[str] | None = None
    recovers_per_hour: NonNegative = 0.0
    proximate: str | None = None

    @model_validator(mode="after")
    def _levels(self) -> Variant:
        if self.severity is not None and (len(self.severity) != SEVERITIES or abs(sum(self.severity) - 1) > 1e-9):
            raise ValueError("severity needs three probabilities that sum to 1")
        return self


class Mode(Declared):
    """`[[mode]]`: a failure mode and its hazard."""

    name: Name
    title: str
    category: Literal["hardware", "network", "software", "silent"]
    rate_per_1000_node_days: NonNegative
    incident_share: NonNegative = 1.0
    advice: str = ""
    variant: list[Variant] = Field(min_length=1, max_length=4)

    @model_validator(mode="after")
    def _shares(self) -> Mode:
        if abs(sum(variant.share for variant in self.variant) - 1) > 1e-9:
            raise ValueError("the shares of the variants must sum to 1")
        return self


class Benign(Variant):
    """`[[benign]]`: a disturbance that is no failure; part of `healthy`."""

    rate_per_1000_node_days: NonNegative
    incident_share: NonNegative = 1.0


class Mechanism(Declared):
    """`[[mechanism]]`: a binary variable; `heals` is the mean duration in seconds."""

    name: Name
    title: str
    effect: Effect = "none"
    slowdown: BySeverity = 1.0
    heals: Positive | None = None
    pulse: bool = False
    transient: bool = False

    @model_validator(mode="after")
    def _memory(self) -> Mechanism:
        if self.transient and (self.heals is not None or self.effect != "none" or self.pulse):
            raise ValueError("a transient mechanism has no duration and no effect on the job")
        if self.pulse and self.heals is not None:
            raise ValueError("a pulse lasts one slice; give pulse or heals")
        return self

    @property
    def lasts(self) -> float | None:
        """Mean duration, seconds; None: until the fault ends.  What is shorter than a slice lasts one slice."""
        return _INSTANT if self.pulse else self.heals


class Delay(Declared):
    """The delay of an edge: exactly one of the four, seconds where a time."""

    fast: bool = False
    geometric: Positive | None = None
    erlang: tuple[Annotated[int, Field(ge=1, le=3)], Positive] | None = None
    timer: Name | None = None
    lognormal: tuple[Positive, Positive] | None = None
    fit_error: NonNegative | None = None

    @model_validator(mode="after")
    def _one(self) -> Delay:
        given = [self.fast, self.geometric is not None, self.erlang is not None, self.timer is not None]
        if sum(given) != 1:
            raise ValueError("a delay is one of fast, geometric, erlang, timer")
        return self


def _delay(value: Any) -> Any:
    return {"fast": True} if value == "fast" else value


class Edge(Declared):
    """`[[edge]]`: from a mechanism or a variant (`mode.variant`) to a mechanism."""

    from_: str = Field(alias="from")
    to: Name
    gate: Probability = 1.0
    delay: Annotated[Delay, BeforeValidator(_delay)] = Delay(fast=True)
    recurrent: bool = False
    phases: list[str] | None = None

    @model_validator(mode="after")
    def _recurring(self) -> Edge:
        if self.recurrent and (self.delay.geometric is None or self.gate != 1.0):
            raise ValueError("a recurrent edge has a geometric delay and no gate")
        return self


class ByRelation(Declared):
    """A number for each relation to the site."""

    site: NonNegative
    node: NonNegative
    rest: NonNegative


class Outlier(Declared):
    """Contamination of a continuous signal."""

    probability: Probability
    mean: Number
    sd: Positive


class Parameters(Declared):
    """The parameters of a signal's distribution; which ones are given depends on its family."""

    mean: BySeverity | None = None
    sd: BySeverity | None = None
    absent: ProbabilityBySeverity | None = None
    probability: ProbabilityBySeverity | None = None
    probabilities: Table | None = None
    told: ProbabilityBySeverity | None = None
    speak: ByRelation | None = None
    quiet: Probability | None = None
    speaks: ProbabilityBySeverity | None = None
    weight: ByRelation | None = None


class When(Parameters):
    """`[[signal.when]]`: a rule; the first that matches gives the parameters."""

    mechanism: Name | None = None
    mechanisms: list[Name] = []
    absent_mechanisms: list[Name] = []
    phases: list[str] | None = None
    job: JobClass | None = None
    where: Relation = "all"
    title: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Every mechanism that must be active."""
        return ((self.mechanism,) if self.mechanism else ()) + tuple(self.mechanisms)


class Signal(Parameters):
    """`[[signal]]`: a random variable for every entity of a kind."""

    name: Name
    title: str
    stream: Literal["nccl", "kernel", "smi", "network", "checkpoint"]
    entity: SiteKind
    family: Literal["gaussian", "log_ratio", "presence", "count", "categorical", "chorus", "first_speaker"]
    unit: str = ""
    values: list[str] = []
    memory: Probability = 0.0
    outlier: Outlier | None = None
    contamination: Probability = 0.0
    verbosity: Literal["warn", "info"] = "warn"
    lines: bool = True
    baseline: Positive | None = None
    when: list[When] = []

    REQUIRED: ClassVar[dict[str, tuple[str, ...]]] = {
        "gaussian": ("mean", "sd"),
        "log_ratio": ("mean", "sd"),
        "presence": ("probability",),
        "count": ("probabilities",),
        "categorical": ("probabilities",),
        "chorus": ("told", "speak", "quiet"),
        "first_speaker": ("speaks", "weight"),
    }

    @model_validator(mode="after")
    def _family(self) -> Signal:
        for key in self.REQUIRED[self.family]:
            if getattr(self, key) is None:
                raise ValueError(f"family {self.family} needs the key '{key}'")
        if self.family in ("gaussian", "log_ratio") and self.outlier is None:
            raise ValueError("a continuous signal needs outlier = {probability, mean, sd}")
        for by_relation in (self.speak, self.weight):
            if by_relation is not None and len({by_relation.site, by_relation.node, by_relation.rest}) > 1:
                raise ValueError("a background knows no site: give site, node and rest the same number, and a rule")
        width = {"count": 5, "categorical": len(self.values)}.get(self.family)
        for table in (self, *self.when):
            if width and table.probabilities is not None:
                _check_table(table.probabilities, width)
        return self


def _check_table(table: list[Any], width: int) -> None:
    rows = table if table and isinstance(table[0], list) else [table]
    if len(rows) not in (1, SEVERITIES):
        raise ValueError("probabilities by severity need three lists")
    for row in rows:
        if len(row) != width or abs(sum(row) - 1) > 1e-9:
            raise ValueError(f"probabilities need {width} numbers that sum to 1, got {row}")


class ActionEffect(Declared):
    """`[[action.effect]]`: what an action does to a fault."""

    of: list[str] = []
    relation: Literal["site", "elsewhere", "any"] = "any"
    clears: Probability


class ActionBrings(Declared):
    """`[action.brings]`: a fault that what is put in place of the target may have, on the target itself."""

    probability: Probability
    of: list[str]  # modes or variants, in proportion to their hazards


class Action(Declared):
    """`[[action]]`: something an operator can do."""

    name: Name
    title: str
    target: Literal["none", "node", "job", "copy", "rail", "leaf"]
    restarts: bool = False
    discards: bool = False
    reinitialises: bool = False
    does: Literal["", "isolate", "swap", "tree", "ring", "around", "requeue"] = ""
    cost: str = ""
    effect: list[ActionEffect] = []
    brings: ActionBrings | None = None


class PhaseShares(Declared):
    """`[prior.phase_shares]`: in which phase a fault begins that may begin in any; sums to 1."""

    launch: Probability
    init_comm: Probability
    load: Probability
    step: Probability
    eval: Probability
    save: Probability
    stop: Probability
    queued: Probability

    @model_validator(mode="after")
    def _whole(self) -> PhaseShares:
        if abs(sum(getattr(self, phase) for phase in PHASES) - 1) > 1e-9:
            raise ValueError("the shares of the phases must sum to 1")
        return self


class Prior(Declared):
    """`[prior]`: where faults come from in time."""

    kind: Literal["stationary", "episode", "incident"]
    incidents_per_hour: Positive | None = None
    healthy: Probability | None = None
    uniform_share: Probability = 0.0
    before_first_line: Probability = 0.0
    phase_shares: PhaseShares | None = None
    phase_slip: Probability = 0.0
    second_incident: Probability = 0.0
    restart_seconds: Positive | None = None
    restart_clears: Probability = 0.0
    preroll_seconds: NonNegative = 0.0


class Protocol(Declared):
    """`[[protocol]]`: how somebody's logs show what happened."""

    name: Literal["complete", "covered", "excerpt"]
    title: str
    info_share: Probability = 1.0
    same_slice: Probability = 0.0
    before_first_line: Probability | None = None
    gap_slices: Positive = 1.0
    long_share: Probability = 0.0
    long_slices: Positive = 1.0
    entity_contamination: Probability = 0.0


class ModelSpec(Declared):
    """A whole model file, overlays applied."""

    model: Header
    sources: dict[str, str]
    job: Job
    prior: Prior
    stream: list[StreamSpec]
    timer: list[Timer] = []
    mode: list[Mode] = Field(min_length=1)
    benign: list[Benign] = []
    mechanism: list[Mechanism] = Field(min_length=1)
    edge: list[Edge] = Field(min_length=1)
    signal: list[Signal] = Field(min_length=1)
    action: list[Action] = []
    protocol: list[Protocol] = []
    economy: Economy | None = None
    formats: list[str] = []
    commands: list[str] = []
