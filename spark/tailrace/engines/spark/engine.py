"""Run a stream's folds, or a run, on Spark, which is started when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import singledispatch
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.arrivals import arrival, epoch_times
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.claims import KeySide
from tailrace.engines.duckdb.engine import DuckEngine
from tailrace.engines.duckdb.executions.parts_execution import PartsExecution
from tailrace.engines.protocol import AnySide, BundleRecords, EpochState, Side, SteppedRows
from tailrace.engines.spark.bundles import as_frame
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.driver_side import DriverSide
from tailrace.engines.spark.executions.execution import BundlePartials, SparkResult
from tailrace.engines.spark.executions.open_windows import OpenWindows
from tailrace.engines.spark.executions.preparation import prepare, view_frame
from tailrace.engines.spark.follower import Follower
from tailrace.engines.spark.keys import SparkKeys, SparkKeyState
from tailrace.engines.spark.productions import SparkJoin, SparkMap
from tailrace.engines.spark.rows.declared_rows import as_declared
from tailrace.engines.spark.session import Starting, when_needed
from tailrace.engines.spark.side import SparkSide
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError, Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.sql.records.unions import union_records
from tailrace.sql.records.ways import sql_alone
from tailrace.sql.terms import quoted


class SparkEngine:
    """Spark. Bundles are frames, or Arrow tables that become frames. `duck` does small work in this process."""

    def __init__(self, starting: Starting, lake: Lake, duck: DuckEngine) -> None:
        self._started, self.lake, self.duck = when_needed(starting), lake, duck

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which is started on first use."""
        return self._started()

    def side(self, definition: Definition, choice: EngineChoice) -> AnySide:
        """Open the side of a definition with its state on executors."""
        return spark_side(definition, self, choice)

    def first_side(self, definition: Definition, choice: EngineChoice) -> AnySide:
        """Open the first side of a fold: with its windows in this process, the driver, where that is allowed."""
        return driver_side(definition, self, choice) or self.side(definition, choice)

    def side_taking(self, definition: Definition, choice: EngineChoice, bundle: BundleRecords, state: Any) -> AnySide:
        """Open the side to which a fold of this process moves, for a bundle after a state."""
        if (driver := driver_side(definition, self, choice)) is not None:
            if driver.takes(bundle, state):
                return driver
            driver.close()
        return self.side(definition, choice)

    def next_side(self, side: AnySide, definition: Definition, bundle: BundleRecords, state: Any) -> AnySide:
        """Return the side for a fold's next bundle: windows in the driver stay there while they fit."""
        if not isinstance(side, DriverSide) or side.takes(bundle, state):
            return side
        why = "an epoch is not the driver's: by TAILRACE_WINDOWS_IN_DRIVER, TAILRACE_MEMORY or the definition"
        return self.side(definition, EngineChoice(Engine.SPARK, why))

    def session(self, choice: EngineChoice, *, small: bool) -> ClusterSession:
        """Open the session of a run; `small` is True if the run's results would fit into this process."""
        return ClusterSession(self.spark, self.lake, choice, small=small)

    def stepped(self, definition: Ranged, bundle: pa.Table) -> pa.Table:
        """Run a definition's steps on the records of a bundle that is in this process."""
        return prepare(frame_of(self.spark, bundle), definition).toArrow()

    def read(self, log: Log, after: int, until: int) -> DataFrame:
        """Read a log's records of the epochs after `after`, up to and including `until`."""
        table = self.spark.table(self.lake.identifier(log.name))
        return as_declared(self.lake, log, table).where(f"_epoch > {after} AND _epoch <= {until}")

    def united(self, union: Union, bundles: Mapping[str, BundleRecords]) -> DataFrame:
        """Combine the bundles of a union's logs, which are given by the logs' names in the union."""
        with ExitStack() as views:
            frames = {side: as_frame(self.spark, bundle) for side, bundle in bundles.items()}
            names = {side: views.enter_context(view_frame(self.spark, frame)) for side, frame in frames.items()}
            return self.spark.sql(union_records(union, names))

    def arrived(self, log: Arrivals, bundle: BundleRecords, times: Mapping[int, int]) -> DataFrame:
        """Add the time of arrival to the records of a log's bundle; `times` are the processing times of its epochs."""
        known = frame_of(self.spark, epoch_times(times)).hint("broadcast").alias("t")
        frame = as_frame(self.spark, bundle)
        items = [*(f"r.{quoted(name)}" for name in frame.columns), arrival(log)]
        return frame.alias("r").join(known, F.expr("r._epoch = t._epoch"), "left").selectExpr(*items)

    def held(self, bundle: BundleRecords, most: int) -> pa.Table | None:
        """Return a bundle as a table in this process, or None if it has more than `most` records."""
        frame = as_frame(self.spark, bundle)
        return frame.toArrow() if frame.limit(most + 1).count() <= most else None

    def follower(self, pipeline: Pipeline, owner: str) -> Follower:
        """Return the follower that updates the answers from the ledger of a fold."""
        return Follower(self.lake, pipeline, owner, self.duck.database.cursor())


_WindowSide: TypeAlias = Side[BundleRecords, OpenWindows, BundlePartials, SparkResult]
_KeySide: TypeAlias = KeySide[BundleRecords, SparkKeyState, DataFrame, SteppedRows[DataFrame, SparkKeyState]]
_RowSide: TypeAlias = Side[BundleRecords, EpochState, BundleRecords, SteppedRows[DataFrame, EpochState]]
"""The types of the sides of pipelines (`_WindowSide`), computations (`_KeySide`), and maps and joins (`_RowSide`)."""


@singledispatch
def spark_side(definition: Definition, engine: SparkEngine, choice: EngineChoice) -> AnySide:
    """Open the side of a definition with its state on executors: an entry for each kind."""
    raise KindError("side on Spark", definition)


@spark_side.register
def _of_pipeline(definition: Pipeline, engine: SparkEngine, choice: EngineChoice) -> _WindowSide:
    return SparkSide(engine.spark, engine.lake, definition, choice, connection=engine.duck.database.cursor())


@spark_side.register
def _of_computation(definition: Computation, engine: SparkEngine, choice: EngineChoice) -> _KeySide:
    return SparkKeys(engine.spark, engine.lake, definition, choice)


@spark_side.register
def _of_join(definition: Join, engine: SparkEngine, choice: EngineChoice) -> _RowSide:
    return SparkJoin(engine.spark, engine.lake, definition, choice)


@spark_side.register
def _of_map(definition: Map, engine: SparkEngine, choice: EngineChoice) -> _RowSide:
    return SparkMap(engine.spark, engine.lake, definition, choice)


@singledispatch
def driver_side(definition: Definition, engine: SparkEngine, choice: EngineChoice) -> DriverSide | None:
    """Open the side of a definition with its state in this process; None where the state has to be on executors."""
    return None


@driver_side.register
def _windows_here(definition: Pipeline, engine: SparkEngine, choice: EngineChoice) -> DriverSide | None:
    if engine.lake.settings.windows_in_driver == 0 or not sql_alone(definition):
        return None
    execution = PartsExecution(engine.duck.database.cursor(), definition)
    return DriverSide(engine.spark, engine.lake, execution, choice)
