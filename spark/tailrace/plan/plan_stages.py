"""The stages of an epoch, in the order in which they happen (rule T4), and the whole plan.

The fields of a stage hold what the definition decides about the stage, and `query` names the SQL text that does it:
none in the `python` execution, where the model itself runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tailrace.lake.schema.contracts import Contract


class Execution(Enum):
    """The place in which a stage runs."""

    NATIVE = "native"
    """Compiled to Spark SQL; nothing leaves the JVM."""
    PYTHON = "python"
    """The reference step in the executors' Python, a bucket of keys at a time."""
    DRIVER = "driver"
    """A few numbers or one commit, in the process that drives Spark."""


@dataclass(frozen=True)
class Choice:
    """The execution that a stage takes, and why."""

    execution: Execution
    why: str


@dataclass(frozen=True)
class PlannedQuery:
    """An SQL text of an epoch, as it is run except for the names of its views; `gives` says what its rows are."""

    name: str
    gives: str
    text: str


@dataclass(frozen=True)
class Read:
    """Raw records become the log's columns; what does not fit is rejected with its bytes and the reason (X6).

    `ahead` says of each log with such a bound how far an event time may be ahead of its arrival.
    """

    choice: Choice
    log: str
    columns: Mapping[str, str]
    event_time: str
    arrival_time: str | None
    earliest: str
    latest: str
    ahead: Mapping[str, str]
    unknown: str


@dataclass(frozen=True)
class Take:
    """The panes that an earlier stage fires in the epoch become records, and its retractions take records out again."""

    choice: Choice
    earlier: str
    columns: Mapping[str, str]
    timestamp: str


@dataclass(frozen=True)
class Prepare:
    """Each record goes through the definition's steps."""

    choice: Choice
    steps: tuple[str, ...]
    keep: str | None


@dataclass(frozen=True)
class Assign:
    """Each record is put into its windows."""

    choice: Choice
    query: str
    where: str
    per_record: str


@dataclass(frozen=True)
class Judge:
    """Each record's window is compared with the watermark before the epoch: in time, late or too late (M1)."""

    choice: Choice
    query: str
    allowed_lateness: int
    by: str


@dataclass(frozen=True)
class Aggregate:
    """The bundle becomes one row for each key and window it touches."""

    choice: Choice
    query: str
    key: tuple[str, ...]
    parts: Mapping[str, str]


@dataclass(frozen=True)
class Meet:
    """The rows of the bundle meet the open windows: joined where windows stay apart, merged where they merge (M2)."""

    choice: Choice
    query: str
    merges: bool


@dataclass(frozen=True)
class DataTriggers:
    """Triggers are asked after the data, once a bundle (M5)."""

    choice: Choice
    query: str
    when: str
    accumulation: str


@dataclass(frozen=True)
class AdvanceWatermark:
    """The watermark of each of the source's partitions follows its records, the least counts, and none goes back (T3).

    `strategy` is how the watermarks follow the records, `behind` by how much where the strategy is a bound, and `idle`
    how long a partition with nothing new is waited for (None: for ever); both in microseconds. The watermark of a later
    stage is that of the stage before it, but no further than the oldest timestamp that windows there hold; `held` names
    that timestamp.
    """

    choice: Choice
    clock: str
    strategy: str = ""
    behind: int | None = None
    idle: int | None = None
    earlier: str | None = None
    held: str | None = None


@dataclass(frozen=True)
class WatermarkTriggers:
    """Triggers are asked again, with the new watermark."""

    choice: Choice
    query: str
    on_time: str


@dataclass(frozen=True)
class Close:
    """Windows past their lateness fire what is pending and leave the state (M3, M4)."""

    choice: Choice
    query: str
    after: int
    reach: int
    closing: str
    finishing: str


@dataclass(frozen=True)
class PlannedCommit:
    """Partials, panes and late records enter the ledger in one commit, after the log's (X2)."""

    choice: Choice
    query: str
    table: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Follow:
    """The answers follow the ledger by a MERGE: only a higher version changes a row (V1, X2)."""

    choice: Choice
    table: str
    version: tuple[str, ...]


Stage: TypeAlias = (
    Read
    | Take
    | Prepare
    | Assign
    | Judge
    | Aggregate
    | Meet
    | DataTriggers
    | AdvanceWatermark
    | WatermarkTriggers
    | Close
    | PlannedCommit
    | Follow
)


@dataclass(frozen=True)
class StateColumn:
    """A column that is kept for an open window, and what it holds. `bytes` is its size in memory, None if not fixed."""

    name: str
    type: str
    holds: str
    bytes: int | None


@dataclass(frozen=True)
class KeptState:
    """The state of each key and window while the window is open.

    `open_for` is how long a window stays, in microseconds of event time from its end; `overlapping` is how many windows
    of a key are open at once in the steady state, None where that depends on the data.
    """

    columns: tuple[StateColumn, ...]
    open_for: int
    overlapping: int | None

    @property
    def bytes(self) -> int:
        """The fixed part of one window's state, in bytes; texts come on top."""
        return sum(column.bytes or 0 for column in self.columns)


@dataclass(frozen=True)
class Plan:
    """The stages that a definition runs in an epoch, the state that it keeps, and the tables that it writes."""

    pipeline: str
    fingerprint: str
    stages: tuple[Stage, ...]
    state: KeptState
    tables: tuple[Contract, ...]
    queries: tuple[PlannedQuery, ...]

    def query(self, name: str) -> PlannedQuery:
        """Return the SQL text of this name. Raises `KeyError` where there is none."""
        return {query.name: query for query in self.queries}[name]
