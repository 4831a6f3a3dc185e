"""The native execution says what the reference says, pane for pane, late record for late record."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.engines.spark.executions.compiler import compiled
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import ClockError
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.samples import examples
from tailrace.model.step.reference import fold
from tailrace.sql.records.ways import reasons
from tests.support.cases.few import FEW, few_epochs
from tests.support.cases.midnights import calendars_agree, midnights
from tests.support.cases.strategies import epochs, pipelines
from tests.support.depth import deep
from tests.support.engines.spark_runs import in_parts, run_native, said_by_reference
from tests.transcripts import Transcript, transcripts

QUICK = (6, 11)
"""Figures of few epochs; the engine in the process has each."""


@pytest.mark.parametrize("name", FEW)
def test_every_kind_of_part_says_the_same_on_spark(plain: SparkSession, name: str) -> None:
    pipeline, made = FEW[name], few_epochs()
    run = fold(pipeline, made)
    expected = said_by_reference(pipeline, run.panes, run.late, run.rejected)
    assert run_native(plain, pipeline, made, compiled) == expected


RESTING = {"sessions_retracting": 0, "all_time_accumulating": 2, "windows_that_code_tells": 0}
"""Definitions whose windows merge, change by the clock alone, and stay; and how many of them are in memory."""


@pytest.mark.parametrize("name", [n if n in RESTING else pytest.param(n, marks=deep) for n in FEW])
def test_every_kind_of_part_says_the_same_of_windows_that_rest(plain: SparkSession, name: str) -> None:
    pipeline, made = FEW[name], few_epochs()
    run = fold(pipeline, made)
    expected = said_by_reference(pipeline, run.panes, run.late, run.rejected)
    assert run_native(plain, pipeline, made, compiled, most=RESTING.get(name, 0)) == expected


@pytest.mark.parametrize("number", [n if n in QUICK else pytest.param(n, marks=deep) for n in range(6, 15)])
def test_each_figure_of_the_paper_comes_out_natively(spark: SparkSession, number: int) -> None:
    pipeline = examples.figure(number)
    epochs_ = examples.micro_batches() if number == 11 else examples.element_at_a_time()
    if number in (6, 10):
        epochs_ = [(examples.records(), Clock(0, END_OF_TIME, 0))]
    run = fold(pipeline, epochs_)
    assert run_native(spark, pipeline, epochs_) == said_by_reference(pipeline, run.panes, run.late)


def natively() -> list[Transcript]:
    """The transcripts of what runs natively, but for the figures, which run with generated code above."""
    return [one for one in transcripts() if not reasons(one.pipeline) and not str(one).startswith("figure_")]


@deep
@pytest.mark.parametrize("transcript", natively(), ids=str)
def test_a_transcript_comes_out_natively(plain: SparkSession, transcript: Transcript) -> None:
    run = fold(transcript.pipeline, transcript.epochs)
    expected = said_by_reference(transcript.pipeline, run.panes, run.late, run.rejected)
    assert run_native(plain, transcript.pipeline, transcript.epochs) == expected, transcript.claim


def test_T1_calendar_windows_are_the_same_natively(spark: SparkSession) -> None:
    times = midnights()
    frame = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "id": range(len(times))})
    spark.createDataFrame(frame).createOrReplaceTempView("calendar_times")
    calendars_agree(times, "calendar_times", lambda text: map(tuple, spark.sql(text).collect()))


@in_parts(1, deeper=64, of=16)
def test_a_random_definition_over_random_epochs_says_the_same_natively(
    plain: SparkSession, data: st.DataObject
) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline))
    assume(sum(len(bundle) for bundle, _ in made) >= 6 and len(made) <= 7)
    run = fold(pipeline, made)
    assume(run.panes)
    most = data.draw(st.sampled_from([None, 0, 3]))
    assert run_native(plain, pipeline, made, most=most) == said_by_reference(pipeline, run.panes, run.late)


def test_T3_a_clock_that_goes_back_is_refused(plain: SparkSession) -> None:
    first, second, *_ = few_epochs()
    with pytest.raises(ClockError):
        run_native(plain, FEW["all_time_accumulating"], [second, first])
