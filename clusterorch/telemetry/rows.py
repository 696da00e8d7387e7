"""Here lives the shape of a format file: rows that say which line shows which signal of which entity.

A row decides nothing: it names a signal of the model, one of its values and the entity, never a cause.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from clusterorch.models.spec import PHASES, STREAMS, SiteKind
from clusterorch.telemetry import linearity
from clusterorch.telemetry.screening import GRAM

Stream = Literal["nccl", "kernel", "smi", "network", "checkpoint"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Span = Annotated[tuple[float, float], Field(description="from, up to but not including")]
UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Words = Annotated[list[str], BeforeValidator(_listed)]
Dialect = Annotated[str, Field(pattern=r"^[a-z]+:[a-z_]+$", description="what is written, and in whose words")]
PlacePart = Literal[
    "host", "rank", "local", "pci", "address", "ranks",
    "uuid", "index", "driver", "port", "bus", "device", "netdev", "guid",
]  # fmt: skip


class Row(BaseModel):
    """A row of a format file: unknown keys are errors, and each says where it comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    source: str | None = None
    assumed: str | None = None

    @model_validator(mode="after")
    def _grounded(self) -> Row:
        if self.source is None and self.assumed is None:
            raise ValueError("a row carries source or assumed")
        return self


class EntityRule(BaseModel):
    """Which entity a line is about: a kind, and the fields of the line (or of its prefix) that name it.

    The prefix gives `host`, `rank`, `local`, `pid` if the line has them; a line cut into columns, `column`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: SiteKind
    host: str | None = None
    pci: str | None = None
    index: str | None = None
    rank: str | None = None
    local: str | None = None
    pid: str | None = None
    device: str | None = None
    fixed: int | None = None  # the rank that speaks where a line and its prefix name none: work that rank 0 alone does

    def names(self) -> set[str]:
        """The fields it reads."""
        given = (self.host, self.pci, self.index, self.rank, self.local, self.pid, self.device)
        return {name for name in given if name is not None}


class LimitRule(BaseModel):
    """Which field states the limit of which timer."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    timer: Name
    field: str
    unit: Literal["ms", "s", "min", "h"] = "s"


class Expect(BaseModel):
    """What the example of a row yields."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    signal: str | None = None
    measure: str | None = None
    value: float | str | None = None
    entity: str | None = None
    phase: str | None = None
    seconds: float | None = None
    known: bool = False


class Value(Row):
    """How a number or a word becomes the value of a signal."""

    values: dict[str, list[int | str]] = {}
    bins: dict[str, Span] = {}
    scale: float = 1.0
    transform: Literal["none", "inverse"] = "none"

    @model_validator(mode="after")
    def _one_way(self) -> Value:
        if self.values and self.bins:
            raise ValueError("give values or bins, not both")
        return self

    def of(self, word: str) -> float | str | None:
        """The value that a word of a line stands for; None if it stands for nothing here."""
        if self.values:
            bare = word.strip().lower()
            for value, words in self.values.items():
                if any(bare == str(known).lower() for known in words):
                    return value
            return None
        try:
            number = float(word.replace(",", "")) * self.scale
        except ValueError:
            return None
        if number != number or number in (float("inf"), float("-inf")):
            return None
        if self.bins:
            return next((value for value, (low, high) in self.bins.items() if low <= number < high), None)
        if self.transform == "inverse":
            return 1.0 / number if number else None
        return number


class Pattern(Value):
    """`[[pattern]]`: a line, and what it shows."""

    stream: Stream
    regex: str
    prefilter: Words = Field(min_length=1)
    unless: Words = []
    signal: Name | None = None
    measure: Name | None = None
    known: bool = False
    phase: str | None = None
    closes: bool = False  # the line is the last of the phase before the one that it tells
    limit: LimitRule | None = None
    place: dict[PlacePart, str] = {}
    section: list[Literal["host", "pci", "device", "index", "checkpoint", "lspci", "guid"]] = []
    value: str | None = None
    field: str | None = None
    count: str | None = None
    entity: EntityRule | None = None
    split: str | None = None
    complaint: bool = False
    start: bool = False  # something starts: the host, a driver, a port
    indented_tail: bool = False
    within: str | None = None
    yields_to: Words = []
    template: str | dict[str, str] | None = None
    dialect: Dialect | None = None
    example: str
    expect: Expect | list[Expect]

    @field_validator("regex")
    @classmethod
    def _linear(cls, regex: str) -> str:
        linearity.check(regex)
        return regex

    @model_validator(mode="after")
    def _complete(self) -> Pattern:
        if any(len(text) < GRAM or not text.isascii() for text in self.prefilter):
            raise ValueError(f"a prefilter is plain ASCII of at least {GRAM} characters")
        if not (self.known or self.signal or self.measure or self.phase or self.limit or self.place or self.section):
            raise ValueError("says nothing: give signal, measure, phase, limit, place, section or known = true")
        if (self.signal or self.measure) and self.entity is None:
            raise ValueError("a signal or a measure needs an entity")
        if self.phase is not None and self.phase not in PHASES:
            raise ValueError(f"phase {self.phase!r} is none of {', '.join(PHASES)}")
        if self.measure and self.signal:
            raise ValueError("a measure becomes a signal through an operator; give one of the two")
        if self.value is not None and self.field is not None:
            raise ValueError("give value or field, not both")
        # A line may leave the peer unnamed; the other names come from its prefix or its section.
        context = {"host", "rank", "local", "pid", "column", "pci", "device", "index", "peer", "checkpoint"}
        context |= {"lspci", "guid"}
        groups = set(linearity.check(self.regex).groupindex)
        read = {self.field, self.count, self.limit.field if self.limit else None, *self.place.values()} - {None}
        read |= self.entity.names() if self.entity else set()
        if missing := {name for name in read if name not in groups | context}:
            raise ValueError(f"regex has no group named {', '.join(sorted(map(str, missing)))}")
        return self

    @property
    def silent(self) -> bool:
        """Whether the row only says that the line is known."""
        return not (
            self.signal or self.measure or self.phase or self.limit or self.place or self.section
            or self.indented_tail or self.start
        )  # fmt: skip

    @property
    def expectations(self) -> list[Expect]:
        """What the example yields, as a list."""
        return self.expect if isinstance(self.expect, list) else [self.expect]

    def render(self, fields: dict[str, Any], value: str | None = None) -> str:
        """A line as its program would print it.

        Args:
            fields: what the template asks for.
            value: a class, of a row that has a template for each or maps words of the line to classes.
        """
        template = self.template.get(value or "") if isinstance(self.template, dict) else self.template
        if template is None:
            raise ValueError(f"{self.name} has no template" + (f" for {value}" if value else ""))
        if value is not None and self.field is not None and value in self.values:
            fields = {**fields, self.field: self.values[value][0]}
        return template.format(**fields)


class Column(Value):
    """`[[column]]`: a quantity of a GPU under all its names; `*` is any column.

    Names are those of nvidia-smi's CSV and of DCGM.  `report/...` is a line of its full report below its headings,
    `table/...` a cell of the table that it prints, `dmon/...` a column of its monitor, `dcgmi/...` of DCGM's.

    Keys:
        delta: the number counts up; what it rose by is the value.
        standing_from: a first number of at least this counts as if it had risen from zero.
        on_change: a number that stands is told once.
        below: the name of the best that the number could be; the value is 1 where it is less.
        when: other names and the words (or the least number) that one of them must have for this one to count.
        label: the label of the metric that holds the value, where the metric itself is not zero.
    """

    columns: list[str] = Field(min_length=1)
    role: Literal["index", "pci", "uuid", "host", "known"] | None = None
    signal: Name | None = None
    measure: Name | None = None
    bits: dict[str, int] = {}
    rest: str | None = None
    of_column: list[str] = []
    delta: bool = False
    standing_from: float | None = None
    on_change: bool = False
    below: list[str] = []
    when: dict[str, list[str] | float] = {}
    label: str | None = None
    offset: float = 0.0

    @model_validator(mode="after")
    def _complete(self) -> Column:
        if sum(given is not None for given in (self.role, self.signal, self.measure)) != 1:
            raise ValueError("a column has one of role, signal, measure")
        return self


class Counter(Row):
    """`[[counter]]`: counters of a network device for one signal; without a signal they are only known.

    Keys:
        standing: the signal that a first number of at least `standing_from` shows.
        unprotected: the signal that a rise on a priority without flow control shows; `#` is the priority.
    """

    counters: list[str] = Field(min_length=1)
    signal: Name | None = None
    template: str | None = None
    standing: Name | None = None
    standing_from: int = Field(default=1000, ge=1)
    unprotected: Name | None = None

    def names(self) -> list[str]:
        """The names of its counters; `#` stands for each of the eight priorities."""
        return [name.replace("#", digit) for name in self.counters for digit in ("01234567" if "#" in name else "0")]


class Wait(Row):
    """`[[wait]]`: frames that say what a thread waits for; the first row that matches a stack counts."""

    wait: Literal["collective", "loader", "io", "lock", "compute"]
    functions: list[str] = []
    files: list[str] = []


class Wrapped(Row):
    """`[[wrapped]]`: a record that comes broken over several lines."""

    token: str = Field(min_length=2)
    starts: str
    continues: str
    ends: str | None = None
    border: str | None = None  # what closes each line, and belongs to none
    most: int = Field(default=4, ge=2, le=8)

    @field_validator("starts", "continues")
    @classmethod
    def _linear(cls, regex: str) -> str:
        linearity.check(regex)
        return regex


class Operator(Row):
    """`[[operator]]`: a relation between lines that shows a signal."""

    kind: Literal[
        "ratio_to_own_baseline", "differs", "minority", "first_of", "one_of_many", "conflict",
        "jump_at_load", "undersized", "far_apart", "at_start", "open_span", "repeats", "goes_on", "takes_back",
        "recorder_behind", "recorder_unstarted", "recorder_differs",
    ]  # fmt: skip
    signal: Name
    stream: Stream
    measure: Name | None = None
    over: Name | None = None  # the signal whose readings are compared, in place of a measure
    breaks: Name | None = None  # a signal that ends a row of them
    level: Literal["beginning", "load"] = "beginning"
    least: float = Field(default=0.0, ge=0)  # a level below it is no load; fewer in a row do not repeat
    within: int = Field(default=12, ge=1)  # lines
    scatter: float | None = Field(default=None, gt=0)  # of a calm series, on the log scale
    settles_after: list[str] = []
    compare: list[str] = []
    align: list[str] = []
    members: str | None = None
    only_below: str | None = None
    majority: str | None = None
    thread: str | None = None
    largest_share: float = Field(default=1 / 3, gt=0, lt=0.5)
    after: Name | None = None  # of a signal that counts beside a start if it follows this one
    seconds: float = Field(default=120.0, gt=0)  # how far a start reaches
    position: str | None = None  # the measure that says how far a run has come, read from the same line
    factor: float = Field(default=2.0, gt=0)


class Template(Row):
    """`[[template]]`: a line that a simulator prints for a signal or a measure; it is read by patterns as any other.

    A relation between lines is shown by several: with `members`, every member of the entity's node or job says
    `others`, and the entity itself `text`.  `file` names the file that it is written to; `once` keeps such files few.
    What is `pasted` is printed in excerpts alone.
    """

    signal: Name | None = None
    measure: Name | None = None
    stream: Stream
    text: str
    value: str | None = None
    others: str | None = None
    members: Literal["node", "job"] | None = None
    within: str | None = None
    needs: Words = []
    dialect: Dialect | None = None
    file: str | None = None
    once: bool = False
    pasted: bool = False
    scale: float = 1.0
    transform: Literal["none", "inverse"] = "none"

    @model_validator(mode="after")
    def _one_thing(self) -> Template:
        if (self.signal is None) == (self.measure is None):
            raise ValueError("a template prints one of signal, measure")
        if (self.others is None) != (self.members is None):
            raise ValueError("members and others come together")
        return self


TABLES: dict[str, type[Row]] = {
    "template": Template,
    "pattern": Pattern,
    "column": Column,
    "counter": Counter,
    "wait": Wait,
    "wrapped": Wrapped,
    "operator": Operator,
}
assert set(STREAMS) == set(Stream.__args__)  # type: ignore[attr-defined]
