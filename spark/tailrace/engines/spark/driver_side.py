"""Run a stage of a stream on Spark, with the stage's open windows in this process.

The executors only aggregate an epoch's records to partials, with one row per key and window. If the partials fit into
this process, this process applies the rules for windows in a tenth of the time that Spark needs. The windows are then
outside Spark's heap, and no window is lost if an executor is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tailrace.engines.choose import EngineChoice, EnginePolicy
from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.engines.duckdb.database.shares import check_shares
from tailrace.engines.duckdb.executions.parts_execution import PartsExecution
from tailrace.engines.duckdb.executions.preparation import DuckBundle
from tailrace.engines.duckdb.side import DuckSide
from tailrace.engines.protocol import BundleRecords, EpochState
from tailrace.engines.spark.bundles import FiledRecords, as_frame
from tailrace.engines.spark.executions.preparation import query_frame
from tailrace.engines.spark.workers.arrow_frames import arrow_of
from tailrace.engines.spark.workers.python_tasks import try_on_executors
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.sql.terms import Query

ROWS_AT_ONCE = 500_000
"""The maximum number of rows from Spark that are combined in one step.

The rows are records aggregated by key and window.
"""

LATE_HERE = 1_000_000
"""The maximum number of an epoch's late records for which this process writes the ledger rows."""


class DriverSide(DuckSide):
    """A stage on Spark whose open windows are in this process, which is Spark's driver."""

    direct = False
    execution: PartsExecution

    def __init__(self, spark: SparkSession, lake: Lake, execution: PartsExecution, choice: EngineChoice) -> None:
        super().__init__(lake, execution, choice)
        policy = EnginePolicy.of(lake.settings)
        self.spark, self._memory, self._most = spark, policy.memory, policy.driver_windows
        self._added: BundleRecords | None = None

    def takes(self, bundle: BundleRecords, state: EpochState) -> bool:
        """Return True if this process, rather than the executors, can process a bundle.

        The number of open windows must be at most `EnginePolicy.driver_windows`. If the bundle is on Spark, at most
        `LATE_HERE` of its records may be late. If the bundle is on Spark, this method also aggregates the bundle's
        records; `consume` then uses the result.
        """
        if isinstance(bundle, pa.Table):
            return state.count <= self._most
        if not self.execution.adds_up or (parts := self._parts(bundle, state)) is None:
            return False
        with suppress(duckdb.OutOfMemoryException):
            there = state.count + self.execution.put_together(parts)
            # Arrow keeps freed memory for later use. Release this memory, because Arrow will not need so much for a
            # long time.
            pa.default_memory_pool().release_unused()
            if there <= self._most and self._late(bundle, state) <= LATE_HERE:
                self._added = bundle
                return True
        return False

    def consume(self, bundle: BundleRecords, state: EpochState) -> DuckBundle:
        if isinstance(bundle, pa.Table):
            return super().consume(bundle, state)
        assert self._added is bundle, "takes was not asked for the bundle"
        self._added = None
        return self.execution.summed(lambda clock: self._late_rows(bundle, state, clock))

    def _parts(self, bundle: BundleRecords, state: EpochState) -> Iterator[pa.Table] | None:
        """Aggregate parts of a bundle on Spark, and fetch the resulting rows (partials) into this process.

        Returns an iterator over tables of partials, or None if the partials are too large.
        """
        text = self.execution.adding(state)
        if isinstance(bundle, FiledRecords):
            return self._by_workers(bundle.files, text, self.execution.adding_gives(bundle.files.schema))
        if (rows := self._by_spark(bundle, text)) is None:
            return None
        # Spark returns one row per window, so the rows may be split at any position.
        return (rows.slice(first, ROWS_AT_ONCE) for first in range(0, max(1, rows.num_rows), ROWS_AT_ONCE))

    def _by_workers(self, files: LogFiles, text: Query, schema: pa.Schema) -> Iterator[pa.Table] | None:
        """Let Python workers on the executors aggregate parts of the files, and fetch the resulting rows (partials).

        Returns None if a task fails or the partials are too large.
        """
        one, by = self.execution, self.execution.windowed_by
        found = try_on_executors(lambda: files.fetched_shares(self.spark, text, one.records, schema, by, self._memory))
        return (
            None if found is None else chain([schema.empty_table()], check_shares(one.connection, by, found.shares()))
        )

    def _late(self, bundle: BundleRecords, state: EpochState) -> int:
        """Count the late records of a bundle. A record is counted once for each window for which it is late."""
        found = self.execution.count_late(state)
        if found is not None or state.clock is None:
            return found or 0
        text = Query(f"SELECT COUNT(*) AS n FROM ({self.execution.late_rows(state, state.clock)})")
        counts = self._found(bundle, text, pa.schema({"n": pa.int64()}))
        return LATE_HERE + 1 if counts is None else int(pc.sum(counts["n"]).as_py() or 0)

    def _late_rows(self, bundle: BundleRecords, state: EpochState, clock: Clock) -> pa.Table:
        """Return the ledger rows of a bundle's late records."""
        found = self._found(bundle, self.execution.late_rows(state, clock), self.execution.schema)
        if found is None:
            raise EngineError(
                f"{self.pipeline.name}: the records of epoch {clock.epoch} that came too late are more than the driver "
                "takes over at once; give it more memory (TAILRACE_DRIVER_MEMORY)"
            )
        return found

    def _found(self, bundle: BundleRecords, text: Query, schema: pa.Schema) -> pa.Table | None:
        """Run a query over parts of a bundle, and fetch the results into this process.

        Returns None if the results are too large.
        """
        found = None
        if isinstance(bundle, FiledRecords):
            files, records, most = bundle.files, self.execution.records, self._memory
            found = try_on_executors(lambda: files.fetched(self.spark, text, records, schema, most))
        return self._by_spark(bundle, text) if found is None else found

    def _by_spark(self, bundle: BundleRecords, text: Query) -> pa.Table | None:
        """Run a query over a bundle on Spark, and fetch the result.

        Returns None if the result is larger than the driver accepts from one job.
        """
        frame, records = as_frame(self.spark, bundle), self.execution.records
        return arrow_of(query_frame(self.spark, frame, lambda view: Query(text.replace(records, view))))
