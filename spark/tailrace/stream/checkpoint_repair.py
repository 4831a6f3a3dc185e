"""Take a stream's checkpoint, and rebuild it where it disagrees with the logs, which say how far was read (X2)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tailrace.fold.fold_group import StreamError
from tailrace.ingest.checkpoint import NOT_READ, Checkpoint, ReadPosition, file_names
from tailrace.ingest.landing import Landing
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import READ
from tailrace.lake.schema.table_names import rejected_name
from tailrace.model.logs.log import Log


def take_checkpoint(
    spark: SparkSession, landings: Mapping[str, Landing], sources: Mapping[str, Source]
) -> tuple[Checkpoint, str | None]:
    """Take over the checkpoint of these logs' former writer; rebuild it from the logs' last commits if it has a flaw.

    Returns the checkpoint and the flaw, None without one. Raises `StreamError` where a commit has no position.
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
    return checkpoint, flaw


def renew_checkpoint(
    spark: SparkSession, checkpoint: Checkpoint, landings: Mapping[str, Landing], sources: Mapping[str, Source]
) -> None:
    """Rewrite a stream's checkpoint for a query that reads only the sources of these logs, from where each log ends.

    Call it once the former query has stopped. Rejected records of an epoch that a log never got are taken back.
    """
    checkpoint.sources, position = len(landings), _position(landings)
    if position is None:
        checkpoint.remove()
    else:
        _rebuild(spark, checkpoint, position, landings, sources)
    for landing in landings.values():
        landing.take_back_rejected()


def _position(landings: Mapping[str, Landing]) -> ReadPosition | None:
    """Return the position up to which the sources were read, by the logs' last commits; None before the first epoch."""
    begun = [landing for landing in landings.values() if landing.epoch >= 0]
    if not begun:
        return None
    # Streams of their own may have landed the logs before, or a stream may have died between two of them.
    latest = max(begun, key=lambda landing: int(_read(landing)["batch"]))
    offsets = tuple(_read(landing)["offset"] if landing.epoch >= 0 else NOT_READ for landing in landings.values())
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
    """Return the folder of the checkpoints of streams whose first log is `log`: a path, or an address of S3.

    Each writer has a subfolder.
    """
    return lake.settings.checkpoint(lake.settings.namespace, log.name)


def _files_read(spark: SparkSession, landing: Landing) -> dict[str, int]:
    """Find Spark's names of the files whose records are in the log or were rejected, each with its time of writing.

    Times are in milliseconds; 0 where a record's arrival is not the time of its file.
    """
    log = landing.log_definition
    tables = (landing.lake.spark_name(table) for table in (log.name, rejected_name(log.name)))
    texts = (f"SELECT _source, _arrival FROM {table} WHERE _epoch <= {landing.epoch}L" for table in tables)
    written = "UNIX_MILLIS(MAX(_arrival))" if log.arrival_time is None else "0L"
    rows = spark.sql(f"SELECT _source, {written} AS written FROM ({' UNION ALL '.join(texts)}) GROUP BY 1").collect()
    return file_names({row["_source"]: row["written"] or 0 for row in rows})
