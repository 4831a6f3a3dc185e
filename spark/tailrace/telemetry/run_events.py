"""Define the events of one run of a command: the engine's reports, and the run's beginning and end.

Metrics, logs and lineage are each written by a `Watcher`, a function that is called for every event in order, on the
thread that reports the event. The engine does not depend on watchers: it calls only two functions, the listener of a
lake and the watch function of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

from tailrace.model.base.clock import behind
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.chain import keeping_answers
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.ingest.sources import Source
    from tailrace.lake.catalog.events import Notice
    from tailrace.lake.catalog.lake import Lake
    from tailrace.stream.epoch_report import EpochReport

HELD_BACK = 60_000_000
"""The time in microseconds after which a silent partition that holds the watermark back is reported."""

RARE = ("unanswered", "productions", "claimed", "fed_back")
"""The names of the counts that are left out of an epoch's data if they are zero."""

OUTCOMES = ("changed", "untouched", "retracted")
"""The possible outcomes of a backfill for each window in the backfill's range."""


class ObserveMissingError(TailraceError, ImportError):
    """Raised if a library for metrics, logs or lineage is not installed.

    The extra `observe` installs all these libraries.
    """


class ObserveError(TailraceError, ValueError):
    """Raised if a run cannot be observed as requested, because a port is taken or a folder is missing."""


def missing_library(what: str, error: ImportError) -> ObserveMissingError:
    """Create the error for a missing library.

    `what` names the feature that needs the library, and the setting that requests this feature.
    """
    return ObserveMissingError(f"{what} needs the extra 'observe': pip install 'tailrace[observe]' ({error})")


@dataclass(frozen=True)
class Subject:
    """A run of a command: its stages, and the settings that identify the lake. `run` is a unique id.

    `sources` has an item for each log that the run writes: the log's name, and the source of the log's records.
    """

    command: Literal["stream", "backfill"]
    settings: Settings
    stages: tuple[Definition, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)
    run: str = field(default_factory=lambda: str(uuid4()))

    @property
    def pipelines(self) -> tuple[Definition, ...]:
        """The stages that have windows and therefore emit panes."""
        return tuple(stage for stage in self.stages if stage.windowed)

    def stages_with_answers(self, lake: Lake) -> frozenset[str]:
        """Return the names of the stages that have a table of current answers in a lake or are about to create one."""
        read = {earlier.name for stage in self.stages for earlier in stage.before}
        kept = keeping_answers(stage for stage in self.stages if stage.name not in read)
        return kept | {stage.name for stage in self.pipelines if lake.has(stage.name)}

    @property
    def log(self) -> str:
        """The name of the log that the run reads; several names are joined by plus signs."""
        return "+".join(log.name for log in self.logs)

    @property
    def logs(self) -> tuple[Log, ...]:
        """The logs that the run reads, sorted by name."""
        found = {log.name: log for stage in self.stages for log in stage.sources}
        return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True)
class RunStart:
    """The event for the beginning of a run."""


@dataclass(frozen=True)
class CheckpointRepair:
    """The event for a repair of the stream's checkpoint. `flaw` describes the fault of the old checkpoint."""

    flaw: str


@dataclass(frozen=True)
class RunEnd:
    """The event for the end of a run.

    A run ends because of an error or a request to stop, or because all work is done.
    """

    error: BaseException | None = None
    stopped: bool = False


RunEvent: TypeAlias = "Notice | EpochReport | RunStart | CheckpointRepair | RunEnd"
Watcher: TypeAlias = "Callable[[RunEvent], None]"


def join_watchers(watchers: Sequence[Watcher], warn: Callable[[str], None]) -> Watcher:
    """Join watchers into one watcher that calls all of them in order.

    A run never fails because a watcher fails: the failed watcher is not called again, and `warn` is called with the
    reason.
    """
    left = list(watchers)

    def tell(event: RunEvent) -> None:
        for watcher in tuple(left):
            try:
                watcher(event)
            except Exception as error:
                left.remove(watcher)
                reason = next(iter(str(error).splitlines()), "")
                warn(f"{type(watcher).__name__.lower()} of this run end here ({type(error).__name__}: {reason})")

    return tell


def lag_seconds(watermark: int, now: int) -> float | None:
    """Return how many seconds a watermark is behind the processing time `now`. Both arguments are in microseconds.

    Returns None if there is no watermark yet, and 0 if the input is complete.

    >>> from tailrace.model.base.time import END_OF_TIME
    >>> lag_seconds(2_000_000, 3_500_000), lag_seconds(BEGINNING, 0), lag_seconds(END_OF_TIME, 0)
    (1.5, None, 0.0)
    """
    return None if watermark <= BEGINNING else (behind(watermark, now) or 0) / 1e6


def epoch_data(report: EpochReport) -> dict[str, Any]:
    """Build the JSON data of an epoch: durations in seconds, instants as text, and the results of each pipeline."""
    pipelines = {
        name: fields(folded, "panes", "retractions", "late")
        | {count: number for count in RARE if (number := getattr(folded, count))}
        | fields(folded, "engine", "clock.watermark", "clock.processing_time")
        for name, folded in report.folded.items()
    }
    data: dict[str, Any] = {
        "event": "epoch",
        **fields(
            report,
            "epoch",
            "landed.records",
            "landed.rejected",
            "landed.duplicates",
            "landed.rounded",
            "blank_lines=landed.blank",
        ),
        **fields(report, "recovered", "seconds"),
        "phases": {name: round(seconds, 3) for name, seconds in report.phases.items()},
        "pipelines": pipelines,
    }
    if report.progress is not None and len(report.progress.partitions) > 1:
        data["held_by"] = list(report.progress.behind)
    return data
