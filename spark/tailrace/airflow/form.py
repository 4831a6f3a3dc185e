"""Define the form of *Trigger*, and check its values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from airflow.sdk import Param
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tailrace.runners.jobs import LONGEST_REASON, Reason, RunnerError

MOST_AT_ONCE = 16
"""The maximum number of parallel runs into which a range may be cut."""


def form() -> dict[str, Param]:
    """Make the parameters of a backfill DAG. The defaults suit the usual run."""
    empty = ["null", "string"]
    return {
        "from": Param(
            None,
            type=empty,
            format="date-time",
            title="From",
            description="Event time at which the range starts. Leave it empty for the last whole interval whose "
            "windows are closed. A Backfill has a range of its own: leave it empty there.",
        ),
        "to": Param(
            None,
            type=empty,
            format="date-time",
            title="To",
            description="Event time at which the range ends; this instant is not in it. Leave it empty for all there "
            "is after From.",
        ),
        "reason": Param(
            None,
            type=empty,
            maxLength=LONGEST_REASON,
            title="Reason",
            description=f"Why, for the table of runs: one line, at most {LONGEST_REASON} characters.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Say what would change, and change nothing. Of a Backfill it counts only with 'Override "
            "parameters on existing runs' ticked, for Airflow sends none of these otherwise.",
        ),
        "parallelism": Param(
            1,
            type="integer",
            minimum=1,
            maximum=MOST_AT_ONCE,
            title="Parallelism",
            description="Into how many runs the range is cut, all at once. Any cut gives the same answers; on one "
            "machine a single run is the fastest. A Backfill has a run for each interval: see its Max Active Runs.",
        ),
    }


class Asked(BaseModel):
    """The request for a run, from its parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    first: Annotated[AwareDatetime | None, Field(alias="from")] = None
    last: Annotated[AwareDatetime | None, Field(alias="to")] = None
    reason: Reason | None = None
    dry_run: Annotated[bool, Field(strict=True)] = False
    parallelism: Annotated[int, Field(strict=True, ge=1, le=MOST_AT_ONCE)] = 1

    @field_validator("first", "last", "reason", mode="before")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        """Turn empty text, which an emptied field has, into None."""
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("first", "last", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if value is None or isinstance(value, str | datetime):
            return value
        raise ValueError("an instant as text, for example 2013-03-08T00:00:00Z")

    @model_validator(mode="after")
    def _range(self) -> Asked:
        if self.first is None and self.last is not None:
            raise ValueError("a range that ends starts somewhere: fill in From, too")
        if self.first is not None and self.last is not None and self.first >= self.last:
            raise ValueError(f"the range from {self.first.isoformat()} to {self.last.isoformat()} is empty")
        return self

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Asked:
        """Read the request from parameters. Raises a `RunnerError` that names each invalid parameter, in one line."""
        try:
            return cls.model_validate(dict(params))
        except ValidationError as error:
            faults = [_fault_text(fault) for fault in error.errors()]
            raise RunnerError("; ".join(faults), again=False) from None


def _fault_text(fault: Any) -> str:
    place = ".".join(map(str, fault["loc"]))
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
