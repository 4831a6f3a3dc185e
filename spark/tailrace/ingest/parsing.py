"""Parse raw records to a log's columns with Spark.

For a record that does not fit the log, the bytes and the reason are stored (X6). The frames in this module have the
log's declared columns, `_source`, `_offset`, `_arrival`, `_error` and `_raw`. `_error` and `_raw` are null for a record
that fits the log. Before parsing, the column `_bytes` contains the raw record. The name of a declared column never
starts with `_`.

Python on the executors parses the records (`ingest.json_reader`, `ingest.csv_reader`, `ingest.parquet_reader`). A value
must have its declared type, and is stored without loss: digits are rounded only in a double. Every instant is rounded
down to microseconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.engines.spark.workers.python_tasks import files_in_parts, for_each, over_batches
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.csv_reader import csv_reader
from tailrace.ingest.json_reader import json_reader
from tailrace.ingest.line_reader import LINES, over_lines
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.plain_files import parquet_parts, read_whole, typed_parts, whole_schema
from tailrace.ingest.room import COLUMNS, SLICE
from tailrace.ingest.sources import (
    TYPED,
    Files,
    Format,
    InspectedFile,
    RowGroups,
    file_sizes,
    inspect_files,
    row_group_parts,
)
from tailrace.model.logs.json_records import AROUND
from tailrace.model.logs.log import ROUNDED, SCANNED, Log
from tailrace.sql.terms import Sql, null, quoted


def read_messages(spark: SparkSession, log: Log, batch: DataFrame) -> DataFrame:
    """Parse a micro-batch of a topic's messages to the log's columns."""
    return _json(log, own_batch(spark, batch).selectExpr("value AS _bytes", *_PLACE))


def raw_messages(spark: SparkSession, batch: DataFrame) -> pa.Table:
    """Read the messages of a micro-batch into this process, as unparsed lines (`ingest.line_reader.LINES`)."""
    return own_batch(spark, batch).selectExpr("value AS _bytes", *_PLACE).toArrow().cast(LINES)


def read_files(
    spark: SparkSession, source: Files, log: Log, paths: Sequence[str], blank: BlankLines | None = None,
    unreadable: Mapping[str, str] | None = None,
) -> DataFrame:  # fmt: skip
    """Parse files to the log's columns.

    A file that is missing, or not in the expected format, becomes one rejected record. `blank` counts the blank lines
    when Spark computes the frame. `unreadable` maps each file that is known to be damaged inside to the reason why it
    is unreadable. Any other damaged file makes the computation of the frame fail (`folders.unreadable_files`). Raises
    `SourceError` if the bytes of a file cannot be read.
    """
    known = unreadable or {}
    looked = sorted(inspect_files(log, source.format, [p for p in paths if p not in known]), key=lambda one: one.shape)
    looked += [InspectedFile(path, broken=known[path]) for path in paths if path in known]
    broken, counting = [one for one in looked if one.broken], blank or BlankLines()
    frames = [_only(spark, log, broken)] if broken or not paths else []
    good = [one for one in looked if not one.broken]
    if source.format in TYPED:
        typed = _parquet if source.format == "parquet" else _avro
        return reduce(DataFrame.unionByName, [*frames, *([typed(spark, log, good)] if good else [])])
    if whole := [one.path for one in good if one.whole]:
        frames.append(_whole_files(spark, source.format, log, whole, counting))
    for _, group in groupby((one for one in good if not one.whole), key=lambda one: one.shape):
        alike = list(group)
        if source.format == "json":
            frames.append(_json(log, _lines(spark, alike, counting)))
        else:
            frames.append(_csv(log, _lines(spark, alike, counting), alike[0].header))
    return reduce(DataFrame.unionByName, frames)


def read_unparsed(spark: SparkSession, source: Files, log: Log, path: str) -> DataFrame:
    """Read a file of text without parsing its records, to find out whether Spark can read it."""
    (file,) = inspect_files(log, source.format, [path])
    return _only(spark, log, [file]) if file.broken else _lines(spark, [file], BlankLines())


def own_batch(spark: SparkSession, batch: DataFrame) -> DataFrame:
    """Transfer a micro-batch from the query's session to this session, which has Tailrace's views and settings."""
    name = f"tailrace_{uuid.uuid4().hex}"
    batch.createGlobalTempView(name)
    frame = spark.table(f"global_temp.{name}")
    spark.catalog.dropGlobalTempView(name)
    return frame


def _whole_files(spark: SparkSession, format: Format, log: Log, paths: Sequence[str], blank: BlankLines) -> DataFrame:
    """Read text files with Python on the executors, each file by one task."""
    parts = files_in_parts(paths, file_sizes(paths), spark.sparkContext.defaultParallelism, _PART)
    schema = whole_schema(log)
    return blank.counted(for_each(spark, parts, partial(read_whole, log, format), schema), schema.names[-1])


_PART = 64 * 2**20
"""The number of bytes of files that one task reads, if there are enough files for all cores."""


def _json(log: Log, lines: DataFrame) -> DataFrame:
    """Parse lines or messages in JSON with Python on the executors (`ingest.json_reader`)."""
    read = over_batches(over_lines(partial(json_reader, log)))
    return lines.select(LINES.names).mapInArrow(read, from_arrow_schema(schema_of(log)))


def _csv(log: Log, lines: DataFrame, header: bytes | None) -> DataFrame:
    """Parse lines of CSV files that have the same header with Python on the executors (`ingest.csv_reader`)."""
    read = over_batches(over_lines(partial(csv_reader, log, header)))
    return lines.select(LINES.names).mapInArrow(read, from_arrow_schema(schema_of(log)))


def _avro(spark: SparkSession, log: Log, files: Sequence[InspectedFile]) -> DataFrame:
    """Read Avro files with Python on the executors."""

    def read(part: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for path in part:
            for records in typed_parts(log, "avro", path, COLUMNS * SLICE):
                yield from records.to_batches()

    paths = [one.path for one in files]
    parts = files_in_parts(paths, file_sizes(paths), spark.sparkContext.defaultParallelism, _TASK)
    return for_each(spark, parts, read, schema_of(log))


def _parquet(spark: SparkSession, log: Log, files: Sequence[InspectedFile]) -> DataFrame:
    """Read Parquet files with Python on the executors, in parts of whole files or of row groups."""

    def read(part: Sequence[RowGroups]) -> Iterator[pa.RecordBatch]:
        for some in part:
            for records in parquet_parts(log, some.path, COLUMNS * SLICE, groups=some.groups):
                yield from records.to_batches()

    return for_each(spark, row_group_parts(files), read, schema_of(log))


def _lines(spark: SparkSession, files: Sequence[InspectedFile], blank: BlankLines) -> DataFrame:
    """Read the lines of text files with their positions; leave out blank lines."""
    # The offset is an id that combines the number of the scan's partition with the row's position in that partition.
    # The offset is unique only within an epoch, which is sufficient. No such offset can be taken for a line's number.
    lines = (
        _reader(spark, files[0])
        .option("ignoreMissingFiles", "false")
        .option("lineSep", "\n")
        .text([one.path for one in files])
        .selectExpr(
            "CAST(value AS binary) AS _bytes",
            "_metadata.file_path AS _source",
            f"MONOTONICALLY_INCREASING_ID() + {SCANNED}L AS _offset",
            "_metadata.file_modification_time AS _arrival",
        )
    )
    return blank.without(lines, _BLANK)


def _reader(spark: SparkSession, file: InspectedFile) -> DataFrameReader:
    """Return a reader for files that can be read together; the reader takes file names literally, not as patterns."""
    reader = spark.read.option(*_NO_PATTERN)
    # Hadoop looks for a checksum file next to a local file. If the file's name contains a colon, Hadoop cannot handle
    # the name of the checksum file, so the search is turned off.
    return reader.options(**WITHOUT_CHECKSUMS) if file.has_colon else reader


def _only(spark: SparkSession, log: Log, broken: Sequence[InspectedFile]) -> DataFrame:
    """Return a frame with one rejected record for each file that cannot be read."""
    rows = ", ".join(f"({_literal(one.path)}, {_literal(one.broken)})" for one in broken) or "('', '')"
    items = [*_nulls(log), "path AS _source", "0L AS _offset", f"{null('timestamp')} AS _arrival", "said AS _error"]
    items += [f"{null('binary')} AS _raw", *([f"{null('int')} AS {ROUNDED}"] if log.rounds else [])]
    frame = spark.sql(f"SELECT {', '.join(items)} FROM VALUES {rows} AS files(path, said)")
    return frame if broken else frame.where("false")


def _nulls(log: Log) -> list[str]:
    return [f"{null(type)} AS {quoted(name)}" for name, type in log.columns.items()]


def _literal(value: str) -> str:
    """Return a Python string as an SQL literal."""
    return str(Sql().literal(value, "string"))


_PLACE = ("_source", "_offset", "_arrival")
_TEXT = "CAST(_bytes AS string)"
_BLANK = f"LEFT({_TEXT}, 1) IN ('', {', '.join(map(_literal, AROUND))}) AND {_TEXT} RLIKE {_literal(f'^[{AROUND}]*$')}"
"""The SQL that is true for a line of white space."""

_TASK = 64 * 2**20
"""The number of bytes of Avro files that one task reads."""

_NO_PATTERN = ("__globPaths__", "false")
"""An internal option of Spark: with this option, brackets and stars in paths are taken literally."""

WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Options with which Hadoop reads local files without looking for checksum files."""
