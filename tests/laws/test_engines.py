"""Each engine says what the reference says, pane for pane, late record for late record: one suite, engine by engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, partialmethod
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import assume, given, seed
from hypothesis import strategies as st

from tailrace.backfill.open_windows_correction import OpenWindowsCorrection, correction_for
from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.duckdb import keys
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.python import keys as python_keys
from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import ClockError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.combiners.basic import Merge
from tailrace.model.combiners.sketches import ApproxDistinct
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples import examples
from tailrace.model.step.reference import fold, fold_stages
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import Answers, Pane, answers
from tailrace.model.windows.windows import Window
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.epoch.partials import combine_partials
from tailrace.sql.records.ways import Way, reasons_for_python, way
from tailrace.sql.results.answers import accumulators, current_answers, in_range, results_of
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.terms import Condition, Query, bracketed
from tests.support.cases.computations import machines
from tests.support.cases.corrections import GENERATION, drawn_fault
from tests.support.cases.few import FEW, FEW_OF_STAGES, few_epochs
from tests.support.cases.maps import by_reference, by_rows, random_maps
from tests.support.cases.midnights import calendars_agree, midnights
from tests.support.cases.stages import chains, computed, unpackings
from tests.support.cases.strategies import bundles, each_time_the_same, epochs, perhaps_told, pipelines
from tests.support.checks.batch_answers import batch
from tests.support.checks.laws import same_answers
from tests.support.depth import cases
from tests.support.engines.engine_runs import (
    DUCK,
    SPARK,
    EngineRuns,
    OnDuck,
    OnDuckInPython,
    OnSparkInPython,
    engine_of,
    for_examples,
    on_engine,
)
from tests.support.engines.key_tables import is_the_reference
from tests.support.engines.spark_runs import Said, arrow_bundle, said_by_reference, said_by_rows
from tests.transcripts import Transcript, staged, transcripts

ENGINES = [on_engine(name) for name in (*DUCK, *SPARK)]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> EngineRuns:
    return engine_of(request.param, request)


def expected(pipeline: Pipeline, made: Iterable[tuple[Sequence[Record], Clock]]) -> list[Said]:
    """What the reference says of each stage."""
    stages = zip(pipeline.stages, fold_stages(pipeline, made), strict=True)
    return [said_by_reference(stage, run.panes, run.late, run.rejected) for stage, run in stages]


KINDS = {**FEW, **FEW_OF_STAGES}
"""Definitions that have every kind of part between them."""


@pytest.mark.parametrize(
    ("engine", "name"),
    [on_engine(one, name, id=name, only_deep=one == "duckdb") for one in ("duckdb", "spark") for name in KINDS],
    indirect=["engine"],
)
def test_L1_every_kind_of_part_says_the_same(engine: EngineRuns, name: str) -> None:
    pipeline, made = KINDS[name], few_epochs()
    assert engine.said(pipeline, made) == expected(pipeline, made)


RESTING = {
    "sessions_retracting": 0, "all_time_accumulating": 2, "windows_that_code_tells": 0,
    "panes_at_their_earliest_record_in_sliding_windows": 0,
}  # fmt: skip
"""Definitions whose windows merge, change by the clock alone, stay, and hold back a later stage's watermark (T3).

Each has the maximum number of windows in memory.
"""


@pytest.mark.parametrize(
    ("engine", "name"),
    [on_engine("spark", name, id=name, only_deep=name not in RESTING) for name in KINDS],
    indirect=["engine"],
)
def test_T3_windows_that_rest_in_files_say_the_same(engine: EngineRuns, name: str) -> None:
    pipeline, made = KINDS[name], few_epochs()
    assert engine.at_rest(RESTING.get(name, 0)).said(pipeline, made) == expected(pipeline, made)


TOLD = [("duckdb_in_parts", False), ("duckdb_in_python", True), ("spark", True), ("spark_in_python", True)]
"""The engines that each transcript runs on, and whether only in a deep run."""


@pytest.mark.parametrize(
    ("engine", "transcript"),
    [on_engine(name, one, id=str(one), only_deep=rare) for name, rare in TOLD for one in transcripts()],
    indirect=["engine"],
)
def test_L1_a_transcript_comes_out(engine: EngineRuns, transcript: Transcript) -> None:
    pipeline, made = transcript.pipeline, list(transcript.epochs)
    assert engine.said(pipeline, made) == expected(pipeline, made), transcript.claim


@pytest.mark.parametrize(
    ("engine", "transcript"),
    [on_engine(name, one, id=str(one), only_deep=name != "duckdb") for name in ("duckdb", *SPARK) for one in staged()],
    indirect=["engine"],
)
def test_L1_a_transcript_of_several_stages_comes_out(engine: EngineRuns, transcript: Any) -> None:
    pipeline, made = transcript.pipeline, list(transcript.epochs)
    assert engine.said(pipeline, made) == expected(pipeline, made), transcript.claim


QUICK = (6, 11)
"""Figures of few epochs. DuckDB has all of them as transcripts."""


@pytest.mark.parametrize(
    ("engine", "number"),
    [on_engine("spark", number, id=str(number), only_deep=number not in QUICK) for number in range(6, 15)],
    indirect=["engine"],
)
def test_each_figure_of_the_paper_comes_out_of_generated_code(engine: EngineRuns, number: int) -> None:
    pipeline = examples.figure(number)
    made = examples.micro_batches() if number == 11 else examples.element_at_a_time()
    if number in (6, 10):
        made = [(examples.records(), Clock(0, END_OF_TIME, 0))]
    assert engine.said(pipeline, made) == expected(pipeline, made)


@for_examples(duckdb=(12, 300, 300), duckdb_in_parts=(12, 300, 300), duckdb_in_python=(4, 100, 100), spark=(1, 64, 16))
def test_L1_a_random_definition_over_random_epochs_says_the_same(engine: EngineRuns, data: st.DataObject) -> None:
    own = isinstance(engine, OnDuck)
    pipeline = data.draw(perhaps_told(data.draw(pipelines())) if own else pipelines())
    made = data.draw(epochs(pipeline))
    # An example on Spark is dear: it is one with panes.
    assume(own or (sum(len(bundle) for bundle, _ in made) >= 6 and len(made) <= 7))
    found = expected(pipeline, made)
    assume(own or found[0])
    assert engine.said(pipeline, made) == found


def stages_say_the_same(engine: EngineRuns, data: st.DataObject, pipeline: Pipeline) -> None:
    """Draw epochs whose last stage says something, and compare each stage with the reference."""
    made = data.draw(epochs(pipeline.stages[0], max_epochs=6))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    found = expected(pipeline, made)
    assume(found[-1])
    assert engine.said(pipeline, made) == found


@for_examples(duckdb=(8, 60, 60), spark=(1, 12, 6), spark_in_python=(1, 6, 6))
def test_L1_random_stages_over_random_epochs_say_the_same(engine: EngineRuns, data: st.DataObject) -> None:
    kept = isinstance(engine, OnSparkInPython) or data.draw(st.booleans())
    stages_say_the_same(engine, data, data.draw(chains(kept=kept)))


@for_examples(duckdb=(2, 60, 60), spark=(1, 12, 6))
def test_L1_unpacked_lists_say_the_same(engine: EngineRuns, data: st.DataObject) -> None:
    pipeline = data.draw(unpackings())
    assert not any(map(reasons_for_python, pipeline.stages))
    stages_say_the_same(engine, data, pipeline)


@for_examples(duckdb=(20, 60, 60), spark=(2, 8, 8))
def test_L1_a_map_gives_what_the_reference_gives(engine: EngineRuns, data: st.DataObject) -> None:
    definition, bundle, clock = data.draw(random_maps()), data.draw(bundles(12)), Clock(3, 0, 1_000)
    rows = engine.mapped(definition, arrow_bundle(definition.log, bundle, clock.epoch), clock)
    assert by_rows(definition, rows) == by_reference(definition, [(bundle, clock)])


@for_examples(duckdb=(20, 60, 60), spark=(2, 4, 4))
def test_X2_a_computation_is_the_reference_step(engine: EngineRuns, data: st.DataObject) -> None:
    machine = data.draw(machines())
    is_the_reference(machine, engine.keys(machine), data, 6 if isinstance(engine, OnDuck) else 3)


@seed(1)
@each_time_the_same(cases(60, deeper=300))
@given(data=st.data())
def test_X2_a_computation_by_columns_is_the_reference_step(data: st.DataObject) -> None:
    machine = data.draw(machines(ordered=False, loops=False, columns=True))
    with patch.object(python_keys.KeyStep, "__init__", partialmethod(python_keys.KeyStep.__init__, tries=True)):
        is_the_reference(machine, DUCK["duckdb"]().keys(machine), data, 6)


@seed(1)
@each_time_the_same(cases(7, deeper=20))
@given(data=st.data())
def test_X2_a_computation_of_many_calls_is_the_reference_step(data: st.DataObject) -> None:
    machine = data.draw(machines())
    with patch.object(keys, "ROWS_A_CALL", 2):
        is_the_reference(machine, DUCK["duckdb"]().keys(machine), data, 6)


@pytest.mark.parametrize("engine", [on_engine("duckdb"), on_engine("spark")], indirect=True)
def test_T1_calendar_windows_are_the_models(engine: EngineRuns) -> None:
    times = midnights()
    table = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "id": range(len(times))})
    calendars_agree(times, "times", lambda text: engine.query(text, table))


@pytest.mark.parametrize("engine", [on_engine("duckdb"), on_engine("spark")], indirect=True)
def test_T3_a_clock_that_goes_back_is_refused(engine: EngineRuns) -> None:
    first, second, *_ = few_epochs()
    with pytest.raises(ClockError):
        engine.said(FEW["all_time_accumulating"], [second, first])


def batched(engine: EngineRuns, pipeline: Pipeline, records: list[dict[str, object]]) -> Answers:
    """Return the answers of finished input, however a session computes them."""
    rows = arrow_bundle(pipeline.stages[0].log, records, 0)
    with engine.session() as session:
        log, by = engine.relation(session, "finished_log", rows), answering(session, pipeline.finished)
        found = answered(session, pipeline, computed(by, log))
        if isinstance(session, DuckSession):
            placed = answered(session, pipeline, by.batch(by.assigned(log)))
            same_answers(found, placed, "the same by slices of time")
            if by.earlier is None and way(pipeline) is Way.SQL and not pipeline.each:
                same_answers(
                    in_parts(session, pipeline, rows), placed, "the same, put together of parts of the records"
                )
    return found


def in_parts(session: DuckSession, pipeline: Pipeline, log: pa.Table) -> Answers:
    thirds = [session.relation_of(log.take(pa.array(range(first, log.num_rows, 3), pa.int64()))) for first in range(3)]
    texts = [accumulators(pipeline, third) for third in thirds]
    parts = session.view(Query(" UNION ALL ".join(f"SELECT * FROM ({text})" for text in texts)))
    return answered(session, pipeline, results_of(pipeline, bracketed(combine_partials(pipeline, parts))))


def answered(session: Session, pipeline: Pipeline, text: Query) -> Answers:
    return {
        (tuple(row[name] for name in pipeline.key), Window(row["window_start"], row["window_end"])): {
            name: row[name] for name in pipeline.what
        }
        for row in session.rows(text)
    }


@for_examples(duckdb=(24, 120, 120))
def test_L1_the_answers_of_finished_input_are_the_batchs(engine: EngineRuns, data: st.DataObject) -> None:
    pipeline = data.draw(perhaps_told(data.draw(pipelines())))
    records = data.draw(bundles(20))
    assume(records)
    same_answers(batched(engine, pipeline, records), batch(pipeline, records), "L1, answers of finished input")


@for_examples(duckdb=(12, 60, 60), spark=(1, 6, 6))
def test_L1_the_answers_of_the_last_stage_are_the_batchs(engine: EngineRuns, data: st.DataObject) -> None:
    own = isinstance(engine, OnDuck)
    pipeline = data.draw(chains(kept=not own or data.draw(st.booleans())))
    if not own:
        # On Spark whatever cannot be taken back, as everything else runs natively.
        parts = [part for stage in pipeline.stages for part in stage.parts.values()]
        assume(any(part.merge in (Merge.OWN, Merge.COUNT) for part in parts))
        sketched = any(isinstance(combiner, ApproxDistinct) for combiner in pipeline.what.values())
        assert bool(reasons_for_python(pipeline.finished)) == sketched
    records = data.draw(bundles(20))
    wanted = batch(pipeline, records)
    assume(wanted)
    same_answers(batched(engine, pipeline, records), wanted, "L1, answers of finished input of several stages")


def answer_rows(pipeline: Pipeline, panes: Iterable[Pane]) -> pa.Table:
    """Return the answers after these panes, as rows of their table."""
    rows = [
        dict(zip(pipeline.key, key, strict=True))
        | {"window_start": moment(window.start), "window_end": moment(window.end), **values}
        | {"generation": 0, "epoch": 0, "pane_index": 0}
        for (key, window), values in answers(panes).items()
    ]
    schema = iceberg_schema(answer_contract(pipeline)).as_arrow()
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema=schema)


@for_examples(duckdb=(12, 60, 60), duckdb_in_python=(8, 30, 30), spark=(1, 12, 6), spark_in_python=(1, 4, 4))
def test_X4_open_windows_are_corrected_as_the_model_says(engine: EngineRuns, data: st.DataObject) -> None:
    python = isinstance(engine, OnDuckInPython)
    pipeline = data.draw(perhaps_told(data.draw(pipelines())) if python else pipelines())
    fault = drawn_fault(data, pipeline)
    made, place, clock, expected = fault.made, fault.place, fault.clock, fault.expected

    one, rows = engine.execution(pipeline), list[pa.Table]()
    state = one.nothing()
    for bundle, at in fault.faulty:
        stepped = one.step(state, one.consume(engine.bundle(arrow_bundle(pipeline.log, bundle, at.epoch)), state), at)
        state, rows = stepped.state, [*rows, engine.rows(stepped)]
    ledger = pa.concat_tables(rows)
    with engine.session() as session:
        relation = partial(engine.relation, session)
        log = pa.concat_tables([arrow_bundle(pipeline.log, b, c.epoch) for b, c in made[:place]])
        by = engine.answering(session, pipeline)
        written = BackfillVersion("run", GENERATION, clock.epoch, clock.watermark, clock.processing_time)
        correction = engine.correction(session, pipeline, written)
        # Of what the stream cannot reach any more the answers are a run's of closed windows.
        reach = Condition(f"{in_range(BEGINNING, END_OF_TIME)} AND NOT {correction._gone}")
        computed = by.batch(by.assigned(relation("whole_log", log)), reach)
        opened = Rows(pipeline).restored(relation("faulty_ledger", ledger))
        windows = session.materialized(Query(f"SELECT * FROM ({opened}) WHERE {reach}"))
        answered = current_answers(pipeline, relation("held", answer_rows(pipeline, fault.before.panes)))
        text = correction.corrected(computed, windows, answered, reach, in_range(*fault.range))
        found = session.materialized(Query(f"SELECT * FROM ({text}) WHERE change <> 'same'"))
        more = engine.table(session, correction.rows(found), ledger.schema)
    assert said_by_rows(pipeline, more) == said_by_reference(pipeline, expected.panes, ())

    after = fold(pipeline, made[place:], expected.state)
    said, both = Said(), engine.bundle(pa.concat_tables([ledger, more]))
    with engine.ledger(one, both) as rows_of_ledger:
        state = one.restore(rows_of_ledger, clock, expected.state.generation)
    for bundle, at in made[place:]:
        stepped = one.step(state, one.consume(engine.bundle(arrow_bundle(pipeline.log, bundle, at.epoch)), state), at)
        state, said = stepped.state, said + said_by_rows(pipeline, engine.rows(stepped))
    one.close()
    assert said == said_by_reference(pipeline, after.panes, after.late)


def test_the_correction_is_the_execution_s() -> None:
    written = BackfillVersion("run", GENERATION, 0, 0, 0)
    with DUCK["duckdb"]().session() as session:
        assert type(correction_for(session, examples.figure(7), written)) is OpenWindowsCorrection
