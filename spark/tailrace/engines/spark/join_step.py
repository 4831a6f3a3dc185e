"""A join of a stream on Spark: nothing is kept, an epoch reads the records that may meet its own from the logs."""

from __future__ import annotations

from contextlib import ExitStack, closing

from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.choose import EngineChoice
from tailrace.engines.join_side import JoinSide
from tailrace.engines.row_side import RowState, SteppedRows
from tailrace.engines.spark.bundles import Bundled, as_frame
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.executions.preparation import viewed
from tailrace.engines.spark.productions import SparkRows
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Query, Relation, bracketed


class SparkJoin(SparkRows, JoinSide[DataFrame]):
    """A join on Spark, for large work."""

    def __init__(self, spark: SparkSession, lake: Lake, join: Join, choice: EngineChoice) -> None:
        super().__init__(lake, join, choice)
        self.spark = spark

    def step(self, state: RowState, consumed: Bundled, clock: Clock) -> SteppedRows[DataFrame]:
        clock.after(state.clock)
        before, after = state.watermark, clock.watermark
        with ExitStack() as views:
            session = views.enter_context(closing(ClusterSession(self.spark, self.lake, self.choice, small=False)))
            bundle = views.enter_context(viewed(self.spark, as_frame(self.spark, consumed)))
            # Of a join that takes back, each relation is read several times.
            named = session.materialized if self.join.takes_back else bracketed
            late, left_out = join_rows.too_late(self.join, before), list[Query]()
            held, gone, stay, new = (dict[str, Relation]() for _ in range(4))
            kept = {} if state.clock is None else self.held(session, state.clock)
            for side in SIDES:
                came = named(join_rows.entries(self.join, bundle, side))
                good, bad = (Relation(f"(SELECT * FROM {came} WHERE {which})") for which in (f"NOT ({late})", late))
                left_out.append(join_rows.of_late(self.join, side, bad, clock, before))
                if self.join.set_aside:
                    left_out.append(join_rows.of_set_aside(self.join, side, bundle, clock))
                new[side] = named(join_rows.added(self.join, side, good))
                held[side] = named(kept.get(side, Query(f"SELECT * FROM {new[side]} WHERE false")))
                stay[side] = held[side]
                if self.join.side(side).takes_back:
                    gone[side] = named(join_rows.taken_back(self.join, side, good))
                    stay[side] = named(join_rows.stays(self.join, side, held[side], gone[side]))
            found = join_rows.given(self.join, join_rows.Moved(held, gone, stay, new), before, after)
            texts = [*left_out, join_rows.of_epoch(self.join, found, clock, state.generation)]
            # Checkpointed, as the relations that it reads are gone when it is written.
            rows = session.frame(Query(" UNION ALL ".join(texts))).localCheckpoint()
        return SteppedRows(rows, RowState(clock, state.generation))
