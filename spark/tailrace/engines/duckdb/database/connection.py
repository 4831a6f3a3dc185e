"""Open a DuckDB database in this process, with a memory limit, a spill folder, and the functions that queries call."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import PythonUDFType

from tailrace.engines.choose import in_bytes
from tailrace.engines.duckdb.database.json_looks import add_looks
from tailrace.model.base.errors import TailraceError
from tailrace.settings import Settings
from tailrace.toolchain.process_folder import process_folder

LEAST = 16 * 10**6
"""The minimum memory limit in bytes. With less memory, DuckDB fails even on little data, because each thread allocates
blocks of about 256 kB.
"""

_MACROS = files(__package__).joinpath("macros.sql").read_text()
"""DuckDB macros for the Spark functions that queries call and that DuckDB lacks."""


class EngineError(TailraceError, RuntimeError):
    """The error raised if a computation in DuckDB fails. Published data is not affected."""

    @classmethod
    def of(cls, error: duckdb.Error) -> EngineError:
        """Build an `EngineError` from a DuckDB error. The message has one line, and names the setting to change."""
        message = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if isinstance(error, duckdb.OutOfMemoryException):
            mend = "give it more memory (TAILRACE_MEMORY) or more room to spill to (TAILRACE_SCRATCH)"
            elsewhere = "have executors take it (TAILRACE_ENGINE=spark, TAILRACE_WINDOWS_IN_DRIVER=0)"
            return RoomError(f"DuckDB has no more room: {message}; {mend}, or {elsewhere}")
        if isinstance(error, duckdb.IOException):
            return cls(f"DuckDB could not read or write: {message}; it spills to TAILRACE_SCRATCH: look at that folder")
        return cls(f"DuckDB failed: {message}")


class RoomError(EngineError):
    """The error raised if a computation fits neither into memory nor into the space for spilled data."""


def single_value(connection: duckdb.DuckDBPyConnection, text: str) -> Any:
    """Return the value of a query in DuckDB's dialect that returns one column and one row; None if there is no row."""
    return (connection.execute(text).fetchone() or (None,))[0]


def read_batches(connection: duckdb.DuckDBPyConnection, text: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Compute a query, and yield its rows in batches of about `rows` rows, while later rows are computed.

    Raises `duckdb.Error` if the computation fails. Arrow's reader raises an `OSError` with DuckDB's message if the
    computation fails after its first rows.
    """
    reader = connection.execute(text).to_arrow_reader(rows)
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except OSError as error:
            kind = next((kind for start, kind in _KINDS.items() if str(error).startswith(start)), duckdb.Error)
            raise kind(str(error)) from error
        yield batch


_KINDS = {
    "Out of Memory": duckdb.OutOfMemoryException,
    "IO": duckdb.IOException,
    "INTERRUPT": duckdb.InterruptException,
}
"""The kinds of DuckDB's errors that callers tell apart, by the beginning of their messages."""


@contextmanager
def in_one_transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run the statements of a block in one transaction, so that row ids stay valid throughout the block.

    Between transactions, a row id can pass to another row, because DuckDB compacts tables when it writes a checkpoint.
    If the block fails, all its changes are rolled back.
    """
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def connect(settings: Settings, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open a new database in memory, with a spill folder that is removed together with the database.

    The database computes on `threads` threads, or on `TAILRACE_THREADS` if `threads` is None; Arrow then computes on
    `TAILRACE_THREADS` threads, too. If there is little data, several threads lose more time by waiting for each other
    than they save. The memory limit is `TAILRACE_MEMORY`, but at least `LEAST`. The spill folder is in
    `TAILRACE_SCRATCH`. All connections show instants in UTC.
    """
    # DuckDB creates the folder when it first spills, and removes the folder together with the database.
    scratch = process_folder(settings.scratch) / uuid.uuid4().hex[:12]
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{max(LEAST, in_bytes(settings.memory)) // 10**6}MB",
        "temp_directory": str(scratch),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # A name in a query must refer to a table of the database, not to a variable of the Python code that runs the
        # query.
        "python_enable_replacements": False,
        "threads": threads or settings.threads,
    }
    if threads is None and pa.cpu_count() != settings.threads:
        # Arrow's threads are the process's, not the database's.
        pa.set_cpu_count(settings.threads)
    connection = duckdb.connect(":memory:", config=config)
    # The time zone is set globally, because a connection from `cursor` would otherwise take the machine's time zone.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute(_MACROS)
    connection.create_function("crc32", _checksums, ["BLOB"], "BIGINT", type=PythonUDFType.ARROW)
    add_looks(connection)
    return connection


def _checksums(values: pa.ChunkedArray) -> pa.Array:
    """Compute the CRC-32 checksum of each value. The checksum of repeated values is computed only once."""
    coded = (values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values).dictionary_encode()
    sums = pa.array([zlib.crc32(one) for one in coded.dictionary.to_pylist()], pa.int64())
    return pc.take(sums, coded.indices)
