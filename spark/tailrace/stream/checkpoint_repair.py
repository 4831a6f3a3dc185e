"""Take a stream's checkpoint, and rebuild it where it does not go on from the log: the log says what was read (X2)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.fold.fold_group import StreamError
from tailrace.ingest.checkpoint import Checkpoint, ReadPosition, file_names
from tailrace.ingest.landing import Landing
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import READ
from tailrace.lake.schema.table_names import rejected_name
from tailrace.model.definition.log import Log


def take_checkpoint(spark: SparkSession, landing: Landing, source: Source) -> tuple[Checkpoint, str | None]:
    """Take the checkpoint of a log's writer, rebuilt from the log's last commit where the checkpoint had a flaw.

    Returns the flaw, too; None where there was none. Raises `StreamError` where the commit does not say what was read.
    """
    lake, log = landing.lake, landing.log_definition
    checkpoint = Checkpoint.taken(spark, checkpoint_folder(lake, log), landing.log.token)
    properties = landing.log.head.properties
    if landing.epoch < 0:
        return checkpoint, None
    if missing := [name for name in READ if name not in properties]:
        raise StreamError(
            f"the last commit of log {log.name} does not say {', '.join(missing)} of how far its source was "
            "read: set TAILRACE_WAREHOUSE or TAILRACE_NAMESPACE to a place of its own to start anew"
        )
    position = ReadPosition(properties["query"], int(properties["batch"]), properties["offset"])
    flaw = checkpoint.flaw(position)
    if flaw is not None:
        checkpoint.rebuild(position, _files_read(spark, landing) if isinstance(source, Files) else ())
    return checkpoint, flaw


def checkpoint_folder(lake: Lake, log: Log) -> str:
    """Return the folder of a log's checkpoints, with one inside for each writer; a path, or an address of S3."""
    return lake.settings.checkpoint(lake.settings.namespace, log.name)


def _files_read(spark: SparkSession, landing: Landing) -> set[str]:
    """Find Spark's names of the files whose records are in the log, or were rejected."""
    name = landing.log_definition.name
    tables = (landing.lake.spark_name(table) for table in (name, rejected_name(name)))
    texts = (f"SELECT _source FROM {table} WHERE _epoch <= {landing.epoch}L" for table in tables)
    return file_names(row["_source"] for row in spark.sql(" UNION ".join(texts)).collect())
