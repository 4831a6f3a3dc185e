"""Define the jobs that runners take and the results that runners return. All values are validated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from tailrace.model.base.errors import TailraceError, line_of
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment, text
from tailrace.model.definition.given_sources import readers_of, source_faults, unnamed_source
from tailrace.runners.exit_status import ExitStatus, status_of
from tailrace.telemetry.json_fields import ENGINE, fields

if TYPE_CHECKING:
    from tailrace.backfill.result import Backfilled
    from tailrace.model.definition.definition import Definition, Ranged

LONGEST_REASON = 200
"""The maximum length of the reason that a user may give for a run, in characters."""

Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=LONGEST_REASON, pattern=r"^[^\x00-\x1f\x7f]*$")
]
"""The reason that a user gives for a run, as a single line."""


Place = Annotated[str, StringConstraints(pattern=r"^/[^\x00]+$")]
"""The absolute path of a definition's file and, if the file has several definitions, the definition's name."""


class RunnerError(TailraceError, RuntimeError):
    """A run failed. `again` is True if another attempt at the same run may succeed."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


def refusal(error: TailraceError) -> RunnerError:
    """Convert an error to a one-line `RunnerError`. If the user has caused the error, `again` is False."""
    return RunnerError(line_of(error), again=status_of(error) is not ExitStatus.USAGE)


class Cancelled(RunnerError):  # noqa: N818 - it is what happened, not what went wrong
    """Raised if a run was cancelled and has stopped.

    The run's commits are kept, and running the same job again completes the work.
    """


class Job(BaseModel):
    """The base class for the jobs of runners. A job's values are validated when the job is created."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Create a job from these values. Raises a one-line `RunnerError` that names each invalid value."""
        try:
            return cls(**values)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, one['loc'])) or 'the job'}: {one['msg']}" for one in error.errors()]
            raise RunnerError("; ".join(faults), again=False) from None


class BackfillJob(Job):
    """A backfill of a definition's windows whose last instants are in `[first, last)`, in microseconds.

    `definition` is `FILE` or `FILE:NAME`, with an absolute path.
    """

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

    @property
    def words(self) -> list[str]:
        """The arguments of `tailrace backfill` for this job."""
        words = [self.definition, "--from", moment(self.first).isoformat(), "--to", moment(self.last).isoformat()]
        if self.reason:
            words.append(f"--reason={self.reason}")
        return [*words, "--dry-run"] if self.dry_run else words


class MaintainJob(Job):
    """Maintenance of a definition's tables; `definition` is `FILE` or `FILE:NAME`, with an absolute path."""

    definition: Place


Folder = Annotated[str, StringConstraints(pattern=r"^(/|[a-z0-9]+://)[^\x00]+$")]
"""The absolute path, or the address, of a folder where files land."""

Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
"""The name of a Kafka topic."""

Text = Annotated[str, StringConstraints(min_length=1)]
Format = Literal["json", "csv", "parquet", "avro"]


class LogSource(Job):
    """The source of one log of a stream: a folder of files, a Kafka topic, or the topics that match a pattern.

    `start` is where a log that has read nothing begins in its topics.
    """

    folder: Folder | None = None
    format: Format | None = None
    topic: Topic | None = None
    pattern: Text | None = None
    start: Text | None = None

    @model_validator(mode="after")
    def _one_place(self) -> LogSource:
        if sum(one is not None for one in (self.folder, self.topic, self.pattern)) != 1:
            raise ValueError("a log is read from a folder, a topic, or the topics of a pattern: give one of them")
        if self.folder is not None and self.start is not None:
            raise ValueError("a start is a position in a topic: a folder is read from its first file")
        if self.folder is None and self.format is not None:
            raise ValueError("a format is of the files in a folder: the log declares the messages of a topic")
        return self

    def __str__(self) -> str:
        """Return the source as text for messages."""
        kinds = {"folder": self.folder, "topic": self.topic, "pattern": self.pattern}
        return next(f"{kind} {place}" for kind, place in kinds.items() if place is not None)

    def words(self, log: str | None = None) -> list[str]:
        """Return the arguments of `tailrace stream` for this source; the log is named if `log` is given."""
        options = {
            "--from": self.folder,
            "--format": (self.format or "json") if self.folder is not None else None,
            "--kafka": self.topic,
            "--kafka-pattern": self.pattern,
            "--start": self.start,
        }
        named = "" if log is None else f"{log}="
        return [f"{option}={named}{value}" for option, value in options.items() if value is not None]


class StreamJob(Job):
    """A stream that computes definitions from the records of their logs.

    Each definition is `FILE` or `FILE:NAME`, with an absolute path. If the definitions read several logs, `sources` has
    the source of each log by the log's name. If they read one log, the other options may describe its source: a
    `folder`, a `topic` or a `pattern`. `every` is the minimum time between two epochs in seconds; `per_epoch` is the
    maximum number of files or records in an epoch.
    """

    definitions: Annotated[tuple[Place, ...], Field(min_length=1)]
    folder: Folder | None = None
    format: Format = "json"
    topic: Topic | None = None
    pattern: Text | None = None
    start: Text | None = None
    sources: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], LogSource] = Field(default_factory=dict)
    bootstrap: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.:,_-]+$")] | None = None
    every: Annotated[float, Field(ge=0)] = 0.0
    per_epoch: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> StreamJob:
        if self.sources:
            if both := sorted({"folder", "format", "topic", "pattern", "start"} & self.model_fields_set):
                raise ValueError(f"sources name the source of each log: write {', '.join(both)} in them")
            return self
        places = (self.folder, self.topic, self.pattern)
        if sum(one is not None for one in places) != 1:
            raise ValueError(
                "a stream reads a folder, a topic, or the topics of a pattern: give one of them, or sources for "
                "several logs"
            )
        if self.folder is not None and self.start is not None:
            raise ValueError("a start is a position in a topic: a folder is read from its first file")
        return self

    def check(self, definitions: Sequence[Definition]) -> Self:
        """Check that each log that the definitions read has a source, and each source a log; return the job.

        Raises `RunnerError` otherwise. `tailrace stream` refuses the same jobs, but only when the stream starts.
        """
        if self.sources:
            faults = source_faults(
                definitions,
                {log: str(source) for log, source in self.sources.items()},
                lambda log: f'write sources={{"{log}": FOLDER}} or {{"{log}": {{"topic": TOPIC}}}}, beside the others',
            )
        elif (fault := unnamed_source(definitions)) is not None:
            every = ", ".join(f'"{log}": ...' for log in readers_of(definitions))
            given = self._single
            faults = [f"{fault}, and {given} is given for none of them: write sources={{{every}}} in its place"]
        else:
            faults = []
        if faults:
            raise RunnerError("; ".join(faults), again=False)
        return self

    @property
    def _single(self) -> LogSource:
        """The source of a stream that reads one log."""
        if self.sources:
            return next(iter(self.sources.values()))
        format = self.format if self.folder is not None else None
        return LogSource(folder=self.folder, format=format, topic=self.topic, pattern=self.pattern, start=self.start)

    @property
    def words(self) -> list[str]:
        """The arguments of `tailrace stream` for this job.

        A single source is given without the name of its log, so a stream keeps its name if a user names the log.
        """
        if len(self.sources) > 1:
            sources = [word for log, source in sorted(self.sources.items()) for word in source.words(log)]
        else:
            sources = self._single.words()
        pace = {"--bootstrap": self.bootstrap, "--every": self.every or None, "--per-epoch": self.per_epoch}
        given = (f"{name}={value}" for name, value in pace.items() if value is not None)
        return [*self.definitions, *sources, *given]

    @property
    def name(self) -> str:
        """A digest of the stream's arguments.

        The digest distinguishes the stream from other streams of the same definition file.
        """
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:12]


class Result(BaseModel):
    """The base class for the results of runners. A result's values are validated when the result is read."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StreamState(Result):
    """The state of a stream: already running, just started, or stopped by a user (and not restarted automatically).

    The stream is the process `pid` on the runner's machine, or the job run `run` of a service. `since` is the stream's
    start time, in seconds since 1970. `ended` is the reason why the previous stream ended.
    """

    state: Literal["running", "started", "stopped"]
    pid: int | None = None
    run: str | None = None
    since: float | None = None
    ended: str | None = None

    @property
    def named(self) -> str:
        """The stream's process or job run, as text for people."""
        return f"process {self.pid}" if self.run is None else f"job run {self.run}"


class NewerRun(Result):
    """A newer run, with a higher generation, that made a backfill stop without a commit."""

    run: str
    generation: int


BEHIND = "behind"
"""The key in the output of `tailrace backfill --json` for the list of stages that lack corrections."""


class JobOutcome(Result):
    """The result of a run for one stage, in the format of `tailrace backfill --json`.

    `range` is a range of window timestamps (the last instants of windows), as text.
    """

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
    gave_way_to: NewerRun | None

    @classmethod
    def of(cls, pipeline: Ranged, backfilled: Backfilled, *, dry_run: bool) -> JobOutcome:
        """Create the result from a finished run for one stage."""
        run, other = backfilled.run, backfilled.gave_way
        return cls(
            pipeline=pipeline.name,
            range=(text(run.first), text(run.last)),
            dry_run=dry_run,
            run=run.run or None,
            generation=run.generation or None,
            **fields(run, "status", "log_epoch"),
            **fields(backfilled, "changed", "untouched", "retracted", "seconds", *ENGINE),
            gave_way_to=None if other is None else NewerRun(**fields(other, "run", "generation")),
        )

    @staticmethod
    def as_data(outcomes: Sequence[JobOutcome]) -> dict[str, Any]:
        """Return a run's outcomes as JSON data: the last outcome, with all earlier outcomes under the key `earlier`."""
        *earlier, last = (one.model_dump(mode="json") for one in outcomes)
        return last | ({"earlier": earlier} if earlier else {})

    @classmethod
    def all_of(cls, data: Mapping[str, Any]) -> list[JobOutcome]:
        """Read a run's outcomes, in order, from the data that `as_data` returned.

        Raises `RunnerError` if the data is invalid.
        """
        last = {name: value for name, value in data.items() if name not in ("earlier", BEHIND)}
        try:
            return [cls.model_validate(one) for one in (*data.get("earlier", ()), last)]
        except ValidationError as error:
            raise RunnerError(
                f"the output of the run is not a result: {error.errors()[0]['msg']}", again=False
            ) from None


class Runner(Protocol):
    """A runner, which runs backfills, maintenance and streams. A runner may run several jobs at the same time."""

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        """Run a backfill to its end and report its progress to `tell`; return the result for each stage, in order.

        Raises `RunnerError` if the backfill fails. The commits of a failed or killed run are complete, and running the
        same job again does the remaining work.
        """

    def maintain(self, job: MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        """Maintain a definition's tables; return the data of `tailrace maintain --json`.

        Raises `RunnerError` if the maintenance fails.
        """

    def stream(self, job: StreamJob, tell: Callable[[str], None], *, anew: bool = False) -> StreamState:
        """Start a stream, unless it is already running, and return its state. The stream outlives the calling process.

        After `stop_stream`, the stream stays stopped until this method is called with `anew=True`. If `anew` is True
        and the stream is running, the stream is restarted. Raises `RunnerError` if the stream cannot be started,
        or if the stream last ended for a reason that a restart does not fix: wrong arguments, or another stream that
        has the lease.
        """

    def stop_stream(self, job: StreamJob, tell: Callable[[str], None]) -> StreamState:
        """Stop a stream at an epoch boundary and wait for its end; the stream then stays stopped."""

    def cancel(self) -> None:
        """Stop all backfills and all maintenance of this runner.

        The methods that wait for these runs then raise `Cancelled`.
        """
