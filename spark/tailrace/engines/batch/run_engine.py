"""Open the engine of a backfill, an audit or a replay. `EnginePolicy` chooses the engine by the number of bytes to
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import duckdb

from tailrace.engines.choose import Engine, EngineChoice, EnginePolicy
from tailrace.engines.duckdb.database.connection import EngineError, RoomError
from tailrace.engines.duckdb.database.scans import table_bytes
from tailrace.engines.duckdb.engine import DuckEngine
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.filters import Filter
from tailrace.model.definition.definition import Definition

T = TypeVar("T")


def run_with_fallback(lake: Lake, run: Callable[[Lake], T]) -> T:
    """Call `run`, and return its result.

    If DuckDB runs out of memory and spill space, call `run` a second time, on Spark, unless the settings name an
    engine.
    """
    try:
        return run(lake)
    except RoomError:
        policy = EnginePolicy.of(lake.settings)
        if policy.engine is not None:
            raise
        return run(Lake(lake.settings.on_engine("spark", policy.out_of_room), lake.tell))


def choice_for(lake: Lake, definition: Definition, reads: Iterable[tuple[str, Filter]]) -> tuple[EngineChoice, int]:
    """Choose the engine of a run. Return the choice and the number of bytes that the run reads.

    `reads` lists the tables that the run reads. Each table comes with the filter that selects the files to read.
    """
    size = sum(table_bytes(lake.table(table), where) for table, where in reads if lake.has(table))
    return EnginePolicy.of(lake.settings).for_run(size, definition), size


@contextmanager
def session_for(
    lake: Lake, definition: Definition, what: str, reads: Iterable[tuple[str, Filter]]
) -> Iterator[Session]:
    """Open a session on the engine that is chosen for a run.

    `what` is the kind of run. `reads` lists the tables that the run reads; each table comes with the filter that
    selects the files to read. If Spark is chosen but not running, Spark is started. Raises `ToolchainError` if Spark
    lacks Java or a jar, and `EngineError` if DuckDB fails.
    """
    choice, size = choice_for(lake, definition, reads)
    policy, duck = EnginePolicy.of(lake.settings), DuckEngine(lake)
    if choice.engine is Engine.DUCKDB:
        with closing(duck.session(choice, policy.threads(size))) as session:
            try:
                yield session
            except duckdb.Error as error:
                raise EngineError.of(error) from error
        return
    # This import is local, because a run on DuckDB does not need Spark.
    from tailrace.engines.spark.engine import SparkEngine
    from tailrace.engines.spark.session import open_session

    spark = SparkEngine(open_session(lake.settings, app=f"tailrace {what} {definition.name}"), lake, duck)
    with closing(spark.session(choice, small=policy.comes_here(size, definition))) as session:
        yield session
