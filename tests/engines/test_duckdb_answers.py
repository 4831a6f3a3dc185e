"""The answers of finished input, and the correction of open windows, are on DuckDB what the model says."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import reduce

import pyarrow as pa
from hypothesis import assume, given, seed
from hypothesis import strategies as st

from tailrace.backfill.open_windows_correction import OpenWindowsCorrection, PythonCorrection, correction_for
from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.duckdb.executions.execution import DuckExecution
from tailrace.engines.duckdb.executions.python_execution import PythonExecution
from tailrace.engines.duckdb.executions.sql_execution import AssignedExecution, SqlExecution
from tailrace.engines.duckdb.session import DuckSession
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.reference import batch, fold
from tailrace.model.windows.panes import Answers, Pane, answers
from tailrace.model.windows.windows import Window
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.epoch.partials import put_together
from tailrace.sql.records.ways import Way, way
from tailrace.sql.results.answers import accumulators, current_answers, in_range, results_of
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.terms import Condition, Query, Relation, bracketed
from tests.support.cases.corrections import GENERATION, drawn_fault
from tests.support.cases.stages import chains, computed
from tests.support.cases.strategies import (
    Told,
    bundles,
    each_time_the_same,
    perhaps_told,
    pipelines,
)
from tests.support.checks.laws import same_answers
from tests.support.depth import cases
from tests.support.engines.duckdb_runs import said_by_rows
from tests.support.engines.sessions import in_process
from tests.support.engines.spark_runs import Said, arrow_bundle, said_by_reference


def batched(session: DuckSession, pipeline: Pipeline, records: list[dict[str, object]]) -> Answers:
    log = session.relation_of(arrow_bundle(pipeline.stages[0].log, records, 0))
    by = answering(session, pipeline.finished)
    placed = answered(session, pipeline, by.batch(by.assigned(log)))
    same_answers(answered(session, pipeline, computed(by, log)), placed, "the same by slices of time")
    if by.earlier is None and way(pipeline) is Way.SQL and not pipeline.each:
        same_answers(in_parts(session, pipeline, records), placed, "the same, put together of parts of the records")
    return placed


def in_parts(session: DuckSession, pipeline: Pipeline, records: list[dict[str, object]]) -> Answers:
    log = arrow_bundle(pipeline.log, records, 0)
    thirds = [session.relation_of(log.take(pa.array(range(first, log.num_rows, 3), pa.int64()))) for first in range(3)]
    texts = [accumulators(pipeline, third) for third in thirds]
    parts = session.view(Query(" UNION ALL ".join(f"SELECT * FROM ({text})" for text in texts)))
    return answered(session, pipeline, results_of(pipeline, bracketed(put_together(pipeline, parts))))


def answered(session: DuckSession, pipeline: Pipeline, text: Query) -> Answers:
    return {
        (tuple(row[name] for name in pipeline.key), Window(row["window_start"], row["window_end"])): {
            name: row[name] for name in pipeline.what
        }
        for row in session.rows(text)
    }


@seed(3)
@each_time_the_same(cases(24, deeper=120))
@given(data=st.data())
def test_L1_the_answers_of_finished_input_are_the_batchs(session: DuckSession, data: st.DataObject) -> None:
    pipeline = data.draw(perhaps_told(data.draw(pipelines())))
    records = data.draw(bundles(20))
    assume(records)
    same_answers(batched(session, pipeline, records), batch(pipeline, records), "L1, answers of finished input")


@seed(4)
@each_time_the_same(cases(12, deeper=60))
@given(data=st.data())
def test_L1_the_answers_of_the_last_stage_are_the_batchs(session: DuckSession, data: st.DataObject) -> None:
    pipeline = data.draw(chains(kept=data.draw(st.booleans())))
    records = data.draw(bundles(20))
    expected = batch(pipeline, records)
    assume(expected)
    same_answers(batched(session, pipeline, records), expected, "L1, answers of finished input of several stages")


def held(session: DuckSession, pipeline: Pipeline, panes: Iterable[Pane]) -> Relation:
    """The answers after these panes."""
    rows = [
        dict(zip(pipeline.key, key, strict=True))
        | {"window_start": moment(window.start), "window_end": moment(window.end), **values}
        | {"generation": 0, "epoch": 0, "pane_index": 0}
        for (key, window), values in answers(panes).items()
    ]
    schema = iceberg_schema(answer_contract(pipeline)).as_arrow()
    return session.relation_of(pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema=schema))


def same(
    data: st.DataObject, pipeline: Pipeline, execution: type[DuckExecution], corrects: type[OpenWindowsCorrection]
) -> None:
    # A session of its own, as what it has computed takes memory until it ends.
    with closing(in_process()) as session:
        same_in(session, data, pipeline, execution, corrects)


def same_in(
    session: DuckSession,
    data: st.DataObject,
    pipeline: Pipeline,
    execution: type[DuckExecution],
    corrects: type[OpenWindowsCorrection],
) -> None:
    fault = drawn_fault(data, pipeline)
    made, place, before = fault.made, fault.place, fault.before
    clock, expected = fault.clock, fault.expected

    one = execution(session.connection, pipeline)
    state, rows = one.nothing(), list[pa.Table]()
    for bundle, at in fault.faulty:
        moved = one.step(state, one.consume(arrow_bundle(pipeline.log, bundle, at.epoch), state), at)
        state, rows = moved.state, [*rows, moved.rows]
    ledger = pa.concat_tables(rows)
    log = session.relation_of(pa.concat_tables([arrow_bundle(pipeline.log, b, c.epoch) for b, c in made[:place]]))
    by = answering(session, pipeline)
    written = BackfillVersion("run", GENERATION, clock.epoch, clock.watermark, clock.processing_time)
    correction = corrects(session, pipeline, written)
    # Of what the stream cannot reach any more the answers are a run's of closed windows.
    reach = Condition(f"{in_range(BEGINNING, END_OF_TIME)} AND NOT {correction._gone}")
    computed = by.batch(by.assigned(log), reach)
    opened = Rows(pipeline).restored(session.relation_of(ledger))
    windows = session.materialized(Query(f"SELECT * FROM ({opened}) WHERE {reach}"))
    answered = current_answers(pipeline, held(session, pipeline, before.panes))
    found = session.materialized(correction.corrected(computed, windows, answered, reach, in_range(*fault.range)))
    told = session.view(correction.rows(Relation(f"(SELECT * FROM {found} WHERE change <> 'same')")))
    more = one._typed(session.connection.execute(f"SELECT * FROM {told}").to_arrow_table())
    assert said_by_rows(one, more) == said_by_reference(pipeline, expected.panes, ())

    after = fold(pipeline, made[place:], expected.state)
    both = session.relation_of(pa.concat_tables([ledger, more]))
    state, said = one.restore(both, clock, expected.state.generation), Said()
    for bundle, at in made[place:]:
        moved = one.step(state, one.consume(arrow_bundle(pipeline.log, bundle, at.epoch), state), at)
        state, said = moved.state, reduce(Said.__add__, [said, said_by_rows(one, moved.rows)])
    one.close()
    assert said == said_by_reference(pipeline, after.panes, after.late)


@seed(5)
@each_time_the_same(cases(12, deeper=60))
@given(data=st.data())
def test_X4_open_windows_are_corrected_by_sql_as_the_model_says(data: st.DataObject) -> None:
    same(data, data.draw(pipelines()), SqlExecution, OpenWindowsCorrection)


@seed(6)
@each_time_the_same(cases(8, deeper=30))
@given(data=st.data())
def test_X4_open_windows_are_corrected_in_python_as_the_model_says(data: st.DataObject) -> None:
    pipeline = data.draw(perhaps_told(data.draw(pipelines())))
    told = type(pipeline.where) is Told
    same(data, pipeline, AssignedExecution if told else PythonExecution, PythonCorrection)


def test_the_correction_is_the_execution_s(session: DuckSession) -> None:
    from tailrace.model.samples import examples

    written = BackfillVersion("run", GENERATION, 0, 0, 0)
    assert type(correction_for(session, examples.figure(7), written)) is OpenWindowsCorrection
