"""A stage of a stream on Spark: the executors hold its state, and write its rows to a branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import EngineChoice
from tailrace.engines.protocol import FIRED, REASONS, EpochCounts, counted
from tailrace.engines.spark.bundles import Bundled, FiledRecords, as_frame
from tailrace.engines.spark.executions.brought_partials import BroughtPartials
from tailrace.engines.spark.executions.compiler import compiled
from tailrace.engines.spark.executions.execution import Consumed, Stepped
from tailrace.engines.spark.executions.native import Native
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import MANY, OpenWindows
from tailrace.engines.spark.executions.preparation import changed
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
from tailrace.sql.terms import Condition, Relation

_KINDS = 2
"""The kinds of rows of which an epoch has many: panes and partials."""

_OPEN_FILES = 24
"""The maximum number of files that a task has open at once."""


class SparkSide:
    """A stage on Spark, for large work. Bundles are frames, or Arrow tables that become frames."""

    direct = False

    def __init__(
        self, spark: SparkSession, lake: Lake, pipeline: Pipeline, choice: EngineChoice, *, streams: bool = True,
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> None:  # fmt: skip
        """Open the side; a stream's, which has the lease, removes what streams before it left behind.

        Small bundles are added up on `connection`, if one is given.
        """
        self.spark, self.lake, self.pipeline, self.choice = spark, lake, pipeline, choice
        self._connection = connection
        self.rest = RestingWindows(spark, lake, pipeline, lake.settings.windows_in_memory, streams=streams)
        self.execution = compiled(spark, pipeline, self.rest)
        self.ledger = ledger_name(pipeline.name)
        self.holds = self.execution.holds
        self._restored_at: int | None = None

    @cached_property
    def _here(self) -> BroughtPartials:
        assert self._connection is not None
        return BroughtPartials(self.pipeline, self._connection)

    def nothing(self, generation: int) -> OpenWindows:
        return self.execution.nothing(generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> OpenWindows:
        # A backfill may have corrected the state that is restored, and later stages read that with the next epoch.
        self._restored_at = clock.epoch
        ledger = as_of_snapshot(self.spark, self.lake, self.ledger, snapshot)
        where = every(equal("kind", PARTIAL), at_most("epoch", clock.epoch))
        scan = self.lake.table(self.ledger).scan(row_filter=where, snapshot_id=snapshot)
        partials = sum(task.file.record_count for task in scan.plan_files())
        return self.execution.restore(ledger.where(f"epoch <= {clock.epoch}L"), clock, generation, partials)

    def consume(self, bundle: Bundled, state: OpenWindows) -> Consumed:
        execution = self.execution
        own = isinstance(bundle, pa.Table) and self._connection is not None
        if own and isinstance(execution, Native) and execution.takes_brought(state):
            return execution.consume_brought(bundle, state, self._here)
        files = bundle.files if isinstance(bundle, FiledRecords) else None
        consumed = execution.consume(as_frame(self.spark, bundle), state, files)
        return replace(consumed, records=bundle.num_rows) if isinstance(bundle, pa.Table) else consumed

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        return self.execution.step(state, consumed, clock)

    def write(self, stepped: Stepped, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        few = stepped.most is not None and stepped.most < MANY
        if few and (rows := arrow_of(stepped.rows)) is not None:
            # Written here, which is quicker than to plan Spark's writing, and makes fewer files.
            branch.hold(FileChange(tuple(self.lake.write_files(self.ledger, rows))), properties)
            return EpochCounts.of_groups(counted(rows), stepped.state.open())
        pane, taken, late = F.col("kind") == PANE, F.col("retraction"), F.col("kind") == LATE
        said = F.col(UNANSWERED).isNotNull() if UNANSWERED in stepped.rows.columns else F.lit(False)
        counts = ObservedCounts(
            stepped.rows,
            *(F.count_if(pane & ~taken & (F.col("timing") == timing)).alias(timing) for timing in FIRED),
            F.count_if(pane & taken).alias("retractions"),
            *(F.count_if(late & (F.col("reason") == reason)).alias(reason) for reason in REASONS),
            F.count_if(F.col("kind") == REJECTED).alias("rejected"),
            F.count_if(pane & ~taken & said).alias(UNANSWERED),
        )
        append(counts.rows, branch, properties, at_once=self._lie_together(stepped))
        found = counts.read()
        timings, reasons = ({name: found[name] for name in names} for names in (FIRED, REASONS))
        return EpochCounts(
            found["retractions"],
            found["rejected"],
            timings,
            reasons,
            stepped.state.open(),
            unanswered=found[UNANSWERED],
        )

    def _lie_together(self, stepped: Stepped) -> bool:
        """Tell whether an epoch's rows are many, and in so few partitions that a task can have a file open for each."""
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
        (row,) = self.execution.every(state).selectExpr(*due_items(self.pipeline, now, delays)).collect()
        return next_due(now, periods, *row)

    def passed(self, stepped: Stepped) -> DataFrame:
        passed, clock = changed(self.spark, self.pipeline, stepped.rows), stepped.state.clock
        if clock is None or clock.epoch - 1 != self._restored_at:
            return passed
        corrections = self._read(corrected_before(clock.epoch))
        # A union that adds nothing would still be planned with every epoch's text.
        return passed if corrections.isEmpty() else passed.unionByName(corrections)

    def passed_again(self, epoch: int, after: int | None = None) -> DataFrame:
        return self._read(sent_with(epoch, after))

    def _read(self, which: Condition) -> DataFrame:
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE {which})")
        return self.spark.sql(changes(self.pipeline, rows))

    def close(self) -> None:
        self.execution.close()
