"""The interface of an engine to a fold: bundles of records, the state, the step, and the rows for the ledger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PANE, PRODUCTION, REJECTED
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import UNANSWERED

FIRED = ("early", "on_time", "late")
"""The timings of panes that a stream fires; corrections are written only by backfills."""

REASONS = ("expired", "finished")
"""The reasons why a record is late: its window has expired, or its window's trigger has finished (rules M1, M4)."""


class Frame(Protocol):
    """The records of a bundle that Spark's executors hold."""

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Bring the records into this process."""


BundleRecords: TypeAlias = pa.Table | Frame
"""The records of an epoch: an Arrow table in this process, or a frame on Spark's executors."""


@dataclass(frozen=True)
class EpochCounts:
    """The counts of the rows that an epoch writes to a ledger, whatever the kind of its definition.

    `timings` counts the panes by timing, without `retractions`. `reasons` counts the late records of a pipeline by
    reason. `unanswered` counts the panes with a null result because no value of its type is right (rule X7). `open` is
    the number of windows that are open after the epoch. `claimed` counts the productions whose ids another claimant
    has, and `fed_back` the records that a loop feeds back.
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
        """Make the counts of an epoch of windows from the groups that `count_rows` returns."""
        counts: Counter[tuple[str, bool | None, str | None, str | None]] = Counter()
        unanswered = 0
        for group in groups:
            counts[group["kind"], group["retraction"], group["timing"], group["reason"]] += group["rows"]
            unanswered += 0 if group["retraction"] else group.get(UNANSWERED, 0)
        return cls.of_windows(
            {
                "retractions": sum(n for (kind, taken, *_), n in counts.items() if kind == PANE and taken),
                "rejected": sum(n for (kind, *_), n in counts.items() if kind == REJECTED),
                "unanswered": unanswered,
                **{f"pane_{timing}": counts[PANE, False, timing, None] for timing in FIRED},
                **{
                    f"late_{reason}": sum(n for (kind, *_, why), n in counts.items() if (kind, why) == (LATE, reason))
                    for reason in REASONS
                },
            },
            open,
        )

    @classmethod
    def of_windows(cls, numbers: Mapping[str, int], open: int) -> EpochCounts:
        """Make the counts of an epoch of windows from its numbers by name: panes by timing, late records by reason."""
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
        """Make the counts of an epoch without windows from the number of its rows of each kind."""
        numbers: dict[str, Any] = {name: kinds.get(kind, 0) for kind, name in KINDS.items()}
        return cls(**numbers)


KINDS = {PRODUCTION: "productions", CLAIMED: "claimed", FEEDBACK: "fed_back", LATE: "late", REJECTED: "rejected"}
"""The kinds of rows that are counted in a ledger without windows, each with its field of `EpochCounts`."""

GROUPED_BY = ("kind", "retraction", "timing", "reason")
"""The columns by which the ledger rows of an epoch of windows are counted."""


def count_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Count the ledger rows of an epoch of windows: a group for each combination of `GROUPED_BY`, with its `rows`.

    Where the ledger has the column `unanswered`, each group also counts the rows with a value there.
    """
    more = [UNANSWERED] if UNANSWERED in rows.column_names else []
    counts = [([], "count_all"), *((name, "count") for name in more)]
    groups = rows.group_by(list(GROUPED_BY)).aggregate(counts).rename_columns([*GROUPED_BY, "rows", *more])
    found: list[dict[str, Any]] = groups.to_pylist()
    return found


class SideState(Protocol):
    """The state of a side between two epochs, with the clock of the last epoch."""

    @property
    def clock(self) -> Clock | None: ...

    def forget(self) -> None:
        """Free the memory of this state alone, once the next state is computed."""


@dataclass(frozen=True)
class EpochState:
    """The state after an epoch on a side that has its windows, keys or records in tables: only their `count` is here.

    The tables always have the windows, keys or records of the last epoch.
    """

    clock: Clock | None
    generation: int = 1
    count: int = 0

    @property
    def watermark(self) -> int:
        """The watermark by which the next epoch's records are judged, in microseconds (rule M1)."""
        return BEGINNING if self.clock is None else self.clock.watermark

    def forget(self) -> None:
        """Do nothing: this state alone holds no memory."""


State = TypeVar("State", bound=SideState)
Consumed = TypeVar("Consumed")
Stepped = TypeVar("Stepped")
Records = TypeVar("Records")
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class SteppedRows(Generic[Rows, State]):
    """The result of an epoch: the rows for the ledger, in the engine's own form, and the state after the epoch."""

    rows: Rows
    state: State


class Side(Protocol[Records, State, Consumed, Stepped]):
    """A stage on one engine.

    Its type parameters are the types of a bundle, a state, a bundle that is prepared for the step, and an epoch's
    result.
    """

    choice: EngineChoice

    @property
    def direct(self) -> bool:
        """True if this process does the computing, without Spark."""

    @property
    def holds(self) -> bool:
        """True if open windows can hold back a later stage's watermark at all (rule T3)."""

    def nothing(self, generation: int) -> State:
        """Return the state before the first epoch."""

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> State:
        """Restore the state after the epoch of `clock` from the ledger's partials at a snapshot that contains them."""

    def consume(self, bundle: Records, state: State) -> Consumed:
        """Prepare a bundle for `step`."""

    def step(self, state: State, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the state through an epoch; return the result, which has the state after the epoch.

        Raises `ClockError` if the clock goes back.
        """

    def write(self, stepped: Stepped, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        """Write an epoch's rows to the ledger's branch, to be published in a commit with these properties."""

    def onward(self, state: State) -> int:
        """Return the limit, in microseconds, for a later stage's watermark after this state's epoch (rule T3)."""

    def due(self, state: State, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        """Return when a window or timer may fire without a record, in microseconds of processing time; None if never.

        `periods` and `delays` are the periods and delays of a pipeline's trigger.
        """

    def passed(self, stepped: Stepped) -> Records:
        """Return the bundle that a later stage reads of an epoch's result."""

    def passed_again(self, epoch: int, after: int | None = None) -> Records:
        """Return the bundle that a later stage reads of an epoch in the ledger, or of all epochs since `after`."""

    def close(self) -> None:
        """Free the state once the fold has ended, or goes on at another side."""


AnySide: TypeAlias = Side[Any, Any, Any, Any]
"""A side whose engine and kind do not matter to its holder."""


def lost_state(error: Exception) -> bool:
    """Tell whether a job of Spark failed because open windows are lost: with an executor's memory, or with files."""
    message = str(error)
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in message or bool(_REMOVED.search(message) and _FILES.search(message))


_FILES = re.compile(rf"__{RESTING}_[0-9a-f]{{8}}")
_REMOVED = re.compile(r"NOT_FOUND|NotFound|NoSuch|does not exist|cannot be found", re.IGNORECASE)
"""The words of an error that says that a table of resting windows, or a file of it, was removed."""
