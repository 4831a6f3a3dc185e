"""Find the latest times of each source partition in a bundle, from which `step.progress` computes the watermarks.

One small Spark job or DuckDB query over the bundle finds all of these times. Some watermark strategies also need the
lags of the records (how far event times are behind arrival times). For such a strategy, the result of the query has one
row for each partition and range of lags. Otherwise, it has one row for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tailrace.engines.duckdb.database.bundles import queried_arrow
from tailrace.engines.protocol import BundleRecords
from tailrace.engines.spark.bundles import as_frame
from tailrace.engines.spark.executions.preparation import query_frame
from tailrace.ingest.sources import Kafka, Source, topic_offsets
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import LAG_STEPS
from tailrace.model.step.progress import ALL, Seen
from tailrace.sql.terms import Query, quoted


def latest_by_partition(
    spark: SparkSession,
    source: Source,
    log: Log,
    read: BundleRecords,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> dict[str, Seen]:
    """Return the latest event time, the latest arrival time and the lags of each partition in a bundle.

    Rejected records are ignored. If the bundle is an Arrow table, DuckDB queries it on `connection`.
    """
    text = _text(source, log)
    if isinstance(read, pa.Table):
        assert connection is not None
        rows = queried_arrow(connection, read, text)
    else:
        frame = as_frame(spark, read)
        rows = [row.asDict() for row in query_frame(spark, frame, lambda view: Query(text.format(view=view))).collect()]
    learns = log.strategy.learns
    return merge_seen(
        {row["partition"]: Seen(row["latest"], row["arrived"], {row["bucket"]: row["records"]} if learns else {})}
        for row in rows
    )


def latest_in(log: Log, records: pa.Table) -> dict[str, Seen]:
    """Return the latest event time and arrival time in records of files; `records` must not contain rejected
    records.
    """
    if not records.num_rows:
        return {}
    latest, arrived = (pc.max(records[name].cast(pa.int64())).as_py() for name in (log.event_time, "_arrival"))
    return {ALL: Seen(latest, arrived)}


def merge_seen(parts: Iterable[Mapping[str, Seen]]) -> dict[str, Seen]:
    """Merge the latest times and the lag counts of several parts of a bundle.

    >>> merge_seen([{"a": Seen(3, 5, {0: 2})}, {"a": Seen(4, 4, {0: 1, 7: 1})}])
    {'a': Seen(latest=4, arrived=5, lags={0: 3, 7: 1}, complete=None)}
    """
    found: dict[str, Seen] = {}
    for name, seen in (item for part in parts for item in part.items()):
        before = found.get(name, Seen())
        lags = {
            bucket: before.lags.get(bucket, 0) + seen.lags.get(bucket, 0) for bucket in {**before.lags, **seen.lags}
        }
        found[name] = Seen(_later(before.latest, seen.latest), _later(before.arrived, seen.arrived), lags)
    return found


def _later(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)


def _text(source: Source, log: Log) -> str:
    partition = "_source" if isinstance(source, Kafka) else f"'{ALL}'"
    late = f"GREATEST(0D, (UNIX_MICROS(_arrival) - UNIX_MICROS({quoted(log.event_time)})) / 1000D)"
    bucket = f"CAST(CEIL({LAG_STEPS} * LOG2(1D + {late})) AS int)" if log.strategy.learns else "0"
    return (
        f"SELECT {partition} AS partition, {bucket} AS bucket, COUNT(*) AS records, "
        f"MAX(UNIX_MICROS({quoted(log.event_time)})) AS latest, MAX(UNIX_MICROS(_arrival)) AS arrived "
        "FROM {view} WHERE _error IS NULL GROUP BY 1, 2"
    )


def complete_partitions(log: Log, files: Sequence[str]) -> dict[str, Seen]:
    """Use the names of an epoch's files to find the partitions that are complete up to some instant.

    The result maps a partition to an object whose field `complete` contains this instant.
    """
    found: dict[str, Seen] = {}
    for file in files:
        complete = log.strategy.completes(file)
        if complete is not None:
            name, until = complete
            found[name] = Seen(complete=max(until, found.get(name, Seen(complete=until)).complete or until))
    return found


def partition_names(offsets: str) -> tuple[str, ...]:
    """List the names of the partitions in an offset of a Kafka topic; for any other source, the result is empty.

    >>> partition_names('{"clicks":{"1":7,"0":3}}'), partition_names('{"logOffset":5}')
    (('clicks-0', 'clicks-1'), ())
    """
    return tuple(sorted(f"{topic}-{partition}" for topic, partition in topic_offsets(offsets)))
