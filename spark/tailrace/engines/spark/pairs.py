"""A join of a stream on Spark: nothing is kept, an epoch reads the records that may meet its own from the logs."""

from __future__ import annotations

from contextlib import ExitStack, closing

from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.choose import EngineChoice
from tailrace.engines.join_side import JoinSide, Streamed
from tailrace.engines.row_side import RowState, SteppedRows
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.executions.preparation import viewed
from tailrace.engines.spark.productions import SparkRows
from tailrace.engines.spark.side import Bundled, as_frame
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_sides import SIDES
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Relation, bracketed


class SparkJoin(SparkRows, JoinSide[DataFrame]):
    """A join on Spark, for large work."""

    def __init__(self, spark: SparkSession, lake: Lake, join: Join, choice: EngineChoice, streamed: Streamed) -> None:
        super().__init__(lake, join, choice, streamed)
        self.spark = spark

    def step(self, state: RowState, consumed: Bundled, clock: Clock) -> SteppedRows[DataFrame]:
        clock.after(state.clock)
        before, after = state.watermark, clock.watermark
        with ExitStack() as views:
            session = views.enter_context(closing(ClusterSession(self.spark, self.lake, self.choice, small=False)))
            bundle = views.enter_context(viewed(self.spark, as_frame(self.spark, consumed)))
            came = {side: bracketed(join_rows.entries(self.join, bundle, side)) for side in SIDES}
            late = join_rows.too_late(self.join, before)
            good = {side: Relation(f"(SELECT * FROM {came[side]} WHERE NOT ({late}))") for side in SIDES}
            new = {side: bracketed(join_rows.added(self.join, side, good[side])) for side in SIDES}
            gone = {side: bracketed(join_rows.taken_back(self.join, side, good[side])) for side in SIDES}
            held = {side: Relation(f"(SELECT * FROM {new[side]} WHERE false)") for side in SIDES}
            if state.clock is not None:
                held = {side: bracketed(text) for side, text in self.held(session, state.clock).items()}
            texts = [
                join_rows.of_late(
                    self.join, side, Relation(f"(SELECT * FROM {came[side]} WHERE {late})"), clock, before
                )
                for side in SIDES
            ]
            stay = {side: bracketed(join_rows.stays(self.join, side, held[side], gone[side])) for side in SIDES}
            found = join_rows.given(self.join, join_rows.Moved(held, gone, stay, new), before, after)
            texts.append(join_rows.of_epoch(self.join, found, clock, state.generation))
            # Checkpointed, as the relations that it reads are gone when it is written.
            rows = self.spark.sql(" UNION ALL ".join(texts)).localCheckpoint()
        return SteppedRows(rows, RowState(clock, state.generation))
