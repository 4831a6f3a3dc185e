"""A map of a stream on Spark: the executors make its rows, and write them to a branch."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.choose import EngineChoice
from tailrace.engines.row_side import MapSide
from tailrace.engines.spark.bundles import Bundled, as_frame
from tailrace.engines.spark.executions.preparation import held_once, prepare, queried
from tailrace.engines.spark.productions import SparkRows
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.sql.epoch import map_rows
from tailrace.sql.records.selections import FAILED, may_fail


class SparkMap(SparkRows, MapSide[DataFrame]):
    """A map on Spark, for large work."""

    def __init__(self, spark: SparkSession, lake: Lake, definition: Map, choice: EngineChoice) -> None:
        super().__init__(lake, definition, choice)
        self.spark = spark

    def made(self, bundle: Bundled, clock: Clock, generation: int) -> DataFrame:
        frame = prepare(as_frame(self.spark, bundle), self.map)
        if not may_fail(self.map):
            return queried(self.spark, frame, lambda view: map_rows.of_epoch(self.map, view, clock, generation))
        held, _ = held_once(frame, self.map)
        good, bad = (held.where(f"{FAILED} IS {which}") for which in ("NULL", "NOT NULL"))
        rows = queried(self.spark, good, lambda view: map_rows.of_epoch(self.map, view, clock, generation))
        return rows.unionAll(queried(self.spark, bad, lambda view: map_rows.of_rejected(self.map, view, clock)))
