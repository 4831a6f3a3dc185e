"""The base class of all executions on Spark, which compute an epoch's ledger rows and next state.

The input of an epoch is a bundle and the open windows. The open windows are a data frame with the state columns of
`model.step.transition`. All executions use the same columns. So every execution can restore its state from the ledger,
whichever execution wrote the state rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.engines.spark.executions.open_windows import OpenWindows, checkpoint
from tailrace.engines.spark.executions.preparation import (
    PreparedBundle,
    empty_frame,
    prepare_bundle,
    query_frame,
    schema_of,
)
from tailrace.engines.spark.executions.resting_files import Reach
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.lake.schema.contracts import PARTIAL
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.holds import holds_back, oldest_held
from tailrace.sql.epoch.ledger_rows import Rows, state_types


@dataclass(frozen=True)
class BundlePartials:
    """The result of an epoch's first job: the bundle's partials, or the bundle's records if the step runs in Python.

    `closest` is the end time of the first window and `furthest` is the end time of the last window, in microseconds.
    Both are None if the bundle is empty or the execution does not need these times. `rejected` are the records that a
    step rejected. `held` are the checkpoints that the data frames depend on. `reach` limits the search for resting
    windows (open windows in files) that the partials can change; it is None if no window rests. `count` is the number
    of partials, or 0 if they were not counted. `records` is the number of records in the bundle, or None if it is
    unknown. `late` is true if some records are late, and None if this is unknown.
    """

    partials: DataFrame
    closest: int | None
    furthest: int | None
    rejected: DataFrame | None = None
    held: tuple[DataFrame, ...] = ()
    reach: Reach | None = None
    count: int = 0
    records: int | None = None
    late: bool | None = None


@dataclass(frozen=True)
class SparkResult:
    """The result of an epoch: the ledger rows, which are computed when they are written, and the state after the epoch.

    The ledger rows are computed from partials (the records aggregated by key and window). `partials` is the number of
    partials, or 0 if they were not counted. There are at least as many ledger rows as partials. `ends` contains the end
    times of the first and the last window in the ledger rows, in microseconds. `most` is an upper bound on the number
    of windows and late records in the ledger rows. `ends` and `most` may be None, which means that they are unknown.
    """

    rows: DataFrame
    state: OpenWindows
    partials: int = 0
    ends: tuple[int, int] | None = None
    most: int | None = None


class SparkExecution:
    """Executes a definition in a Spark session.

    The execution applies bundles to the open windows, one epoch after another.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows) -> None:
        """Prepare the execution of a definition.

        If there are too many open windows, `rest` moves some of them to files.
        """
        self.spark, self.pipeline, self.rest = spark, pipeline, rest
        self.rows = Rows(pipeline)

    def nothing(self, generation: int = 0) -> OpenWindows:
        """Return the state before the first epoch."""
        self.rest.begin()
        return OpenWindows(empty_frame(self.spark, self._state_schema()), None, generation)

    def restore(self, ledger: DataFrame, clock: Clock, generation: int, partials: int = 0) -> OpenWindows:
        """Restore the state as it was after the epoch of `clock`.

        `ledger` contains a ledger's rows. At most `partials` of these rows are partials, which store the states of
        windows.
        """
        self.rest.begin()
        text = partial(self.rows.within_reach, watermark=clock.watermark)
        if partials > self.rest.most:
            # Divide the partials (state rows) into parts that are small enough for one task. All partials of a window
            # are in the same part.
            spread = self.rest.spread(ledger.where(f"kind = '{PARTIAL}'"), partials)
            return self.rest.restored(query_frame(self.spark, spread, text), clock, generation, partials)
        windows, count = checkpoint(query_frame(self.spark, ledger, text), F.lit(True), eager=True)
        return OpenWindows(windows, clock, generation, (windows,), count, ends=count.ends)

    def consume(self, bundle: DataFrame, state: OpenWindows, files: LogFiles | None = None) -> BundlePartials:
        """Prepare a bundle for the step.

        The bundle must contain the log's columns and each record's position in its source. The bundle of a later stage
        must also contain each record's sign, which tells added records from retracted records. `files` are log files
        that contain exactly the records of the bundle, or None if there are no such files.
        """
        raise NotImplementedError

    def _prepared(self, bundle: DataFrame) -> PreparedBundle:
        """Run the definition's steps on a bundle, and separate the rejected records."""
        return prepare_bundle(bundle, self.pipeline)

    def _with_rejected(self, rows: DataFrame, bundle: BundlePartials, clock: Clock) -> DataFrame:
        """Append ledger rows for the bundle's rejected records to `rows`, and return the result."""
        if bundle.rejected is None:
            return rows
        rejected = query_frame(self.spark, bundle.rejected, lambda view: self.rows.of_rejected(view, clock))
        return rows.unionAll(rejected)

    @property
    def holds(self) -> bool:
        """True if open windows of this definition can ever hold back a later stage's watermark."""
        return holds_back(self.pipeline)

    def onward(self, state: OpenWindows) -> int:
        """Return the upper limit of a later stage's watermark after this state's epoch, in microseconds (rule T3)."""
        assert state.clock is not None
        if not self.holds:
            return state.clock.watermark
        (row,) = self.rest.every(state).selectExpr(f"{oldest_held(self.pipeline)} AS oldest").collect()
        held = row["oldest"]
        return state.clock.watermark if held is None else min(state.clock.watermark, int(held))

    def step(self, state: OpenWindows, bundle: BundlePartials, clock: Clock) -> SparkResult:
        """Apply an epoch's bundle and clock to the open windows. Raises `ClockError` if the clock goes back.

        This call only builds Spark's query plans. The first action on the result's `rows` computes the rows and the
        next state.
        """
        raise NotImplementedError

    def _state_schema(self) -> StructType:
        return schema_of(state_types(self.pipeline))
