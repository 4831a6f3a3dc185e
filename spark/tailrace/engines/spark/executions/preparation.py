"""Take a bundle's records through a definition's steps on Spark, and turn a stage's panes into the next one's records.

The expressions of `Derive` are SQL, whichever execution the definition takes; a Python function is called in the
executors' Python, with Arrow batches. A record that makes a function fail goes on with the reason in a column of its
own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.engines.python.each_calls import caller
from tailrace.engines.spark.workers.python_tasks import over_batches
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Each, ElementWise, SparkFrame
from tailrace.sql.records.selections import FAILED, step_query, stepped
from tailrace.sql.records.stage_records import changes
from tailrace.sql.terms import Query, Relation, all_of, quoted

Text = TypeVar("Text", Query, Relation)


class StepError(TailraceError, RuntimeError):
    """A function of a DataFrame gave columns other than its step declares."""


def prepare(frame: DataFrame, pipeline: Ranged) -> DataFrame:
    """Take records through the definition's steps; they keep where each came from.

    Where a step may fail there is a column `FAILED`.

    Raises `StepError` where a function of a DataFrame gives other columns than it said.
    """
    types, columns = pipeline.log.columns, frame.columns
    if pipeline.each and not any(isinstance(one, Each | SparkFrame) for one in pipeline.each):
        return queried(frame.sparkSession, frame, lambda view: all_of(_given(stepped(pipeline, view, columns))))
    for place, one in enumerate(pipeline.each):
        frame = _taken(frame, one, types, f"{pipeline.name}: each[{place}]")
        types = one.columns(types)
    return frame


def held_once(frame: DataFrame, definition: Ranged) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Return prepared records to be read twice, those that a step rejected apart, and the checkpoints that they are of.

    A function is called once for a record. What SQL computes is computed for each reading, which takes the columns that
    it needs.
    """
    if not any(isinstance(one, Each) for one in definition.each):
        return frame, ()
    held = frame.localCheckpoint(eager=False)
    return held, (held,)


def _taken(frame: DataFrame, step: ElementWise, types: Mapping[str, str], place: str) -> DataFrame:
    if isinstance(step, Each):
        return _called(frame, step, types)
    if not isinstance(step, SparkFrame):
        columns = frame.columns
        return queried(
            frame.sparkSession,
            frame,
            lambda view: _given(step_query(step, view, types, columns, failing=FAILED in columns)),
        )
    if FAILED in frame.columns:
        # Failed records bypass the step, which might drop them.
        good = _taken(frame.where(f"{FAILED} IS NULL").drop(FAILED), step, types, place)
        return good.unionByName(frame.where(f"{FAILED} IS NOT NULL"), allowMissingColumns=True)
    result = step.function(frame)
    expected = [*frame.columns, *step.gives]
    if not isinstance(result, DataFrame) or sorted(result.columns) != sorted(expected):
        outcome = ", ".join(result.columns) if isinstance(result, DataFrame) else repr(result)
        raise StepError(f"{place} gave {outcome}: expected a DataFrame with the columns {', '.join(expected)}")
    typed = [f"CAST({quoted(name)} AS {type}) AS {quoted(name)}" for name, type in step.gives.items()]
    return result.selectExpr(*map(quoted, frame.columns), *typed)


def _given(text: Text | None) -> Text:
    assert text is not None, "a step that is not written in Python has a text"
    return text


def _called(frame: DataFrame, step: Each, types: Mapping[str, str]) -> DataFrame:
    """Call a Python function on the records; records that failed in an earlier step bypass it."""
    fields = [field for field in frame.schema.fields if field.name != FAILED]
    schema = StructType([*fields, *schema_of(step.gives).fields, StructField(FAILED, StringType())])
    return frame.mapInArrow(over_batches(caller(step, dict(types), to_arrow_schema(schema))), schema)


def changed(spark: SparkSession, pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """Turn a stage's ledger rows into the records that a later stage reads, as a frame."""
    return queried(spark, rows, lambda view: changes(pipeline, view))


def queried(spark: SparkSession, frame: DataFrame, text: Callable[[Relation], Query]) -> DataFrame:
    """Query a frame: `text` writes the SQL with the name of a view, which exists only during this call."""
    with viewed(spark, frame) as view:
        return spark.sql(text(view))


@contextmanager
def viewed(spark: SparkSession, frame: DataFrame) -> Iterator[Relation]:
    """Name a view of a frame for as long as the block lasts, for a write that takes a query's text."""
    view = Relation(f"tailrace_{uuid.uuid4().hex[:8]}")
    # Not a view of the frame itself, as dropping a view uncaches the frame that it is of.
    frame.where("true").createOrReplaceTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)


def schema_of(types: Mapping[str, str]) -> StructType:
    """Make the Spark schema of columns with these SQL types."""
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {_ddl(type)}" for name, type in types.items()))
    assert isinstance(schema, StructType)
    return schema


def empty_frame(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """Make a frame of no rows with a schema, or its DDL, that Spark does not know to be empty.

    PySpark makes one of an empty list by Python workers, hence `_jsparkSession`. Where Spark knows a frame to be empty,
    it plans an epoch otherwise, and has half as much again in its heap.
    """
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType)
    session, rows = spark._jsparkSession, spark.sparkContext._jsc.emptyRDD()
    return DataFrame(session.createDataFrame(rows, session.parseDataType(fields.json())), spark)


def _ddl(type: str) -> str:
    """Write a type as Spark reads it, with the names of fields quoted.

    >>> _ddl("array<struct<at:timestamp,n:decimal(8,2)>>")
    'array<struct<`at`:timestamp,`n`:decimal(8,2)>>'
    """
    if element := element_type(type):
        return f"array<{_ddl(element)}>"
    fields = struct_fields(type)
    if fields is None:
        return type
    return f"struct<{','.join(f'{quoted(name)}:{_ddl(own)}' for name, own in fields.items())}>"
