"""The rows of a map or a join on Spark: frames, which the executors write to a branch."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.protocol import EpochCounts
from tailrace.engines.row_side import RowSide, SteppedRows
from tailrace.engines.spark.branch_rows import append
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.preparation import queried
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import LATE, PRODUCTION, REJECTED
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Relation

_KINDS = (PRODUCTION, LATE, REJECTED)


class SparkRows(RowSide[DataFrame]):
    """A map or a join of a stream on Spark, for large work."""

    direct = False
    spark: SparkSession

    def write(self, stepped: SteppedRows[DataFrame], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        counts = ObservedCounts(stepped.rows, *(F.count_if(F.col("kind") == kind).alias(kind) for kind in _KINDS))
        append(counts.rows, branch, properties)
        return EpochCounts.of_kinds(counts.read())

    def passed(self, stepped: SteppedRows[DataFrame]) -> DataFrame:
        return queried(self.spark, stepped.rows, lambda view: productions(self.definition, view))

    def passed_again(self, epoch: int) -> DataFrame:
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE epoch = {epoch}L)")
        return self.spark.sql(productions(self.definition, rows))
