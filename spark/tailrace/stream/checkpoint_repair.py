"""Take over a stream's checkpoint, and rebuild it if it contradicts the positions that the logs record (rule X2)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.checkpoint import NOT_READ, Checkpoint, ReadPosition, file_names
from tailrace.ingest.landing import Landing
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import OFFSET, READ
from tailrace.lake.schema.table_names import rejected_name
from tailrace.model.logs.log import Log


def take_checkpoint(
    spark: SparkSession, landings: Mapping[str, Landing], sources: Mapping[str, Source]
) -> tuple[Checkpoint, str | None]:
    """Take over the previous writer's checkpoint, and rebuild the checkpoint if it contradicts the logs' last commits.

    Returns the checkpoint, and a description of the flaw (None if there was no flaw). Raises `StreamError` if the last
    commit of a log does not record a position.
    """
    first = next(iter(landings.values()))
    folder = checkpoint_folder(first.lake, first.log_definition)
    checkpoint = Checkpoint.take_over(spark, folder, first.log.token, len(landings))
    position = _position(landings)
    flaw = None if position is None else checkpoint.flaw(position)
    if position is not None and flaw is not None:
        _rebuild(spark, checkpoint, position, landings, sources)
        for landing in landings.values():
            landing.take_back_rejected()
    begun = any(landing.epoch >= 0 for landing in landings.values())
    return checkpoint, flaw if begun else None


def renew_checkpoint(
    spark: SparkSession, checkpoint: Checkpoint, landings: Mapping[str, Landing], sources: Mapping[str, Source]
) -> None:
    """Rewrite a stream's checkpoint for a new query that reads only the sources of these logs.

    The query continues from the end of each log. Call this function after the previous query has stopped. If an epoch's
    rejected records were published, but the epoch was not published in its log, these rejected records are removed.
    """
    checkpoint.sources, position = len(landings), _position(landings)
    if position is None:
        checkpoint.remove()
    else:
        _rebuild(spark, checkpoint, position, landings, sources)
    for landing in landings.values():
        landing.take_back_rejected()


def _position(landings: Mapping[str, Landing]) -> ReadPosition | None:
    """Return the position up to which the sources were read, according to the logs.

    Returns None if none of the logs has an epoch yet.
    """
    begun = [landing for landing in landings.values() if landing.position[OFFSET] != NOT_READ or landing.epoch >= 0]
    if not begun:
        return None
    # Use the log with the latest micro-batch. The logs may differ: separate streams may have landed the logs before, or
    # a stream may have died between the commits of two logs.
    latest = max(begun, key=lambda landing: int(_read(landing)["batch"]))
    offsets = tuple(_read(landing)[OFFSET] if landing in begun else NOT_READ for landing in landings.values())
    return ReadPosition(_read(latest)["query"], int(_read(latest)["batch"]), offsets)


def _rebuild(
    spark: SparkSession, checkpoint: Checkpoint, position: ReadPosition, landings: Mapping[str, Landing],
    sources: Mapping[str, Source],
) -> None:  # fmt: skip
    files = [_files_read(spark, landing) if isinstance(sources[name], Files) else dict[str, int]()
             for name, landing in landings.items()]  # fmt: skip
    checkpoint.rebuild(position, files)


def _read(landing: Landing) -> Mapping[str, str]:
    properties, log = landing.log.head.properties, landing.log_definition
    if missing := [name for name in READ if name not in properties]:
        raise StreamError(
            f"the last commit of log {log.name} does not say {', '.join(missing)} of how far its source was "
            "read: set TAILRACE_WAREHOUSE or TAILRACE_NAMESPACE to a place of its own to start anew"
        )
    return properties


def checkpoint_folder(lake: Lake, log: Log) -> str:
    """Return the folder for the checkpoints of streams whose first log is `log`, as a path or an S3 address.

    Each writer has its own subfolder in this folder.
    """
    return lake.settings.checkpoint(lake.settings.namespace, log.name)


def _files_read(spark: SparkSession, landing: Landing) -> dict[str, int]:
    """Return the modification time of each file from which the log has records or rejected records.

    The names are Spark's names. Times are in milliseconds. All times are 0 if the log has its own column for arrival
    times, because the modification times are then unknown.
    """
    log = landing.log_definition
    tables = (landing.lake.spark_name(table) for table in (log.name, rejected_name(log.name)))
    texts = (f"SELECT _source, _arrival FROM {table} WHERE _epoch <= {landing.epoch}L" for table in tables)
    written = "UNIX_MILLIS(MAX(_arrival))" if log.arrival_time is None else "0L"
    rows = spark.sql(f"SELECT _source, {written} AS written FROM ({' UNION ALL '.join(texts)}) GROUP BY 1").collect()
    return file_names({row["_source"]: row["written"] or 0 for row in rows})
