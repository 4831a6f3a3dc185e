"""Give Arrow tables to DuckDB as relations, and query the records of a bundle in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.sql.terms import Query, Relation, new_relation


@contextmanager
def register(
    connection: duckdb.DuckDBPyConnection, table: pa.Table | pa.RecordBatchReader, name: Relation | None = None
) -> Iterator[Relation]:
    """Register an Arrow table or a reader as a relation for the duration of the block.

    A reader can be read only once. If `name` is None, the relation gets a new name.
    """
    name = name or new_relation()
    connection.register(name, table)
    try:
        yield name
    finally:
        connection.unregister(name)


_VIEW = Relation("tailrace_the_view")


def queried_arrow(connection: duckdb.DuckDBPyConnection, table: pa.Table, text: str) -> list[dict[str, Any]]:
    """Run a query in the common SQL over an Arrow table. The query refers to the table as `{view}`."""
    with register(connection, table, _VIEW):
        rows = connection.execute(in_duckdb(Query(text.format(view=_VIEW)))).to_arrow_table()
    found: list[dict[str, Any]] = rows.to_pylist()
    return found
