"""Divide rows into shares by a hash of some columns: equal rows are in one share, wherever they come from.

Rows from many places can then be combined one share at a time, in the memory of one share.
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
"""The number of shares."""

SHARE_COLUMN = pa.field("_share", pa.int64())
"""The column with the number of a row's share, until the shares are apart."""


def with_share(text: str, by: Sequence[str]) -> str:
    """Write a query, in DuckDB's dialect, of the rows of another query, each with its share by some columns."""
    return f"SELECT *, {_share(by)} AS {SHARE_COLUMN.name} FROM ({text})"


def in_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut the rows of `with_share` into shares."""
    for batch in batches:
        shares, rows = batch.column(SHARE_COLUMN.name), batch.drop_columns([SHARE_COLUMN.name])
        rows, counts = rows.take(pc.sort_indices(shares)), np.bincount(shares.to_numpy(), minlength=SHARES)
        ends = np.cumsum(counts)
        for share in np.flatnonzero(counts).tolist():
            yield share, rows.slice(int(ends[share] - counts[share]), int(counts[share]))


def check_shares(
    connection: duckdb.DuckDBPyConnection, by: Sequence[str], shares: Iterable[tuple[int, pa.Table]]
) -> Iterator[pa.Table]:
    """Yield the rows of each share. Raises `EngineError` if some belong to another share.

    Equal rows would be in two shares if processes hashed them differently, as two versions of DuckDB may.
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
