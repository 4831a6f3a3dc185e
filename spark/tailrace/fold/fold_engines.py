"""Choose the engine of each fold of a stream: DuckDB while its work fits this process, then Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tailrace.engines.batch.arrivals import UNKNOWN, arrival, epoch_times
from tailrace.engines.batch.log_records import streamed
from tailrace.engines.choose import Bounds, Engine, EngineChoice
from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.database.scans import as_declared, scanned
from tailrace.engines.duckdb.executions.compiler import executed
from tailrace.engines.duckdb.executions.parts_execution import PartsExecution
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.duckdb.keys import DuckKeys
from tailrace.engines.duckdb.map_step import DuckMap
from tailrace.engines.duckdb.pairs import DuckJoin
from tailrace.engines.duckdb.side import DuckSide
from tailrace.engines.protocol import Side
from tailrace.engines.spark.driver_side import DriverSide, suits_driver
from tailrace.engines.spark.executions.preparation import prepare, viewed
from tailrace.engines.spark.follower import Follower
from tailrace.engines.spark.keys import SparkKeys
from tailrace.engines.spark.map_step import SparkMap
from tailrace.engines.spark.pairs import SparkJoin
from tailrace.engines.spark.rows.declared_rows import as_declared as as_declared_frame
from tailrace.engines.spark.session import Starting, when_needed
from tailrace.engines.spark.side import Bundled, SparkSide, as_frame
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.worker_queries import WORTH
from tailrace.fold.fold import PassedEpoch
from tailrace.ingest.plain_columns import row_bytes
from tailrace.ingest.room import Room
from tailrace.ingest.sources import Files, Sized, Source
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.answers_merge import Following
from tailrace.lake.schema.filters import above, at_most, every
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.base.clock import Clock
from tailrace.model.definition.chain import Definition, Ranged
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import least
from tailrace.sql.records.selections import needs_spark
from tailrace.sql.records.unions import united
from tailrace.sql.terms import Relation, quoted


def _to_read(source: Source, sized: Sized, read: Mapping[str, str], before: Mapping[str, str]) -> int:
    """Return the bytes of an epoch's files; estimate those of messages."""
    if isinstance(source, Files):
        return sum(sized())
    return _MESSAGE * between(before.get("offset", ""), read["offset"])


class Sides:
    """The engines of one stream. All of its folds on DuckDB share one database."""

    def __init__(self, spark: Starting, lake: Lake) -> None:
        self._spark, self.lake = when_needed(spark), lake
        self.bounds = Bounds.of(lake.settings)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when it is first needed."""
        return self._spark()

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB database of this process, opened when it is first needed."""
        return connect(self.lake.settings)

    def close(self) -> None:
        """Close the database, and with it every connection to it."""
        if (opened := self.__dict__.pop("database", None)) is not None:
            opened.close()

    def takes(self, source: Source, sized: Sized, read: Mapping[str, str], before: Mapping[str, str]) -> bool:
        """Tell whether DuckDB may take an epoch, by the bytes that are to be read of it; see `room`.

        `read` says up to which offset the epoch reads its source, `before` what the epoch before it said.
        """
        if self.bounds.engine is not None or self.bounds.records is None:
            return self.bounds.holds()
        return _to_read(source, sized, read, before) <= self.bounds.records

    def brings(self, source: Source, sized: Sized, read: Mapping[str, str], before: Mapping[str, str]) -> bool:
        """Tell whether this process reads an epoch for Spark, which the settings name, since it is small; see `takes`.

        To plan Spark's reading and landing of a few records takes longer than doing both here.
        """
        return self.bounds.engine is Engine.SPARK and _to_read(source, sized, read, before) <= BROUGHT

    def room(self, files: Sequence[str], sized: Sized) -> Room:
        """Return the room in this process for the records of an epoch's files, which is known once they are read."""
        return Room() if self._room is None else Room(self._room, dict(zip(files, sized(), strict=True)))

    @property
    def _room(self) -> int | None:
        """The bytes that records may take here; None: however many. To plan Spark's reading of a few takes longer."""
        return BROUGHT if self.bounds.engine is Engine.SPARK else self.bounds.records

    def logged(self, log: Log, after: int, until: int) -> Bundled:
        """Read the log's records of the epochs after one up to another, on the engine that takes so many."""
        where = every(above("_epoch", after), at_most("_epoch", until))
        files = [task.file for task in self.lake.table(log.name).scan(row_filter=where).plan_files()]
        # Rows that repeat take next to nothing in files.
        rows_take = row_bytes(log, "") * sum(file.record_count for file in files)
        size = max(_PACKED * sum(file.file_size_in_bytes for file in files), rows_take)
        if self._room is None or size <= self._room:
            own = self.database.cursor()
            with scanned(own, self.lake, log.name, where) as rows:
                within = Relation(f"{rows} WHERE _epoch > {after} AND _epoch <= {until}")
                return own.execute(as_declared(self.lake, log, within)).to_arrow_table()
        table = self.spark.table(self.lake.identifier(log.name))
        return as_declared_frame(self.lake, log, table).where(f"_epoch > {after} AND _epoch <= {until}")

    def held(self, bundle: Bundled, most: int) -> pa.Table | None:
        """Return a bundle as a table in this process; None where it has more than `most` records."""
        if isinstance(bundle, pa.Table):
            return bundle if bundle.num_rows <= most else None
        frame = as_frame(self.spark, bundle)
        return frame.toArrow() if frame.limit(most + 1).count() <= most else None

    def together(self, union: Union, passed: Mapping[str, PassedEpoch]) -> PassedEpoch:
        """Make an epoch of a union of that of each of its logs, by the logs' names in the union (rule T3)."""
        epochs = list(passed.values())
        onward = least((one.onward, one.idle) for one in epochs)
        signals = tuple(sorted({name for one in epochs for name in one.clock.signals}))
        now = max(one.clock.processing_time for one in epochs)
        bundle = self._united(union, {side: one.bundle for side, one in passed.items()})
        return PassedEpoch(bundle, Clock(epochs[0].clock.epoch, onward, now, signals), onward)

    def arrived(self, log: Arrivals, passed: PassedEpoch, of: Mapping[int, int] | None = None) -> PassedEpoch:
        """Make an epoch of a log by arrival of that of the log; `of` has the processing times of several epochs."""
        now = passed.clock.processing_time
        at = {passed.clock.epoch: now} if of is None else of
        bundle = passed.bundle
        if isinstance(bundle, pa.Table):
            epochs = bundle["_epoch"].combine_chunks().dictionary_encode()
            if unknown := set(epochs.dictionary.to_pylist()) - at.keys():
                raise LakeError(f"{UNKNOWN}: log {log.of.name}, epoch {min(unknown)}")
            arrivals = pa.array([at[epoch] for epoch in epochs.dictionary.to_pylist()], pa.timestamp("us", "UTC"))
            bundle = bundle.append_column(log.event_time, arrivals.take(epochs.indices))
        else:
            times = frame_of(self.spark, epoch_times(at)).hint("broadcast").alias("t")
            frame = as_frame(self.spark, bundle)
            items = [*(f"r.{quoted(name)}" for name in frame.columns), arrival(log)]
            bundle = frame.alias("r").join(times, F.expr("r._epoch = t._epoch"), "left").selectExpr(*items)
        return PassedEpoch(bundle, replace(passed.clock, watermark=now), now)

    def _united(self, union: Union, bundles: Mapping[str, Bundled]) -> Bundled:
        with ExitStack() as views:
            if all(isinstance(bundle, pa.Table) for bundle in bundles.values()):
                own = views.enter_context(closing(self.database.cursor()))
                names = {side: views.enter_context(registered(own, bundle)) for side, bundle in bundles.items()}
                return own.execute(in_duckdb_once(united(union, names))).to_arrow_table()
            frames = {side: as_frame(self.spark, bundle) for side, bundle in bundles.items()}
            names = {side: views.enter_context(viewed(self.spark, frame)) for side, frame in frames.items()}
            return self.spark.sql(united(union, names))

    def first(self, definition: Definition) -> Side:
        """Open the side that a fold begins on, on the engine chosen for it."""
        choice = self.bounds.for_stream(definition)
        driver = self._by_driver(definition, choice) if choice.engine is Engine.SPARK else None
        return driver or self._on(definition, choice)

    def reader(self, definition: Definition) -> Side:
        """Open the side that reads the ledger of a definition that another stream folds."""
        return self._on(definition, self.bounds.for_stream(definition))

    def _on(self, definition: Definition, choice: EngineChoice) -> Side:
        """Open a side on the chosen engine; on Spark, one whose windows the executors have."""
        return (self._by_executors if choice.engine is Engine.SPARK else self._here)(definition, choice)

    def _here(self, definition: Definition, choice: EngineChoice) -> Side:
        connection = self.database.cursor()
        if isinstance(definition, Computation):
            return DuckKeys(connection, self.lake, definition, choice)
        steps = partial(self._by_spark, definition) if needs_spark(definition) else None
        if isinstance(definition, Join):
            return DuckJoin(connection, self.lake, definition, choice, streamed)
        if isinstance(definition, Map):
            return DuckMap(connection, self.lake, definition, choice, steps)
        return DuckSide(self.lake, executed(connection, definition, steps), choice)

    def _by_executors(self, definition: Definition, choice: EngineChoice) -> Side:
        if isinstance(definition, Computation):
            return SparkKeys(self.spark, self.lake, definition, choice)
        if isinstance(definition, Join):
            return SparkJoin(self.spark, self.lake, definition, choice, streamed)
        if isinstance(definition, Map):
            return SparkMap(self.spark, self.lake, definition, choice)
        return SparkSide(self.spark, self.lake, definition, choice, connection=self.database.cursor())

    def _by_driver(self, definition: Definition, choice: EngineChoice) -> DriverSide | None:
        """Open a side on Spark that has its windows in this process; None where they are the executors' in any case."""
        if self.lake.settings.windows_in_driver == 0 or not suits_driver(definition):
            return None
        return DriverSide(self.spark, self.lake, PartsExecution(self.database.cursor(), definition), choice)

    def _by_spark(self, pipeline: Ranged, bundle: pa.Table) -> pa.Table:
        """Take a bundle's records through steps that are written for Spark."""
        return prepare(frame_of(self.spark, bundle), pipeline).toArrow()

    def next(self, side: Side, definition: Definition, bundle: Bundled, state: Any) -> Side:
        """Return the side that takes a fold's next bundle: once it is Spark's, it stays so until a restart.

        Windows that are in this process stay there while they fit, though executors add up the records.
        """
        if isinstance(side, DriverSide):
            if side.takes(bundle, state):
                return side
            why = "an epoch is not the driver's: by TAILRACE_WINDOWS_IN_DRIVER, TAILRACE_MEMORY or the definition"
            return self._by_executors(definition, EngineChoice(Engine.SPARK, why))
        if not side.direct:
            return side
        if not isinstance(bundle, pa.Table):
            choice = EngineChoice(
                Engine.SPARK, f"an epoch's records are more than a quarter of TAILRACE_MEMORY, {self.bounds.limit}"
            )
            driver = self._by_driver(definition, choice)
            if driver is not None:
                if driver.takes(bundle, state):
                    return driver
                driver.close()
            return self._by_executors(definition, choice)
        if not self.bounds.holds(rows=state.count):
            what = next((text for kind, text in _KEPT.items() if isinstance(definition, kind)), "windows are open")
            why = f"{state.count:,} {what}, too many for TAILRACE_MEMORY, {self.bounds.limit}"
            return self._by_executors(definition, EngineChoice(Engine.SPARK, why))
        return side

    def beside(self, definition: Definition, bundle: Bundled) -> Side:
        """Open a side that takes one bundle, beside the fold's own side."""
        side = self.first(definition)
        if not side.direct or isinstance(bundle, pa.Table):
            return side
        side.close()
        return self._by_executors(definition, side.choice)

    def follower(self, pipeline: Pipeline, owner: str, side: Side) -> Following:
        """Return the follower that keeps the answers up with the ledger of a fold."""
        if side.direct:
            return ProcessFollower(self.database.cursor(), self.lake, pipeline, owner)
        return Follower(self.lake, pipeline, owner, self.database.cursor())


_KEPT: dict[type, str] = {Computation: "keys are kept", Join: "records are kept"}
"""The words for the number in the state of a definition, where it is not windows that are open."""

_PACKED = 6
"""The factor by which the content of a Parquet file may be larger in memory than the file."""

BROUGHT = _PACKED * WORTH
"""The bytes in memory of an epoch that this process reads for Spark: too few for the executors' Python."""

_MESSAGE = 1_000
"""The number of bytes that a message of a topic is taken to have."""


def between(before: str, until: str) -> int:
    """Count the messages between two offsets of a topic's partitions.

    >>> between('{"clicks":{"0":3}}', '{"clicks":{"0":7,"1":2}}')
    6
    """
    first, last = _offsets(before), _offsets(until)
    return sum(at - first.get(partition, 0) for partition, at in last.items())


def _offsets(text: str) -> dict[tuple[str, str], int]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    topics = data.items() if isinstance(data, dict) else ()
    return {(topic, one): at for topic, of in topics if isinstance(of, dict) for one, at in of.items()}
