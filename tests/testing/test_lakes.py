"""The fixtures stream into a lake of a test without a JVM, and backfill it, with the rows that a fold has."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterSignal,
    AfterWatermark,
    AnyOf,
    Computation,
    Each,
    Every,
    Field,
    Global,
    Join,
    Map,
    Match,
    Pipeline,
    RecordError,
    SparkColumns,
    Sum,
    hours,
    minutes,
)  # fmt: skip
from tailrace.testing import EpochsError, LakeDoubtError, RejectedError, ScratchLake, fold
from tests.testing.rides import HOURLY, RIDES, ride

EPOCHS: list[list[dict[str, Any]]] = [[ride("09:10"), ride("10:14", 4)], [ride("09:20", 8)], [ride("10:15", 16)]]
EPOCHS += [[ride("09:30", 32)]]
ALWAYS = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
EARLY = replace(HOURLY, when=ALWAYS, how=RETRACTING)


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    made = ScratchLake(tmp_path / "lake")
    yield made
    made.close()


class Runs(Computation):
    """The rides of a city so far."""

    state = {"rides": Field("bigint", 0)}
    produces = {"so_far": "bigint"}

    def process_record(self, context: Any, record: Any) -> None:
        context.state.rides += 1
        context.produce({"so_far": context.state.rides})


TAXIS = replace(RIDES, name="taxis")
DEAR = Map(name="dear", log=RIDES, keep=Match("cents", ">", 1), what=("city", "cents"))
TOTAL = Pipeline(name="total", log=EARLY.panes, key=(), what={"cents": Sum("cents")}, where=Global(), when=ALWAYS)


def test_the_lake_has_the_rows_that_a_fold_gives_of_each_kind(lake: ScratchLake) -> None:
    definitions = [TOTAL, DEAR, Runs(name="runs", log=DEAR.produced, key="city")]
    for records in EPOCHS:
        lake.stream(definitions, records)
    for definition in (EARLY, *definitions):
        folded = fold(definition, EPOCHS, ends=False)
        assert len(folded) > 1
        assert lake.panes(definition) == folded
        assert lake.answers(definition) == folded.answers
    lake.check(*definitions)


def test_a_join_of_two_logs_is_streamed(lake: ScratchLake) -> None:
    both = Join(name="both", left=RIDES, right=TAXIS, on="city", within=minutes(5), right_columns={"taxi": "cents"})
    epochs = [{"rides": [ride("09:10", 1)]}, {"taxis": [ride("09:12", 3)], "rides": [ride("09:11", 2)]}]
    for records in epochs:
        lake.stream(both, records)
    assert lake.answers(both) == fold(both, epochs, ends=False).answers
    lake.check(both)
    with pytest.raises(EpochsError, match="cabs: a stream lands all of its logs from its first epoch on"):
        lake.stream(replace(HOURLY, log=replace(RIDES, name="cabs")), [])


def test_a_backfill_counts_what_was_late_and_changes_nothing_else(lake: ScratchLake) -> None:
    for records in EPOCHS:
        lake.stream(HOURLY, records)
    lake.late(HOURLY).check("event_time city \n 2026-03-01T09:30 Paris")
    lake.answers(HOURLY).check("window cents \n 2026-03-01T09:00/10:00 9")
    done = lake.backfill(HOURLY, "2026-03-01T09:00", "2026-03-01T10:00")
    assert (done.changed, done.untouched, done.retracted) == (1, 0, 0)
    lake.answers(HOURLY).check("cents \n 41")
    lake.panes(HOURLY).where(writer="backfill").check("timing sign cents \n correction - 9 \n correction + 41")
    done = lake.backfill(HOURLY)
    assert (done.changed, done.retracted) == (0, 0)
    lake.stream(HOURLY, [ride("12:00", 64)])
    lake.answers(HOURLY).check("cents \n 41 \n 20")
    lake.check(HOURLY)


def test_the_stream_goes_on_from_open_windows_that_a_backfill_corrected(lake: ScratchLake) -> None:
    late = replace(HOURLY, allowed_lateness=hours(2), when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)))
    lake.stream(late, [ride("09:10", 1)])
    lake.backfill(late)
    lake.stream(late, [ride("09:20", 2), ride("11:00", 4)])
    lake.answers(late).check("window cents \n 2026-03-01T09:00/10:00 3 \n 2026-03-01T11:00/12:00 4")
    lake.check(late)


def test_a_test_moves_processing_time_sends_signals_and_completes_the_log(lake: ScratchLake) -> None:
    timed = replace(HOURLY, when=AfterWatermark(early=AnyOf(Every(minutes(10)), AfterSignal("go"))))
    clock, stream = lake.stream.clock, lake.stream
    with pytest.raises(EpochsError, match="the clock has no time to advance from yet"):
        clock.advance(minutes(1))
    clock.set("2026-03-01T09:12")
    stream(timed, [ride("09:10")])
    assert len(lake.panes(timed)) == 0
    clock.advance(minutes(9))
    stream(timed)
    lake.panes(timed).check("timing processing_time \n early 2026-03-01T09:21")
    with pytest.raises(EpochsError, match="expected no time before the last epoch's"):
        clock.set("2026-03-01T09:00")
    stream(timed, [ride("09:15")], signals=("go",))
    stream(timed, complete="2026-03-01T10:00")
    lake.panes(timed).in_order.check("timing rides epoch \n early 1 1 \n early 2 2 \n on_time 2 3")


def test_a_stream_that_starts_again_and_one_with_more_definitions_go_on(lake: ScratchLake) -> None:
    lake.stream(EARLY, EPOCHS[0])
    lake.stream.restart()
    lake.stream(EARLY, EPOCHS[1])
    for records in EPOCHS[2:]:
        lake.stream([EARLY, DEAR], records)
    assert lake.panes(EARLY) == fold(EARLY, EPOCHS, ends=False)
    assert lake.answers(DEAR) == fold(DEAR, EPOCHS, ends=False).answers


def test_rejected_and_repeated_records_are_landed_as_such(lake: ScratchLake) -> None:
    def refused(record: Any) -> Any:
        if record["cents"] == 13:
            raise RecordError("13 brings bad luck")
        return {"euros": record["cents"] // 100}

    log = replace(RIDES, record_id=("at", "city"))
    careful = replace(HOURLY, log=log, each=Each(refused, gives={"euros": "bigint"}))
    with pytest.raises(RejectedError, match="at = 7 is not a timestamp"):
        lake.stream(careful, [ride("09:10"), {"at": 7}])
    lake.stream(careful, [ride("09:10"), {"at": 7}, ride("09:10")], allow_rejected=True)
    lake.stream(careful, [ride("09:11"), ride("09:10"), ride("12:30", 13), ride("13:00")])
    lake.answers(careful).check("rides window \n 2 2026-03-01T09:00/10:00")
    _, rejected = lake.tables.rows("rides__rejected")
    assert [(row["error"], row["_epoch"]) for row in rejected] == [("at = 7 is not a timestamp", 0)]
    assert len(lake.tables.rows("rides")[1]) == 4
    lake.check(careful)


def test_a_lake_that_does_not_add_up_fails_the_check(lake: ScratchLake) -> None:
    lake.stream(EARLY, EPOCHS[0])
    lake.stream.restart()
    lake.tables.table("hourly_rides__ledger").delete("kind = 'pane'")
    with pytest.raises(LakeDoubtError, match="hourly_rides: "):
        lake.check(EARLY)


def test_a_scratch_lake_takes_no_setting_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", "s3://production/lake")
    monkeypatch.setenv("TAILRACE_CATALOG_URI", "glue://1234")
    monkeypatch.setenv("TAILRACE_NAMESPACE", "production")
    (tmp_path / "tailrace.toml").write_text('namespace = "production"\n')
    monkeypatch.chdir(tmp_path)
    settings = ScratchLake(tmp_path / "lake").settings
    assert str(settings.warehouse) == str(tmp_path / "lake")
    assert "production" not in settings.model_dump_json()
    assert "1234" not in settings.model_dump_json()


def test_a_lake_without_the_package_for_its_catalog_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"pip install 'tailrace\[sqlite\]'"):
        ScratchLake(tmp_path / "lake")


def test_a_step_that_only_spark_can_run_is_refused(lake: ScratchLake) -> None:
    step = SparkColumns({"more": ("bigint", "cents + 1")})
    with pytest.raises(NotImplementedError, match="needs Spark"):
        lake.stream(replace(HOURLY, each=step), [ride("09:10")])
