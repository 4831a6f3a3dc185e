"""Define the form of a backfill DAG for Airflow's *Trigger*, and check the values that a user enters."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from airflow.sdk import Param
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tailrace.runners.jobs import LONGEST_REASON, Reason, RunnerError

MOST_AT_ONCE = 16
"""The maximum number of parallel runs into which the form can divide a range."""

_INSTANT = WithJsonSchema({"type": ["null", "string"], "format": "date-time"})
_REASON = WithJsonSchema({"type": ["null", "string"], "maxLength": LONGEST_REASON})


class BackfillRequest(BaseModel):
    """The parameters of a run. `texts/form.toml` has the title and the description of each parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    first: Annotated[AwareDatetime | None, _INSTANT] = Field(None, alias="from")
    last: Annotated[AwareDatetime | None, _INSTANT] = Field(None, alias="to")
    reason: Annotated[Reason | None, _REASON] = None
    dry_run: bool = Field(False, strict=True)
    parallelism: int = Field(1, strict=True, ge=1, le=MOST_AT_ONCE)

    @field_validator("first", "last", "reason", mode="before")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        """Convert an empty text to None, because a field that the user has cleared contains an empty text."""
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("first", "last", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if value is None or isinstance(value, str | datetime):
            return value
        raise ValueError("an instant as text, for example 2013-03-08T00:00:00Z")

    @model_validator(mode="after")
    def _range(self) -> BackfillRequest:
        if self.first is None and self.last is not None:
            raise ValueError("a range that ends starts somewhere: fill in From, too")
        if self.first is not None and self.last is not None and self.first >= self.last:
            raise ValueError(f"the range from {self.first.isoformat()} to {self.last.isoformat()} is empty")
        return self

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> BackfillRequest:
        """Read the request from a run's parameters.

        Raises a `RunnerError` that names every invalid parameter in a single line.
        """
        try:
            return cls.model_validate(dict(params))
        except ValidationError as error:
            faults = [_fault_text(fault) for fault in error.errors()]
            raise RunnerError("; ".join(faults), again=False) from None


def form() -> dict[str, Param]:
    """Create the parameters of a backfill DAG. A usual run needs only the defaults."""
    return {name: Param(**schema) for name, schema in _schemas().items()}


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each parameter, with its default. A process computes the schemas only once."""
    schemas: dict[str, dict[str, Any]] = BackfillRequest.model_json_schema()["properties"]
    return {name: schema | param_texts(name) for name, schema in schemas.items()}


def param_texts(name: str) -> dict[str, Any]:
    """Read the title and the description of a parameter from `texts/form.toml`."""
    texts = tomllib.loads(Path(__file__).with_name("texts").joinpath("form.toml").read_text("utf-8"))
    return {part: text.format(longest=LONGEST_REASON) for part, text in texts[name].items()}


def _fault_text(fault: Any) -> str:
    place = ".".join(map(str, fault["loc"]))
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
