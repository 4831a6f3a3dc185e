"""Read a lake's tables in DuckDB: pyiceberg plans which files, DuckDB reads them.

A table whose files are all plain, which is the rule, is read by DuckDB itself. Where rows were deleted from files,
columns were renamed or added since, or the files are in S3, pyiceberg's reader has the rows rightly, and DuckDB takes
them over once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import duckdb
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan, Table

from tailrace.engines.duckdb.dialect import column_type, name_of
from tailrace.engines.duckdb.records import registered
from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import log_contract, spark_type
from tailrace.lake.naming import known_as
from tailrace.model.log import Log

Scan: TypeAlias = DataScan | IncrementalAppendScan

EVERYTHING: BooleanExpression = AlwaysTrue()


@contextmanager
def scanned(
    connection: duckdb.DuckDBPyConnection,
    lake: Lake,
    table: str,
    where: BooleanExpression = EVERYTHING,
    snapshot: int | None = None,
) -> Iterator[str]:
    """Name a relation of a table's rows, as of a snapshot if one is given, for as long as the block lasts.

    `where` says which files are left out; whoever wants just the rows that meet it filters them, too.
    """
    loaded = lake.table(table)
    scan = loaded.scan(row_filter=where, snapshot_id=snapshot)
    with files_read(connection, loaded, scan, list(scan.plan_files())) as name:
        yield name


@contextmanager
def files_read(
    connection: duckdb.DuckDBPyConnection, table: Table, scan: Scan, tasks: Sequence[FileScanTask]
) -> Iterator[str]:
    """Name a relation of the rows of some of a scan's files, for as long as the block lasts."""
    name = f"tailrace_scan_{uuid.uuid4().hex[:12]}"
    if tasks and plain(table, tasks):
        listed = ", ".join("'" + path_of(task.file.file_path).replace("'", "''") + "'" for task in tasks)
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{listed}])")
        kind = "VIEW"
    else:
        # Here, for it brings pandas along.
        from pyiceberg.io.pyarrow import ArrowScan

        schema = scan.projection()
        batches = ArrowScan(scan.table_metadata, scan.io, schema, scan.row_filter).to_record_batches(tasks)
        arrow = schema.as_arrow()
        with registered(connection, pa.RecordBatchReader.from_batches(arrow, batches).cast(arrow)) as rows:
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {rows}")
        kind = "TABLE"
    try:
        yield name
    finally:
        connection.execute(f"DROP {kind} IF EXISTS {name}")


def plain(table: Table, tasks: Sequence[FileScanTask]) -> bool:
    """Whether files hold just the rows and columns that the table has, and are on this machine."""
    local = all(task.file.file_path.startswith(("file:", "/")) for task in tasks)
    return local and len(table.schemas()) == 1 and not any(task.delete_files for task in tasks)


def path_of(address: str) -> str:
    """The path of a file of this machine."""
    return address.removeprefix("file://") if address.startswith("file://") else address.removeprefix("file:")


def as_declared(lake: Lake, log: Log, rows: str) -> str:
    """Write the query of a log's rows with the names and types that its definition declares."""
    declared = {name: spark_type(column.shape) for name, column in log_contract(log).columns.items()}
    loaded = lake.table(log.name)
    names = known_as(loaded, declared, {field.name for field in loaded.schema().fields})
    items = (
        f"CAST({'NULL' if (live := names[name]) is None else name_of(live)} AS {column_type(type)}) AS {name_of(name)}"
        for name, type in declared.items()
    )
    return f"SELECT {', '.join(items)} FROM {rows}"
