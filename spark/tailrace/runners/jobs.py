"""The jobs that runners take and the results that they return, both checked at each end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from tailrace.model.base.errors import TailraceError, line_of
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment, text
from tailrace.runners.exit_status import ExitStatus, status_of

if TYPE_CHECKING:
    from tailrace.backfill.result import Backfilled
    from tailrace.model.definition.chain import Ranged

LONGEST_REASON = 200
"""The maximum number of characters that a reason may have."""

Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=LONGEST_REASON, pattern=r"^[^\x00-\x1f\x7f]*$")
]
"""The reason for which a run was asked for: one line."""


Place = Annotated[str, StringConstraints(pattern=r"^/[^\x00]+$")]
"""A definition's file, and its name in it where it holds several."""


class RunnerError(TailraceError, RuntimeError):
    """A run that failed. `again` says whether the same run may succeed if it is tried again unchanged."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


def refusal(error: TailraceError) -> RunnerError:
    """Turn an error into a `RunnerError` of one line; errors in what the user wrote are not worth another try."""
    return RunnerError(line_of(error), again=status_of(error) is not ExitStatus.USAGE)


class Cancelled(RunnerError):  # noqa: N818 - it is what happened, not what went wrong
    """A run that was told to stop, and has stopped; its commits stay, and running the same job again does the rest."""


class BackfillJob(BaseModel):
    """A backfill of the windows whose timestamp lies in `[first, last)`, in microseconds, of a definition.

    `definition` is `FILE` or `FILE:NAME`, with an absolute path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    definition: Place
    first: Annotated[int, Field(ge=BEGINNING, le=END_OF_TIME)]
    last: Annotated[int, Field(ge=BEGINNING, le=END_OF_TIME)]
    reason: Reason | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _something(self) -> BackfillJob:
        if self.first >= self.last:
            raise ValueError(f"the range from {text(self.first)} to {text(self.last)} is empty")
        return self

    @classmethod
    def of(cls, **values: Any) -> BackfillJob:
        """Make a job of these values. Raises a `RunnerError` that names each invalid value, in one line."""
        return _checked(cls, values)

    @property
    def words(self) -> list[str]:
        """The arguments of `tailrace backfill` for this job."""
        words = [self.definition, "--from", moment(self.first).isoformat(), "--to", moment(self.last).isoformat()]
        if self.reason:
            words.append(f"--reason={self.reason}")
        return [*words, "--dry-run"] if self.dry_run else words


_Job = TypeVar("_Job", bound=BaseModel)


def _checked(job: type[_Job], values: Mapping[str, Any]) -> _Job:
    try:
        return job(**values)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc'])) or 'the job'}: {one['msg']}" for one in error.errors()]
        raise RunnerError("; ".join(faults), again=False) from None


class MaintainJob(BaseModel):
    """Maintenance of the tables of a definition: `FILE` or `FILE:NAME`, with an absolute path."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    definition: Place


class StreamJob(BaseModel):
    """A stream of definitions of one log, each `FILE` or `FILE:NAME` with an absolute path, from a folder or a topic.

    `every` is the least time between two epochs in seconds, `per_epoch` the most files or records that an epoch takes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    definitions: Annotated[tuple[Place, ...], Field(min_length=1)]
    folder: Annotated[str, StringConstraints(pattern=r"^(/|[a-z0-9]+://)[^\x00]+$")] | None = None
    format: Literal["json", "csv", "parquet"] = "json"
    topic: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")] | None = None
    bootstrap: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:,_-]+$")] | None = None
    every: Annotated[float, Field(ge=0)] = 0.0
    per_epoch: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> StreamJob:
        if (self.folder is None) == (self.topic is None):
            raise ValueError("a stream reads a folder or a topic: give one of them")
        return self

    @classmethod
    def of(cls, **values: Any) -> StreamJob:
        """Make a job of these values. Raises a `RunnerError` that names each invalid value, in one line."""
        return _checked(cls, values)

    @property
    def words(self) -> list[str]:
        """The arguments of `tailrace stream` for this job."""
        options = {
            "--from": self.folder,
            "--format": self.format if self.folder is not None else None,
            "--kafka": self.topic,
            "--bootstrap": self.bootstrap,
            "--every": self.every or None,
            "--per-epoch": self.per_epoch,
        }
        return [*self.definitions, *(f"{name}={value}" for name, value in options.items() if value is not None)]

    @property
    def name(self) -> str:
        """A digest of the arguments, which tells this stream from other streams of the same definitions' file."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:12]


class Streaming(BaseModel):
    """The state of a stream: it ran already, it was started, or it was stopped by hand and is left stopped.

    The stream is process `pid` of the runner's machine, or job run `run` of a service. `since` is when it started, in
    seconds since 1970. `ended` says why the stream before it ended.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Literal["running", "started", "stopped"]
    pid: int | None = None
    run: str | None = None
    since: float | None = None
    ended: str | None = None

    @property
    def named(self) -> str:
        """The stream's process or job run, for people to read."""
        return f"process {self.pid}" if self.run is None else f"job run {self.run}"


class GaveWay(BaseModel):
    """The run of a higher generation that a run gave way to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    generation: int


BEHIND = "behind"
"""The key of the data of a run, as `tailrace backfill --json` prints them, with the stages that lack corrections."""


class JobOutcome(BaseModel):
    """The result of a run for one stage, as `tailrace backfill --json` prints it. The range is of window timestamps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pipeline: str
    range: tuple[str, str]
    dry_run: bool
    run: str | None
    status: str
    generation: int | None
    log_epoch: int | None
    changed: int
    untouched: int
    retracted: int
    seconds: float
    engine: str
    engine_because: str
    gave_way_to: GaveWay | None

    @classmethod
    def of(cls, pipeline: Ranged, backfilled: Backfilled, *, dry_run: bool) -> JobOutcome:
        """Sum up a run of one stage."""
        run, other = backfilled.run, backfilled.gave_way
        return cls(
            pipeline=pipeline.name,
            range=(text(run.first), text(run.last)),
            dry_run=dry_run,
            run=run.run or None,
            status=run.status,
            generation=run.generation or None,
            log_epoch=run.log_epoch,
            changed=backfilled.changed,
            untouched=backfilled.untouched,
            retracted=backfilled.retracted,
            seconds=round(backfilled.seconds, 3),
            engine=backfilled.engine.engine.value,
            engine_because=backfilled.engine.why,
            gave_way_to=None if other is None else GaveWay(run=other.run, generation=other.generation),
        )

    @staticmethod
    def as_data(outcomes: Sequence[JobOutcome]) -> dict[str, Any]:
        """Return what a run did as JSON data: its last outcome, and under `earlier` the outcomes before."""
        *earlier, last = (one.model_dump(mode="json") for one in outcomes)
        return last | ({"earlier": earlier} if earlier else {})

    @classmethod
    def all_of(cls, data: Mapping[str, Any]) -> list[JobOutcome]:
        """Read the outcomes of a run, in order, from the data of `as_data`. Raises `RunnerError` for other data."""
        last = {name: value for name, value in data.items() if name not in ("earlier", BEHIND)}
        try:
            return [cls.model_validate(one) for one in (*data.get("earlier", ()), last)]
        except ValidationError as error:
            raise RunnerError(f"the run gave an answer that is none: {error.errors()[0]['msg']}", again=False) from None


class Runner(Protocol):
    """A place in which backfills, maintenance and streams run. Several jobs may run at once."""

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        """Run a backfill to its end, passing its progress to `tell`; returns what it did to each stage, in order.

        Raises `RunnerError` where it fails. The commits of a run that failed or was killed are whole, and running the
        same job again does the rest.
        """

    def maintain(self, job: MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        """Maintain a definition's tables; returns what `tailrace maintain --json` prints. Raises `RunnerError`."""

    def stream(self, job: StreamJob, tell: Callable[[str], None], *, anew: bool = False) -> Streaming:
        """Start a stream, which goes on by itself, unless it runs already; returns its state.

        A stream that `stop_stream` has ended stays stopped, unless `anew` is given, which ends and starts the stream in
        any case. Raises `RunnerError` where the stream cannot be started, and where it last ended for a reason that
        starting it again does not mend: its arguments are wrong, or another stream has its lease.
        """

    def stop_stream(self, job: StreamJob, tell: Callable[[str], None]) -> Streaming:
        """Stop a stream at an epoch boundary, wait until it has ended, and leave it stopped."""

    def cancel(self) -> None:
        """Stop the backfills and maintenance of this runner: each ends with `Cancelled`."""
