"""Drop and count duplicate records, recognized by id, before they are written to the log (rule X5; MillWheel, 6.1.1).

Ids that arrived within the log's horizon (`Log.remembered`) are cached: on the executors (`RememberedIds`) if Spark
reads the records, and in DuckDB (`RememberedRows`) if this process reads them. After a restart, the ids are read from
the log. All ids of a bundle are compared with the cached ids in one join. If the bundle has no duplicates, which is the
usual case, the bundle's records stay as they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.engines.spark.executions.open_windows import free
from tailrace.engines.spark.executions.preparation import query_frame
from tailrace.model.base.time import duration
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Query, Relation, quoted

TOGETHER = 8
"""The maximum number of epochs whose ids are in separate frames.

If there are more epochs, all ids are merged into one frame.
"""

EPOCH = "_epoch"


class _Horizon:
    """The log's epochs whose ids are remembered, until `Log.remembered` has passed since the epoch's processing time.

    `times` maps the log's epochs to their processing times, in microseconds, if the processing times are known. If the
    processing time of an epoch is unknown, the ids of the epoch are remembered, unless a later epoch is known to be
    before the horizon.
    """

    def __init__(self, log: Log, times: Mapping[int, int]) -> None:
        self.log, self._times = log, dict(times)

    def _first(self, now: int) -> int:
        """Return the number of the first epoch within the horizon.

        This is the epoch after the last epoch that is known to be before the horizon.
        """
        since = now - duration(self.log.remembered)
        return max((epoch for epoch, at in self._times.items() if at < since), default=-1) + 1

    def _prune(self, now: int) -> int | None:
        """Forget the times of the epochs before the horizon, except the last one; return the first epoch within it.

        Returns None if there is no time to forget.
        """
        since = self._first(now)
        if all(epoch >= since - 1 for epoch in self._times):
            return None
        self._times = {epoch: at for epoch, at in self._times.items() if epoch >= since - 1}
        return since


@dataclass(frozen=True)
class UniqueRecords:
    """A bundle without duplicate records, the number of dropped duplicates, and the ids that were new in this
    bundle.
    """

    frame: DataFrame
    duplicates: int
    ids: DataFrame


class RememberedIds(_Horizon):
    """The ids of the records that arrived within the log's horizon (`Log.remembered`), and the epoch of each id.

    `ids` has the ids in the log and the epoch of each id.
    """

    def __init__(self, spark: SparkSession, log: Log, times: Mapping[int, int], ids: DataFrame) -> None:
        super().__init__(log, times)
        self.spark = spark
        self._columns = [quoted(name) for name in log.id_columns]
        since = self._first(max(times.values(), default=0))
        self._base = ids.where(f"{EPOCH} >= {since}L").select(*self._columns, EPOCH).distinct().localCheckpoint()
        self._apart: dict[int, DataFrame] = {}

    def unique(self, frame: DataFrame) -> UniqueRecords:
        """Drop a bundle's duplicate records: their ids are remembered, or another record of the bundle has the same id.

        Of several records of the bundle with the same id, the first record in the order of the source is kept. `frame`
        must be persisted, because it is read several times. If records are dropped, `frame` is unpersisted.
        """
        good, names = frame.where("_error IS NULL"), list(self.log.id_columns)
        ids = good.select(*self._columns).distinct().localCheckpoint(eager=False)
        known = self._remembered(ids).localCheckpoint(eager=False)
        counts = (one.agg(F.count("*").alias(name)) for name, one in (("all", good), ("ids", ids), ("known", known)))
        (numbers,) = reduce(DataFrame.crossJoin, counts).collect()
        if not numbers["known"]:
            free(known)
            if numbers["ids"] == numbers["all"]:
                return UniqueRecords(frame, 0, ids)
        else:
            before, ids = ids, ids.join(known, names, "left_anti").localCheckpoint()
            free(before)
            free(known)
        place = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(self._columns)} ORDER BY _source, _offset) AS _place"
        some = good.join(ids, names, "left_semi")
        first = query_frame(self.spark, some, lambda view: Query(f"SELECT *, {place} FROM {view}"))
        remaining = first.where("_place = 1").select(*frame.columns)
        # The local checkpoint is needed because the bundle is joined with itself. In such a join, Spark would read the
        # bundle from the source again, even if the bundle is cached.
        rejected = frame.where("_error IS NOT NULL").localCheckpoint(eager=False)
        made = remaining.unionByName(rejected).persist()
        made.count()
        free(rejected)
        frame.unpersist()
        return UniqueRecords(made, numbers["all"] - (numbers["ids"] - numbers["known"]), ids)

    def add(self, ids: DataFrame, epoch: int, now: int) -> None:
        """Add the ids of an epoch to the remembered ids; `now` is the epoch's processing time, in microseconds."""
        self._times[epoch] = now
        self._apart[epoch] = ids
        if len(self._apart) > TOGETHER:
            since = self._first(now)
            self._prune(now)
            before, self._base = self._base, self._all().where(f"{EPOCH} >= {since}L").localCheckpoint()
            for frame in (before, *self._apart.values()):
                free(frame)
            self._apart = {}

    def _remembered(self, ids: DataFrame) -> DataFrame:
        """Return those ids of a bundle that are already remembered."""
        # The ids of the bundle are the small side of the join, so they are broadcast. The remembered ids are not moved
        # between executors.
        return (
            self._all().join(F.broadcast(ids), list(self.log.id_columns), "left_semi").select(*self._columns).distinct()
        )

    def _all(self) -> DataFrame:
        apart = (ids.withColumn(EPOCH, F.lit(epoch).cast("bigint")) for epoch, ids in self._apart.items())
        return reduce(DataFrame.unionAll, apart, self._base)


@dataclass(frozen=True)
class UniqueRows:
    """A bundle without its duplicate records, and the number of duplicates that were dropped."""

    rows: pa.Table
    duplicates: int


class RememberedRows(_Horizon):
    """The ids of recent records, with their epochs, in a table of the database.

    `ids` is a relation of the log's ids and epochs.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, log: Log, times: Mapping[int, int], ids: Relation
    ) -> None:
        super().__init__(log, times)
        self.connection = connection
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
        if (since := self._prune(now)) is not None:
            self.connection.execute(f"DELETE FROM {self._table} WHERE _epoch < {since}")
