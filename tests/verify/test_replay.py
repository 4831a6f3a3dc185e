"""Replays of real streams: row for row after a crash, as of each epoch what was known then, and nothing disturbed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from tailrace import (
    AfterCount,
    AfterSignal,
    AfterWatermark,
    ApproxDistinct,
    Count,
    Each,
    Fixed,
    Log,
    Pipeline,
    Sum,
    minutes,
    seconds,
)
from tailrace.cli.main import app
from tailrace.engines.duckdb.database.preview import readable_rows
from tailrace.fold.pipeline_fold import PipelineFold
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.signal_tables import Completions, Signals
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.as_of import as_of
from tailrace.verify.recorded_epochs import Recording, ReplayError
from tailrace.verify.replay import replay
from tests.support.cases.strategies import BASE, LOG
from tests.support.depth import deep
from tests.support.engines.spark_runs import in_micros
from tests.support.lakes.recorded_ledgers import record

DEFINITION = """
from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Max, Pipeline, Sessions, Sum
from tailrace import minutes, seconds

clicks = Log(
    name="clicks", columns={"who": "string", "cents": "bigint", "at": "timestamp", "seen": "timestamp"},
    event_time="at", arrival_time="seen", disorder=seconds(30),
)
visits = Pipeline(
    name="visits", log=clicks, key="who", what={"clicks": Count(), "cents": Sum("cents")}, where=Sessions(seconds(40)),
    when=AfterWatermark(early=AfterCount(4), late=AfterCount(1)), how=RETRACTING, allowed_lateness=minutes(1),
    answers=True,
)
bills = Pipeline(
    name="bills", log=visits.panes, what={"visits": Count(), "cents": Sum("cents"), "dearest": Max("cents")},
    where=Fixed(minutes(1)), when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)), how=RETRACTING,
)
"""
START = datetime(2024, 1, 1, tzinfo=UTC)


def land(folder: Path, number: int, records: Sequence[Mapping[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps(one, default=lambda value: value.isoformat()) for one in records)
    file = folder / f"{number:05}.jsonl"
    file.write_text("\n".join(lines) + "\n")
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def clicks(count: int, chance: random.Random) -> list[dict[str, Any]]:
    """Clicks in the order in which they became known; one in eight may be a minute or more behind."""
    made = []
    for number in range(count):
        seen = START + timedelta(seconds=3 * number)
        behind = chance.choice([1, 5, 20, 60, 200, 400] if number % 8 == 0 else [1, 2, 5, 15])
        row = {"who": chance.choice("abc"), "cents": chance.randrange(1, 99), "seen": seen}
        made.append(row | {"at": seen - timedelta(seconds=behind)})
    return made


def ordered(frame: DataFrame) -> list[Any]:
    """The rows, in an order of their own."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def windows_of(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Open windows as they are shown, with instants as microseconds, in an order of their own."""
    return sorted(({n: instant(v) if hasattr(v, "tzinfo") else v for n, v in row.items()} for row in rows), key=repr)


def on(engine: str, settings: Settings) -> Lake:
    """The lake with an engine that everything is to run on."""
    return Lake(settings.model_copy(update={"engine": engine}))


def everything(lake: Lake) -> dict[str, Any]:
    """Where each table of the lake stands, with all its branches."""
    names = sorted(name[-1] for name in lake.catalog.list_tables(lake.settings.namespace))
    return {name: lake.table(name).metadata.refs for name in names}


def run(settings: Settings, *args: str) -> tuple[int, str]:
    env = {"TAILRACE_WAREHOUSE": str(settings.warehouse), "COLUMNS": "160"}
    result = CliRunner().invoke(app, ["replay", *args], env=env)
    return result.exit_code, result.output if result.exit_code > 1 else result.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_L3_stages_replay_row_for_row_after_a_crash_and_any_epoch_can_be_looked_at(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is looked at on the way is the state that executors have.
    lake, here = on("spark", settings.model_copy(update={"windows_in_driver": 0})), on("duckdb", settings)
    definition, folder = tmp_path / "bills.py", tmp_path / "landing"
    definition.write_text(DEFINITION)
    bills = load(f"{definition}:bills")
    made = clicks(80, random.Random(7))
    for number in range(0, 80, 20):
        land(folder, number, made[number : number + 20])
    stages = {one.name: one for one in bills.stages}
    windows: dict[tuple[str, int], list[Any]] = {}
    answers: dict[tuple[str, int], list[Any]] = {}

    def look(stream: Stream, report: EpochReport) -> None:
        for fold in stream.folds:
            assert isinstance(fold, PipelineFold)
            place = (fold.pipeline.name, report.epoch)
            windows[place] = windows_of(readable_rows(fold.state.windows.toArrow()))
            answers[place] = ordered(in_micros(plain.table(fold.pipeline.name)))

    def drain() -> None:
        stream = Stream(plain, lake, [bills], Files(str(folder), "json", 1), follow_every=1)
        stream.watch = lambda report: look(stream, report)
        stream.start(once=True)
        stream.wait()
        stream.close()

    publish = PipelineFold.publish

    def dies(self: PipelineFold) -> bool:
        staged = self._staged
        if self.pipeline.name == "bills" and staged is not None and staged.folded.clock.epoch == 2:
            raise RuntimeError("killed between two ledgers")
        return publish(self)

    monkeypatch.setattr(PipelineFold, "publish", dies)
    with pytest.raises(RuntimeError, match="killed between"):
        drain()
    monkeypatch.setattr(PipelineFold, "publish", publish)
    drain()
    before = everything(lake)
    for stage in bills.stages:
        found = replay(here, stage)
        assert found.ok, (found.counts, found.differences)
        assert found.engine.engine.value == "duckdb"
        assert (found.first, found.last, found.latest) == (0, 3, 3)
        kinds = ("partial", "pane", "retraction", *(["late"] if stage.earlier is None else []))
        assert all(found.counts[kind].same > 0 for kind in kinds)
    there = replay(lake, bills, 2)
    assert (there.ok, there.engine.engine.value) == (True, "spark"), (there.counts, there.differences)
    # Every epoch as of which it can be looked at is as it was then.
    for (name, epoch), state in windows.items():
        assert windows_of(as_of(here, stages[name], epoch, rows=1000).first_windows) == state, (name, epoch)
    assert len(windows) >= 7
    for epoch, looked in ((1, here), (3, here), (3, lake)):
        then = as_of(looked, bills, epoch, rows=3, keep=f"then_{epoch}")
        assert ordered(in_micros(plain.table(f"then_{epoch}"))) == answers["bills", epoch]
        assert (then.windows, then.answers) == (len(windows["bills", epoch]), len(answers["bills", epoch]))
        assert len(then.first_windows) == min(3, then.windows)
        assert plain.table(f"then_{epoch}__open").count() == then.windows
        for name in then.tables:
            lake.drop(name)
    visit, again = (as_of(one, stages["visits"], 3, rows=100, key=("a",)) for one in (here, lake))
    assert {row["who"] for row in (*visit.first_answers, *visit.first_windows)} == {"a"}
    assert replace(visit, engine=again.engine) == again
    # A stream beside it finds every table where it left it, and no other.
    assert everything(lake) == before
    assert not list(Path(settings.warehouse).rglob("*replay*"))
    status, said = run(settings, f"{definition}:bills", "--epochs", "1..", "--keep", "folded", "--json")
    assert (status, json.loads(said)["ok"], json.loads(said)["earlier"][0]["epochs"]) == (0, True, [1, 3])
    ledger = "FROM {} WHERE epoch >= 1 AND kind <> 'partial' ORDER BY ALL"
    columns = "SELECT kind, window_start, window_end, generation, epoch, retraction, writer, visits, cents, dearest "
    kept, stands = (
        in_micros(plain.sql(columns + ledger.format(name))).collect() for name in ("folded", "bills__ledger")
    )
    assert kept == stands
    with pytest.raises(ReplayError, match="there is a table folded already"):
        replay(here, bills, keep="folded")
    status, said = run(settings, f"{definition}:bills", "--as-of", "3", "--rows", "1")
    assert (status, "as of epoch 3 of 0..3" in said, "latest answers" in said) == (0, True, True)
    _a_tampered_row_is_found(plain, here, settings, bills, definition)
    _epochs_whose_clocks_are_gone_are_refused(plain, here, bills)


def _a_tampered_row_is_found(
    spark: SparkSession, lake: Lake, settings: Settings, bills: Pipeline, definition: Path
) -> None:
    mine = "kind = 'pane' AND NOT retraction AND epoch = 2"
    first = f"(SELECT MIN(window_start) FROM bills__ledger WHERE {mine})"
    spark.sql(f"UPDATE bills__ledger SET cents = cents + 1 WHERE {mine} AND window_start = {first}")
    doubled = "SELECT * FROM bills__ledger WHERE kind = 'pane' AND retraction AND epoch = 3 LIMIT 1"
    spark.sql(f"INSERT INTO bills__ledger {doubled}")
    found = replay(lake, bills, 2)
    assert found.differences == replay(on("spark", settings), bills, 2).differences
    assert not found.ok
    changed, again = found.differences[0], found.differences[-1]
    assert (changed.kind, changed.epoch, changed.times) == ("pane", 2, (1, 1))
    assert changed.ledger is not None
    assert changed.replay is not None
    assert changed.ledger["cents"] == changed.replay["cents"] + 1
    assert set(changed.ledger) == {"cents"}
    assert (again.kind, again.epoch, again.replay, again.times) == ("retraction", 3, None, (2, 1))
    assert found.counts["pane"].ledger == found.counts["pane"].replay > found.counts["pane"].same
    status, said = run(settings, f"{definition}:bills", "--epochs", "2")
    assert status == 1
    assert "the ledger comes out again, row for row" in said, "the visits are as they were"
    assert "of the ledger did not come out again" in said
    assert f"cents {changed.ledger['cents']:,}" in said


def _epochs_whose_clocks_are_gone_are_refused(spark: SparkSession, lake: Lake, bills: Pipeline) -> None:
    assert Recording(lake, bills).foldable == [0, 1, 2, 3]
    loaded = lake.table("bills__ledger")
    old = [one.snapshot_id for one in loaded.metadata.snapshots if int(_epoch(one)) < 1]
    ids = ", ".join(f"{one}L" for one in old)
    spark.sql(
        f"CALL {lake.settings.catalog}.system.expire_snapshots("
        f"table => '{lake.settings.namespace}.bills__ledger', snapshot_ids => ARRAY({ids}))"
    )
    with pytest.raises(ReplayError, match=r"epoch 0 cannot be folded again.*those that can are 2\.\.3"):
        replay(lake, bills)
    with pytest.raises(ReplayError, match=r"epoch 0 cannot be shown.*those that can are 1\.\.3"):
        as_of(lake, bills, 0)
    with pytest.raises(ReplayError, match=r"epoch 4 is not in bills__ledger: expected one of 0\.\.3"):
        replay(lake, bills, 2, 4)
    assert Recording(lake, bills).foldable == [2, 3]
    assert as_of(lake, bills, 1).clock.epoch == 1


def _epoch(snapshot: Any) -> str:
    return str(snapshot.summary.additional_properties.get("tailrace.epoch", "9"))


SALES = Log(
    name="sales", columns={"who": "string", "cents": "bigint", "at": "timestamp"}, event_time="at", disorder=minutes(10)
)


def sales(name: str, **what: Any) -> Pipeline:
    def priced(record: Mapping[str, Any]) -> dict[str, Any]:
        if record["cents"] < 0:
            raise ValueError("no such price")
        return {"euros": record["cents"] // 100}

    # The function is made here, as that of a definition file is, and so travels to the workers by value.
    return Pipeline(
        name=name, log=SALES, each=(Each(priced, {"euros": "bigint"}),), key="who", where=Fixed(minutes(5)),
        what={"n": Count(), "euros": Sum("euros"), **what}, allowed_lateness=minutes(2),
        when=AfterWatermark(early=AfterSignal("close"), late=AfterCount(1)),
    )  # fmt: skip


def test_L3_signals_epochs_without_records_and_rejected_records_replay(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "landing", Lake(settings)
    # One runs natively but for its step, the other in Python.
    pipelines = [sales("sold"), sales("sold_best", best=ApproxDistinct("euros"))]

    def drain() -> None:
        stream = Stream(plain, lake, pipelines, Files(str(folder), "json", 1))
        stream.start(once=True)
        stream.wait()
        stream.close()

    def sold(*minutes_: int) -> list[dict[str, Any]]:
        return [
            {"who": "ab"[n % 2], "cents": 70 * (n - 1), "at": START + timedelta(minutes=m)}
            for n, m in enumerate(minutes_)
        ]

    land(folder, 0, sold(1, 2, 3, 7))
    drain()
    Signals(lake, SALES).send("close")
    Completions(lake, SALES).say(instant(START + timedelta(minutes=6)))
    drain()
    land(folder, 1, sold(4, 1, 30))
    drain()
    here, there = on("duckdb", settings), on("spark", settings)
    for pipeline, looked in (*((one, here) for one in pipelines), (pipelines[0], there)):
        found = replay(looked, pipeline)
        assert found.ok, (found.counts, found.differences)
        assert all(found.counts[kind].same > 0 for kind in ("partial", "pane", "rejected"))
        timings = plain.sql(f"SELECT DISTINCT epoch, timing FROM {pipeline.name}__ledger WHERE kind = 'pane'").collect()
        assert (1, "early") in {tuple(row) for row in timings}
        assert Recording(lake, pipeline).clock(1).signals == ("close",)
        assert 1 not in lake.table(SALES.name).scan().to_arrow()["_epoch"].to_pylist()
        assert replay(looked, pipeline, 1, 1).ok
        then = as_of(looked, pipeline, 0)
        assert then.windows == 3
        assert then.answers == 0


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=deep)])
def test_V2_a_replay_goes_on_in_the_state_that_a_backfill_handed_over(
    engine: str, settings: Settings, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("plain") if engine == "spark" else None
    lake = on(engine, settings)
    pipeline = Pipeline(
        name="handed", log=replace(LOG, disorder=seconds(5)), key="place", what={"n": Count()}, where=Fixed(minutes(1)),
        when=AfterWatermark(early=AfterCount(1)),
    )  # fmt: skip
    now = instant(BASE)

    def epoch(number: int) -> tuple[list[dict[str, Any]], Clock]:
        rows = [{"id": number, "place": place, "at": BASE + timedelta(seconds=number)} for place in ("a", "b")]
        return rows, Clock(number, now + number, now + number)

    record(lake, pipeline, [epoch(0), epoch(1)], spark)
    ledger = lake.table("handed__ledger")
    partials = [row for row in ledger.scan().to_arrow().to_pylist() if row["kind"] == "partial" and row["epoch"] == 1]
    (mine,) = (row for row in partials if row["place"] == "a")
    mine |= {"writer": "backfill", "generation": 2, "fired": {**mine["fired"], "n__n": 12}}
    said = {**lake.head("handed__ledger").properties, "generation": "2", "run": "corrected"}
    lake.enter("handed__ledger", [mine], said, lake.head("handed__ledger").snapshot)
    # The stream takes the corrected state up, and opens windows in its generation.
    record(lake, pipeline, [epoch(2), epoch(3)], spark)
    for first, last in ((0, 3), (2, 2), (1, 3)) if engine == "duckdb" else ((0, 3),):
        found = replay(lake, pipeline, first, last)
        assert found.ok, (first, last, found.counts, found.differences)
    recording = Recording(lake, pipeline)
    assert recording.run("replay", [], lambda session: recording.handed(session, range(4))) == {1}
    shown = as_of(lake, pipeline, 3, key=("a",))
    assert [(row["n"], row["generation"]) for row in shown.first_answers] == [(14, 2)]
