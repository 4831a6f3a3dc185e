"""Write the rows of maps and joins on Spark, and hand on what they and computations produce: frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.protocol import EpochCounts
from tailrace.engines.row_side import RowSide, SteppedRows
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.preparation import queried
from tailrace.engines.spark.rows.branch_rows import append
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import LATE, PRODUCTION, REJECTED
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Windowless
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Relation


class SparkProducer:
    """A definition on Spark that produces what others read. A stepped epoch has its ledger rows as `rows`."""

    spark: SparkSession
    lake: Lake
    definition: Windowless | Computation
    ledger: str

    def passed(self, stepped: Any) -> DataFrame:
        return queried(self.spark, stepped.rows, lambda view: productions(self.definition, view))

    def passed_again(self, epoch: int, after: int | None = None) -> DataFrame:
        which = f"epoch > {epoch - 1 if after is None else after}L AND epoch <= {epoch}L"
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE {which})")
        return self.spark.sql(productions(self.definition, rows))


_KINDS = (PRODUCTION, LATE, REJECTED)


class SparkRows(SparkProducer, RowSide[DataFrame]):
    """A map or a join of a stream on Spark, for large work."""

    definition: Windowless
    direct = False

    def write(self, stepped: SteppedRows[DataFrame], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        counts = ObservedCounts(stepped.rows, *(F.count_if(F.col("kind") == kind).alias(kind) for kind in _KINDS))
        append(counts.rows, branch, properties)
        return EpochCounts.of_kinds(counts.read())
