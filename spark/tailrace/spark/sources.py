"""Where records come from: files that land in a folder, or a Kafka topic, as Structured Streaming sources.

For files the query streams their names alone (Spark's `binaryFile` source, whose contents column is never read), so the
checkpoint says which files an epoch has, and the epoch reads just the columns it needs, each in its own format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession

from tailrace.model.errors import TailraceError

Format: TypeAlias = Literal["json", "csv", "parquet"]
_NAMES = "path string, modificationTime timestamp, length bigint, content binary"

FORMATS: tuple[Format, ...] = ("json", "csv", "parquet")


class SourceError(TailraceError, ValueError):
    """A source that cannot be read at all; a single bad record is rejected instead."""


@dataclass(frozen=True)
class Files:
    """Files landing in a folder, in the order of their modification times.

    `per_epoch` bounds how many an epoch takes. JSON is one object a line; CSV has a header line.
    """

    folder: str
    format: Format = "json"
    per_epoch: int | None = None

    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame of the files' names: one column, `path`. Raises `SourceError` with no such folder."""
        if self.format not in FORMATS:
            raise SourceError(f"format {self.format!r}: expected one of {', '.join(FORMATS)}; pass --format json")
        if not _exists(self.folder):
            raise SourceError(f"the folder {self.folder} is not there: make it, or pass another with --from")
        reader = spark.readStream.format("binaryFile").schema(_NAMES).option("recursiveFileLookup", "true")
        if self.per_epoch:
            reader = reader.option("maxFilesPerTrigger", self.per_epoch)
        return reader.load(self.folder).select("path")

    def __str__(self) -> str:
        return f"{self.format} files in {self.folder}"


@dataclass(frozen=True)
class Kafka:
    """A topic of JSON objects. `per_epoch` bounds how many records an epoch takes."""

    topic: str
    bootstrap: str
    per_epoch: int | None = None

    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame of the topic's records: `value`, `_source`, `_offset`, `_arrival`."""
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            # A record that the broker lost is an error to look into, not one to pass over.
            .option("failOnDataLoss", "true")
        )
        if self.per_epoch:
            reader = reader.option("maxOffsetsPerTrigger", self.per_epoch)
        return reader.load().selectExpr(
            "value", "CONCAT(topic, '-', partition) AS _source", "offset AS _offset", "timestamp AS _arrival"
        )

    def __str__(self) -> str:
        return f"Kafka topic {self.topic}"


Source: TypeAlias = Files | Kafka


def _exists(folder: str) -> bool:
    parsed = urlparse(folder)
    return parsed.scheme not in ("", "file") or Path(parsed.path).is_dir()
