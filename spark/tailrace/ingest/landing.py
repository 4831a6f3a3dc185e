"""Land a bundle: write its records to the log's table or to the table `rejected`.

The commits to these tables record the epoch (X2, X6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.rows.branch_rows import append
from tailrace.engines.spark.rows.declared_rows import as_live
from tailrace.ingest.checkpoint import NOT_READ
from tailrace.ingest.row_landing import BAD, HeldRows, LandedCounts, LandedFiles, RowLanding
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import FOLDER, READ, TOPIC
from tailrace.lake.commit.lease import Lease
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.logs.log import Log
from tailrace.sql.terms import quoted

Landable: TypeAlias = "DataFrame | pa.Table | LandedFiles"
"""The records of an epoch before they are landed: in an Arrow table, in a Spark frame, or in data files."""


class Landing(RowLanding[DataFrame]):
    """The writer of one log in a stream, which also writes records that Spark has read."""

    def __init__(self, spark: SparkSession, lake: Lake, log: Log, first: Lease | None = None) -> None:
        super().__init__(lake, log, first)
        self.spark = spark

    @property
    def position(self) -> dict[str, str]:
        """The properties of the log's last commit that record up to which position the log's source was read."""
        properties = self.log.head.properties
        read = {name: properties.get(name, nothing) for name, nothing in zip(READ, ("", "-1", NOT_READ), strict=True)}
        return read | {name: properties[name] for name in (TOPIC, FOLDER) if name in properties}

    def with_epoch(self, frame: DataFrame, clock: str) -> DataFrame:
        """Add a column with the epoch's number to records. The number is read from the view `clock`.

        A literal epoch number in the query would change Spark's plan in every epoch.
        """
        frame.createOrReplaceTempView(f"{clock}_read")
        return self.spark.sql(f"SELECT r.*, c.epoch AS _epoch FROM {clock}_read r CROSS JOIN {clock} c")

    def write(self, bundle: Landable, properties: Mapping[str, str]) -> LandedCounts:
        """Write a bundle; `publish` later commits it with `properties`, which include the epoch's number."""
        return self._frame(bundle, properties) if isinstance(bundle, DataFrame) else super().write(bundle, properties)

    def _frame(self, frame: DataFrame, properties: Mapping[str, str]) -> LandedCounts:
        """Write the records of a frame with Spark to the branches of two tables: the log's table and the table
        `rejected`.
        """
        observed = ObservedCounts(
            frame, F.count_if(F.col("_error").isNull()).alias("records"), F.count("_error").alias("rejected")
        )
        columns = [quoted(name) for name in log_contract(self.log_definition).columns]

        def good(frame: DataFrame) -> DataFrame:
            return frame.where("_error IS NULL").selectExpr(*columns)

        properties = {**properties, **self.log.properties}
        self._append(good(observed.rows), self.log, properties)
        counts = observed.read()
        # Keep the frame for the case that another process commits to the table before the rows are published. The rows
        # are then written again, from the frame without observation, because a frame can be observed only once.
        self._written = [HeldRows(self.log, good(frame), properties)]
        if counts["rejected"] and self.rejected.head.number("epoch") < int(properties["epoch"]):
            items = (f"{ours} AS {theirs}" for ours, theirs in BAD.items())
            bad = frame.where("_error IS NOT NULL").selectExpr(*items)
            properties = {**properties, **self.rejected.properties}
            self._written.insert(0, self._append(bad, self.rejected, properties))
        return LandedCounts(counts["records"], counts["rejected"])

    def _append(self, rows: Landable, lease: Lease, properties: Mapping[str, str]) -> HeldRows[Landable]:
        if not isinstance(rows, DataFrame):
            return super()._append(rows, lease, properties)
        self._by_spark(rows, lease, properties)
        return HeldRows(lease, rows, properties)

    def _by_spark(self, rows: DataFrame, lease: Lease, properties: Mapping[str, str]) -> None:
        try:
            append(rows, lease.branch, properties)
        except AnalysisException:
            # Try again with the table's current column names, because a user may have renamed a column while the stream
            # was running.
            renamed = as_live(self.lake, lease.table, rows)
            if renamed.columns == rows.columns:
                raise
            append(renamed, lease.branch, properties)
