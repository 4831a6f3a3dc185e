"""A bundle's records on their way to their windows: what the steps of a definition make of them, and another's panes.

The expressions of `Derive` are SQL, whichever execution the definition takes.
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.contracts import PANE
from tailrace.model.elementwise import Derive
from tailrace.model.log import PANE_TIME, SIGN
from tailrace.model.pipeline import Pipeline
from tailrace.spark.algebra import Sql, quoted


def prepare(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The records after the definition's steps, with where each came from."""
    types = pipeline.log.columns
    for one in pipeline.each:
        if isinstance(one, Derive):
            terms = {name: quoted(name) for name in types}
            made = [
                f"CAST({value.term(Sql(), terms, types)} AS {value.type(types)}) AS {quoted(name)}"
                for name, value in one.values.items()
            ]
            frame = frame.selectExpr("*", *made)
        types = one.columns(types)
    return frame


def leaves_out(pipeline: Pipeline) -> bool:
    """Whether a step may make no record of one."""
    return any(not isinstance(one, Derive) for one in pipeline.each)


def changes(pipeline: Pipeline, rows: str) -> str:
    """The records that a later stage reads of a view of a stage's ledger rows (`tailrace.model.stages.changes`)."""
    where = f"kind = '{PANE}' AND writer = 'stream'"
    return _records(pipeline, f"SELECT *, IF(retraction, -1, 1) AS {SIGN}, epoch AS _epoch FROM {rows} WHERE {where}")


def changed(spark: SparkSession, pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """The records that a later stage reads of a stage's ledger rows, as a frame."""
    view = f"tailrace_{pipeline.name}_said_{uuid.uuid4().hex[:8]}"
    rows.createOrReplaceTempView(view)
    frame = spark.sql(changes(pipeline, view))
    spark.catalog.dropTempView(view)
    return frame


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
