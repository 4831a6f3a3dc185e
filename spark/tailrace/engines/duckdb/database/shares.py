"""Rows in shares, by the hash of what they are known by: rows that are alike are in one, wherever they come from.

What puts rows of many places together does so with a share at a time, in the memory of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.engines.duckdb.database.dialect import name_of

SHARES = 16
"""The number of shares."""

SHARE_COLUMN = pa.field("_share", pa.int64())
"""The column that says which share a row is in, until the rows of a share are apart."""


def with_share(text: str, by: Sequence[str]) -> str:
    """Write DuckDB's query of the rows of another, each with its share by some columns."""
    return f"SELECT *, {_share(by)} AS {SHARE_COLUMN.name} FROM ({text})"


def in_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut the rows of `with_share` into those of each share."""
    for batch in batches:
        shares, rows = batch.column(SHARE_COLUMN.name), batch.drop_columns([SHARE_COLUMN.name])
        rows, counts = rows.take(pc.sort_indices(shares)), np.bincount(shares.to_numpy(), minlength=SHARES)
        ends = np.cumsum(counts)
        for share in np.flatnonzero(counts).tolist():
            yield share, rows.slice(int(ends[share] - counts[share]), int(counts[share]))


def checked(
    connection: duckdb.DuckDBPyConnection, by: Sequence[str], shares: Iterable[tuple[int, pa.Table]]
) -> Iterator[pa.Table]:
    """Return the rows of each share; raises `EngineError` if some belong to another one.

    Rows that are alike would be in two shares where processes hash them in two ways, as two versions of DuckDB may.
    """
    for share, rows in shares:
        with registered(connection, rows) as name:
            other = connection.execute(f"SELECT 1 FROM {name} WHERE {_share(by)} <> {share} LIMIT 1").fetchone()
        if other is not None:
            raise EngineError(
                "an executor's DuckDB puts rows into other shares than this process's does: "
                f"give the executors the package that is here, with DuckDB {duckdb.__version__}"
            )
        yield rows


def _share(by: Sequence[str]) -> str:
    return f"CAST(hash({', '.join(map(name_of, by))}) % {SHARES} AS BIGINT)"
