"""Read a lake's tables in DuckDB: pyiceberg plans which files, DuckDB reads them.

Plain files, which is the rule, are read by DuckDB itself; those in S3 by pyarrow, and DuckDB takes them over once.
Where rows were deleted from files, or columns were renamed or added since, pyiceberg's reader has the rows rightly.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan, Table

from tailrace.engines.duckdb.dialect import column_type, name_of
from tailrace.engines.duckdb.records import registered
from tailrace.engines.session import EVERYTHING
from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import log_contract, spark_type
from tailrace.lake.naming import known_as
from tailrace.model.log import Log

Scan: TypeAlias = DataScan | IncrementalAppendScan


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
    if tasks and plain(table, tasks) and all(_here(task.file.file_path) for task in tasks):
        listed = ", ".join("'" + path_of(task.file.file_path).replace("'", "''") + "'" for task in tasks)
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet([{listed}])")
        kind = "VIEW"
    else:
        with registered(connection, _fetched(table, scan, tasks)) as rows:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {rows}")
        kind = "TABLE"
    try:
        yield name
    finally:
        connection.execute(f"DROP {kind} IF EXISTS {name}")


def _fetched(table: Table, scan: Scan, tasks: Sequence[FileScanTask]) -> pa.RecordBatchReader | pa.Table:
    """The rows of files that DuckDB does not read itself, a batch at a time."""
    schema = scan.projection()
    arrow: pa.Schema = schema.as_arrow()
    if not tasks:
        return arrow.empty_table()
    if plain(table, tasks):
        # As they are: pyiceberg's reader makes an empty list of a null one where it has structs in it.
        return pa.RecordBatchReader.from_batches(arrow, _batches(table, tasks, arrow))
    # Here, for it brings pandas along.
    from pyiceberg.io.pyarrow import ArrowScan

    batches = ArrowScan(scan.table_metadata, scan.io, schema, scan.row_filter).to_record_batches(tasks)
    return pa.RecordBatchReader.from_batches(arrow, batches).cast(arrow)


def _batches(table: Table, tasks: Sequence[FileScanTask], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for task in tasks:
        with table.io.new_input(task.file.file_path).open() as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches(columns=schema.names):
                yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()


def plain(table: Table, tasks: Sequence[FileScanTask]) -> bool:
    """Whether files hold just the rows and columns that the table has."""
    return len(table.schemas()) == 1 and not any(task.delete_files for task in tasks)


def _here(address: str) -> bool:
    """Whether a file is on this machine."""
    return address.startswith(("file:", "/"))


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
