"""Query a bundle's records in this process, and remember record ids so that repeated records are dropped (rule X5)."""

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
    """Register an Arrow table or a reader as a relation for the duration of the block.

    A reader can be read only once.
    """
    name = new_relation()
    connection.register(name, table)
    try:
        yield name
    finally:
        connection.unregister(name)


def queried_arrow(connection: duckdb.DuckDBPyConnection, table: pa.Table, text: str) -> list[dict[str, Any]]:
    """Run a query in the common SQL over an Arrow table. The query refers to the table as `{view}`."""
    with register(connection, table) as view:
        found: list[dict[str, Any]] = (
            connection.execute(_translated(text).format(view=view)).to_arrow_table().to_pylist()
        )
    return found


def _translated(text: str) -> str:
    return in_duckdb(Query(text.replace("{view}", "tailrace_the_view"))).replace("tailrace_the_view", "{view}")


@dataclass(frozen=True)
class UniqueRows:
    """A bundle without its duplicate records, and the number of duplicates that were dropped."""

    rows: pa.Table
    duplicates: int


class RememberedRows:
    """The ids of recent records, with their epochs, in a table of the database.

    `times` maps the log's epochs to their processing times in microseconds. Epochs whose processing time is unknown are
    missing from `times`. `ids` is a relation of the log's ids and epochs. An id is forgotten when `log.remembered` has
    passed since the processing time of its epoch. If the processing time of an epoch is unknown, its ids are remembered
    until a later epoch's ids are forgotten.
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
        """Drop a bundle's duplicate records, and remember the ids of the other records.

        `epoch` is the bundle's epoch, and `now` is the epoch's processing time. A record is a duplicate if its id is
        remembered from an earlier epoch, or if the bundle has the same id at an earlier position in the source.
        Rejected records are never dropped.
        """
        own, table, again = self._columns, self._table, f"{self._table}_again"
        names = [f"k.{name_of(name)} IS NOT DISTINCT FROM r.{name_of(name)}" for name in self.log.id_columns]
        same = " AND ".join(names)
        good, remaining = rows["_error"].null_count, rows
        with register(self.connection, rows) as read:
            there = f"SELECT * FROM {read} r WHERE _error IS NULL"
            twice = f"SELECT 1 FROM ({there}) GROUP BY {own} HAVING COUNT(*) > 1"
            # There are many remembered ids, but few of them are repeated in a bundle. So scan the remembered ids only
            # once, and put the repeated ids into a temporary table.
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
        """Find the first epoch whose ids are still remembered.

        The ids of an epoch are forgotten if more than `log.remembered` has passed since the epoch's processing time.
        The result is the epoch after the last epoch that is known to be so old.
        """
        since = now - duration(self.log.remembered)
        return max((epoch for epoch, at in self._times.items() if at < since), default=-1) + 1
