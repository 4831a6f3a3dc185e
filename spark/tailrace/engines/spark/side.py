"""Run a stage of a stream on Spark.

The executors keep the stage's state, and write the stage's ledger rows to a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.executions.sql_execution import SqlExecution
from tailrace.engines.protocol import FIRED, REASONS, BundleRecords, EpochCounts, count_rows
from tailrace.engines.spark.bundles import FiledRecords, as_frame
from tailrace.engines.spark.executions.execution import BundlePartials, SparkExecution, SparkResult
from tailrace.engines.spark.executions.native import Assigned, Native
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import MANY, OpenWindows
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.engines.spark.executions.preparation import query_frame
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.rows.branch_rows import append, as_of_snapshot
from tailrace.engines.spark.workers.arrow_frames import arrow_of
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL, REJECTED
from tailrace.lake.schema.filters import at_most, equal, every
from tailrace.lake.schema.layouts import partition_terms, term
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import spans_between
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import UNANSWERED, Pipeline
from tailrace.sql.epoch.holds import due_items, next_due
from tailrace.sql.records.stage_records import changes, corrected_before, sent_with
from tailrace.sql.records.ways import Way, way
from tailrace.sql.terms import Condition, Relation

_KINDS = 2
"""The number of kinds of ledger rows that can have many rows in an epoch.

The kinds are panes and state rows (partials).
"""

_OPEN_FILES = 24
"""The maximum number of files that one task may have open at the same time."""


class SparkSide:
    """The implementation of `Side` that runs a pipeline's stage on Spark, for data that does not fit into this process.

    A bundle that is an Arrow table is converted to a data frame.
    """

    direct = False
    reads_files = False

    def __init__(
        self, spark: SparkSession, lake: Lake, pipeline: Pipeline, choice: EngineChoice, *, streams: bool = True,
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> None:  # fmt: skip
        """Create the `Side` of a stage.

        `streams` is true for a stream, which has the lease and therefore removes the files of earlier streams. If
        `connection` is given, small bundles are aggregated on this DuckDB connection.
        """
        self.spark, self.lake, self.pipeline, self.choice = spark, lake, pipeline, choice
        self._connection = connection
        self.rest = RestingWindows(spark, lake, pipeline, lake.settings.windows_in_memory, streams=streams)
        self.execution = execution_of(spark, pipeline, self.rest)
        self.ledger = ledger_name(pipeline.name)
        self.holds = self.execution.holds
        self._restored_at: int | None = None

    @cached_property
    def _here(self) -> SqlExecution | None:
        """The DuckDB execution that aggregates small bundles in this process, or None without a DuckDB connection."""
        return None if self._connection is None else SqlExecution(self._connection, self.pipeline)

    def nothing(self, generation: int) -> OpenWindows:
        return self.execution.nothing(generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> OpenWindows:
        # A backfill may have corrected the restored state. Remember the epoch, because a later stage must read these
        # corrections together with the next epoch.
        self._restored_at = clock.epoch
        ledger = as_of_snapshot(self.spark, self.lake, self.ledger, snapshot)
        where = every(equal("kind", PARTIAL), at_most("epoch", clock.epoch))
        scan = self.lake.table(self.ledger).scan(row_filter=where, snapshot_id=snapshot)
        partials = sum(task.file.record_count for task in scan.plan_files())
        return self.execution.restore(ledger.where(f"epoch <= {clock.epoch}L"), clock, generation, partials)

    def consume(self, bundle: BundleRecords, state: OpenWindows) -> BundlePartials:
        execution = self.execution
        if not isinstance(bundle, pa.Table):
            files = bundle.files if isinstance(bundle, FiledRecords) else None
            return execution.consume(as_frame(self.spark, bundle), state, files)
        if self._here is not None and isinstance(execution, Native) and execution.adds_up_here(state):
            return execution.consume_here(bundle, state, self._here)
        return replace(execution.consume(as_frame(self.spark, bundle), state), records=bundle.num_rows)

    def step(self, state: OpenWindows, consumed: BundlePartials, clock: Clock) -> SparkResult:
        return self.execution.step(state, consumed, clock)

    def write(self, stepped: SparkResult, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        few = stepped.most is not None and stepped.most < MANY
        if few and (rows := arrow_of(stepped.rows)) is not None:
            # For few rows, this process writes the rows in less time than Spark needs to plan the write. This process
            # also writes fewer files than Spark.
            branch.hold(FileChange(tuple(self.lake.write_files(self.ledger, rows))), properties)
            return EpochCounts.of_groups(count_rows(rows), stepped.state.open())
        pane, taken, late = F.col("kind") == PANE, F.col("retraction"), F.col("kind") == LATE
        nulls = F.col(UNANSWERED).isNotNull() if UNANSWERED in stepped.rows.columns else F.lit(False)
        conditions = {"retractions": pane & taken, "rejected": F.col("kind") == REJECTED}
        conditions |= {"unanswered": pane & ~taken & nulls}
        conditions |= {f"pane_{timing}": pane & ~taken & (F.col("timing") == timing) for timing in FIRED}
        conditions |= {f"late_{reason}": late & (F.col("reason") == reason) for reason in REASONS}
        counts = ObservedCounts(stepped.rows, *(F.count_if(one).alias(name) for name, one in conditions.items()))
        append(counts.rows, branch, properties, at_once=self._lie_together(stepped))
        return EpochCounts.of_windows(counts.read(), stepped.state.open())

    def _lie_together(self, stepped: SparkResult) -> bool:
        """Return True if an epoch has many rows, but so few partitions that one task can have a file open for each
        partition.
        """
        if stepped.partials < MANY or stepped.ends is None:
            return False
        live, most = self.lake.table(self.ledger), _KINDS
        for one in map(term, partition_terms(live.spec(), live.schema())):
            if one.column == "window_end" and one.is_span:
                most *= spans_between(one.transform, *stepped.ends)
            elif one.column != "kind":
                return False
        return most <= _OPEN_FILES

    def onward(self, state: OpenWindows) -> int:
        return self.execution.onward(state)

    def due(self, state: OpenWindows, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        if state.clock is None:
            return None
        now = state.clock.processing_time
        (row,) = self.rest.every(state).selectExpr(*due_items(self.pipeline, now, delays)).collect()
        return next_due(now, periods, *row)

    def passed(self, stepped: SparkResult) -> DataFrame:
        passed, clock = self._records(stepped.rows), stepped.state.clock
        if clock is None or clock.epoch - 1 != self._restored_at:
            return passed
        corrections = self._read(corrected_before(clock.epoch))
        # Skip the union if there are no corrections, so that Spark need not plan it.
        return passed if corrections.isEmpty() else passed.unionByName(corrections)

    def _records(self, rows: DataFrame) -> DataFrame:
        return query_frame(self.spark, rows, lambda view: changes(self.pipeline, view))

    def passed_again(self, epoch: int, after: int | None = None) -> DataFrame:
        return self._read(sent_with(epoch, after))

    def _read(self, which: Condition) -> DataFrame:
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE {which})")
        return self.spark.sql(changes(self.pipeline, rows))

    def close(self) -> None:
        self.rest.close()


def execution_of(spark: SparkSession, pipeline: Pipeline, rest: RestingWindows) -> SparkExecution:
    """Create the object that executes a pipeline on Spark.

    Depending on the pipeline, the step runs in SQL, in SQL after Python code has assigned windows to the records, or in
    Python.
    """
    return _EXECUTIONS[way(pipeline)](spark, pipeline, rest)


_EXECUTIONS: dict[Way, type[SparkExecution]] = {Way.SQL: Native, Way.ASSIGNED: Assigned, Way.PYTHON: PerKey}
