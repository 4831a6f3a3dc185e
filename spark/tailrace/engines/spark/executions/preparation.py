"""Run a definition's steps on a bundle's records on Spark, and query data frames.

The expressions of `Derive` are SQL in every execution. A step's Python function is called in the executors' Python with
Arrow batches. If the function fails for a record, the record is kept, and another column has the reason for the
failure.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.engines.python.record_calls import step_calls
from tailrace.engines.spark.workers.python_tasks import over_batches
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.record_steps import Each, ElementWise, SparkFrame
from tailrace.sql.records.selections import FAILED, query_steps, step_query
from tailrace.sql.terms import Query, Relation, all_of, quoted

Text = TypeVar("Text", Query, Relation)


class StepError(TailraceError, RuntimeError):
    """Raised if a step's function on data frames returns columns other than those that the step declares."""


def prepare(frame: DataFrame, pipeline: Ranged) -> DataFrame:
    """Run the definition's steps on a frame of records. Each record keeps its position in the source.

    If a step can fail, the result has the column `FAILED`.

    Raises `StepError` if a step's function on data frames returns columns other than those that the step declares.
    """
    types, columns = pipeline.log.columns, frame.columns
    if pipeline.each and not any(isinstance(one, Each | SparkFrame) for one in pipeline.each):
        return query_frame(frame.sparkSession, frame, lambda view: all_of(_given(query_steps(pipeline, view, columns))))
    for place, one in enumerate(pipeline.each):
        frame = _taken(frame, one, types, f"{pipeline.name}: each[{place}]")
        types = one.columns(types)
    return frame


def hold_once(frame: DataFrame, definition: Ranged) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Make sure that the steps' Python functions run once, although the prepared records are read twice.

    The accepted and the rejected records are read by separate queries. Returns the frame to read and its checkpoints.

    The frame is checkpointed if a step is a Python function, so the function is called only once per record. Steps in
    SQL are not checkpointed: each of the two queries computes the columns that it needs.
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
        return query_frame(
            frame.sparkSession,
            frame,
            lambda view: _given(step_query(step, view, types, columns, failing=FAILED in columns)),
        )
    if FAILED in frame.columns:
        # Records that failed in an earlier step bypass this step, because this step might drop them.
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
    """Call a step's Python function on the records, except on records that failed in an earlier step."""
    fields = [field for field in frame.schema.fields if field.name != FAILED]
    schema = StructType([*fields, *schema_of(step.gives).fields, StructField(FAILED, StringType())])
    return frame.mapInArrow(over_batches(step_calls(step, dict(types), to_arrow_schema(schema))), schema)


def query_frame(spark: SparkSession, frame: DataFrame, text: Callable[[Relation], Query]) -> DataFrame:
    """Run a query on a data frame.

    `text` returns the query for a view of the frame. The view exists only during this call.
    """
    with view_frame(spark, frame) as view:
        return spark.sql(text(view))


@contextmanager
def view_frame(spark: SparkSession, frame: DataFrame) -> Iterator[Relation]:
    """Create a view of a data frame, and drop the view at the end of the block."""
    view = Relation(f"tailrace_{uuid.uuid4().hex[:8]}")
    # The view is of a filtered frame, because dropping a view of `frame` itself would remove `frame` from the cache.
    frame.where("true").createOrReplaceTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)


def schema_of(types: Mapping[str, str]) -> StructType:
    """Return the Spark schema for columns with these SQL types."""
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {_ddl(type)}" for name, type in types.items()))
    assert isinstance(schema, StructType)
    return schema


def empty_frame(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """Create an empty data frame with this schema (or its DDL), without letting Spark know that the frame is empty.

    The code uses `_jsparkSession`, because PySpark would use Python workers to create a frame from an empty list. If
    Spark knows that a frame is empty, Spark plans an epoch differently, and needs half as much heap again.
    """
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType)
    session, rows = spark._jsparkSession, spark.sparkContext._jsc.emptyRDD()
    return DataFrame(session.createDataFrame(rows, session.parseDataType(fields.json())), spark)


def _ddl(type: str) -> str:
    """Write a column type in Spark's DDL, with the names of struct fields quoted.

    >>> _ddl("array<struct<at:timestamp,n:decimal(8,2)>>")
    'array<struct<`at`:timestamp,`n`:decimal(8,2)>>'
    """
    if element := element_type(type):
        return f"array<{_ddl(element)}>"
    fields = struct_fields(type)
    if fields is None:
        return type
    return f"struct<{','.join(f'{quoted(name)}:{_ddl(own)}' for name, own in fields.items())}>"
