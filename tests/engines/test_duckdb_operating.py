"""What operators do to a lake that fits the process starts no JVM."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Max, Pipeline, Sessions, Sum, minutes
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.duckdb.database.connection import connect, in_one_transaction
from tailrace.engines.duckdb.session import DuckSession
from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import FoldSetup
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import generation_of, generations_beside
from tailrace.lake.change.restoration import restore
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.late_report import late_report
from tailrace.lake.schema.computation_tables import computation_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.conditions import Match
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.samples.visits import example
from tailrace.operate import changeover
from tailrace.operate.changeover import apply, rollback
from tailrace.settings import Settings
from tailrace.sql.records.stage_records import productions
from tailrace.stream.log_stream import Tailing
from tailrace.verify.as_of import as_of
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import BASE, LOG
from tests.support.lakes.recorded_ledgers import no_spark, record

PLACES = Pipeline(
    name="places", log=replace(LOG, percentiles={}), key="place", what={"n": Count(), "sum": Sum("value")},
    where=Fixed(minutes(1)), when=AfterWatermark(early=AfterCount(2)),
)  # fmt: skip
HALVES = replace(PLACES, what={"n": Sum("value"), "most": Max("value")}, where=Fixed(minutes(0.5)))
"""Other windows, and a result of the same name that means something else."""

EPOCHS, HERE = 4, EngineChoice(Engine.DUCKDB, "it is a test")


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with a stream's epochs, some of whose records came too late; to start Spark is to fail."""
    monkeypatch.setattr(changeover, "open_session", lambda *_, **__: no_spark())
    found = Lake(settings)

    def epoch(number: int) -> tuple[Sequence[dict[str, Any]], Clock]:
        seconds = [20 * number, 20 * number + 70, 5]
        rows = [
            {"id": n, "place": "ab"[n % 2], "value": n + number, "at": BASE + timedelta(seconds=at)}
            for n, at in enumerate(seconds)
        ]
        last = number == EPOCHS - 1
        watermark = END_OF_TIME if last else instant(BASE + timedelta(seconds=40 * number))
        return rows, Clock(number, watermark, instant(BASE) + number)

    record(found, PLACES, [epoch(number) for number in range(EPOCHS)])
    return found


def answers(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """The answers without their versions."""
    left_out = {"timing", "generation", "epoch", "pane_index"}
    rows = lake.table(name).scan().to_arrow().to_pylist()
    return sorted(tuple(value for column, value in row.items() if column not in left_out) for row in rows)


def test_a_transaction_that_fails_leaves_nothing_and_the_next_one_begins(settings: Settings) -> None:
    with connect(settings) as connection:
        connection.execute("CREATE TABLE kept (n BIGINT)")
        with suppress(ValueError), in_one_transaction(connection):
            connection.execute("INSERT INTO kept VALUES (1)")
            raise ValueError("in between")
        with in_one_transaction(connection):
            connection.execute("INSERT INTO kept VALUES (2)")
        assert connection.execute("SELECT n FROM kept").fetchall() == [(2,)]


def test_a_replay_a_look_at_an_epoch_and_what_came_too_late_are_read_in_the_process(lake: Lake) -> None:
    found = replay(lake, PLACES, keep="folded")
    assert found.ok, found.differences
    assert found.counts["late"].same == late_report(lake, PLACES).records == 1
    ledger, kept = (lake.table(name).scan().to_arrow() for name in ("places__ledger", "folded"))
    assert sorted(map(repr, kept.to_pylist())) == sorted(map(repr, ledger.select(kept.column_names).to_pylist()))
    then = as_of(lake, PLACES, EPOCHS - 1, rows=100, keep="then")
    assert then.tables == ("then", "then__open")
    assert (then.windows, then.answers) == (0, len(answers(lake, "places")))
    assert answers(lake, "then") == answers(lake, "places")
    assert {found.engine.engine.value, then.engine.engine.value} == {"duckdb"}


def test_V3_an_audit_leaves_the_answer_of_a_window_to_the_open_one_that_it_merged_into(settings: Settings) -> None:
    lake, gap = Lake(settings), minutes(0.5)
    visits = replace(
        PLACES, name="visits", where=Sessions(gap), when=AfterWatermark(early=AfterCount(4), late=AfterCount(1)),
        how=RETRACTING, allowed_lateness=minutes(1),
    )  # fmt: skip

    def bundle(epoch: int, watermark: int, *seconds: int) -> tuple[Sequence[dict[str, Any]], Clock]:
        rows = [{"id": 0, "place": "a", "value": 1, "at": BASE + timedelta(seconds=at)} for at in seconds]
        return rows, Clock(epoch, instant(BASE + timedelta(seconds=watermark)), epoch)

    # The record at 34 joins the session up to 35, which has fired and is closed by now, to the one up to 115.
    made = [bundle(0, 40, 0, 5), bundle(1, 60, 60, 85), bundle(2, 100, 34)]
    record(lake, visits, made)
    assert {(row[1], row[2]) for row in answers(lake, "visits")} == {(BASE, BASE + timedelta(seconds=35))}
    found = audit(lake, visits)
    assert found.ok, found.checks
    record(lake, visits, [bundle(3, 200, 190)])
    assert {(row[1], row[2]) for row in answers(lake, "visits")} == {(BASE, BASE + timedelta(seconds=115))}
    assert audit(lake, visits).ok


def test_X6_an_audit_says_how_many_records_the_definition_leaves_out(settings: Settings) -> None:
    lake = Lake(settings)
    few = replace(PLACES, keep=Match("value", ">", 1))
    rows = [{"id": n, "place": "a", "value": n, "at": BASE} for n in range(5)]
    record(lake, few, [(rows, Clock(0, END_OF_TIME, 0))])
    found = audit(lake, few)
    assert found.ok, found.checks
    assert (found.counts["records"], found.counts["left_out"]) == (5, 2)
    (said,) = (check.detail for check in found.checks if check.name == "every record is in a window or late")
    assert said == (
        "3 records in windows of the log = 3 in windows of the ledger + 0 late; 2 of 5 records are left out by keep"
    )


def test_L3_what_a_computation_produces_is_folded_again_as_its_ledger_has_it(settings: Settings) -> None:
    visits, lake = example(name="seen"), Lake(settings)
    long = Pipeline(
        name="long",
        log=visits.produced,
        key="who",
        what={"n": Count(), "clicks": Sum("clicks")},
        where=Fixed(minutes(1)),
    )
    ledger = computation_contract(visits)
    lake.ensure(ledger, {"epoch": "-1"})
    setup = FoldSetup(lake, StreamEngines(no_spark, lake), Pace.of(1000, timedelta(0)), answered=(long.name,))
    fold = PipelineFold(long, setup)
    for number in range(3):
        rows = [
            {"kind": "production", "who": who, "epoch": number, "clicks": number + 1, "source_offset": place}
            | {"event_time": BASE + timedelta(seconds=50 * number + place), "source_partition": who}
            for place, who in enumerate("ab")
        ]
        other = {"kind": "partial", "who": "a", "epoch": number, "gone": True}
        lake.enter(ledger.table, [*rows, other], {"epoch": str(number)}, lake.head(ledger.table).snapshot)
        with closing(DuckSession(lake, HERE)) as session:
            text = productions(visits, session.table(ledger.table))
            (bundle,) = session.bundles(text, [number])
        watermark = END_OF_TIME if number == 2 else instant(BASE + timedelta(seconds=50 * number))
        clock = Clock(number, watermark, instant(BASE) + number)
        fold.stage(PassedEpoch.of(bundle, clock), Phases())
        fold.publish()
    fold.close()
    found = replay(lake, long)
    assert found.ok, found.differences
    assert found.counts["pane"].same == len(answers(lake, "long")) == 4
    assert replay(lake, long, 1, 2).ok


def test_a_generation_is_built_put_in_place_and_gone_back_from_in_the_process(lake: Lake) -> None:
    before = answers(lake, "places")
    done = apply(lake, HALVES)
    assert done.run is not None
    assert done.engine is not None
    assert done.engine.engine.value == "duckdb"
    assert (done.run.status, done.left, done.epoch, generations_beside(lake, "places")) == (
        "committed",
        1,
        EPOCHS - 1,
        [],
    )
    assert Runs(lake, HALVES).all()[-1].engine == str(done.engine)
    assert audit(lake, HALVES).ok
    # What is folded in one step at the last epoch's clock is what a stream says once the watermark has passed.
    assert answers(lake, "places") != before
    gone = rollback(lake, PLACES)
    assert (gone.engine, answers(lake, "places")) == (None, before)
    assert generation_of(lake.table("places__ledger")) == 3


def test_a_restored_epoch_is_what_was_known_then_and_the_rest_is_folded_again(lake: Lake) -> None:
    before, then = answers(lake, "places"), as_of(lake, PLACES, 1, rows=100)
    restore(lake, [PLACES], 1)
    found = as_of(lake, PLACES, 1, rows=100)
    assert (found.latest, found.first_windows, found.first_answers) == (1, then.first_windows, then.first_answers)
    assert then.answers < len(before)
    fresh = Lake(lake.settings.model_copy(update={"freshness": timedelta(seconds=1)}))
    tailing, patience = Tailing(no_spark, fresh, [PLACES]), time.monotonic() + 60
    tailing.run(stop=lambda: answers(lake, "places") == before or time.monotonic() > patience)
    assert answers(lake, "places") == before, "brought up at rest, within the freshness"
    tailing.close()
