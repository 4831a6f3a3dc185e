"""From raw records to the log's columns, natively: what does not fit is kept with its bytes and the reason (rule X6).

The frames here have the log's declared columns, `_source`, `_offset`, `_arrival`, and `_error` with `_raw`: both are
null for a record that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from tailrace.model.pipeline import Log
from tailrace.model.time import instant
from tailrace.model.types import decimal_parts
from tailrace.spark.algebra import Sql, null, quoted
from tailrace.spark.sources import Files, Kafka, Source

_MARK = "_not_as_declared"
"""Where Spark's parsers put a record that they could not read by the schema."""


def read(spark: SparkSession, source: Source, log: Log, batch: DataFrame) -> DataFrame:
    """A micro-batch of a source's stream as the log's columns."""
    if isinstance(source, Kafka):
        return _json(log, batch)
    paths = [row["path"] for row in batch.collect()]
    return read_files(spark, source, log, paths)


def read_files(spark: SparkSession, source: Files, log: Log, paths: Sequence[str]) -> DataFrame:
    """Files as the log's columns. A file that is gone or no file of its format is one rejected record."""
    if not paths:
        return _only(spark, log, [])
    if source.format == "json":
        return _json(log, _lines(spark, paths))
    looked = [_Looked.at(path, source.format, log) for path in paths]
    frames = []
    broken = [one for one in looked if one.broken]
    if broken:
        frames.append(_only(spark, log, broken))
    for shape in sorted({one.shape for one in looked if not one.broken}):
        alike = [one for one in looked if one.shape == shape and not one.broken]
        one = alike[0]
        files = [each.path for each in alike]
        frames.append(_csv(spark, log, files, one) if source.format == "csv" else _parquet(spark, log, files, one))
    return reduce(DataFrame.unionByName, frames)


@dataclass(frozen=True)
class _Looked:
    """What a look at a file's header or footer says: its columns, and why it cannot be read, if so."""

    path: str
    columns: tuple[tuple[str, str], ...] = ()
    header: str = ""
    broken: str = ""
    unlike: str = ""

    @property
    def shape(self) -> tuple[str, str]:
        return (repr(self.columns), self.unlike)

    @classmethod
    def at(cls, path: str, format: str, log: Log) -> _Looked:
        try:
            files, name = fs.FileSystem.from_uri(path)
            if format == "csv":
                with files.open_input_stream(name) as stream:
                    header = stream.read(1 << 16).split(b"\n", 1)[0].decode().rstrip("\r")
                found = tuple((column.strip().strip('"'), "") for column in header.split(","))
                return cls(path, found, header, unlike=_unlike(log, found))
            schema = pq.read_schema(files.open_input_file(name))
            columns = tuple((field.name, _type_name(field.type)) for field in schema)
            return cls(path, columns, unlike=_unlike(log, columns))
        except (OSError, ValueError, pa.ArrowException) as error:
            return cls(path, broken=f"the file cannot be read as {format}: {error}")


def _unlike(log: Log, columns: Iterable[tuple[str, str]]) -> str:
    """How a file's columns are not as declared; a missing one is null, which only the event time must not be."""
    wrong = []
    for name, type in columns:
        declared = log.columns.get(name)
        if declared is None:
            if log.unknown == "reject":
                wrong.append(f"unknown column {name!r}: declare it in the log, or set unknown=\"ignore\"")
        elif type and type != declared and (type, declared) != ("int", "bigint"):
            wrong.append(f"column {name!r} is {type}, declared as {declared}")
    return "; ".join(wrong)


def _type_name(type: pa.DataType) -> str:
    if pa.types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp" if type.tz else "timestamp without a zone"
    simple = {"int32": "int", "int64": "bigint", "double": "double", "bool": "boolean", "date32[day]": "date"}
    simple |= {"string": "string", "large_string": "string"}
    return simple.get(str(type), str(type))


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The lines of text files that are not blank, each with its place."""
    # The id is the scan's partition and the row in it: unique in an epoch, which with the epoch is all it need be.
    return (
        spark.read.option("ignoreMissingFiles", "false")
        .text(list(paths))
        .selectExpr(
            "value",
            "_metadata.file_path AS _source",
            "MONOTONICALLY_INCREASING_ID() AS _offset",
            "_metadata.file_modification_time AS _arrival",
        )
        .where("LENGTH(TRIM(value)) > 0")
    )


def _json(log: Log, lines: DataFrame) -> DataFrame:
    """Lines or messages, one JSON object each."""
    text = "CAST(value AS string)"
    schema = ", ".join([*(f"{quoted(n)} {t}" for n, t in log.columns.items()), f"{_MARK} string"])
    options = f"MAP('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_MARK}')"
    parsed = lines.selectExpr("*", f"FROM_JSON({text}, {_text(schema)}, {options}) AS r")
    unfit = f"r IS NULL OR r.{_MARK} IS NOT NULL"
    given = {name: f"GET_JSON_OBJECT({text}, {_text(f'$.{name}')})" for name in log.columns}
    wrong = f"CONCAT('not as declared: ', COALESCE({_first_misfit(log, given)}, 'not one JSON object'))"
    checks = [(unfit, wrong)]
    if log.unknown == "reject":
        known = ", ".join(_text(name) for name in log.columns)
        extra = f"ARRAY_EXCEPT(JSON_OBJECT_KEYS({text}), ARRAY({known}))"
        reason = f"CONCAT('unknown column ', ARRAY_JOIN({extra}, ', '), {_text(_DECLARE)})"
        checks.append((f"SIZE({extra}) > 0", reason))
    return _checked(log, parsed, {name: f"r.{quoted(name)}" for name in log.columns}, checks, "CAST(value AS binary)")


def _csv(spark: SparkSession, log: Log, paths: Sequence[str], look: _Looked) -> DataFrame:
    """CSV files with the same header; the columns may come in any order."""
    lines = _lines(spark, paths).where(f"value <> {_text(look.header)} AND value <> {_text(look.header)} || '\\r'")
    fields = [name for name, _ in look.columns]
    types = {name: log.columns.get(name, "string") for name in fields}
    schema = ", ".join([*(f"{quoted(n)} {t}" for n, t in types.items()), f"{_MARK} string"])
    options = f"MAP('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_MARK}')"
    strings = ", ".join(f"{quoted(name)} string" for name in fields)
    value = "RTRIM('\\r', value)"
    parsed = lines.selectExpr(
        "*", f"FROM_CSV({value}, {_text(schema)}, {options}) AS r", f"FROM_CSV({value}, {_text(strings)}) AS given"
    )
    given = {name: f"given.{quoted(name)}" for name in log.columns if name in types}
    wrong = f"CONCAT('not as declared: ', COALESCE({_first_misfit(log, given)}, 'not one value for each column'))"
    checks = [(f"r IS NULL OR r.{_MARK} IS NOT NULL", wrong)]
    if look.unlike:
        checks.insert(0, ("true", _text(look.unlike)))
    columns = {name: f"r.{quoted(name)}" if name in types else null(log.columns[name]) for name in log.columns}
    return _checked(log, parsed, columns, checks, "CAST(value AS binary)")


def _parquet(spark: SparkSession, log: Log, paths: Sequence[str], look: _Looked) -> DataFrame:
    """Parquet files with the same columns."""
    where = ["_metadata.file_path AS _source", "_metadata.row_index AS _offset"]
    where.append("_metadata.file_modification_time AS _arrival")
    if look.unlike:
        rows = spark.read.parquet(*paths).selectExpr("CAST(TO_JSON(STRUCT(*)) AS binary) AS raw", *where)
        columns = {name: null(type) for name, type in log.columns.items()}
        return _checked(log, rows, columns, [("true", _text(look.unlike))], "raw")
    schema = ", ".join(f"{quoted(n)} {t}" for n, t in log.columns.items())
    items = [quoted(name) for name in log.columns]
    rows = spark.read.schema(schema).parquet(*paths).selectExpr(*items, *where)
    raw = f"CAST(TO_JSON(STRUCT({', '.join(items)})) AS binary)"
    return _checked(log, rows, {name: quoted(name) for name in log.columns}, [], raw)


def _checked(
    log: Log, frame: DataFrame, columns: dict[str, str], checks: list[tuple[str, str]], raw: str
) -> DataFrame:
    """The declared columns with `_error` by the first check that holds, and `_raw` where there is one."""
    o = Sql()
    for role, column in (("event time", log.event_time), ("arrival time", log.arrival_time)):
        if column is None:
            continue
        term = columns[column]
        first, last = (f"TIMESTAMP_MICROS({instant(bound)}L)" for bound in (log.earliest, log.latest))
        checks.append((f"{term} IS NULL", _text(f"the {role} {column} is missing")))
        outside = f"CONCAT({_text(f'the {role} {column} = ')}, {term}, {_text(_outside(log))})"
        checks.append((f"{term} < {first} OR {term} >= {last}", outside))
    error = f"CASE {' '.join(f'WHEN {holds} THEN {reason}' for holds, reason in checks)} END"
    arrival = columns[log.arrival_time] if log.arrival_time else "_arrival"
    said = frame.selectExpr(
        *(f"{term} AS {quoted(name)}" for name, term in columns.items()),
        "_source",
        "_offset",
        f"{arrival} AS _arrival",
        f"{error} AS _error",
        f"IF({error} IS NULL, {o.literal(None, 'binary')}, {raw}) AS _raw",
    )
    return said


def _outside(log: Log) -> str:
    return f" lies outside [{log.earliest:%Y-%m-%d}, {log.latest:%Y-%m-%d}): set earliest and latest in the log"


_DECLARE = ': declare it in the log, or set unknown="ignore"'


def _first_misfit(log: Log, given: dict[str, str]) -> str:
    """Which columns hold something that is not of their type."""
    wrong = []
    for name, type in log.columns.items():
        if name in given and type != "string":
            text = given[name]
            says = f"CONCAT({_text(f'{name} = ')}, {text}, {_text(f' is not a {type}')})"
            wrong.append(f"IF({text} IS NOT NULL AND TRY_CAST({text} AS {type}) IS NULL, {says}, NULL)")
            if decimal_parts(type) is None and type in ("int", "bigint"):
                # A fraction or a quoted number casts well, but it is not what was declared.
                wrong.append(f"IF({text} RLIKE '[^-0-9]', {says}, NULL)")
    joined = f"NULLIF(CONCAT_WS('; ', {', '.join(wrong)}), '')" if wrong else null("string")
    return joined


def _only(spark: SparkSession, log: Log, broken: Sequence[_Looked]) -> DataFrame:
    """A frame of nothing but files that could not be read, one record each."""
    rows = ", ".join(f"({_text(one.path)}, {_text(one.broken)})" for one in broken) or "('', '')"
    items = [f"{null(type)} AS {quoted(name)}" for name, type in log.columns.items()]
    items += ["path AS _source", "0L AS _offset", f"{null('timestamp')} AS _arrival", "said AS _error"]
    items += [f"{null('binary')} AS _raw"]
    frame = spark.sql(f"SELECT {', '.join(items)} FROM VALUES {rows} AS files(path, said)")
    return frame if broken else frame.where("false")


def _text(value: str) -> str:
    return str(Sql().literal(value, "string"))
