"""Query a bundle's records in this process, and remember their ids, so records that come again are dropped (rule
X5)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from tailrace.engines.duckdb.database.dialect import in_duckdb, name_of
from tailrace.model.base.time import duration
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Query, Relation, new_relation


@contextmanager
def register(connection: duckdb.DuckDBPyConnection, table: pa.Table | pa.RecordBatchReader) -> Iterator[Relation]:
    """Name a relation of an Arrow table, or of a reader, which can be read once, for the duration of the block."""
    name = new_relation()
    connection.register(name, table)
    try:
        yield name
    finally:
        connection.unregister(name)


def queried_arrow(connection: duckdb.DuckDBPyConnection, table: pa.Table, text: str) -> list[dict[str, Any]]:
    """Run a query of the common SQL over an Arrow table, whose name in the query is `{view}`."""
    with register(connection, table) as view:
        found: list[dict[str, Any]] = (
            connection.execute(_translated(text).format(view=view)).to_arrow_table().to_pylist()
        )
    return found


def _translated(text: str) -> str:
    return in_duckdb(Query(text.replace("{view}", "tailrace_the_view"))).replace("tailrace_the_view", "{view}")


@dataclass(frozen=True)
class UniqueRows:
    """A bundle without the records that came again, and the number of records that did."""

    rows: pa.Table
    duplicates: int


class RememberedRows:
    """The ids of the records within the log's horizon, by epoch, in a table of the database.

    `times` are the known processing times of the log's epochs, in microseconds; `ids` is a relation of the log's ids
    and epochs. The ids of an epoch without a known time are remembered, unless a later epoch is before the horizon.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, log: Log, times: Mapping[int, int], ids: Relation
    ) -> None:
        self.connection, self.log, self._times = connection, log, dict(times)
        self._table = f"tailrace_{log.name}_ids_{uuid.uuid4().hex[:8]}"
        self._columns = ", ".join(map(name_of, log.id_columns))
        since = self._first(max(times.values(), default=0))
        connection.execute(
            f"CREATE TABLE {self._table} AS SELECT DISTINCT {self._columns}, _epoch FROM {ids} WHERE _epoch >= {since}"
        )

    def unique(self, rows: pa.Table, epoch: int, now: int) -> UniqueRows:
        """Drop the records that are remembered or repeated; remember the others as of `epoch` and its time `now`.

        If the bundle has a record twice, the one with the first place in the source stays. Rejected records stay as
        they are.
        """
        own, table, again = self._columns, self._table, f"{self._table}_again"
        names = [f"k.{name_of(name)} IS NOT DISTINCT FROM r.{name_of(name)}" for name in self.log.id_columns]
        same = " AND ".join(names)
        good, remaining = rows["_error"].null_count, rows
        with register(self.connection, rows) as read:
            there = f"SELECT * FROM {read} r WHERE _error IS NULL"
            twice = f"SELECT 1 FROM ({there}) GROUP BY {own} HAVING COUNT(*) > 1"
            # The remembered ids are many, so they are scanned once; the ids that came again are few.
            known = f"SELECT {own} FROM ({there} AND EXISTS (FROM {table} k WHERE {same}))"
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {again} AS {known}")
            if self._any(f"FROM {again}") or self._any(twice):
                place = f"ROW_NUMBER() OVER (PARTITION BY {own} ORDER BY _source, _offset)"
                unique = f"SELECT * FROM ({there} AND NOT EXISTS (FROM {again} k WHERE {same})) QUALIFY {place} = 1"
                text = f"{unique} UNION ALL SELECT * FROM {read} WHERE _error IS NOT NULL"
                remaining = self.connection.execute(text).to_arrow_table().cast(rows.schema)
        left = remaining["_error"].null_count
        with register(self.connection, remaining) as some:
            insert = f"INSERT INTO {table} SELECT {own}, {epoch} FROM {some} WHERE _error IS NULL"
            self.connection.execute(insert)
        self._forget(epoch, now)
        return UniqueRows(remaining, good - left)

    def _any(self, text: str) -> bool:
        return self.connection.execute(f"{text} LIMIT 1").fetchone() is not None

    def _forget(self, epoch: int, now: int) -> None:
        self._times[epoch] = now
        since = self._first(now)
        gone = [one for one in self._times if one < since - 1]
        if gone:
            self._times = {one: at for one, at in self._times.items() if one >= since - 1}
            self.connection.execute(f"DELETE FROM {self._table} WHERE _epoch < {since}")

    def _first(self, now: int) -> int:
        """Find the first epoch within the horizon: the epoch after the last one that is known to lie before it."""
        since = now - duration(self.log.remembered)
        return max((epoch for epoch, at in self._times.items() if at < since), default=-1) + 1
