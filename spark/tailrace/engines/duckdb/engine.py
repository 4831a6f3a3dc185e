"""Run the folds of a stream, or a single run such as a backfill, on DuckDB in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial, singledispatch
from typing import TypeAlias

import duckdb
import pyarrow as pa

from tailrace.engines.arrivals import UNKNOWN
from tailrace.engines.choose import EngineChoice, in_bytes
from tailrace.engines.claims import KeySide
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.database.scans import as_declared, scan_table
from tailrace.engines.duckdb.executions.execution import DuckResult
from tailrace.engines.duckdb.executions.preparation import DuckBundle, Steps
from tailrace.engines.duckdb.executions.shared_work import SharedWork
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.duckdb.keys import DuckKeys, DuckKeyState
from tailrace.engines.duckdb.productions import DuckJoin, DuckMap
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.duckdb.side import DuckSide, execution_of
from tailrace.engines.protocol import (
    AnySide,
    BundleRecords,
    EpochState,
    RecordFiles,
    Side,
    SteppedRows,
    as_table,
)
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.filters import above, at_most, every
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError, Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.sql.records.selections import needs_spark
from tailrace.sql.records.unions import union_records
from tailrace.sql.terms import Relation


class DuckEngine:
    """The engine that runs DuckDB in this process. Bundles are Arrow tables. All folds of a stream share one database.

    `by_spark` is a function that runs a definition's steps on a bundle's records if the steps are written for Spark.
    """

    def __init__(self, lake: Lake, by_spark: Callable[[Ranged, pa.Table], pa.Table] | None = None) -> None:
        self.lake, self._by_spark = lake, by_spark
        self.shared = SharedWork(in_bytes(lake.settings.memory) // 4)
        self._threads = lake.settings.threads

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """The database. The first access opens the database."""
        return connect(self.lake.settings)

    def compute_on(self, threads: int) -> None:
        """Compute each query of the database on at most this number of threads from now on."""
        if threads != self._threads:
            with self.database.cursor() as own:
                own.execute(f"SET threads = {threads}")
            self._threads = threads

    def close(self) -> None:
        """Close the database and all its connections."""
        if (opened := self.__dict__.pop("database", None)) is not None:
            opened.close()

    def side(self, definition: Definition, choice: EngineChoice) -> AnySide:
        """Create the `Side` that runs a definition's fold in this process."""
        return duck_side(definition, self, choice)

    def session(self, choice: EngineChoice, threads: int | None = None) -> DuckSession:
        """Open the session of a run on a new database.

        The database uses `threads` threads, or `TAILRACE_THREADS` threads if `threads` is None.
        """
        return DuckSession(self.lake, choice, threads=threads)

    def steps(self, definition: Ranged) -> Steps | None:
        """Return the function that runs a definition's steps on Spark, or None if DuckDB can run them."""
        if self._by_spark is None or not needs_spark(definition):
            return None
        return partial(self._by_spark, definition)

    def read(self, log: Log, after: int, until: int) -> pa.Table:
        """Read a log's records from epochs greater than `after`, up to and including `until`."""
        own = self.database.cursor()
        with scan_table(own, self.lake, log.name, every(above("_epoch", after), at_most("_epoch", until))) as rows:
            within = Relation(f"{rows} WHERE _epoch > {after} AND _epoch <= {until}")
            return own.execute(as_declared(self.lake, log, within)).to_arrow_table()

    def united(self, union: Union, bundles: Mapping[str, BundleRecords]) -> pa.Table:
        """Combine the bundles of a union's logs into one bundle.

        `bundles` is keyed by the name of each log in the union.
        """
        with self.database.cursor() as own, ExitStack() as there:
            names = {side: there.enter_context(register(own, as_table(bundle))) for side, bundle in bundles.items()}
            return own.execute(in_duckdb_once(union_records(union, names))).to_arrow_table()

    def without(self, bundle: BundleRecords, columns: Sequence[str]) -> BundleRecords:
        """Return a bundle without some of its columns."""
        if isinstance(bundle, RecordFiles):
            return replace(bundle, columns=tuple(name for name in bundle.columns if name not in columns))
        return as_table(bundle).drop_columns(list(columns))

    def arrived(self, log: Arrivals, bundle: BundleRecords, times: Mapping[int, int]) -> pa.Table:
        """Add the arrival time to the records of a log's bundle. `times` maps each epoch to its processing time."""
        bundle = as_table(bundle)
        epochs = bundle["_epoch"].combine_chunks().dictionary_encode()
        if unknown := set(epochs.dictionary.to_pylist()) - times.keys():
            raise LakeError(f"{UNKNOWN}: log {log.of.name}, epoch {min(unknown)}")
        arrivals = pa.array([times[epoch] for epoch in epochs.dictionary.to_pylist()], pa.timestamp("us", "UTC"))
        return bundle.append_column(log.event_time, arrivals.take(epochs.indices))

    def held(self, bundle: BundleRecords, most: int) -> pa.Table | None:
        """Return a bundle as a table in this process, or None if the bundle has more than `most` records."""
        if isinstance(bundle, RecordFiles) and bundle.num_rows > most:
            return None
        rows = as_table(bundle)
        return rows if rows.num_rows <= most else None

    def follower(self, pipeline: Pipeline, owner: str) -> ProcessFollower:
        """Return the follower that updates a pipeline's answers from its ledger."""
        return ProcessFollower(self.database.cursor(), self.lake, pipeline, owner)


_WindowSide: TypeAlias = Side[pa.Table, EpochState, DuckBundle, DuckResult]
_KeySide: TypeAlias = KeySide[pa.Table, DuckKeyState, pa.Table, SteppedRows[pa.Table, DuckKeyState]]
_RowSide: TypeAlias = Side[pa.Table, EpochState, pa.Table, SteppedRows[pa.Table, EpochState]]
"""The types of `Side` on DuckDB.

The types are `_WindowSide` for pipelines, `_KeySide` for computations, and `_RowSide` for maps and joins.
"""


@singledispatch
def duck_side(definition: Definition, engine: DuckEngine, choice: EngineChoice) -> AnySide:
    """Create the `Side` that folds a definition on DuckDB.

    Each kind of definition registers its own function.
    """
    raise KindError("side on DuckDB", definition)


@duck_side.register
def _of_pipeline(definition: Pipeline, engine: DuckEngine, choice: EngineChoice) -> _WindowSide:
    execution = execution_of(engine.database.cursor(), definition, engine.steps(definition))
    execution.share(engine.shared)
    return DuckSide(engine.lake, execution, choice)


@duck_side.register
def _of_computation(definition: Computation, engine: DuckEngine, choice: EngineChoice) -> _KeySide:
    return DuckKeys(engine.database.cursor(), engine.lake, definition, choice)


@duck_side.register
def _of_join(definition: Join, engine: DuckEngine, choice: EngineChoice) -> _RowSide:
    return DuckJoin(engine.database.cursor(), engine.lake, definition, choice)


@duck_side.register
def _of_map(definition: Map, engine: DuckEngine, choice: EngineChoice) -> _RowSide:
    return DuckMap(engine.database.cursor(), engine.lake, definition, choice, engine.steps(definition))
