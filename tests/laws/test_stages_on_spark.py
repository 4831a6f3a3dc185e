"""Definitions of several stages say on Spark what the reference says, stage by stage (law L1)."""

from __future__ import annotations

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.spark.executions.execution import SparkExecution
from tailrace.engines.spark.executions.per_key import PerKey
from tailrace.model.combiners.basic import Merge
from tailrace.model.combiners.sketches import ApproxDistinct
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.reference import batch, fold_stages
from tailrace.model.windows.windows import Window
from tailrace.sql.records.ways import reasons
from tailrace.sql.terms import Relation
from tests.support.cases.few import FEW_OF_STAGES, few_epochs
from tests.support.cases.stages import chains, computed
from tests.support.cases.strategies import bundles, epochs
from tests.support.checks.laws import Epochs, same_answers
from tests.support.depth import deep
from tests.support.engines.sessions import cluster
from tests.support.engines.spark_runs import Said, bundle_frame, in_parts, run_stages, said_by_reference
from tests.transcripts import Staged, staged


def expected(pipeline: Pipeline, made: Epochs) -> list[Said]:
    runs = fold_stages(pipeline, made)
    return [said_by_reference(one, run.panes, run.late) for one, run in zip(pipeline.stages, runs, strict=True)]


@pytest.mark.parametrize("name", FEW_OF_STAGES)
def test_every_kind_of_later_stage_says_the_same_on_spark(plain: SparkSession, name: str) -> None:
    pipeline, made = FEW_OF_STAGES[name], few_epochs()
    assert run_stages(plain, pipeline, made) == expected(pipeline, made)


def test_T3_windows_that_rest_hold_a_later_stages_watermark_back_as_those_in_memory_do(plain: SparkSession) -> None:
    pipeline, made = FEW_OF_STAGES["panes_at_their_earliest_record_in_sliding_windows"], few_epochs()
    assert run_stages(plain, pipeline, made, most=0) == expected(pipeline, made)


@deep
@pytest.mark.parametrize("execution", [None, PerKey], ids=["natively", "in_python"])
@pytest.mark.parametrize("transcript", staged(), ids=str)
def test_a_transcript_of_several_stages_comes_out(
    plain: SparkSession, transcript: Staged, execution: type[SparkExecution] | None
) -> None:
    said = run_stages(plain, transcript.pipeline, transcript.epochs, execution)
    assert said == expected(transcript.pipeline, transcript.epochs), transcript.claim


@in_parts(1, deeper=12, of=6)
def test_stages_say_the_same_natively(plain: SparkSession, data: st.DataObject) -> None:
    pipeline = data.draw(chains(kept=data.draw(st.booleans())))
    made = data.draw(epochs(pipeline.stages[0], max_epochs=6))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    found = expected(pipeline, made)
    assume(found[-1])
    most = data.draw(st.sampled_from([None, 0, 3]))
    assert run_stages(plain, pipeline, made, most=most) == found


@in_parts(1, deeper=6, of=6)
def test_stages_say_the_same_in_python(plain: SparkSession, data: st.DataObject) -> None:
    pipeline = data.draw(chains(kept=True))
    made = data.draw(epochs(pipeline.stages[0], max_epochs=4))
    assume(sum(len(bundle) for bundle, _ in made) >= 6)
    found = expected(pipeline, made)
    assume(found[-1])
    assert run_stages(plain, pipeline, made, PerKey) == found


@in_parts(1, deeper=6, of=6)
def test_L1_the_answers_of_finished_input_are_the_batchs_whatever_could_not_be_taken_back(
    plain: SparkSession, data: st.DataObject
) -> None:
    pipeline = data.draw(chains(kept=True))
    parts = [part for stage in pipeline.stages for part in stage.parts.values()]
    assume(any(part.merge in (Merge.OWN, Merge.COUNT) for part in parts))
    finished = pipeline.finished
    own = any(isinstance(combiner, ApproxDistinct) for combiner in pipeline.what.values())
    assert bool(reasons(finished)) == own
    records = data.draw(bundles(20))
    expected = batch(pipeline, records)
    assume(expected)
    bundle_frame(plain, pipeline.stages[0], records, 0).createOrReplaceTempView("finished_log")
    by = answering(cluster(plain), finished)
    results = ", ".join(f"`{name}`" for name in (*pipeline.key, "window_start", "window_end", *pipeline.what))
    text = computed(by, Relation("finished_log"))
    rows = plain.sql(f"SELECT {results} FROM ({text})").toArrow().to_pylist()
    found = {
        (tuple(row[name] for name in pipeline.key), Window(row["window_start"], row["window_end"])): {
            name: row[name] for name in pipeline.what
        }
        for row in rows
    }
    same_answers(found, expected, "L1, answers of finished input against the batch's")
