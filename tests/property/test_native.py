"""The native execution says what the reference says, pane for pane, late record for late record (DESIGN section 2)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.model import examples
from tailrace.model.calendars import UNITS, Calendar
from tailrace.model.clock import Clock
from tailrace.model.reference import fold
from tailrace.model.time import END_OF_TIME, instant
from tailrace.model.windows import Window
from tailrace.sql.reasons import reasons
from tailrace.sql.windows import assigned
from tests.support.native import in_parts, run_native, said_by_reference
from tests.support.strategies import epochs, pipelines
from tests.transcripts import Transcript, transcripts

CASES = 64
"""How many random definitions are run through real Spark."""


@pytest.mark.parametrize("number", range(6, 15))
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


@pytest.mark.parametrize("transcript", natively(), ids=str)
def test_a_transcript_comes_out_natively(plain: SparkSession, transcript: Transcript) -> None:
    run = fold(transcript.pipeline, transcript.epochs)
    expected = said_by_reference(transcript.pipeline, run.panes, run.late, run.rejected)
    assert run_native(plain, transcript.pipeline, transcript.epochs) == expected, transcript.claim


def test_T1_calendar_windows_are_the_same_natively(spark: SparkSession) -> None:
    chance = random.Random(7)
    zones = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "Asia/Beirut", "Asia/Gaza"]
    # Around midnights, for there it may go wrong; Apia's 30 December 2011 never was.
    times = [chance.randrange(0, 2 * 10**15) for _ in range(400)]
    times += [at - at % 3_600_000_000 + by for at in times for by in (-1, 0)]
    times += [instant(datetime(2011, 12, day, 10, tzinfo=UTC)) + by for day in (29, 30, 31) for by in (-1, 0)]
    log = replace(examples.SCORES, arrival_time=None)
    frame = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "id": range(len(times))})
    spark.createDataFrame(frame).createOrReplaceTempView("calendar_times")
    source = (
        "(SELECT at, CAST(id AS string) AS team, 0L AS value, at AS seen, 0L AS _epoch, '' AS _source, id AS _offset "
        "FROM calendar_times)"
    )
    for zone in zones:
        for unit in UNITS:
            where = Calendar(unit, zone)
            pipeline = replace(examples.figure(10), log=log, where=where)
            rows = spark.sql(f"SELECT team, window_start, window_end FROM ({assigned(pipeline, source)})").collect()
            found = {times[int(row["team"])]: Window(row["window_start"], row["window_end"]) for row in rows}
            wrong = {at: (found[at], where.assign(at)) for at in times if [found[at]] != where.assign(at)}
            assert not wrong, f"{zone}, {unit}: {len(wrong)} of {len(times)}, {next(iter(wrong.items()))}"


@in_parts(CASES, of=16)
def test_a_random_definition_over_random_epochs_says_the_same_natively(
    plain: SparkSession, data: st.DataObject
) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline))
    assume(sum(len(bundle) for bundle, _ in made) >= 6 and len(made) <= 7)
    run = fold(pipeline, made)
    assume(run.panes)
    assert run_native(plain, pipeline, made) == said_by_reference(pipeline, run.panes, run.late)
