"""Choose and open the engine of a backfill or an audit, by the bytes that it would read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import duckdb

from tailrace.engines.choose import Bounds, Engine, EngineChoice
from tailrace.engines.duckdb.database.connection import EngineError, RoomError
from tailrace.engines.duckdb.database.scans import table_bytes
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.filters import Filter
from tailrace.model.definition.chain import Definition
from tailrace.model.definition.pipeline import Pipeline

T = TypeVar("T")

LITTLE = 10_000_000
"""Bytes of files, some hundred thousand rows, up to which DuckDB is no slower on one thread than on several."""


def here_first(lake: Lake, run: Callable[[Lake], T]) -> T:
    """Do a run; where this process has no room for it, do it again on Spark, unless the settings name an engine."""
    try:
        return run(lake)
    except RoomError:
        if lake.settings.engine != "auto":
            raise
        return run(Lake(lake.settings.model_copy(update={"engine": "spark"}), lake.tell))


_UNPACKED = 32
"""The bytes of memory, its copies included, that a byte of a file's records takes on its way from Spark to here."""


def choice_for(lake: Lake, definition: Definition, reads: Iterable[tuple[str, Filter]]) -> tuple[EngineChoice, int]:
    """Choose the engine of a run by the tables that it reads, each with a filter; return it and the bytes to read."""
    size = sum(table_bytes(lake.table(table), where) for table, where in reads if lake.has(table))
    return Bounds.of(lake.settings).for_run(size, definition), size


@contextmanager
def session_for(
    lake: Lake, definition: Definition, what: str, reads: Iterable[tuple[str, Filter]]
) -> Iterator[Session]:
    """Open the engine for a run that reads these tables, each with a filter; `what` is the run's kind.

    Spark is started where it is chosen and does not run yet. Raises `ToolchainError` where it is Spark, and Java or a
    jar is missing, and `EngineError` where DuckDB fails.
    """
    choice, size = choice_for(lake, definition, reads)
    if choice.engine is Engine.DUCKDB:
        with closing(DuckSession(lake, choice, threads=1 if size <= LITTLE else None)) as session:
            try:
                yield session
            except duckdb.Error as error:
                raise EngineError.of(error) from error
        return
    # Imported here, as a run in this process needs neither.
    from tailrace.engines.spark.cluster import ClusterSession
    from tailrace.engines.spark.session import open_session

    spark = open_session(lake.settings, app=f"tailrace {what} {definition.name}")
    # What is not added up comes out as wide as it went in, and unpacked.
    bound = Bounds.of(lake.settings).memory // (1 if isinstance(definition, Pipeline) else _UNPACKED)
    with closing(ClusterSession(spark, lake, choice, small=size <= bound)) as session:
        yield session
