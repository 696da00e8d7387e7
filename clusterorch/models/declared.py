"""Here lives what every table of a model file has in common: numbers that carry their origin.

A number is written bare, or as `{value, source | derived | assumed}`; a key that is not known is an error.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SEVERITIES = 3


def bare(value: Any) -> Any:
    """The number inside `{value = ..., source = ...}`; a bare number stays."""
    if isinstance(value, dict) and "value" in value:
        if unknown := set(value) - {"value", "source", "derived", "assumed"}:
            raise ValueError(f"a number carries value and source, derived or assumed, not {sorted(unknown)}")
        return value["value"]
    return value


Number = Annotated[float, BeforeValidator(bare), Field(allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(bare), Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, BeforeValidator(bare), Field(ge=0, allow_inf_nan=False)]
Slowdown = Annotated[float, BeforeValidator(bare), Field(ge=1, allow_inf_nan=False)]
Probability = Annotated[float, BeforeValidator(bare), Field(ge=0, le=1)]
Count = Annotated[int, BeforeValidator(bare), Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
BySeverity = Annotated[
    Number | Annotated[list[Number], Field(min_length=SEVERITIES, max_length=SEVERITIES)],
    BeforeValidator(bare),
]
ProbabilityBySeverity = Annotated[
    Probability | Annotated[list[Probability], Field(min_length=SEVERITIES, max_length=SEVERITIES)],
    BeforeValidator(bare),
]
Table = Annotated[list[Probability] | list[list[Probability]], BeforeValidator(bare)]


class Declared(BaseModel):
    """A table of the file: unknown keys are errors, and its numbers say where they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: str | None = None
    derived: str | None = None
    assumed: str | None = None
