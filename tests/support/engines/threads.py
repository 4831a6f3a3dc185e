"""DuckDB on many threads, which get the rows in any order: what the threads do first is left to chance."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
from pyiceberg.table import DataScan, IncrementalAppendScan

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.duckdb import follower
from tailrace.engines.duckdb.database import written_rows
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.executions import sql_execution
from tailrace.engines.duckdb.executions.python_execution import PythonExecution
from tailrace.engines.duckdb.executions.sql_execution import AssignedExecution
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.duckdb.side import execution_of
from tailrace.engines.session_protocol import Session
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.pipeline import Pipeline
from tailrace.settings import Settings
from tailrace.testing import ScratchLake
from tests.support.cases.strategies import Told
from tests.support.engines.engine_runs import OnDuck, OnSpark
from tests.support.engines.spark_runs import Said

THREADS = (1, 2, 8)
"""The numbers of threads that the laws are held with."""


@cache
def database(threads: int) -> duckdb.DuckDBPyConnection:
    """One database for all tests of a process. It uses all of its threads, even on little data."""
    connection = connect(Settings(memory="1GB", threads=threads))
    connection.execute("PRAGMA verify_parallelism")
    return connection


def scattered(rows: pa.Table, chance: random.Random) -> pa.Table:
    """Return rows in any order, cut anywhere into batches, which are what DuckDB's threads take."""
    shuffled = rows.take(pa.array(chance.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
    batches, left = list[pa.RecordBatch](), shuffled.combine_chunks()
    while left.num_rows:
        size = chance.randint(1, 3)
        batches += left.slice(0, size).to_batches()
        left = left.slice(size)
    return pa.Table.from_batches(batches, rows.schema)


@dataclass(frozen=True)
class OnDuckOnThreads(OnDuck):
    """DuckDB on so many threads. `python` is for the model's own Python for each window."""

    threads: int
    chance: random.Random
    python: bool = False

    def execution(self, pipeline: Pipeline) -> Any:
        own = database(self.threads).cursor()
        if not self.python:
            return execution_of(own, pipeline)
        return (AssignedExecution if type(pipeline.where) is Told else PythonExecution)(own, pipeline)

    def bundle(self, rows: pa.Table) -> pa.Table:
        return scattered(rows, self.chance)

    def changes(self, one: Any, stepped: Any) -> Any:
        return scattered(one.changed(scattered(stepped.rows, self.chance)), self.chance)

    def said(self, pipeline: Pipeline, epochs: Any) -> list[Said]:
        # Half of the time, windows are taken in shares, as those of a large epoch are.
        with patch.object(sql_execution, "MANY", self.chance.choice([1, sql_execution.MANY])):
            return super().said(pipeline, epochs)

    @contextmanager
    def session(self) -> Iterator[Session]:
        settings = Settings(memory="1GB", threads=self.threads)
        with closing(DuckSession(Lake(settings), EngineChoice(Engine.DUCKDB, "of the test"))) as one:
            one.connection.execute("PRAGMA verify_parallelism")
            yield one

    def relation(self, session: Any, name: str, rows: pa.Table) -> Any:
        return session.relation_of(scattered(rows, self.chance))


@contextmanager
def disorder(chance: random.Random) -> Iterator[None]:
    """Have tables' files in any order, with their rows in any order, and writers that wait for any time.

    Each file has few rows, so that several are written at once.
    """
    write = Lake.write_files

    def write_files(lake: Lake, table: str, rows: pa.Table) -> Any:
        time.sleep(chance.random() * 0.01)
        cut = chance.randint(0, rows.num_rows)
        mixed = rows.take(pa.array(chance.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
        return [file for part in (mixed.slice(0, cut), mixed.slice(cut)) for file in write(lake, table, part)]

    def shuffled(plan: Callable[[Any], Any], scan: Any) -> Any:
        found = list(plan(scan))
        return chance.sample(found, len(found))

    with ExitStack() as there:
        there.enter_context(patch.object(Lake, "write_files", write_files))
        for kind in (DataScan, IncrementalAppendScan):
            there.enter_context(patch.object(kind, "plan_files", _method(partial(shuffled, kind.plan_files))))
        for module in (follower, written_rows):
            there.enter_context(patch.object(module, "ROWS_A_FILE", chance.randint(1, 5)))
        yield


def _method(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: call(self)


class ThreadedLake(ScratchLake):
    """The lake of a test with so many threads."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder)
        self.settings = self.settings.model_copy(update={"threads": threads})
        self.tables = Lake(self.settings)


@dataclass(frozen=True)
class OnSparkOnThreads(OnSpark):
    """Spark, with the rows of each bundle in any order, in so many partitions, and so many of each shuffle."""

    chance: random.Random = field(default_factory=random.Random)
    partitions: int = 8

    def bundle(self, rows: pa.Table) -> Any:
        return frame_of(self.spark, scattered(rows, self.chance)).repartition(self.partitions)

    def said(self, pipeline: Pipeline, epochs: Any) -> list[Said]:
        name = "spark.sql.shuffle.partitions"
        before = self.spark.conf.get(name)
        self.spark.conf.set(name, str(self.partitions))
        try:
            return super().said(pipeline, epochs)
        finally:
            self.spark.conf.set(name, str(before))
