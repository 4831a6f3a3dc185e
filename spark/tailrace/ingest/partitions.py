"""Find the latest times of each source partition in a bundle: its watermark goes by them (`step.progress`).

This is one small job over the bundle; the driver gets a row for each partition, and for each bucket of lags where the
strategy counts lags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.engines.duckdb.database.bundles import queried_arrow
from tailrace.engines.spark.executions.preparation import queried
from tailrace.engines.spark.side import Bundled
from tailrace.ingest.sources import Kafka, Source
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import LAG_STEPS
from tailrace.model.step.progress import ALL, Seen
from tailrace.sql.terms import Query, quoted


def watched(
    spark: SparkSession, source: Source, log: Log, read: Bundled, connection: duckdb.DuckDBPyConnection | None = None
) -> dict[str, Seen]:
    """Find the latest times and the lags of each partition in a bundle. Records that were rejected do not count.

    An Arrow table is queried on `connection`.
    """
    text = _text(source, log)
    if isinstance(read, pa.Table):
        assert connection is not None
        rows = queried_arrow(connection, read, text)
    else:
        rows = [row.asDict() for row in queried(spark, read, lambda view: Query(text.format(view=view))).collect()]
    found: dict[str, Seen] = {}
    for row in rows:
        latest, arrived, lags = row["latest"], row["arrived"], {}
        if (before := found.get(row["partition"])) is not None:
            latest, arrived, lags = max(latest, before.latest), max(arrived, before.arrived), dict(before.lags)
        if log.strategy.learns:
            lags[row["bucket"]] = row["records"]
        found[row["partition"]] = Seen(latest, arrived, lags)
    return found


def _text(source: Source, log: Log) -> str:
    partition = "_source" if isinstance(source, Kafka) else f"'{ALL}'"
    late = f"GREATEST(0D, (UNIX_MICROS(_arrival) - UNIX_MICROS({quoted(log.event_time)})) / 1000D)"
    bucket = f"CAST(CEIL({LAG_STEPS} * LOG2(1D + {late})) AS int)" if log.strategy.learns else "0"
    return (
        f"SELECT {partition} AS partition, {bucket} AS bucket, COUNT(*) AS records, "
        f"MAX(UNIX_MICROS({quoted(log.event_time)})) AS latest, MAX(UNIX_MICROS(_arrival)) AS arrived "
        "FROM {view} WHERE _error IS NULL GROUP BY 1, 2"
    )


def completed(log: Log, files: Sequence[str]) -> dict[str, Seen]:
    """Find which partitions the names of an epoch's files say are complete, and until when."""
    found: dict[str, Seen] = {}
    for file in files:
        complete = log.strategy.completes(file)
        if complete is not None:
            name, until = complete
            found[name] = Seen(complete=max(until, found.get(name, Seen(complete=until)).complete or until))
    return found


def partitions(offsets: str) -> tuple[str, ...]:
    """List the partitions that a source's offset names: those of Kafka topics; other sources name none.

    >>> partitions('{"clicks":{"1":7,"0":3}}'), partitions('{"logOffset":5}')
    (('clicks-0', 'clicks-1'), ())
    """
    try:
        data = json.loads(offsets)
    except ValueError:
        return ()
    topics = data.items() if isinstance(data, dict) else ()
    return tuple(sorted(f"{topic}-{one}" for topic, of in topics if isinstance(of, dict) for one in of))
