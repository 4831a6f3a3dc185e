"""Execute a stream's folds, or a single run such as a backfill, on Spark. Spark is started when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The engine that runs Spark. Bundles are data frames or Arrow tables.

    `duck` is the DuckDB engine, which processes small amounts of data in this process.
    """

    def __init__(self, starting: Starting, lake: Lake, duck: DuckEngine) -> None:
        self._started, self.lake, self.duck = when_needed(starting), lake, duck

    @property
    def spark(self) -> SparkSession:
        """The Spark session. The first access starts Spark."""
        return self._started()

    def side(self, definition: Definition, choice: EngineChoice) -> AnySide:
        """Create the `Side` that folds a definition on Spark and keeps the state on the executors."""
        return spark_side(definition, self, choice)

    def first_side(self, definition: Definition, choice: EngineChoice) -> AnySide:
        """Create the first `Side` of a fold that starts on Spark.

        The fold's windows are in this process, which is Spark's driver, if the definition allows this. Otherwise the
        windows are on the executors.
        """
        return driver_side(definition, self, choice) or self.side(definition, choice)

    def side_taking(self, definition: Definition, choice: EngineChoice, bundle: BundleRecords, state: Any) -> AnySide:
        """Create the `Side` on Spark for a fold that moves from DuckDB to Spark.

        `bundle` is the next bundle of the fold, and `state` is the fold's state before this bundle.
        """
        if (driver := driver_side(definition, self, choice)) is not None:
            if driver.takes(bundle, state):
                return driver
            driver.close()
        return self.side(definition, choice)

    def next_side(self, side: AnySide, definition: Definition, bundle: BundleRecords, state: Any) -> AnySide:
        """Return the `Side` that processes a fold's next bundle.

        If the fold's windows are in the driver, they stay there as long as they fit into the driver's memory. After
        that, they move to the executors.
        """
        if not isinstance(side, DriverSide) or side.takes(bundle, state):
            return side
        why = "an epoch is not the driver's: by TAILRACE_WINDOWS_IN_DRIVER, TAILRACE_MEMORY or the definition"
        return self.side(definition, EngineChoice(Engine.SPARK, why))

    def session(self, choice: EngineChoice, *, small: bool) -> ClusterSession:
        """Open the session of a run. `small` is true if the run's results would fit into this process."""
        return ClusterSession(self.spark, self.lake, choice, small=small)

    def stepped(self, definition: Ranged, bundle: pa.Table) -> pa.Table:
        """Run a definition's steps on Spark for a bundle that is in this process, and return the resulting records."""
        return prepare(frame_of(self.spark, bundle), definition).toArrow()

    def read(self, log: Log, after: int, until: int) -> DataFrame:
        """Read a log's records of the epochs after `after`, up to and including `until`."""
        table = self.spark.table(self.lake.identifier(log.name))
        return as_declared(self.lake, log, table).where(f"_epoch > {after} AND _epoch <= {until}")

    def united(self, union: Union, bundles: Mapping[str, BundleRecords]) -> DataFrame:
        """Combine the bundles of a union's logs into one data frame.

        `bundles` is keyed by the name of each log in the union.
        """
        with ExitStack() as views:
            frames = {side: as_frame(self.spark, bundle) for side, bundle in bundles.items()}
            names = {side: views.enter_context(view_frame(self.spark, frame)) for side, frame in frames.items()}
            return self.spark.sql(union_records(union, names))

    def without(self, bundle: BundleRecords, columns: Sequence[str]) -> DataFrame:
        """Return a bundle without some of its columns."""
        return as_frame(self.spark, bundle).drop(*columns)

    def arrived(self, log: Arrivals, bundle: BundleRecords, times: Mapping[int, int]) -> DataFrame:
        """Add the arrival time to the records of a log's bundle. `times` maps each epoch to its processing time."""
        known = frame_of(self.spark, epoch_times(times)).hint("broadcast").alias("t")
        frame = as_frame(self.spark, bundle)
        items = [*(f"r.{quoted(name)}" for name in frame.columns), arrival(log)]
        return frame.alias("r").join(known, F.expr("r._epoch = t._epoch"), "left").selectExpr(*items)

    def held(self, bundle: BundleRecords, most: int) -> pa.Table | None:
        """Return a bundle as a table in this process, or None if the bundle has more than `most` records."""
        frame = as_frame(self.spark, bundle)
        return frame.toArrow() if frame.limit(most + 1).count() <= most else None

    def follower(self, pipeline: Pipeline, owner: str) -> Follower:
        """Return the follower that updates a pipeline's answers from its ledger."""
        return Follower(self.lake, pipeline, owner, self.duck.database.cursor())


_WindowSide: TypeAlias = Side[BundleRecords, OpenWindows, BundlePartials, SparkResult]
_KeySide: TypeAlias = KeySide[BundleRecords, SparkKeyState, DataFrame, SteppedRows[DataFrame, SparkKeyState]]
_RowSide: TypeAlias = Side[BundleRecords, EpochState, BundleRecords, SteppedRows[DataFrame, EpochState]]
"""The types of `Side` on Spark.

The types are `_WindowSide` for pipelines, `_KeySide` for computations, and `_RowSide` for maps and joins.
"""


@singledispatch
def spark_side(definition: Definition, engine: SparkEngine, choice: EngineChoice) -> AnySide:
    """Create the `Side` that folds a definition on Spark and keeps the state on the executors.

    Each kind of definition registers its own function.
    """
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
    """Create the `Side` that folds a definition on Spark and keeps the state in this process.

    Returns None if the state has to be on the executors.
    """
    return None


@driver_side.register
def _windows_here(definition: Pipeline, engine: SparkEngine, choice: EngineChoice) -> DriverSide | None:
    if engine.lake.settings.windows_in_driver == 0 or not sql_alone(definition):
        return None
    execution = PartsExecution(engine.duck.database.cursor(), definition)
    return DriverSide(engine.spark, engine.lake, execution, choice)
