"""A bundle's records on their way to their windows: what the steps of a definition make of them, and another's panes.

The expressions of `Derive` are SQL, whichever execution the definition takes; a Python function is called in the
executors' Python, with Arrow batches. A record that makes it fail goes on with the reason in a column of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.lake.contracts import PANE
from tailrace.model.elementwise import Derive, Each, ElementWise, RecordError, SparkColumns, SparkFrame
from tailrace.model.errors import TailraceError
from tailrace.model.joining import Pack, Pairs, Unpack
from tailrace.model.log import PANE_TIME, SIGN
from tailrace.model.pipeline import Pipeline
from tailrace.spark.algebra import Sql, quoted
from tailrace.spark.joining import packed, paired, unpacked

FAILED = "_failed"
"""The column that says why a step could not take a record; null where they all could."""


class StepError(TailraceError, RuntimeError):
    """A function of a DataFrame that does not keep to what a step is."""


def prepare(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The records after the definition's steps, with where each came from.

    Where a step may fail there is a column `FAILED`, and a record that failed has but the log's columns. Raises
    `StepError` where a function of a DataFrame gives other columns than it said.
    """
    types = pipeline.log.columns
    for place, one in enumerate(pipeline.each):
        frame = _taken(frame, one, types, f"{pipeline.name}: each[{place}]")
        types = one.columns(types)
    return frame


def may_fail(pipeline: Pipeline) -> bool:
    """Whether a step may reject records."""
    return any(isinstance(one, Each) for one in pipeline.each)


def leaves_out(pipeline: Pipeline) -> bool:
    """Whether a step may make no record of one."""
    return any(not isinstance(one, Derive | SparkColumns | Pack) for one in pipeline.each)


def _taken(frame: DataFrame, one: ElementWise, types: Mapping[str, str], place: str) -> DataFrame:
    if isinstance(one, Derive):
        terms = {name: quoted(name) for name in types}
        made = [
            f"CAST({value.term(Sql(), terms, types)} AS {value.type(types)}) AS {quoted(name)}"
            for name, value in one.values.items()
        ]
        return frame.selectExpr("*", *made)
    if isinstance(one, SparkColumns):
        return frame.selectExpr(
            "*", *(f"CAST({text} AS {type}) AS {quoted(n)}" for n, (type, text) in one.values.items())
        )
    if isinstance(one, Pack):
        return frame.selectExpr("*", packed(one, types))
    if isinstance(one, Each):
        return _called(frame, one, types)
    if FAILED in frame.columns:
        # What failed goes by it, lest it is left out there.
        good = _taken(frame.where(f"{FAILED} IS NULL").drop(FAILED), one, types, place)
        gone = [name for name in types if name not in one.columns(types)]
        return good.unionByName(frame.where(f"{FAILED} IS NOT NULL").drop(*gone), allowMissingColumns=True)
    if isinstance(one, Pairs):
        shared = [quoted(name) for name in frame.columns if name not in (one.left, one.right)]
        return frame.selectExpr(*shared, f"INLINE({paired(one, types)})")
    if isinstance(one, Unpack):
        shared = [quoted(name) for name in frame.columns if name != one.name]
        return frame.selectExpr(*shared, f"INLINE({unpacked(one, types)})")
    assert isinstance(one, SparkFrame)
    found = one.function(frame)
    expected = [*frame.columns, *one.gives]
    if not isinstance(found, DataFrame) or sorted(found.columns) != sorted(expected):
        given = ", ".join(found.columns) if isinstance(found, DataFrame) else repr(found)
        raise StepError(f"{place} gave {given}: expected a DataFrame with the columns {', '.join(expected)}")
    typed = [f"CAST({quoted(name)} AS {type}) AS {quoted(name)}" for name, type in one.gives.items()]
    return found.selectExpr(*map(quoted, frame.columns), *typed)


def _called(frame: DataFrame, one: Each, types: Mapping[str, str]) -> DataFrame:
    """The records after a Python function; those that failed in a step before go by it."""
    fields = [field for field in frame.schema.fields if field.name != FAILED]
    new = StructType.fromDDL(", ".join(f"{quoted(name)} {type}" for name, type in one.gives.items()))
    assert isinstance(new, StructType)
    schema = StructType([*fields, *new.fields, StructField(FAILED, StringType())])
    return frame.mapInArrow(_caller(one, dict(types), to_arrow_schema(schema)), schema)


def _caller(
    one: Each, types: dict[str, str], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def made(record: dict[str, Any]) -> list[Any]:
        if record.get(FAILED) is not None:
            return [record]
        try:
            return one.records(record, types)
        except RecordError as error:
            return [{**record, FAILED: str(error)}]

    def call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [dict(row) for record in batch.to_pylist() for row in made(record)]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return call


def changed(spark: SparkSession, pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """The records that a later stage reads of a stage's ledger rows, as a frame."""
    return queried(spark, rows, lambda view: changes(pipeline, view))


def queried(spark: SparkSession, frame: DataFrame, text: Callable[[str], str]) -> DataFrame:
    """What an SQL text makes of a frame; it is given the name of a view, which is there no longer than it takes."""
    with viewed(spark, frame) as view:
        return spark.sql(text(view))


@contextmanager
def viewed(spark: SparkSession, frame: DataFrame) -> Iterator[str]:
    """The name of a view of a frame, for as long as the block lasts: a write goes by the text of what it writes."""
    view = f"tailrace_{uuid.uuid4().hex[:8]}"
    # Not of the frame itself: to drop a view is to uncache what it is a view of.
    frame.where("true").createOrReplaceTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)


def changes(pipeline: Pipeline, rows: str) -> str:
    """The records that a later stage reads of a view of a stage's ledger rows (`tailrace.model.stages.changes`)."""
    where = f"kind = '{PANE}' AND writer = 'stream'"
    return _records(pipeline, f"SELECT *, IF(retraction, -1, 1) AS {SIGN}, epoch AS _epoch FROM {rows} WHERE {where}")


def answered(pipeline: Pipeline, answers: str) -> str:
    """The same of a query of a stage's answers, whose windows are microseconds (`answers.batch`)."""
    spans = ["window_start", "window_end"]
    items = [quoted(name) for name in (*pipeline.key, *pipeline.results)]
    items += [f"TIMESTAMP_MICROS({name}) AS {name}" for name in spans]
    stamp = "CAST(NULL AS bigint)" if pipeline.stamp is None else quoted(pipeline.stamp)
    items.append(f"TIMESTAMP_MICROS({stamp}) AS {PANE_TIME}")
    return _records(pipeline, f"SELECT {', '.join(items)}, 1 AS {SIGN}, 0L AS _epoch FROM ({answers})")


def _records(pipeline: Pipeline, rows: str) -> str:
    columns = [quoted(name) for name in pipeline.panes.columns if name != PANE_TIME]
    at = f"COALESCE({PANE_TIME}, TIMESTAMP_MICROS(UNIX_MICROS(window_end) - 1L)) AS {PANE_TIME}"
    place = f"{SIGN}, _epoch, CAST(NULL AS string) AS _source, CAST(NULL AS bigint) AS _offset"
    return f"SELECT {', '.join(columns)}, {at}, {place} FROM ({rows})"
