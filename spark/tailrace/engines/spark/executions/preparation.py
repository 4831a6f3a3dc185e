"""A bundle's records on their way to their windows: what the steps of a definition make of them, and another's panes.

The expressions of `Derive` are SQL, whichever execution the definition takes; a Python function is called in the
executors' Python, with Arrow batches. A record that makes it fail goes on with the reason in a column of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.engines.python.each_calls import caller
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.chain import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Each, ElementWise, SparkFrame
from tailrace.sql.records.selections import FAILED, keeps_each, selected
from tailrace.sql.records.stage_records import changes
from tailrace.sql.terms import quoted


class StepError(TailraceError, RuntimeError):
    """A function of a DataFrame that does not keep to what a step is."""


def prepare(frame: DataFrame, pipeline: Ranged) -> DataFrame:
    """The records after the definition's steps, with where each came from.

    Where a step may fail there is a column `FAILED`, and a record that failed has but the log's columns. Raises
    `StepError` where a function of a DataFrame gives other columns than it said.
    """
    types = pipeline.log.columns
    for place, one in enumerate(pipeline.each):
        frame = _taken(frame, one, types, f"{pipeline.name}: each[{place}]")
        types = one.columns(types)
    return frame


def _taken(frame: DataFrame, one: ElementWise, types: Mapping[str, str], place: str) -> DataFrame:
    if keeps_each(one):
        return frame.selectExpr(*(selected(one, types, frame.columns) or ()))
    if isinstance(one, Each):
        return _called(frame, one, types)
    if FAILED in frame.columns:
        # What failed goes by it, lest it is left out there.
        good = _taken(frame.where(f"{FAILED} IS NULL").drop(FAILED), one, types, place)
        gone = [name for name in types if name not in one.columns(types)]
        return good.unionByName(frame.where(f"{FAILED} IS NOT NULL").drop(*gone), allowMissingColumns=True)
    items = selected(one, types, frame.columns)
    if items is not None:
        return frame.selectExpr(*items)
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
    return frame.mapInArrow(caller(one, dict(types), to_arrow_schema(schema)), schema)


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
