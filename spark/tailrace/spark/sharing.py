"""The answers of a definition's stages over a range of the log, each computed once for its own run and the next stage.

The records of the range are those that the last stage needs. Those of the stages before it are among them, for a stage
reaches as far back as the one before it, and further by its own windows.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import SparkSession

from tailrace.lake.catalog import Lake
from tailrace.model.pipeline import Pipeline
from tailrace.spark.answering import Answering, answering
from tailrace.spark.execution import free
from tailrace.spark.preparing import viewed
from tailrace.spark.ranges import records
from tailrace.sql.answers import in_range


class Shared:
    """What the stages up to `pipeline` answer over the range `[first, last)` of window timestamps, in microseconds.

    What a stage answers is kept until `close`, checkpointed on the executors, if the stage after it reads it.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int) -> None:
        self.spark, self.lake, self.first, self.last = spark, lake, first, last
        self.ends = answering(spark, pipeline.finished)
        self._views: dict[tuple[str, int], str] = {}
        self._open = ExitStack()

    def answers(self, stage: Pipeline, epoch: int, first: int, last: int) -> str:
        """The answers of a stage as of an epoch of the log, as a query; `[first, last)` is in the whole range."""
        one = self.ends
        while one.pipeline.name != stage.name:
            assert one.earlier is not None, f"{stage.name} is no stage up to {self.ends.pipeline.name}"
            one = one.earlier
        if one is self.ends:
            return one.batch(self._assigned(one, epoch, first, last), in_range(first, last))
        return f"SELECT * FROM {self._view(one, epoch)} WHERE {in_range(first, last)}"

    def close(self) -> None:
        """Free what is kept."""
        self._open.close()
        self._views.clear()

    def _assigned(self, one: Answering, epoch: int, first: int, last: int) -> str:
        """A stage's records, each with its windows, as far as a range of the last stage needs them."""
        if one.earlier is None:
            return one.placed(records(self.lake, self.ends, first, last, epoch))
        return one.after(f"SELECT * FROM {self._view(one.earlier, epoch)}")

    def _view(self, one: Answering, epoch: int) -> str:
        """A view of all that a stage answers, which is computed as it is read first."""
        at = one.pipeline.name, epoch
        if at not in self._views:
            rows = self._assigned(one, epoch, self.first, self.last)
            computed = self.spark.sql(one.batch(rows)).localCheckpoint(eager=False)
            self._open.callback(free, computed)
            self._views[at] = self._open.enter_context(viewed(self.spark, computed))
        return self._views[at]
