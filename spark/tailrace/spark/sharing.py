"""The answers of a definition's stages over a range of the log, each computed once for its own run and the next stage.

The records of the range are those that the last stage needs. Those of the stages before it are among them, for a stage
reaches as far back as the one before it, and further by its own windows.
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog import Lake
from tailrace.model.pipeline import Pipeline
from tailrace.spark.answering import Answering, answering
from tailrace.spark.execution import free
from tailrace.spark.preparing import answered
from tailrace.spark.ranges import records


class Shared:
    """What the stages up to `pipeline` answer over the range `[first, last)` of window timestamps, in microseconds.

    What a stage answers is kept until `close`, checkpointed on the executors, if the stage after it reads it.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int) -> None:
        self.spark, self.lake, self.first, self.last = spark, lake, first, last
        self.ends = answering(spark, pipeline.finished)
        self._kept: dict[tuple[str, int], tuple[str, DataFrame]] = {}

    def answers(self, stage: Pipeline, epoch: int, within: str) -> str:
        """The answers of a stage as of an epoch of the log, of the windows that meet a condition, as a query.

        The condition has to be of windows in the range.
        """
        one = self.ends
        while one.pipeline.name != stage.name:
            assert one.earlier is not None, f"{stage.name} is no stage up to {self.ends.pipeline.name}"
            one = one.earlier
        if one is self.ends:
            return one.batch(self._assigned(one, epoch), within)
        return f"SELECT * FROM {self._view(one, epoch)} WHERE {within}"

    def close(self) -> None:
        """Free what is kept."""
        for view, frame in self._kept.values():
            self.spark.catalog.dropTempView(view)
            free(frame)
        self._kept.clear()

    def _assigned(self, one: Answering, epoch: int) -> str:
        """A stage's records, each with its windows."""
        if one.earlier is None:
            return one.placed(records(self.lake, self.ends, self.first, self.last, epoch))
        return one.placed(f"({answered(one.earlier.pipeline, f'SELECT * FROM {self._view(one.earlier, epoch)}')})")

    def _view(self, one: Answering, epoch: int) -> str:
        """A view of all that a stage answers, which is computed as it is read first."""
        kept = self._kept.get((one.pipeline.name, epoch))
        if kept is None:
            computed = self.spark.sql(one.batch(self._assigned(one, epoch))).localCheckpoint(eager=False)
            kept = f"tailrace_{uuid.uuid4().hex[:8]}", computed
            computed.createOrReplaceTempView(kept[0])
            self._kept[one.pipeline.name, epoch] = kept
        return kept[0]
