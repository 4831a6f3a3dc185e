"""Read a lake's tables in DuckDB: pyiceberg selects the files, and DuckDB reads them.

DuckDB itself reads a file if the file is on this machine, no rows were deleted from it, and its columns are exactly the
table's columns. Other files, such as files in S3 and files from before a column was renamed or added, are read by
pyarrow and copied into DuckDB once. The columns of these files are identified by Iceberg's field ids. pyiceberg reads a
file if rows were deleted from the file, or if the type of a nested column has changed since the file was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import duckdb
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan, Table

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.dialect import column_type, name_of
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.null_lists import keep_null_lists
from tailrace.lake.schema.column_names import declared_types, has_grown, match_names, schema_at
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.lake.upkeep.file_rows import batches_as_written
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Relation, new_relation

Scan: TypeAlias = DataScan | IncrementalAppendScan


def bytes_read(scan: Scan) -> int:
    """Return the total size in bytes of the files that a scan reads."""
    return sum(task.file.file_size_in_bytes for task in scan.plan_files())


def table_bytes(table: Table, where: BooleanExpression = EVERYTHING, snapshot: int | None = None) -> int:
    """Return the total size in bytes of the files that a filter selects from a table.

    If `snapshot` is None, the table's current snapshot is read.
    """
    read = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
    if where is EVERYTHING and read is not None and read.summary is not None:
        size = read.summary.additional_properties.get("total-files-size")
        if size is not None:
            return int(size)
    return bytes_read(table.scan(row_filter=where, snapshot_id=snapshot))


@contextmanager
def scan_table(
    connection: duckdb.DuckDBPyConnection,
    lake: Lake,
    table: str,
    where: BooleanExpression = EVERYTHING,
    snapshot: int | None = None,
) -> Iterator[Relation]:
    """Yield the name of a relation with a table's rows. The relation exists for the duration of the block.

    If `snapshot` is None, the table's current snapshot is read. `where` only skips files: a caller that needs exactly
    the matching rows must also filter the rows.
    """
    loaded = lake.table(table)
    scan = loaded.scan(row_filter=where, snapshot_id=snapshot)
    with scan_files(connection, loaded, scan, list(scan.plan_files())) as name:
        yield name


@contextmanager
def scan_files(
    connection: duckdb.DuckDBPyConnection, table: Table, scan: Scan, tasks: Sequence[FileScanTask]
) -> Iterator[Relation]:
    """Yield the name of a relation with the rows of the files in `tasks`. The files are some of a scan's files.

    The relation exists for the duration of the block.
    """
    name = new_relation()
    addresses = [task.file.file_path for task in tasks]
    if tasks and is_plain(table, tasks) and all(map(is_local, addresses)):
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {parquet_relation(addresses)}")
        kind = "VIEW"
    else:
        with register(connection, _fetched(table, scan, tasks)) as rows:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {rows}")
        kind = "TABLE"
    try:
        yield name
    finally:
        connection.execute(f"DROP {kind} IF EXISTS {name}")


def _fetched(table: Table, scan: Scan, tasks: Sequence[FileScanTask]) -> pa.RecordBatchReader | pa.Table:
    """Read the files that DuckDB itself cannot read, and return their rows, batch by batch if possible."""
    columns = table.schema() if has_grown(table, scan.projection()) else scan.projection()
    arrow: pa.Schema = columns.as_arrow()
    if not tasks:
        return arrow.empty_table()
    batches = (batch for task in tasks for batch in _batches(table, scan, task, columns, arrow))
    return pa.RecordBatchReader.from_batches(arrow, batches)


def _batches(
    table: Table, scan: Scan, task: FileScanTask, columns: Schema, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read the columns `columns` of one file: with pyarrow directly if that is possible, otherwise with pyiceberg."""
    found = None if task.delete_files else batches_as_written(table.io, columns, task.file)
    if found is not None:
        yield from found
        return
    # This import is local because it also loads pandas.
    from pyiceberg.io.pyarrow import ArrowScan

    keep_null_lists()
    rows = ArrowScan(scan.table_metadata, scan.io, columns, scan.row_filter).to_record_batches([task])
    yield from pa.RecordBatchReader.from_batches(schema, rows).cast(schema)


def parquet_relation(addresses: Iterable[str]) -> str:
    """Return the SQL text of a call of DuckDB's `read_parquet` for local files. Folder names do not become columns."""
    listed = ", ".join("'" + path_of(address).replace("'", "''") + "'" for address in addresses)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def is_plain(table: Table, tasks: Sequence[FileScanTask]) -> bool:
    """Return True if no rows were deleted from files of a table, and the files' columns are exactly the table's
    columns.
    """
    return len(table.schemas()) == 1 and not any(task.delete_files for task in tasks)


def is_local(address: str) -> bool:
    """Return True if a file is on this machine."""
    return address.startswith(("file:", "/"))


def path_of(address: str) -> str:
    """Return the path of a local file from its address."""
    return address.removeprefix("file://") if address.startswith("file://") else address.removeprefix("file:")


def as_declared(lake: Lake, log: Log, rows: Relation, snapshot: int | None = None) -> str:
    """Return the query, in DuckDB's dialect, for a log's rows with the declared column names and types.

    The columns of `rows` have the names that they had at the snapshot `snapshot`, or their current names if `snapshot`
    is None.
    """
    declared = declared_types(log)
    loaded = lake.table(log.name)
    names = match_names(loaded, declared, {field.name for field in schema_at(loaded, snapshot).fields})
    items = (
        f"CAST({'NULL' if (live := names[name]) is None else name_of(live)} AS {column_type(type)}) AS {name_of(name)}"
        for name, type in declared.items()
    )
    return f"SELECT {', '.join(items)} FROM {rows}"
