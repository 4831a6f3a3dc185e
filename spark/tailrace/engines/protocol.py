"""The interface between a fold and an engine, and the types of the data that the fold and the engine exchange."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.engines.choose import EngineChoice
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PANE, PRODUCTION, REJECTED
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import UNANSWERED

FIRED = ("early", "on_time", "late")
"""The timings of the panes that a stream fires. Panes with other timings are corrections, which only backfills
write.
"""

REASONS = ("expired", "finished")
"""The reasons why a record is late: its window has expired, or its window's trigger has finished (rules M1, M4)."""


class Frame(Protocol):
    """The records of a bundle on Spark's executors, as a data frame."""

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Fetch the records into this process as an Arrow table."""


@dataclass(frozen=True)
class RecordFiles:
    """The records of a bundle in Parquet files on this machine, which no commit contains yet.

    `paths` are names of the local file system. The files have the columns of `schema`, of which the bundle has those in
    `columns`. `on_spark` returns the records as a frame, in case that a fold moves to Spark.
    """

    paths: tuple[str, ...]
    num_rows: int
    schema: pa.Schema
    columns: tuple[str, ...]
    on_spark: Callable[[], Frame]

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Read the records into an Arrow table."""
        columns = list(self.columns)
        nothing = self.schema.empty_table().select(columns)
        read = (pq.read_table(path, columns=columns, partitioning=None) for path in self.paths)
        return pa.concat_tables([nothing, *(one.select(columns).cast(nothing.schema) for one in read)])


def is_here(bundle: BundleRecords) -> bool:
    """Return True if this process can read the records of a bundle without Spark."""
    return isinstance(bundle, pa.Table | RecordFiles)


def as_table(bundle: BundleRecords) -> pa.Table:
    """Return the records of a bundle as a table; records in files are read."""
    return bundle if isinstance(bundle, pa.Table) else bundle.toArrow()


BundleRecords: TypeAlias = pa.Table | Frame
"""The records of an epoch: an Arrow table in this process, or a data frame on Spark's executors."""


@dataclass(frozen=True)
class EpochCounts:
    """The numbers of rows that an epoch writes to a ledger, for any kind of definition.

    `timings` counts the panes by timing; retractions are counted only in `retractions`. `reasons` counts a pipeline's
    late records by reason. `unanswered` counts the panes whose result is null because the result's type cannot
    represent the correct value (rule X7). `open` is the number of windows that are open after the epoch. `productions`
    counts the output rows of a definition without windows. `claimed` counts the rows that are not output because their
    ids are already in use. `fed_back` counts the records that a computation sends back to its own input.
    """

    retractions: int = 0
    rejected: int = 0
    timings: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    open: int | None = None
    productions: int = 0
    claimed: int = 0
    fed_back: int = 0
    late: int = 0
    unanswered: int = 0

    @classmethod
    def of_groups(cls, groups: Iterable[Mapping[str, Any]], open: int) -> EpochCounts:
        """Build the counts of a pipeline's epoch from the groups that `count_rows` returns."""
        numbers = Counter[str]()
        for group in groups:
            kind, retraction, rows = group["kind"], group["retraction"], group["rows"]
            if kind == PANE:
                numbers["retractions" if retraction else f"pane_{group['timing']}"] += rows
                numbers["unanswered"] += 0 if retraction else group.get(UNANSWERED, 0)
            elif kind == LATE:
                numbers[f"late_{group['reason']}"] += rows
            elif kind == REJECTED:
                numbers["rejected"] += rows
        return cls.of_windows(numbers, open)

    @classmethod
    def of_windows(cls, numbers: Mapping[str, int], open: int) -> EpochCounts:
        """Build the counts of a pipeline's epoch from named numbers, such as `pane_early` and `late_expired`."""
        return cls(
            numbers["retractions"],
            numbers["rejected"],
            {timing: numbers[f"pane_{timing}"] for timing in FIRED},
            {reason: numbers[f"late_{reason}"] for reason in REASONS},
            open,
            late=sum(numbers[f"late_{reason}"] for reason in REASONS),
            unanswered=numbers["unanswered"],
        )

    @classmethod
    def of_kinds(cls, kinds: Mapping[str, int]) -> EpochCounts:
        """Build the counts of an epoch of a definition without windows.

        `kinds` maps each kind of row to the number of rows.
        """
        numbers: dict[str, Any] = {name: kinds.get(kind, 0) for kind, name in KINDS.items()}
        return cls(**numbers)


KINDS = {PRODUCTION: "productions", CLAIMED: "claimed", FEEDBACK: "fed_back", LATE: "late", REJECTED: "rejected"}
"""The kinds of rows that are counted in the ledgers of definitions without windows.

Each kind is mapped to the field of `EpochCounts` that counts it.
"""

GROUPED_BY = ("kind", "retraction", "timing", "reason")
"""The columns by which a pipeline's ledger rows are grouped for counting."""


def count_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Count a pipeline's ledger rows of one epoch.

    The rows are counted in groups, with one group for each combination of values in the columns `GROUPED_BY`. In each
    group, `rows` is the group's number of rows. If the ledger has the column `unanswered`, each group also counts its
    rows with a value in this column.
    """
    more = [UNANSWERED] if UNANSWERED in rows.column_names else []
    counts = [([], "count_all"), *((name, "count") for name in more)]
    groups = rows.group_by(list(GROUPED_BY)).aggregate(counts).rename_columns([*GROUPED_BY, "rows", *more])
    found: list[dict[str, Any]] = groups.to_pylist()
    return found


class SideState(Protocol):
    """The state of a `Side` between two epochs, including the clock of the last epoch."""

    @property
    def clock(self) -> Clock | None: ...

    def forget(self) -> None:
        """Free the memory that only this state uses. The fold calls this method after the next state is computed."""


@dataclass(frozen=True)
class EpochState:
    """The state after an epoch, for an implementation of `Side` that keeps its windows, keys or records in tables.

    An `EpochState` contains only the number of windows, keys or records (`count`). The windows, keys or records
    themselves are in the tables, which always contain the state after the most recent epoch.
    """

    clock: Clock | None
    generation: int = 1
    count: int = 0

    @property
    def watermark(self) -> int:
        """The watermark that decides which of the next epoch's records are late, in microseconds (rule M1)."""
        return BEGINNING if self.clock is None else self.clock.watermark

    def forget(self) -> None:
        """Do nothing, because this state uses no memory of its own."""


State = TypeVar("State", bound=SideState)
Consumed = TypeVar("Consumed")
Stepped = TypeVar("Stepped")
Records = TypeVar("Records")
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class SteppedRows(Generic[Rows, State]):
    """The result of an epoch: rows for the ledger, in the engine's representation, and the state after the epoch."""

    rows: Rows
    state: State


class Side(Protocol[Records, State, Consumed, Stepped]):
    """The interface through which a fold runs one stage, computation, map or join on one engine.

    The type parameters are the types of a bundle, a state, a bundle that is prepared for the step, and an epoch's
    result.
    """

    choice: EngineChoice

    @property
    def direct(self) -> bool:
        """True if this process does the computing, without Spark."""

    @property
    def reads_files(self) -> bool:
        """True if bundles may be `RecordFiles`."""

    @property
    def holds(self) -> bool:
        """True if the state (such as open windows) can ever hold back the watermark of the readers (rule T3)."""

    def nothing(self, generation: int) -> State:
        """Return the state before the first epoch."""

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> State:
        """Restore the state as it was after the epoch of `clock`.

        The state is read from the partials (the rows that store states) in the ledger's snapshot `snapshot`. The
        snapshot must contain the partials of the clock's epoch.
        """

    def consume(self, bundle: Records, state: State) -> Consumed:
        """Prepare a bundle for `step`."""

    def step(self, state: State, consumed: Consumed, clock: Clock) -> Stepped:
        """Advance the state by one epoch, and return the epoch's result, which includes the new state.

        Raises `ClockError` if the clock goes back.
        """

    def write(self, stepped: Stepped, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        """Write an epoch's rows to the ledger's branch. The rows are published later, in a commit with `properties`."""

    def onward(self, state: State) -> int:
        """Return the upper limit of the readers' watermark after the epoch of `state`, in microseconds (rule T3)."""

    def due(self, state: State, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        """Return the next processing time, in microseconds, at which a window or timer may fire without a new record.

        Returns None if no window or timer can fire without a new record. `periods` and `delays` are the periods and
        delays of the pipeline's trigger.
        """

    def passed(self, stepped: Stepped) -> Records:
        """Return the bundle for a later stage, computed from an epoch's result."""

    def passed_again(self, epoch: int, after: int | None = None) -> Records:
        """Return the bundle for a later stage, computed from the ledger rows of `epoch`.

        If `after` is given, the bundle covers all epochs after `after`, up to and including `epoch`.
        """

    def close(self) -> None:
        """Free the state when the fold has ended, or when another `Side` has taken over the fold."""


AnySide: TypeAlias = Side[Any, Any, Any, Any]
"""A `Side` on any engine, for any kind of definition."""


def lost_state(error: Exception) -> bool:
    """Return True if a Spark job failed because open windows were lost: an executor's memory or some files are gone."""
    message = str(error)
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in message or bool(_REMOVED.search(message) and _FILES.search(message))


_FILES = re.compile(rf"__{RESTING}_[0-9a-f]{{8}}")
_REMOVED = re.compile(r"NOT_FOUND|NotFound|NoSuch|does not exist|cannot be found", re.IGNORECASE)
"""A pattern for error messages that report that a table of open windows, or one of its files, was removed."""
