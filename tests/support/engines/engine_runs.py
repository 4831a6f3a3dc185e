"""The engines as the tests of their laws use them: each folds a definition over records, and returns ledger rows.

One function folds a definition on any engine (`EngineRuns.said`), so each law is one test with the engine as parameter.
"""

from __future__ import annotations

import gc
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.backfill.open_windows_correction import OpenWindowsCorrection, PythonCorrection
from tailrace.engines.batch.batch_answers import Answering, PythonAnswering, answering
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.database.shares import SHARE_COLUMN, check_shares, in_shares, with_share
from tailrace.engines.duckdb.executions import sql_execution
from tailrace.engines.duckdb.executions.parts_execution import PartsExecution
from tailrace.engines.duckdb.executions.preparation import DuckBundle
from tailrace.engines.duckdb.executions.python_execution import PythonExecution
from tailrace.engines.duckdb.executions.sql_execution import AssignedExecution, SqlExecution
from tailrace.engines.duckdb.keys import DuckKeys
from tailrace.engines.duckdb.productions import MapExecution
from tailrace.engines.duckdb.side import execution_of as duck_execution
from tailrace.engines.protocol import EpochState
from tailrace.engines.session_protocol import Session
from tailrace.engines.spark.executions import per_key
from tailrace.engines.spark.executions.native import Native
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.engines.spark.executions.preparation import query_frame
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.keys import SparkKeys
from tailrace.engines.spark.productions import SparkMap
from tailrace.engines.spark.side import execution_of as spark_execution
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.step import Record
from tailrace.settings import Settings
from tailrace.sql.records.stage_records import changes
from tailrace.sql.records.ways import Way, way
from tailrace.sql.terms import Query, Relation
from tests.support.cases.computations import Machine
from tests.support.cases.strategies import Told, each_time_the_same
from tests.support.depth import cases, deep
from tests.support.engines.key_tables import KeysAsTables
from tests.support.engines.sessions import cluster, in_process
from tests.support.engines.spark_runs import Said, arrow_bundle, said_by_rows

CONNECTION = connect(Settings(memory="1GB"))
"""One database for all tests of a process: each execution's tables have names of their own."""


class EngineRuns(ABC):
    """An engine, or a way in which it executes. The executions' states and bundles are of the engine's own types."""

    correction: Callable[..., OpenWindowsCorrection] = OpenWindowsCorrection
    answering: Callable[..., Answering] = staticmethod(answering)

    @abstractmethod
    def execution(self, pipeline: Pipeline) -> Any:
        """Return the execution of a pipeline's stage."""

    @abstractmethod
    def bundle(self, rows: pa.Table) -> Any:
        """Return records, or rows of a ledger, in the form in which an execution takes them."""

    @abstractmethod
    def rows(self, stepped: Any) -> pa.Table:
        """Return the ledger's rows of a step."""

    @abstractmethod
    def changes(self, one: Any, stepped: Any) -> Any:
        """Return the bundle that a step passes to the next stage."""

    @abstractmethod
    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session of this engine, for backfills."""

    @abstractmethod
    def relation(self, session: Session, name: str, rows: pa.Table) -> Relation:
        """Make rows readable by a session's queries."""

    @abstractmethod
    def table(self, session: Session, text: Query, schema: pa.Schema) -> pa.Table:
        """Return the rows of a query."""

    @abstractmethod
    def query(self, text: str, times: pa.Table) -> list[tuple[Any, ...]]:
        """Return the rows of a text in the dialect of Spark, which reads the table `times`."""

    @abstractmethod
    def mapped(self, definition: Map, bundle: pa.Table, clock: Clock) -> list[dict[str, Any]]:
        """Return the ledger's rows of a map's step."""

    @abstractmethod
    def keys(self, machine: Machine) -> KeysAsTables:
        """Return the side of a computation."""

    @contextmanager
    def ledger(self, one: Any, rows: Any) -> Iterator[Any]:
        """Make a ledger's rows readable by an execution that restores its state."""
        yield rows

    def consume(self, one: Any, rows: pa.Table, state: Any) -> Any:
        return one.consume(self.bundle(rows), state)

    def varied(self, data: st.DataObject) -> EngineRuns:
        """Draw a variant of the engine: the meaning is the same."""
        return self

    def at_rest(self, most: int) -> EngineRuns:
        """Return a variant in which windows rest in files beyond a maximum number in memory, if the engine has one."""
        return self

    def said(self, pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]]) -> list[Said]:
        """Fold epochs, and return the ledger's rows of each stage; a stage reads the rows of the stage before."""
        stages = [self.execution(stage) for stage in pipeline.stages]
        states, said = [one.nothing() for one in stages], [Said() for _ in stages]
        for records, clock in epochs:
            consumed = self.consume(stages[0], arrow_bundle(stages[0].pipeline.log, records, clock.epoch), states[0])
            time = clock
            for place, one in enumerate(stages):
                stepped = one.step(states[place], consumed, time)
                said[place] += said_by_rows(one.pipeline, self.rows(stepped))
                states[place] = stepped.state
                if place + 1 < len(stages):
                    after, before = stages[place + 1], states[place + 1].clock
                    consumed = after.consume(self.changes(one, stepped), states[place + 1])
                    onward = max(one.onward(stepped.state), before.watermark if before else BEGINNING)
                    time = replace(time, watermark=onward)
        for one, state in zip(stages, states, strict=True):
            state.forget()
            one.close()
        return said


class OnDuck(EngineRuns):
    """DuckDB, with the execution that it chooses."""

    def execution(self, pipeline: Pipeline) -> Any:
        return duck_execution(CONNECTION.cursor(), pipeline)

    def bundle(self, rows: pa.Table) -> pa.Table:
        return rows

    def rows(self, stepped: Any) -> pa.Table:
        return stepped.rows

    def changes(self, one: Any, stepped: Any) -> Any:
        return one.changed(stepped.rows)

    @contextmanager
    def ledger(self, one: Any, rows: Any) -> Iterator[Any]:
        with register(one.connection, rows) as found:
            yield found

    @contextmanager
    def session(self) -> Iterator[Session]:
        # A session of its own, because its results take memory until it ends.
        with closing(in_process()) as one:
            yield one

    def relation(self, session: Any, name: str, rows: pa.Table) -> Relation:
        found: Relation = session.relation_of(rows)
        return found

    def table(self, session: Any, text: Query, schema: pa.Schema) -> pa.Table:
        found: pa.Table = session.connection.execute(f"SELECT * FROM {session.view(text)}").to_arrow_table()
        return found.cast(schema)

    def query(self, text: str, times: pa.Table) -> list[tuple[Any, ...]]:
        own = CONNECTION.cursor()
        own.register("times", times)
        return own.execute(in_duckdb(text)).fetchall()

    def mapped(self, definition: Map, bundle: pa.Table, clock: Clock) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = MapExecution(CONNECTION.cursor(), definition).rows(bundle, clock, 1).to_pylist()
        return found

    def keys(self, machine: Machine) -> KeysAsTables:
        return _DuckKeysAsTables(machine)


class OnDuckInParts(OnDuck):
    """DuckDB, which adds up every second bundle in parts as executors do, and takes many windows one after another."""

    def execution(self, pipeline: Pipeline) -> Any:
        return (_ByParts if way(pipeline) is Way.SQL else duck_execution)(CONNECTION.cursor(), pipeline)

    def said(self, pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]]) -> list[Said]:
        with patch.object(sql_execution, "MANY", 1):
            return super().said(pipeline, epochs)


class OnDuckInPython(OnDuck):
    """DuckDB, with the model's own Python for each window."""

    correction = PythonCorrection

    def execution(self, pipeline: Pipeline) -> Any:
        own = type(pipeline.where) is Told
        return (AssignedExecution if own else PythonExecution)(CONNECTION.cursor(), pipeline)


def resting_beyond(spark: SparkSession, pipeline: Pipeline, most: int | None = None) -> RestingWindows:
    """What has windows rest in files of the session's lake beyond so many in memory; None to keep all there."""
    place = spark.conf.get("spark.sql.catalog.lake.warehouse", None)
    settings = Settings() if place is None else Settings(warehouse=Path(place.removeprefix("file://")))
    return RestingWindows(spark, Lake(settings), pipeline, sys.maxsize if most is None else most)


@dataclass(frozen=True)
class OnSpark(EngineRuns):
    """Spark, with the execution that it chooses; windows beyond `most` rest in files, by default none does."""

    spark: SparkSession
    most: int | None = None

    def varied(self, data: st.DataObject) -> EngineRuns:
        return replace(self, most=data.draw(st.sampled_from([None, 0, 3])))

    def said(self, pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]]) -> list[Said]:
        try:
            return super().said(pipeline, epochs)
        finally:
            # All tests of a process share one JVM: frames that nobody needs any more must not fill its heap.
            self.spark.catalog.clearCache()
            gc.collect()

    def at_rest(self, most: int) -> EngineRuns:
        return replace(self, most=most)

    def execution(self, pipeline: Pipeline) -> Any:
        return _PartlyBrought(spark_execution(self.spark, pipeline, self._rest(pipeline)))

    def _rest(self, pipeline: Pipeline) -> RestingWindows:
        return resting_beyond(self.spark, pipeline, self.most)

    def bundle(self, rows: pa.Table) -> Any:
        return frame_of(self.spark, rows)

    def rows(self, stepped: Any) -> pa.Table:
        return stepped.rows.toArrow()

    def changes(self, one: Any, stepped: Any) -> Any:
        return query_frame(self.spark, stepped.rows, partial(changes, one.pipeline))

    def consume(self, one: Any, rows: pa.Table, state: Any) -> Any:
        brought = one.brought(rows, state)
        return one.consume(self.bundle(rows), state) if brought is None else brought

    @contextmanager
    def session(self) -> Iterator[Session]:
        yield cluster(self.spark)

    def relation(self, session: Session, name: str, rows: pa.Table) -> Relation:
        frame_of(self.spark, rows).createOrReplaceTempView(name)
        return Relation(name)

    def table(self, session: Session, text: Query, schema: pa.Schema) -> pa.Table:
        return self.spark.sql(text).toArrow().cast(schema)

    def query(self, text: str, times: pa.Table) -> list[tuple[Any, ...]]:
        frame_of(self.spark, times).createOrReplaceTempView("times")
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def mapped(self, definition: Map, bundle: pa.Table, clock: Clock) -> list[dict[str, Any]]:
        one = SparkMap(self.spark, Lake(Settings()), definition, _ASKED)
        found: list[dict[str, Any]] = one.made(bundle, clock, 1).toArrow().to_pylist()
        return found

    def keys(self, machine: Machine) -> KeysAsTables:
        return _SparkKeysAsTables(self.spark, machine)


@dataclass(frozen=True)
class OnSparkInPython(OnSpark):
    """Spark, with the model's own Python for each key; the driver takes up to `few` windows, workers take more."""

    few: int = 0

    correction = PythonCorrection
    answering = PythonAnswering

    def varied(self, data: st.DataObject) -> EngineRuns:
        return replace(
            self, most=data.draw(st.sampled_from([None, 0, 3])), few=data.draw(st.sampled_from([0, per_key.FEW]))
        )

    def execution(self, pipeline: Pipeline) -> Any:
        return _PartlyBrought(PerKey(self.spark, pipeline, self._rest(pipeline)))

    def said(self, pipeline: Pipeline, epochs: Iterable[tuple[Sequence[Record], Clock]]) -> list[Said]:
        with patch.object(per_key, "FEW", self.few):
            return super().said(pipeline, epochs)


class _PartlyBrought:
    """An execution on Spark that takes every second bundle as partials that this process has added up (L1)."""

    def __init__(self, one: Any) -> None:
        self._one, self._fed = one, 0
        self._database = connect(Settings())
        self._here = SqlExecution(self._database, one.pipeline) if isinstance(one, Native) else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)

    def brought(self, rows: pa.Table, state: Any) -> Any:
        one, self._fed = self._one, self._fed + 1
        if self._fed % 2 or self._here is None or not one.adds_up_here(state):
            return None
        return one.consume_here(rows, state, self._here)

    def close(self) -> None:
        self._database.close()
        self._one.rest.close()


class _ByParts(PartsExecution):
    """Takes every second bundle as executors give it: the partials of parts of it, and late records on demand (L1)."""

    _fed = 0

    def consume(self, bundle: pa.Table, state: EpochState) -> DuckBundle:
        self._fed += 1
        if self._fed % 2 or not self.adds_up:
            return super().consume(bundle, state)
        cut = bundle.num_rows // 2
        parts, gives = [bundle.slice(0, cut), bundle.slice(cut)], self.adding_gives(bundle.schema)
        text = with_share(in_duckdb(self.adding(state)), self.windowed_by)
        rows = pa.concat_tables(self._answered(part, text, gives.append(SHARE_COLUMN)) for part in parts)
        shares = defaultdict[int, list[pa.RecordBatch]](list)
        for share, batch in in_shares(rows.to_batches(3)):
            shares[share].append(batch)
        tables = ((share, pa.Table.from_batches(batches)) for share, batches in shares.items())
        there = self.put_together([gives.empty_table(), *check_shares(self.connection, self.windowed_by, tables)])
        found = self.count_late(state)
        assert found is None or there or not found

        def late(clock: Clock) -> pa.Table:
            rows = pa.concat_tables(
                self._answered(part, in_duckdb(self.late_rows(state, clock)), self.schema) for part in parts
            )
            assert found in (None, rows.num_rows)
            return rows

        return self.summed(late)

    def _answered(self, part: pa.Table, text: str, schema: pa.Schema) -> pa.Table:
        """A text's answer over a part, on a connection of its own, as it comes from an executor."""
        own = self.connection.cursor()
        own.register(self.records, part)
        return own.execute(text).to_arrow_table().cast(schema)


_ASKED = EngineChoice(Engine.SPARK, "it is asked for")


class _DuckKeysAsTables(KeysAsTables):
    """A side on DuckDB. It needs no lake, because nothing is read from a table or written to one."""

    def __init__(self, machine: Machine) -> None:
        lake = Lake(Settings())
        self.side: DuckKeys = DuckKeys(CONNECTION.cursor(), lake, machine, EngineChoice(Engine.DUCKDB, "a test"))

    def rows(self, stepped: Any) -> pa.Table:
        return stepped.rows

    def keys(self, state: Any) -> pa.Table:
        found: pa.Table = self.side.connection.execute(f"SELECT * FROM {self.side._table}").to_arrow_table()
        return found

    def loop(self, state: Any) -> pa.Table | None:
        found: pa.Table = state.loop
        return found

    def again(self, ledger: list[pa.Table], clock: Clock) -> Any:
        with register(self.side.connection, pa.concat_tables(ledger)) as rows:
            return self.side.restore(rows, clock)


class _SparkKeysAsTables(KeysAsTables):
    """A side on Spark. It needs no lake, because nothing is read from a table or written to one."""

    def __init__(self, spark: SparkSession, machine: Machine) -> None:
        self.side: SparkKeys = SparkKeys(spark, Lake(Settings()), machine, _ASKED)

    def rows(self, stepped: Any) -> pa.Table:
        return stepped.rows.toArrow()

    def keys(self, state: Any) -> pa.Table:
        return state.frame.toArrow()

    def loop(self, state: Any) -> pa.Table | None:
        return None if state.loop is None else state.loop.toArrow()

    def again(self, ledger: list[pa.Table], clock: Clock) -> Any:
        return self.side.restore(frame_of(self.side.spark, pa.concat_tables(ledger)), clock)


Law = Callable[[EngineRuns, st.DataObject], None]
"""A claim of one example on an engine; it draws the example, and raises if the claim does not hold."""

DUCK: dict[str, Callable[[], EngineRuns]] = {
    "duckdb": OnDuck, "duckdb_in_parts": OnDuckInParts, "duckdb_in_python": OnDuckInPython,
}  # fmt: skip
SPARK: dict[str, Callable[[SparkSession], EngineRuns]] = {"spark": OnSpark, "spark_in_python": OnSparkInPython}


def engine_of(name: str, request: pytest.FixtureRequest) -> EngineRuns:
    """Return an engine by its name; Spark's get the session of the test."""
    return DUCK[name]() if name in DUCK else SPARK[name](request.getfixturevalue("plain"))


def on_engine(name: str, *values: Any, id: str = "", only_deep: bool = False) -> Any:
    """Return the parameters of a test on an engine, with its marks: a test on Spark needs a JVM."""
    marks = [*([pytest.mark.spark] if name in SPARK else []), *([deep] if only_deep else [])]
    return pytest.param(name, *values, marks=marks, id="-".join(filter(None, (name, id))))


def for_examples(**counts: tuple[int, int, int]) -> Callable[[Law], Callable[..., None]]:
    """Make a test of a law over random examples on engines, the same examples in each run.

    Each engine has the number of examples at each change and in a deep run (`depth.cases`), and the maximum number in
    one part: no part takes so long that a busy machine takes it to hang. An example goes through a real engine, so a
    failing one is not made smaller.
    """
    numbers = {name: (cases(count, deeper), of) for name, (count, deeper, of) in counts.items()}
    parts = [on_engine(name, part, id=str(part)) for name, (n, of) in numbers.items() for part in range(-(-n // of))]

    def of_law(law: Law) -> Callable[..., None]:
        @pytest.mark.parametrize(("name", "part"), parts)
        def test(request: pytest.FixtureRequest, name: str, part: int) -> None:
            engine = engine_of(name, request)

            @seed(part)
            @each_time_the_same(min(numbers[name]))
            @given(data=st.data())
            def holds(data: st.DataObject) -> None:
                law(engine.varied(data), data)

            holds()

        test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
        return test

    return of_law
