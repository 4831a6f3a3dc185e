"""Say whether, and why, a source cannot be read now."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tailrace.ingest.sources import Files, Source, SourceError
from tailrace.stream.source_identity import described


class LogSourceError(SourceError):
    """A source that could not be read, of a known log."""

    def __init__(self, log: str, source: Source, error: Exception) -> None:
        said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        super().__init__(f"log {log} cannot be read from {source}: {str(said).split(chr(10), 1)[0]}")
        self.log = log


def unreachable(spark: SparkSession, source: Source) -> str | None:
    """Say why a source cannot be reached now; None where it can."""
    jvm: Any = spark._jvm
    try:
        if isinstance(source, Files):
            path = jvm.org.apache.hadoop.fs.Path(source.folder)
            there = path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path)
            return None if there else f"the folder {source.folder} is not there"
        described(spark, source)
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString()).split("\n", 1)[0]
        return f"{source} cannot be reached: {reason}"
    return None
