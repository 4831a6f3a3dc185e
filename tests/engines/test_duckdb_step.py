"""The step on DuckDB says what the reference says, pane for pane, late record for late record."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions import sql_execution
from tailrace.model.base.errors import ClockError
from tailrace.model.step.reference import fold, fold_stages
from tests.support.cases.few import FEW, few_epochs
from tests.support.cases.midnights import calendars_agree, midnights
from tests.support.cases.stages import chains
from tests.support.cases.strategies import each_time_the_same, epochs, perhaps_told, pipelines
from tests.support.depth import cases
from tests.support.engines.duckdb_runs import CONNECTION, in_parts, run_on_duckdb
from tests.support.engines.spark_runs import said_by_reference
from tests.transcripts import Staged, Transcript, staged, transcripts

EACH_TIME_THE_SAME = each_time_the_same(cases(16, deeper=300))


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_L1_a_transcript_comes_out_whichever_bundles_are_added_up_in_parts(transcript: Transcript) -> None:
    run = fold(transcript.pipeline, transcript.epochs)
    expected = said_by_reference(transcript.pipeline, run.panes, run.late, run.rejected)
    assert run_on_duckdb(transcript.pipeline, transcript.epochs, in_parts) == [expected], transcript.claim


@pytest.mark.parametrize("transcript", staged(), ids=str)
def test_a_transcript_of_several_stages_comes_out(transcript: Staged) -> None:
    runs = fold_stages(transcript.pipeline, list(transcript.epochs))
    stages = zip(transcript.pipeline.stages, runs, strict=True)
    expected = [said_by_reference(stage, run.panes, run.late) for stage, run in stages]
    assert run_on_duckdb(transcript.pipeline, transcript.epochs) == expected, transcript.claim


@seed(1)
@EACH_TIME_THE_SAME
@given(data=st.data())
def test_L1_a_random_definition_over_random_epochs_says_the_same_whole_and_in_parts(data: st.DataObject) -> None:
    pipeline = data.draw(perhaps_told(data.draw(pipelines())))
    made = data.draw(epochs(pipeline))
    run = fold(pipeline, made)
    expected = [said_by_reference(pipeline, run.panes, run.late)]
    assert run_on_duckdb(pipeline, made) == expected
    with pytest.MonkeyPatch.context() as patch:
        # As an epoch of many windows is taken through the rules.
        patch.setattr(sql_execution, "MANY", 1)
        assert run_on_duckdb(pipeline, made, in_parts) == expected


@pytest.mark.parametrize("kept", [False, True], ids=["taken_out", "kept"])
def test_random_stages_over_random_epochs_say_the_same(kept: bool) -> None:
    @seed(2)
    @settings(EACH_TIME_THE_SAME, max_examples=cases(4, deeper=30))
    @given(data=st.data())
    def hold(data: st.DataObject) -> None:
        pipeline = data.draw(chains(kept=kept))
        made = data.draw(epochs(pipeline.stages[0], max_epochs=6))
        runs = fold_stages(pipeline, made)
        assume(runs[-1].panes)
        stages = zip(pipeline.stages, runs, strict=True)
        assert run_on_duckdb(pipeline, made) == [said_by_reference(one, run.panes, run.late) for one, run in stages]

    hold()


def test_T1_calendar_windows_are_the_models() -> None:
    own, times = CONNECTION.cursor(), midnights()
    own.register("times", pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "id": range(len(times))}))
    calendars_agree(times, "times", lambda text: own.execute(in_duckdb(text)).fetchall())


def test_T3_a_clock_that_goes_back_is_refused() -> None:
    first, second, *_ = few_epochs()
    with pytest.raises(ClockError):
        run_on_duckdb(FEW["all_time_accumulating"], [second, first])
