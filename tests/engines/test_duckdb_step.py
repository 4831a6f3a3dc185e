"""The step on DuckDB says what the reference says, pane for pane, late record for late record (DESIGN section 2)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from tailrace.engines.duckdb.dialect import in_duckdb
from tailrace.model import examples
from tailrace.model.calendars import UNITS, Calendar
from tailrace.model.clock import Clock
from tailrace.model.reference import fold, fold_stages
from tailrace.model.time import END_OF_TIME, instant
from tailrace.model.windows import Window
from tailrace.sql.windows import assigned
from tests.support.duck import CONNECTION, run_on_duckdb
from tests.support.native import said_by_reference
from tests.support.stages import chains
from tests.support.strategies import DEEP, epochs, pipelines
from tests.transcripts import Staged, Transcript, staged, transcripts

CASES = 300
"""How many random definitions are run."""

EACH_TIME_THE_SAME = settings(
    max_examples=CASES * DEEP,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("number", range(6, 15))
def test_each_figure_of_the_paper_comes_out(number: int) -> None:
    pipeline = examples.figure(number)
    made = examples.micro_batches() if number == 11 else examples.element_at_a_time()
    if number in (6, 10):
        made = [(examples.records(), Clock(0, END_OF_TIME, 0))]
    run = fold(pipeline, made)
    assert run_on_duckdb(pipeline, made) == [said_by_reference(pipeline, run.panes, run.late)]


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_a_transcript_comes_out(transcript: Transcript) -> None:
    run = fold(transcript.pipeline, transcript.epochs)
    expected = said_by_reference(transcript.pipeline, run.panes, run.late, run.rejected)
    assert run_on_duckdb(transcript.pipeline, transcript.epochs) == [expected], transcript.claim


@pytest.mark.parametrize("transcript", staged(), ids=str)
def test_a_transcript_of_several_stages_comes_out(transcript: Staged) -> None:
    runs = fold_stages(transcript.pipeline, list(transcript.epochs))
    stages = zip(transcript.pipeline.stages, runs, strict=True)
    expected = [said_by_reference(stage, run.panes, run.late) for stage, run in stages]
    assert run_on_duckdb(transcript.pipeline, transcript.epochs) == expected, transcript.claim


@seed(1)
@EACH_TIME_THE_SAME
@given(data=st.data())
def test_a_random_definition_over_random_epochs_says_the_same(data: st.DataObject) -> None:
    pipeline = data.draw(pipelines())
    made = data.draw(epochs(pipeline))
    run = fold(pipeline, made)
    assert run_on_duckdb(pipeline, made) == [said_by_reference(pipeline, run.panes, run.late)]


@pytest.mark.parametrize("python", [False, True], ids=["natively", "in_python"])
def test_random_stages_over_random_epochs_say_the_same(python: bool) -> None:
    @seed(2)
    @settings(EACH_TIME_THE_SAME, max_examples=CASES * DEEP // 10)
    @given(data=st.data())
    def hold(data: st.DataObject) -> None:
        pipeline = data.draw(chains(python=python))
        made = data.draw(epochs(pipeline.stages[0], max_epochs=6))
        runs = fold_stages(pipeline, made)
        assume(runs[-1].panes)
        stages = zip(pipeline.stages, runs, strict=True)
        assert run_on_duckdb(pipeline, made) == [said_by_reference(one, run.panes, run.late) for one, run in stages]

    hold()


def test_T1_calendar_windows_are_the_models() -> None:
    chance = random.Random(7)
    zones = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "Asia/Beirut", "Asia/Gaza"]
    # Around midnights, for there it may go wrong; Apia's 30 December 2011 never was.
    times = [chance.randrange(0, 2 * 10**15) for _ in range(400)]
    times += [at - at % 3_600_000_000 + by for at in times for by in (-1, 0)]
    times += [instant(datetime(2011, 12, day, 10, tzinfo=UTC)) + by for day in (29, 30, 31) for by in (-1, 0)]
    log = replace(examples.SCORES, arrival_time=None)
    own = CONNECTION.cursor()
    own.register("times", pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "id": range(len(times))}))
    source = (
        "(SELECT at, CAST(id AS string) AS team, 0L AS value, at AS seen, 0L AS _epoch, '' AS _source, id AS _offset "
        "FROM times)"
    )
    for zone in zones:
        for unit in UNITS:
            where = Calendar(unit, zone)
            pipeline = replace(examples.figure(10), log=log, where=where)
            text = in_duckdb(f"SELECT team, window_start, window_end FROM ({assigned(pipeline, source)})")
            found = {times[int(team)]: Window(start, end) for team, start, end in own.execute(text).fetchall()}
            wrong = {at: (found[at], where.assign(at)) for at in times if [found[at]] != where.assign(at)}
            assert not wrong, f"{zone}, {unit}: {len(wrong)} of {len(times)}, {next(iter(wrong.items()))}"
