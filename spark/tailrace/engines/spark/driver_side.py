"""A stage of a stream on Spark whose open windows are in this process: the executors add up the records of an epoch.

What is large in an epoch are its records. Their partials are a row for each key and window, and where these fit this
process it takes them through the rules in a tenth of Spark's time, and Spark's heap holds none of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeGuard

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.engines.choose import Bounds, EngineChoice
from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.execution import SqlExecution, Windows
from tailrace.engines.duckdb.preparation import Taken
from tailrace.engines.duckdb.side import DuckSide
from tailrace.engines.spark.executions.preparation import queried
from tailrace.engines.spark.side import Bundled, FiledRecords, as_frame
from tailrace.engines.spark.workers.arrow_frames import arrow_of
from tailrace.engines.spark.workers.python_tasks import tried
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.chain import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.partials import late, may_have_passed, partials
from tailrace.sql.records.ways import Way, way
from tailrace.sql.terms import Query, Relation


def suits_driver(definition: Definition) -> TypeGuard[Pipeline]:
    """Tell whether parts of a bundle may be added up apart, and partials say all that the rules ask of its records.

    Windows that merge are judged by the watermark before they do, steps make what is in no file, and a trigger that is
    done refuses records one by one.
    """
    if not isinstance(definition, Pipeline) or definition.where.merges or definition.each:
        return False
    return definition.finishing != "close" and way(definition) is Way.SQL


LATE_HERE = 1_000_000
"""The most records of an epoch that came too late whose rows this process writes."""


class DriverSide(DuckSide):
    """A stage on Spark whose windows are in this process, Spark's driver."""

    direct = False
    execution: SqlExecution

    def __init__(
        self, spark: SparkSession, connection: duckdb.DuckDBPyConnection, lake: Lake, pipeline: Pipeline,
        choice: EngineChoice,
    ) -> None:  # fmt: skip
        super().__init__(connection, lake, pipeline, choice)
        bounds, most = Bounds.of(lake.settings), lake.settings.windows_in_driver
        self.spark, self._memory, self._most = spark, bounds.memory, bounds.windows if most is None else most
        self._records = Relation(f"tailrace_{pipeline.name}_{uuid.uuid4().hex[:8]}_records")
        self._text = partials(pipeline, self._records, Relation("no_clock"), by_slices=True)
        self._added: Bundled | None = None

    def takes(self, bundle: Bundled, state: Windows) -> bool:
        """Tell whether an epoch after a state fits this process; its records are added up for that, for `consume`."""
        if isinstance(bundle, pa.Table):
            return state.count <= self._most
        parts = self._parts(bundle)
        if parts is None:
            return False
        there, watermark = (
            self.execution.put_together(parts),
            BEGINNING if state.clock is None else state.clock.watermark,
        )
        fits = state.count + there <= self._most and self.execution.late_among(watermark) <= LATE_HERE
        self._added = bundle if fits else None
        return fits

    def consume(self, bundle: Bundled, state: Windows) -> Taken:
        if isinstance(bundle, pa.Table):
            return super().consume(bundle, state)
        assert self._added is bundle, "takes was not asked for the bundle"
        self._added = None
        return self.execution.taken(lambda clock: self._late_rows(bundle, state, clock))

    def _parts(self, bundle: Bundled) -> pa.Table | None:
        """Add up parts of a bundle where the executors have it; None where that is too much for this process."""
        if not isinstance(bundle, FiledRecords):
            return arrow_of(queried(self.spark, as_frame(self.spark, bundle), self._of(self._text)))
        with registered(self.connection, bundle.files.schema.empty_table()) as nothing:
            text = in_duckdb(Query(self._text.replace(self._records, nothing)))
            schema = self.connection.execute(text).to_arrow_table().schema
        return self._by_workers(bundle, self._text, schema)

    def _by_workers(self, bundle: FiledRecords, text: Query, schema: pa.Schema) -> pa.Table | None:
        """Have the executors' Python answer a text; None where one of them cannot, or it is too much."""
        files, most = bundle.files, self._memory
        return tried(lambda: files.fetched(self.spark, text, self._records, schema, most))

    def _of(self, text: Query) -> Callable[[Relation], Query]:
        return lambda view: Query(text.replace(self._records, view))

    def _late_rows(self, bundle: Bundled, state: Windows, clock: Clock) -> pa.Table:
        """Return the ledger's rows of the records of a bundle that came too late for an epoch."""
        row = Relation(f"({clock_row(self.pipeline, state.clock, clock, state.generation)})")
        passed = may_have_passed(self.pipeline, self._records, row)
        text, schema = self.execution.rows.of_late(late(self.pipeline, passed, row)), self.execution.schema
        found = self._by_workers(bundle, text, schema) if isinstance(bundle, FiledRecords) else None
        if found is None:
            found = arrow_of(queried(self.spark, as_frame(self.spark, bundle), self._of(text)))
        if found is None:
            raise EngineError(
                f"{self.pipeline.name}: the records of epoch {clock.epoch} that came too late are more than the driver "
                "takes over; give it more memory (TAILRACE_DRIVER_MEMORY)"
            )
        return found
