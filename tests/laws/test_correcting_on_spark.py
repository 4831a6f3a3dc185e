"""A backfill of open windows says on Spark what the model says, and a stream goes on alike (rule X4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tailrace.backfill.open_windows_correction import OpenWindowsCorrection, PythonCorrection
from tailrace.engines.batch.batch_answers import Answering, PythonAnswering
from tailrace.engines.spark.executions.execution import SparkExecution
from tailrace.engines.spark.executions.native import Native
from tailrace.engines.spark.executions.open_windows import OpenWindows
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.reference import fold
from tailrace.model.windows.panes import Pane, answers
from tailrace.sql.results.answers import current_answers, in_range
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.terms import Condition, Query, Relation
from tests.support.cases.corrections import GENERATION, drawn_fault
from tests.support.cases.strategies import Epochs, pipelines
from tests.support.engines.sessions import cluster
from tests.support.engines.spark_runs import bundle_frame, in_parts, run_native, said_by_reference, said_of

Kinds = tuple[type[SparkExecution], type[Answering], type[OpenWindowsCorrection]]


def folded(spark: SparkSession, one: SparkExecution, made: Epochs) -> list[DataFrame]:
    """The ledger's rows of each epoch."""
    state, rows = one.nothing(), []
    for records, clock in made:
        frame = bundle_frame(spark, one.pipeline, records, clock.epoch)
        stepped = one.step(state, one.consume(frame, state), clock)
        rows.append(stepped.rows.localCheckpoint())
        state = stepped.state
    return rows


def held(spark: SparkSession, pipeline: Pipeline, panes: Sequence[Pane]) -> Relation:
    """The answers after these panes, as a view."""
    rows = [
        dict(zip(pipeline.key, key, strict=True))
        | {"window_start": moment(window.start), "window_end": moment(window.end), **values}
        | {"generation": 0, "epoch": 0, "pane_index": 0}
        for (key, window), values in answers(panes).items()
    ]
    schema = iceberg_schema(answer_contract(pipeline)).as_arrow()
    table = pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema=schema)
    spark.createDataFrame(table).createOrReplaceTempView("held")
    return Relation("held")


def same(spark: SparkSession, data: st.DataObject, kinds: Kinds) -> None:
    execution, answering, corrects = kinds
    pipeline = data.draw(pipelines())
    fault = drawn_fault(data, pipeline)
    made, place, before = fault.made, fault.place, fault.before
    clock, expected = fault.clock, fault.expected

    one = execution(spark, pipeline)
    rows = folded(spark, one, fault.faulty)
    ledger = reduce(DataFrame.unionByName, rows)
    view = Relation("open_windows")
    restored = one.restore(ledger, clock, GENERATION)
    restored.windows.createOrReplaceTempView(view)
    log = reduce(DataFrame.unionByName, [bundle_frame(spark, pipeline, b, c.epoch) for b, c in made[:place]])
    log.createOrReplaceTempView("whole_log")
    session = cluster(spark)
    by = answering(session, pipeline)
    written = BackfillVersion("run", GENERATION, clock.epoch, clock.watermark, clock.processing_time)
    correcting = corrects(session, pipeline, written)
    # Of what the stream cannot reach any more the answers are a run's of closed windows.
    reach = Condition(f"{in_range(BEGINNING, END_OF_TIME)} AND NOT {correcting._gone}")
    computed = by.batch(by.assigned(Relation("whole_log")), reach)
    answered, meant = current_answers(pipeline, held(spark, pipeline, before.panes)), in_range(*fault.range)
    corrected = correcting.corrected(computed, view, answered, reach, meant)
    found = session.materialized(Query(f"SELECT * FROM ({corrected}) WHERE change <> 'same'"))
    more = spark.sql(correcting.rows(found)).localCheckpoint()
    assert said_of(pipeline, more) == said_by_reference(pipeline, expected.panes, ())

    after = fold(pipeline, made[place:], expected.state)
    state = one.restore(ledger.unionByName(more), clock, expected.state.generation)
    assert run_on(spark, one, made[place:], state) == said_by_reference(pipeline, after.panes, after.late)


def run_on(spark: SparkSession, one: SparkExecution, made: Epochs, state: OpenWindows) -> object:
    return run_native(spark, one.pipeline, made, lambda *_: one, state)


@in_parts(1, deeper=12, of=6)
def test_X4_open_windows_are_corrected_natively_as_the_model_says(plain: SparkSession, data: st.DataObject) -> None:
    same(plain, data, (Native, Answering, OpenWindowsCorrection))


@in_parts(1, deeper=4, of=4)
def test_X4_open_windows_are_corrected_in_python_as_the_model_says(plain: SparkSession, data: st.DataObject) -> None:
    same(plain, data, (PerKey, PythonAnswering, PythonCorrection))
