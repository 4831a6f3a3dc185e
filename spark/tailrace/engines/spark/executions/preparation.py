"""Run a definition's steps on a bundle's records on Spark, and run queries on data frames.

The expressions of `Derive` are SQL in every execution. Python workers on the executors call a step's Python function
with Arrow batches. If the function fails for a record, the record is kept, and the column `FAILED` contains the reason
for the failure.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from tailrace.sql.records.selections import FAILED, may_fail, query_steps, step_query
from tailrace.sql.records.traced_steps import sure_records, traced, unsure_records
from tailrace.sql.terms import Query, Relation, all_of, quoted

Text = TypeVar("Text", Query, Relation)


class StepError(TailraceError, RuntimeError):
    """The error raised if a step's function on data frames returns other columns than the step declares."""


def prepare(frame: DataFrame, pipeline: Ranged) -> DataFrame:
    """Run the definition's steps on a data frame of records. Each record keeps its position in the source.

    If a step can fail, the result has the column `FAILED`.

    Raises `StepError` if a step's function on data frames returns other columns than the step declares.
    """
    types, columns = pipeline.log.columns, frame.columns
    if pipeline.each and not any(isinstance(one, Each | SparkFrame) for one in pipeline.each):
        return query_frame(frame.sparkSession, frame, lambda view: all_of(_given(query_steps(pipeline, view, columns))))
    for place, one in enumerate(pipeline.each):
        frame = _taken(frame, one, types, f"{pipeline.name}: each[{place}]")
        types = one.columns(types)
    return frame


@dataclass(frozen=True)
class PreparedBundle:
    """A bundle after the definition's steps: the accepted records, the rejected records, and their checkpoints."""

    records: DataFrame
    rejected: DataFrame | None = None
    held: tuple[DataFrame, ...] = ()


def prepare_bundle(bundle: DataFrame, definition: Ranged) -> PreparedBundle:
    """Run the definition's steps on a bundle, and separate the rejected records.

    Two queries read the records after the steps: one reads the accepted records, and the other reads the rejected
    records. If a step is a Python function, the records are checkpointed, so that the function is called only once per
    record. If all steps are in SQL, there is no checkpoint, because each of the two queries then computes only the
    columns that it needs.
    """
    frame = prepare(bundle, definition)
    if not may_fail(definition):
        return PreparedBundle(frame)
    held = tuple[DataFrame, ...]()
    if any(isinstance(one, Each) for one in definition.each):
        frame = frame.localCheckpoint(eager=False)
        held = (frame,)
    good, bad = (frame.where(f"{FAILED} IS {which}") for which in ("NULL", "NOT NULL"))
    return PreparedBundle(good.drop(FAILED), bad, held)


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
        # Records that failed in an earlier step skip this step, because this step might drop them.
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
    """Call a step's Python function on the records, except on records that failed in an earlier step.

    If the function is traced, it is called only for the records of which SQL is not sure.
    """
    if (found := traced(step, types)) is not None:
        columns, failing = frame.columns, FAILED in frame.columns
        spark, gives = frame.sparkSession, step.gives
        sure = query_frame(spark, frame, lambda view: sure_records(found, view, columns, gives, failing=failing))
        unsure = query_frame(spark, frame, lambda view: unsure_records(found, view, columns, failing=failing))
        return sure.unionByName(_called_for(unsure, step, types))
    return _called_for(frame, step, types)


def _called_for(frame: DataFrame, step: Each, types: Mapping[str, str]) -> DataFrame:
    fields = [field for field in frame.schema.fields if field.name != FAILED]
    schema = StructType([*fields, *schema_of(step.gives).fields, StructField(FAILED, StringType())])
    return frame.mapInArrow(over_batches(step_calls(step, dict(types), to_arrow_schema(schema))), schema)


def query_frame(spark: SparkSession, frame: DataFrame, text: Callable[[Relation], Query]) -> DataFrame:
    """Run a query on a data frame.

    `text` is a function that takes the name of a view of the frame and returns the query. The view exists only during
    this call.
    """
    with view_frame(spark, frame) as view:
        return spark.sql(text(view))


@contextmanager
def view_frame(spark: SparkSession, frame: DataFrame) -> Iterator[Relation]:
    """Create a view of a data frame. The view is dropped at the end of the block."""
    view = Relation(f"tailrace_{uuid.uuid4().hex[:8]}")
    # The view is of a filtered frame, because dropping a view of `frame` itself would remove `frame` from the cache.
    frame.where("true").createOrReplaceTempView(view)
    try:
        yield view
    finally:
        spark.catalog.dropTempView(view)


def schema_of(types: Mapping[str, str]) -> StructType:
    """Return the Spark schema for columns with the SQL types `types`."""
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {_ddl(type)}" for name, type in types.items()))
    assert isinstance(schema, StructType)
    return schema


def empty_frame(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """Create an empty data frame in such a way that Spark does not know that the frame is empty.

    `schema` may also be a DDL string. The code uses `_jsparkSession`, because PySpark would use Python workers to
    create a frame from an empty list. If Spark knows that a frame is empty, Spark plans an epoch differently, and needs
    50% more heap.
    """
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType)
    session, rows = spark._jsparkSession, spark.sparkContext._jsc.emptyRDD()
    return DataFrame(session.createDataFrame(rows, session.parseDataType(fields.json())), spark)


def _ddl(type: str) -> str:
    """Convert a column type to Spark's DDL, with the names of struct fields quoted.

    >>> _ddl("array<struct<at:timestamp,n:decimal(8,2)>>")
    'array<struct<`at`:timestamp,`n`:decimal(8,2)>>'
    """
    if element := element_type(type):
        return f"array<{_ddl(element)}>"
    fields = struct_fields(type)
    if fields is None:
        return type
    return f"struct<{','.join(f'{quoted(name)}:{_ddl(own)}' for name, own in fields.items())}>"
