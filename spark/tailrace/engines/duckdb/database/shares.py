"""Divide rows into shares by a hash of the values in some columns.

Rows with equal values in these columns are in the same share on every machine. Rows from many sources can then be
combined one share at a time, with only one share in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.engines.duckdb.database.dialect import name_of

SHARES = 16
"""The number of shares into which rows are divided."""

SHARE_COLUMN = pa.field("_share", pa.int64())
"""The column with the number of a row's share. The column is dropped when rows are split into shares."""


def with_share(text: str, by: Sequence[str]) -> str:
    """Return the query, in DuckDB's dialect, that adds a column with the share number to the rows of another query.

    The share number is computed from the columns `by`.
    """
    return f"SELECT *, {_share(by)} AS {SHARE_COLUMN.name} FROM ({text})"


def in_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split the rows of a `with_share` query into shares. Yield pairs of a share number and a batch of rows."""
    for batch in batches:
        shares, rows = batch.column(SHARE_COLUMN.name), batch.drop_columns([SHARE_COLUMN.name])
        rows, counts = rows.take(pc.sort_indices(shares)), np.bincount(shares.to_numpy(), minlength=SHARES)
        ends = np.cumsum(counts)
        for share in np.flatnonzero(counts).tolist():
            yield share, rows.slice(int(ends[share] - counts[share]), int(counts[share]))


def check_shares(
    connection: duckdb.DuckDBPyConnection, by: Sequence[str], shares: Iterable[tuple[int, pa.Table]]
) -> Iterator[pa.Table]:
    """Yield the rows of each share. Raises `EngineError` if a row is not in the share to which it belongs.

    Rows with equal values could end up in different shares if processes hashed them differently, for example with
    different versions of DuckDB.
    """
    for share, rows in shares:
        with register(connection, rows) as name:
            other = connection.execute(f"SELECT 1 FROM {name} WHERE {_share(by)} <> {share} LIMIT 1").fetchone()
        if other is not None:
            raise EngineError(
                "an executor's DuckDB puts rows into other shares than this process's does: "
                f"give the executors the package that is here, with DuckDB {duckdb.__version__}"
            )
        yield rows


def _share(by: Sequence[str]) -> str:
    return f"CAST(hash({', '.join(map(name_of, by))}) % {SHARES} AS BIGINT)"
