"""Parse raw records to a log's columns with Spark.

For a record that does not fit the log, the bytes and the reason are stored (X6). The frames in this module have the
log's declared columns, `_source`, `_offset`, `_arrival`, `_error` and `_raw`. `_error` and `_raw` are null for a record
that fits the log. Before parsing, the column `_bytes` contains the raw record. The name of a declared column never
starts with `_`.

JSON and CSV are parsed by Python on the executors (`ingest.json_reader`, `ingest.csv_reader`), and Parquet is parsed by
Spark. A value must have its declared type, and is stored without loss: digits are rounded only in a double. Every
instant is rounded down to microseconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.engines.spark.workers.python_tasks import over_batches
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.column_types import MILLIS, NANOS
from tailrace.ingest.csv_reader import csv_reader
from tailrace.ingest.json_reader import json_reader
from tailrace.ingest.judging import (
    as_json,
    exact_instant,
    from_millis,
    from_nanos,
    literal,
)
from tailrace.ingest.line_reader import LINES, over_lines
from tailrace.ingest.plain_columns import TimeCheck, maximum_ahead, other_time_checks, own_time_checks, schema_of
from tailrace.ingest.sources import Files, InspectedFile, inspect_files
from tailrace.model.logs.json_records import AROUND, too_far_ahead
from tailrace.model.logs.log import Log
from tailrace.sql.terms import null, quoted


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
    for _, group in groupby((one for one in looked if not one.broken), key=lambda one: one.shape):
        alike = list(group)
        if source.format == "json":
            frames.append(_json(log, _lines(spark, alike, counting)))
        elif source.format == "csv":
            frames.append(_csv(log, _lines(spark, alike, counting), alike[0].header))
        else:
            frames.append(_parquet(spark, log, alike))
    return reduce(DataFrame.unionByName, frames)


def read_unparsed(spark: SparkSession, source: Files, log: Log, path: str) -> DataFrame:
    """Read a file without parsing its records, to find out whether Spark can read it.

    A Parquet file is read completely.
    """
    if source.format == "parquet":
        return read_files(spark, source, log, [path])
    (file,) = inspect_files(log, source.format, [path])
    return _only(spark, log, [file]) if file.broken else _lines(spark, [file], BlankLines())


def own_batch(spark: SparkSession, batch: DataFrame) -> DataFrame:
    """Transfer a micro-batch from the query's session to this session, which has Tailrace's views and settings."""
    name = f"tailrace_{uuid.uuid4().hex}"
    batch.createGlobalTempView(name)
    frame = spark.table(f"global_temp.{name}")
    spark.catalog.dropGlobalTempView(name)
    return frame


def _json(log: Log, lines: DataFrame) -> DataFrame:
    """Parse lines or messages in JSON with Python on the executors (`ingest.json_reader`)."""
    read = over_batches(over_lines(partial(json_reader, log)))
    return lines.select(LINES.names).mapInArrow(read, from_arrow_schema(schema_of(log)))


def _csv(log: Log, lines: DataFrame, header: bytes | None) -> DataFrame:
    """Parse lines of CSV files that have the same header with Python on the executors (`ingest.csv_reader`)."""
    read = over_batches(over_lines(partial(csv_reader, log, header)))
    return lines.select(LINES.names).mapInArrow(read, from_arrow_schema(schema_of(log)))


def _parquet(spark: SparkSession, log: Log, alike: Sequence[InspectedFile]) -> DataFrame:
    """Parse Parquet files that have the same columns."""
    file, paths = alike[0], [each.path for each in alike]
    # Read instants in nanoseconds, which pandas writes, as numbers, because Spark can read them only in this way.
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    place = ["_metadata.file_path AS _source", "_metadata.row_index AS _offset"]
    place.append("_metadata.file_modification_time AS _arrival")
    reader = _reader(spark, file)
    if file.unlike:
        try:
            rows = reader.parquet(*paths)
            rows = rows.selectExpr(f"{as_json(dict(rows.dtypes))} AS _bytes", *place)
        except AnalysisException:
            # Spark cannot read the type of some column, or cannot distinguish two columns, so all files of this group
            # are rejected.
            return _only(spark, log, [replace(each, broken=each.unlike) for each in alike])
        return _checked(log, rows.selectExpr("*", *_nulls(log)), [("true", literal(file.unlike))], "_bytes")
    types = {name: type for name, type in file.columns if name in log.columns and type != "null"}
    # Instants in nanoseconds or milliseconds are read as numbers: Spark would fail on an instant in milliseconds that
    # is out of the range of microseconds.
    units = {name: _FROM_UNIT[type] for name, type in types.items() if type in _FROM_UNIT}
    read_as = {name: "bigint" if name in units else log.columns[name] for name in types}
    ddl = ", ".join(f"{quoted(name)} {type}" for name, type in read_as.items())
    values = {name: quoted(name) if name in types else null(type) for name, type in log.columns.items()}
    values |= {name: instant_of(quoted(name)) for name, instant_of in units.items()}
    rows = reader.schema(ddl).parquet(*paths)
    # Keep these instants also as numbers, in additional columns, so that a rejected row is stored with all digits.
    numbers = {f"_{name}_as_read": name for name in units}
    read = [f"{quoted(name)} AS {quoted(kept)}" for kept, name in numbers.items()]
    typed = rows.selectExpr(*(f"{value} AS {quoted(name)}" for name, value in values.items()), *read, *place)
    strings = [name for name in types if log.columns[name] == "string"]
    checks = [(f"NOT IS_VALID_UTF8({quoted(name)})", literal(f"{name} is not UTF-8")) for name in strings]
    exact = {name: exact_instant(quoted(kept), types[name]) for kept, name in numbers.items()}
    return _checked(log, typed, checks, as_json(log.columns, exact))


def _checked(log: Log, typed: DataFrame, checks: list[tuple[str, str]], raw: str) -> DataFrame:
    """Select the declared columns, the error of the first failed check, and the bytes of records with an error."""
    checks = [*checks, *(one for check in own_time_checks(log) for one in _of_time(check))]
    arrival, event = quoted(log.arrival_time or "_arrival"), quoted(log.event_time)
    if (bound := maximum_ahead(log)) is not None:
        # LEAST prevents an overflow of the sum, and ignores nulls. So if the arrival time is unknown, the limit is the
        # largest number, and no record is rejected because of an event time too far ahead.
        until = f"TIMESTAMP_MICROS(LEAST(UNIX_MICROS({arrival}), {2**63 - 1 - bound}L) + {bound}L)"
        begins = literal(f"the event time {log.event_time} = ")
        said = f"CONCAT({begins}, {event}, {literal(too_far_ahead(bound))}, {arrival})"
        checks.append((f"{event} > {until}", said))
    checks += (one for check in other_time_checks(log) for one in _of_time(check))
    checks += [(f"{quoted(column)} IS NULL", literal(reason)) for column, reason in log.never_missing.items()]
    bad = " OR ".join(f"({holds})" for holds, _ in checks)
    cases = " ".join(f"WHEN {holds} THEN {reason}" for holds, reason in checks)
    # The SQL of the reasons is inside a lambda function, so Spark does not generate code for it. Otherwise, the
    # generated code would become too long to compile. COALESCE is needed because a null reason would mean that there is
    # no error.
    reason = f"COALESCE(TRANSFORM(ARRAY(0), _ -> CASE {cases} END)[0], 'not as declared')"
    judged = typed.selectExpr("*", f"IF({bad}, {reason}, NULL) AS _error")
    return judged.selectExpr(
        *map(quoted, log.columns),
        "_source",
        "_offset",
        f"{arrival} AS _arrival",
        "_error",
        f"IF(_error IS NULL, {null('binary')}, {raw}) AS _raw",
    )


def _of_time(check: TimeCheck) -> Iterator[tuple[str, str]]:
    """Yield the conditions under which the check of an instant or a date fails, with the SQL of the reasons."""
    at = quoted(check.column)
    if check.missing is not None:
        yield f"{at} IS NULL", literal(check.missing)
    first, last = (f"{check.scale.of_number}({end})" for end in (check.first, check.last))
    yield f"{at} < {first} OR {at} > {last}", f"CONCAT({literal(f'{check.named} = ')}, {at}, {literal(check.outside)})"


def _lines(spark: SparkSession, files: Sequence[InspectedFile], blank: BlankLines) -> DataFrame:
    """Read the lines of text files with their positions; leave out blank lines."""
    # The offset is an id that combines the number of the scan's partition with the row's position in that partition.
    # The offset is unique only within an epoch, which is sufficient.
    lines = (
        _reader(spark, files[0])
        .option("ignoreMissingFiles", "false")
        .option("lineSep", "\n")
        .text([one.path for one in files])
        .selectExpr(
            "CAST(value AS binary) AS _bytes",
            "_metadata.file_path AS _source",
            "MONOTONICALLY_INCREASING_ID() AS _offset",
            "_metadata.file_modification_time AS _arrival",
        )
    )
    return blank.without(lines, _BLANK)


def _reader(spark: SparkSession, file: InspectedFile) -> DataFrameReader:
    """Return a reader for files that can be read together; the reader takes file names literally, not as patterns."""
    reader = spark.read.option(*_NO_PATTERN)
    # Hadoop looks for a checksum file next to a local file. If the file's name contains a colon, Hadoop cannot handle
    # the name of the checksum file, so the search is turned off.
    return reader.options(**_WITHOUT_CHECKSUMS) if file.has_colon else reader


def _only(spark: SparkSession, log: Log, broken: Sequence[InspectedFile]) -> DataFrame:
    """Return a frame with one rejected record for each file that cannot be read."""
    rows = ", ".join(f"({literal(one.path)}, {literal(one.broken)})" for one in broken) or "('', '')"
    items = [*_nulls(log), "path AS _source", "0L AS _offset", f"{null('timestamp')} AS _arrival", "said AS _error"]
    items += [f"{null('binary')} AS _raw"]
    frame = spark.sql(f"SELECT {', '.join(items)} FROM VALUES {rows} AS files(path, said)")
    return frame if broken else frame.where("false")


def _nulls(log: Log) -> list[str]:
    return [f"{null(type)} AS {quoted(name)}" for name, type in log.columns.items()]


_FROM_UNIT = {NANOS: from_nanos, MILLIS: from_millis}
_PLACE = ("_source", "_offset", "_arrival")
_TEXT = "CAST(_bytes AS string)"
_BLANK = f"LEFT({_TEXT}, 1) IN ('', {', '.join(map(literal, AROUND))}) AND {_TEXT} RLIKE {literal(f'^[{AROUND}]*$')}"
"""The SQL that is true for a line of white space."""

_NO_PATTERN = ("__globPaths__", "false")
"""An internal option of Spark: with this option, brackets and stars in paths are taken literally."""

_WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Options with which Hadoop reads local files without looking for checksum files."""
