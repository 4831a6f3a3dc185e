"""A join of a stream on Spark: nothing is kept, an epoch reads the records that may meet its own from the logs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import EngineChoice
from tailrace.engines.join_side import JoinKept, JoinSide, SteppedJoin, Streamed
from tailrace.engines.protocol import EpochCounts
from tailrace.engines.spark.branch_rows import append
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.preparation import queried, viewed
from tailrace.engines.spark.side import Bundled, as_frame
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import SIDES, Join
from tailrace.sql.epoch import join_rows
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Relation, bracketed


class SparkJoin(JoinSide[DataFrame]):
    """A join on Spark, for large work."""

    direct = False

    def __init__(self, spark: SparkSession, lake: Lake, join: Join, choice: EngineChoice, streamed: Streamed) -> None:
        super().__init__(lake, join, choice, streamed)
        self.spark = spark

    def nothing(self, generation: int) -> JoinKept:
        return JoinKept(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> JoinKept:
        return JoinKept(clock, generation)

    def step(self, state: JoinKept, consumed: Bundled, clock: Clock) -> SteppedJoin[DataFrame]:
        clock.after(state.clock)
        before, after = state.watermark, clock.watermark
        with ExitStack() as views:
            session = views.enter_context(closing(ClusterSession(self.spark, self.lake, self.choice, small=False)))
            bundle = views.enter_context(viewed(self.spark, as_frame(self.spark, consumed)))
            came = {side: bracketed(join_rows.entries(self.join, bundle, side)) for side in SIDES}
            late = join_rows.too_late(self.join, before)
            new = {side: Relation(f"(SELECT * FROM {came[side]} WHERE NOT ({late}))") for side in SIDES}
            held = {side: Relation(f"(SELECT * FROM {came[side]} WHERE false)") for side in SIDES}
            if state.clock is not None:
                held = {side: bracketed(text) for side, text in self.held(session, state.clock).items()}
            texts = [
                join_rows.of_late(
                    self.join, side, Relation(f"(SELECT * FROM {came[side]} WHERE {late})"), clock, before
                )
                for side in SIDES
            ]
            found = join_rows.given(self.join, new, held, before, after)
            texts.append(join_rows.of_epoch(self.join, found, clock, state.generation))
            # Checkpointed, as the relations that it reads are gone when it is written.
            rows = self.spark.sql(" UNION ALL ".join(texts)).localCheckpoint()
        return SteppedJoin(rows, JoinKept(clock, state.generation))

    def write(self, stepped: SteppedJoin[DataFrame], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        kinds = {"productions": PRODUCTION, "late": LATE}
        counts = ObservedCounts(
            stepped.rows, *(F.count_if(F.col("kind") == kind).alias(name) for name, kind in kinds.items())
        )
        append(counts.rows, branch, properties)
        return EpochCounts(**counts.read())

    def passed(self, stepped: SteppedJoin[DataFrame]) -> DataFrame:
        return queried(self.spark, stepped.rows, lambda view: productions(self.join, view))

    def passed_again(self, epoch: int) -> DataFrame:
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE epoch = {epoch}L)")
        return self.spark.sql(productions(self.join, rows))

    def close(self) -> None:
        """Do nothing: nothing is held."""
