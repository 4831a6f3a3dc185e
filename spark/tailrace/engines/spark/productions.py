"""Run maps and joins on Spark.

This module also defines the base class of all Spark folds of definitions whose output other definitions read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import EngineChoice
from tailrace.engines.protocol import KINDS, BundleRecords, EpochCounts, EpochState, SteppedRows
from tailrace.engines.row_side import JoinSide, MapSide
from tailrace.engines.spark.bundles import as_frame
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.preparation import prepare_bundle, query_frame, view_frame
from tailrace.engines.spark.rows.branch_rows import append
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Windowless
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.model.definition.map import Map
from tailrace.sql.epoch import join_rows, map_rows
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Query, Relation, bracketed


class SparkProducer:
    """The base class of the Spark folds of definitions whose output other definitions read.

    The ledger stores the output rows (productions) of such a definition, unless the definition declares its productions
    as weak. If a reader needs a weak production a second time, the production is computed again.
    """

    definition: Windowless | Computation
    direct = False
    reads_files = False
    weak = False

    def __init__(
        self, spark: SparkSession, lake: Lake, definition: Windowless | Computation, choice: EngineChoice
    ) -> None:
        self.spark, self.lake, self.definition, self.choice = spark, lake, definition, choice
        self.ledger = ledger_name(definition.name)

    def write(self, stepped: SteppedRows[DataFrame, Any], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        kind = F.col("kind")
        counts = ObservedCounts(stepped.rows, *(F.count_if(kind == one).alias(one) for one in KINDS))
        append(counts.rows.where(kind != PRODUCTION) if self.weak else counts.rows, branch, properties)
        return EpochCounts.of_kinds(counts.read())

    def passed(self, stepped: SteppedRows[DataFrame, Any]) -> DataFrame:
        return query_frame(self.spark, stepped.rows, lambda view: productions(self.definition, view))

    def passed_again(self, epoch: int, after: int | None = None) -> DataFrame:
        which = f"epoch > {epoch - 1 if after is None else after}L AND epoch <= {epoch}L"
        rows = Relation(f"(SELECT * FROM {self.lake.spark_name(self.ledger)} WHERE {which})")
        return self.spark.sql(productions(self.definition, rows))


class SparkMap(SparkProducer, MapSide[DataFrame]):
    """The implementation of `Side` that runs maps on Spark.

    The executors compute the map's rows, and write the rows to a branch of the ledger.
    """

    definition: Map

    def made(self, bundle: BundleRecords, clock: Clock, generation: int) -> DataFrame:
        prepared, own = prepare_bundle(as_frame(self.spark, bundle), self.definition), self.definition
        rows = query_frame(self.spark, prepared.records, lambda view: map_rows.of_epoch(own, view, clock, generation))
        if prepared.rejected is None:
            return rows
        gone = query_frame(self.spark, prepared.rejected, lambda view: map_rows.of_rejected(own, view, clock))
        return rows.unionAll(gone)


class SparkJoin(SparkProducer, JoinSide[DataFrame]):
    """The implementation of `Side` that runs joins on Spark.

    This class keeps no records in memory: in each epoch, it reads possible partners from the join's logs.
    """

    definition: Join

    def step(self, state: EpochState, consumed: BundleRecords, clock: Clock) -> SteppedRows[DataFrame, EpochState]:
        clock.after(state.clock)
        with ExitStack() as views:
            session = views.enter_context(closing(ClusterSession(self.spark, self.lake, self.choice, small=False)))
            bundle = views.enter_context(view_frame(self.spark, as_frame(self.spark, consumed)))
            # A join that can retract pairs reads each relation several times, so the relations are materialized.
            named = session.materialized if self.definition.takes_back else bracketed

            def name(side: str, kind: str, text: Query) -> Relation:
                return named(text)

            if state.clock is None:
                kept = {side: join_rows.no_entries(self.definition, bundle, side) for side in SIDES}
            else:
                kept = self.held(session, state.clock)
            held = {side: named(text) for side, text in kept.items()}
            text, _ = join_rows.epoch_rows(
                self.definition, bundle, held, name, clock, state.watermark, state.generation
            )
            # The rows are checkpointed, because the relations that the query reads are dropped before the rows are
            # written.
            rows = session.frame(text).localCheckpoint()
        return SteppedRows(rows, EpochState(clock, state.generation))
