"""The stages of an epoch, in the order in which they happen (rule T4), and what a whole plan holds.

Each stage says in its fields what the definition decides about it, and in `query` which SQL text does it: none in the
`python` execution, where it is the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tailrace.lake.schema.contracts import Contract


class Execution(Enum):
    """Where a stage runs."""

    NATIVE = "native"
    """Compiled to Spark SQL; nothing leaves the JVM."""
    PYTHON = "python"
    """The reference step in the executors' Python, a bucket of keys at a time."""
    DRIVER = "driver"
    """A few numbers or one commit, in the process that drives Spark."""


@dataclass(frozen=True)
class Choice:
    """Which execution a stage takes, and why."""

    execution: Execution
    why: str


@dataclass(frozen=True)
class Query:
    """One SQL text of an epoch, as it is run but for the names of its views; `gives` says what its rows are."""

    name: str
    gives: str
    text: str


@dataclass(frozen=True)
class Read:
    """Raw records become the log's columns; what does not fit is rejected with its bytes and the reason (X6)."""

    choice: Choice
    log: str
    columns: Mapping[str, str]
    event_time: str
    arrival_time: str | None
    earliest: str
    latest: str
    unknown: str


@dataclass(frozen=True)
class Take:
    """The panes that an earlier stage fires in the epoch are this one's records, and its retractions take such back."""

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
    """Each record's window is held against the watermark before the epoch: in time, late or too late (M1)."""

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

    `strategy` is how they follow, `behind` by how much where that is a bound, and `idle` how long a partition with
    nothing new is waited for (None: for ever); in microseconds. A later stage's is that of the stage before it, or the
    oldest timestamp that windows there hold: `held` by which.
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
    """Windows past their lateness give what is pending and leave the state (M3, M4)."""

    choice: Choice
    query: str
    after: int
    reach: int
    closing: str
    finishing: str


@dataclass(frozen=True)
class Commit:
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
    | Commit
    | Follow
)


@dataclass(frozen=True)
class StateColumn:
    """One column that is kept for an open window, and what it is for. `bytes` is its size in memory, if it is fixed."""

    name: str
    type: str
    holds: str
    bytes: int | None


@dataclass(frozen=True)
class KeptState:
    """What is kept of each key and window while it is open.

    `open_for` is how long a window stays, in microseconds of event time from its end; `overlapping` how many windows
    of a key are open side by side in the steady state, None where that depends on the data.
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
    """What a definition does when it runs, and what it writes."""

    pipeline: str
    fingerprint: str
    stages: tuple[Stage, ...]
    state: KeptState
    tables: tuple[Contract, ...]
    queries: tuple[Query, ...]

    def query(self, name: str) -> Query:
        """The SQL text of this name. Raises `KeyError` where there is none."""
        return {query.name: query for query in self.queries}[name]
