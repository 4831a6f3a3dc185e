"""A map of a stream on Spark: the executors make its rows, and write them to a branch."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import EngineChoice
from tailrace.engines.map_side import MapSide, SteppedMap
from tailrace.engines.protocol import EpochCounts
from tailrace.engines.spark.branch_rows import append
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.preparation import prepare, queried
from tailrace.engines.spark.side import Bundled, as_frame
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.sql.records.selections import FAILED, may_fail
from tailrace.sql.records.stage_records import productions
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Relation


class SparkMap(MapSide[DataFrame]):
    """A map on Spark, for large work."""

    direct = False

    def __init__(self, spark: SparkSession, lake: Lake, definition: Map, choice: EngineChoice) -> None:
        super().__init__(lake, definition, choice)
        self.spark = spark

    def made(self, bundle: Bundled, clock: Clock, generation: int) -> DataFrame:
        frame = prepare(as_frame(self.spark, bundle), self.map)
        if not may_fail(self.map):
            return queried(self.spark, frame, lambda view: map_rows.of_epoch(self.map, view, clock, generation))
        # Checkpointed, so that a step is called once for a record although rejected records are read apart.
        held = frame.localCheckpoint(eager=False)
        good, bad = (held.where(f"{FAILED} IS {which}") for which in ("NULL", "NOT NULL"))
        rows = queried(self.spark, good, lambda view: map_rows.of_epoch(self.map, view, clock, generation))
        return rows.unionAll(queried(self.spark, bad, lambda view: map_rows.of_rejected(self.map, view, clock)))

    def write(self, stepped: SteppedMap[DataFrame], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        kinds = {"productions": PRODUCTION, "rejected": REJECTED}
        counts = ObservedCounts(
            stepped.rows, *(F.count_if(F.col("kind") == kind).alias(name) for name, kind in kinds.items())
        )
        append(counts.rows, branch, properties)
        return EpochCounts(**counts.read())

    def passed(self, stepped: SteppedMap[DataFrame]) -> DataFrame:
        return queried(self.spark, stepped.rows, lambda view: productions(self.map, view))

    def passed_again(self, epoch: int) -> DataFrame:
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE epoch = {epoch}L)")
        return self.spark.sql(productions(self.map, rows))
