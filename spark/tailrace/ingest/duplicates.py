"""Drop and count duplicate records, recognized by id, before they are written to the log (rule X5; MillWheel, 6.1.1).

Ids that arrived within the log's horizon (`Log.remembered`) are cached on the executors; after a restart, the ids are
read from the log. All ids of a bundle are compared with the cached ids in one join. If the bundle has no duplicates,
which is the usual case, the bundle's records stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.open_windows import free
from tailrace.engines.spark.executions.preparation import query_frame
from tailrace.model.base.time import duration
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Query, quoted

TOGETHER = 8
"""The maximum number of epochs whose ids are in separate frames.

If there are more epochs, all ids are merged into one frame.
"""

EPOCH = "_epoch"


@dataclass(frozen=True)
class UniqueRecords:
    """A bundle without duplicate records, the number of dropped duplicates, and the ids that were new in this
    bundle.
    """

    frame: DataFrame
    duplicates: int
    ids: DataFrame


class RememberedIds:
    """The ids of the records that arrived within the log's horizon (`Log.remembered`), and the epoch of each id.

    `times` maps the log's epochs to their processing times, in microseconds, if the processing times are known. `ids`
    has the ids in the log and the epoch of each id. If the processing time of an epoch is unknown, the ids of the epoch
    are remembered, unless a later epoch is known to be before the horizon.
    """

    def __init__(self, spark: SparkSession, log: Log, times: Mapping[int, int], ids: DataFrame) -> None:
        self.spark, self.log = spark, log
        self._times = dict(times)
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
            self._times = {one: at for one, at in self._times.items() if one >= since - 1}
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

    def _first(self, now: int) -> int:
        """Return the number of the first epoch within the horizon.

        This is the epoch after the last epoch that is known to be before the horizon.
        """
        since = now - duration(self.log.remembered)
        return max((epoch for epoch, at in self._times.items() if at < since), default=-1) + 1
