"""A correction reaches everything that reads it, or is named with the backfill that brings it there (V4, X4, L1)."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, seed
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Calendar,
    Col,
    Computation,
    Count,
    Derive,
    Fixed,
    Global,
    Join,
    Log,
    Map,
    Max,
    Pipeline,
    Sessions,
    Sliding,
    Sum,
    days,
    hours,
    minutes,
)
from tailrace.backfill.backfill import backfill, backfill_stages
from tailrace.backfill.range_run import RangeRun
from tailrace.backfill.result import Backfilled
from tailrace.engines.batch.held_answers import held_answers
from tailrace.engines.batch.run_engine import session_for
from tailrace.engines.choose import Engine
from tailrace.engines.duckdb.database.connection import RoomError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.corrections.stages_behind import backfills_of, stages_behind
from tailrace.lake.read.late_records import propose_backfills
from tailrace.lake.read.late_report import late_report
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.chain import chain
from tailrace.model.definition.computation import Context
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.windows.windows import Windowing
from tailrace.sql.results.answers import current_answers
from tailrace.sql.results.output_rows import output_rows
from tailrace.verify.audit import audit
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases
from tests.support.engines.stage_folds import StageFolds

RIDES = Log(name="rides", columns={"who": "string", "cents": "bigint", "day": "timestamp"}, event_time="day")
AT_ONCE = AfterWatermark(late=AfterCount(1))
HOURLY = Pipeline(
    name="hourly", log=RIDES, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(hours(1)),
    when=AT_ONCE, how=RETRACTING,
)  # fmt: skip
EVER = Pipeline(
    name="ever", log=HOURLY.panes, key="n", what={"hours": Count()}, where=Global(), when=AT_ONCE, how=RETRACTING,
)  # fmt: skip
DAILY = replace(EVER, name="daily", where=Calendar("day"))
TWICE = Map(name="twice", log=RIDES, each=Derive({"double": Col("cents") * 2}), what=("who", "double"))
MET = Join(name="met", left=RIDES, right=TWICE.produced, on="who", within=minutes(90), right_columns="double")
OF_PAIRS = Pipeline(
    name="of_pairs", log=MET.produced, key="who", what={"n": Count(), "most": Max("double")}, where=Fixed(hours(6)),
    when=AT_ONCE, how=RETRACTING,
)  # fmt: skip


class Folds(StageFolds):
    """Folds of a chain of definitions of any kind over rides."""

    def clean(self) -> None:
        for stage in chain(self.pipeline):
            found = audit(self.lake, stage)
            assert found.ok, (stage.name, [check for check in found.checks if not check.ok])

    def rows(self, stage: Definition) -> Counter[str]:
        """What stands of a stage: its answers or rows, without what says how they came about."""
        assert isinstance(stage, Ranged)
        with closing(_session(self.lake)) as session:
            if isinstance(stage, Pipeline):
                names = [*stage.key, "window_start", "window_end", *stage.results]
                rows = session.rows(current_answers(stage, held_answers(session, stage)))
            else:
                names = [*stage.results, "event_time"]
                ledger = session.table(ledger_name(stage.name))
                of = output_rows(stage).current(ledger)
                rows = session.rows(of)
        return Counter(str([_bare(row[name]) for name in names]) for row in rows)


def _bare(value: Any) -> Any:
    """A value without the names of its fields."""
    if isinstance(value, dict):
        return [_bare(one) for one in value.values()]
    return [_bare(one) for one in value] if isinstance(value, list) else value


def _session(lake: Lake) -> Any:
    from tests.support.engines.sessions import in_process

    return in_process(lake)


def on(at: str) -> datetime:
    """An instant of January 2026, by day, hour and minute: `01T08:15`."""
    return datetime.fromisoformat(f"2026-01-{at}:00+00:00")


def ride(who: str, at: str, cents: int = 1) -> dict[str, Any]:
    return {"who": who, "cents": cents, "day": on(at)}


def folded(folder: Path, definition: Ranged, *epochs: tuple[str | None, Sequence[dict[str, Any]]]) -> Folds:
    """A lake on which these epochs were folded: the watermark after each, None for the end of the input."""
    world = Folds(folder, definition)  # type: ignore[arg-type]
    for number, (watermark, records) in enumerate(epochs):
        at = END_OF_TIME if watermark is None else instant(on(watermark))
        world.land(records, number, Clock(number, at, number))
        world.fold(number)
    return world


LATE = [
    ("01T12:00", [ride("ann", "01T08:05"), ride("bob", "01T08:10"), ride("ann", "01T08:50", 7)]),
    ("02T12:00", [ride("ann", "01T08:30", 2), ride("zoe", "02T01:00")]),
    (None, []),
]
"""Two rides of ann, and one that comes hours after its window is closed."""


def bring_up(lake: Lake, definition: Ranged) -> int:
    """Run all backfills that the reports name, until they name none; return how many rounds that took."""
    for rounds in range(8):
        stages = chain(definition)
        lates = [late_report(lake, one) for one in stages if isinstance(one, Pipeline | Join)]
        ready = [one for report in lates for one in report.ready]
        ranges = [*propose_backfills(ready), *backfills_of(stages_behind(lake, definition))]
        if not ranges:
            return rounds
        for span in ranges:
            backfill_stages(lake, definition, *span)
    raise AssertionError("the reports go on naming backfills")


@pytest.mark.parametrize("definition", [EVER, DAILY, OF_PAIRS], ids=lambda one: one.name)
def test_V4_a_stage_with_wider_windows_than_the_range_is_named_until_a_backfill_brings_it_up(
    tmp_path: Path, definition: Pipeline
) -> None:
    world = folded(tmp_path, definition, *LATE)
    world.clean()
    nine = instant(on("01T09:00"))
    done = backfill_stages(world.lake, definition, nine - 3_600_000_000, nine)
    assert [stage.name for stage, _ in done] == [one.name for one in chain(definition)]
    (behind,) = stages_behind(world.lake, definition)
    (cause,) = behind.causes
    assert (behind.stage, cause.of) == (definition, chain(definition)[-2].name)
    assert cause.run.run in behind.said
    (check,) = [one for one in audit(world.lake, definition).checks if one.name == "corrections reached it"]
    assert not check.ok
    assert check.detail == behind.said
    for span in backfills_of([behind]):
        backfill_stages(world.lake, definition, *span)
    assert not stages_behind(world.lake, definition)
    world.clean()
    whole = folded(tmp_path / "whole", definition, (None, [one for _, records in LATE for one in records]))
    for stage in chain(definition):
        assert world.rows(stage) == whole.rows(stage), stage.name


def test_V4_a_join_or_map_is_computed_before_what_reads_it_though_the_last_stage_has_nothing_late(
    tmp_path: Path,
) -> None:
    world = folded(tmp_path, OF_PAIRS, *LATE)
    done = backfill_stages(world.lake, OF_PAIRS, BEGINNING)
    assert {stage.name: sum(run.changed for run in runs) for stage, runs in done}["met"] > 0
    assert not stages_behind(world.lake, OF_PAIRS)
    assert not late_report(world.lake, MET).ranges
    world.clean()


def test_V4_a_dry_run_and_a_run_that_changes_nothing_leave_no_stage_behind(tmp_path: Path) -> None:
    world = folded(tmp_path, DAILY, *LATE)
    nine = instant(on("01T09:00"))
    backfill_stages(world.lake, DAILY, BEGINNING, nine, dry_run=True)
    backfill_stages(world.lake, DAILY, nine, nine + 3_600_000_000)
    assert not stages_behind(world.lake, DAILY)


def test_V4_what_a_backfill_committed_before_it_ran_out_of_room_is_in_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = folded(tmp_path, DAILY, *LATE)
    refused, own = list[str](), RangeRun.run

    def run(one: RangeRun[Any], *given: Any) -> Backfilled:
        if one.definition.name == "daily" and not refused:
            refused.append("daily")
            raise RoomError("there is no room")
        return own(one, *given)

    monkeypatch.setattr(RangeRun, "run", run)
    # What would go to Spark is computed in the process, too.
    monkeypatch.setattr("tailrace.backfill.backfill.session_for", lambda lake, *given: session_for(world.lake, *given))
    done = {stage.name: [run.changed for run in runs] for stage, runs in backfill_stages(world.lake, DAILY, BEGINNING)}
    assert refused
    assert done["hourly"] == [1, 0], "the run before, and one that finds nothing left to change"
    assert done["daily"] != [0]
    world.clean()


def test_V4_what_a_run_killed_after_its_commit_has_corrected_is_named_too(tmp_path: Path) -> None:
    world = folded(tmp_path, EVER, *LATE)
    (run,) = [one.run for one in backfill(world.lake, HOURLY, BEGINNING)]
    Runs(world.lake, HOURLY).note(run, status="started", changed=None, untouched=None, retracted=None)
    (behind,) = stages_behind(world.lake, EVER)
    assert behind.causes[0].run.run == run.run
    assert bring_up(world.lake, EVER) == 1
    world.clean()


def test_V4_a_run_of_a_table_that_is_older_than_the_column_covers_what_was_corrected_before_it(tmp_path: Path) -> None:
    world = folded(tmp_path, EVER, *LATE)
    backfill_stages(world.lake, EVER, BEGINNING)
    for stage in (HOURLY, EVER):
        runs = Runs(world.lake, stage)
        for run in runs.all():
            runs.note(run, inputs=None)
    assert not stages_behind(world.lake, EVER)
    backfill(world.lake, HOURLY, BEGINNING)
    assert not stages_behind(world.lake, EVER), "nothing was corrected any more"


class Doubled(Computation):
    """Produces the cents of each pair twice."""

    state = {}
    produces = {"cents": "bigint"}

    def process_record(self, context: Context, record: Any) -> None:
        context.produce({"cents": record["double"] * 2}, event_time=record["event_time"])


def test_V4_of_a_computation_is_said_that_no_backfill_brings_it_up(tmp_path: Path) -> None:
    doubled = Doubled(name="doubled", log=MET.produced, key="who")
    over = replace(HOURLY, log=doubled.produced)
    world = folded(tmp_path, over, *LATE)
    done = backfill_stages(world.lake, over, BEGINNING)
    assert [stage.name for stage, _ in done] == ["twice", "met", "hourly"]
    (behind,) = stages_behind(world.lake, over)
    assert behind.stage is doubled
    assert not behind.ready
    assert "stream it under another name" in behind.said
    assert not backfills_of([behind])
    world.clean()


WINDOWS = st.sampled_from(
    [Fixed(hours(1)), Fixed(hours(3)), Sliding(hours(4), every=hours(2)), Calendar("day", "Europe/Oslo"), Global()]
)


@st.composite
def definitions(draw: st.DrawFn) -> Pipeline | Join | Map:
    """Some definition over others over rides: pipelines, joins and maps in any order."""
    logs: list[Log] = [RIDES]
    made: list[Pipeline | Join | Map] = []
    for number in range(draw(st.integers(2, 4))):
        log, name = draw(st.sampled_from(logs[-2:])), f"d{number}"
        numeric = next(one for one, type in log.columns.items() if type == "bigint")
        key = "who" if "who" in log.columns else numeric
        kinds = ["pipeline", "pipeline", *(["map", "join"] if not log.takes_back else ["join"])]
        kind = draw(st.sampled_from(kinds)) if key == "who" else "pipeline"
        one: Pipeline | Join | Map
        if kind == "map":
            one = Map(name=name, log=log, each=Derive({"cents2": Col(numeric) * 2}), what=("who", "cents2"))
        elif kind == "join":
            right = draw(st.sampled_from([one for one in logs if "who" in one.columns]))
            if right.name == log.name:
                right = RIDES if log is not RIDES else TWICE.produced
            value = next(one for one, type in right.columns.items() if type == "bigint")
            one = Join(
                name=name, left=log, right=right, on="who", within=draw(st.sampled_from([minutes(30), hours(2)])),
                kind=draw(st.sampled_from(["inner", "left"])), left_columns={f"l{number}": numeric},
                right_columns={f"r{number}": value},
            )  # fmt: skip
        else:
            merging = [Sessions(minutes(45))] if not log.takes_back else []
            one = Pipeline(
                name=name, log=log, key=draw(st.sampled_from([key, numeric] if log.takes_back else [key])),
                what={f"n{number}": Count(), f"s{number}": Sum(numeric)},
                where=draw(st.one_of(WINDOWS, st.sampled_from(merging)) if merging else WINDOWS), when=AT_ONCE,
                how=RETRACTING,
            )  # fmt: skip
        made.append(one)
        logs.append(one.panes if isinstance(one, Pipeline) else one.produced)
        if isinstance(one, Pipeline) and "who" not in one.key:
            break
    return made[-1]


@seed(5)
@each_time_the_same(cases(6, deeper=60))
@given(data=st.data())
def test_L1_V4_after_the_backfills_that_the_reports_name_every_stage_is_the_batch(data: st.DataObject) -> None:
    try:
        definition = data.draw(definitions())
    except DefinitionError:
        reject()
    minute = st.integers(0, 2 * 1440 - 1).map(lambda at: f"0{1 + at // 1440}T{at // 60 % 24:02}:{at % 60:02}")
    rides = st.builds(ride, st.sampled_from("ab"), minute, st.integers(1, 3))
    records = data.draw(st.lists(rides, min_size=6, max_size=14))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), min_size=2, max_size=2)))
    marks = sorted(data.draw(st.lists(st.integers(0, 60), min_size=2, max_size=2)))
    parts = [records[: cuts[0]], records[cuts[0] : cuts[1]], records[cuts[1] :]]
    epochs = [(f"{1 + mark // 24:02}T{mark % 24:02}:00", part) for mark, part in zip(marks, parts, strict=False)]
    with tempfile.TemporaryDirectory() as folder:
        world = folded(Path(folder) / "streamed", definition, *epochs, (None, parts[2]))
        for _ in range(data.draw(st.integers(0, 2))):
            first, length = data.draw(st.integers(0, 47)), data.draw(st.integers(1, 24))
            start = instant(on("01T00:00")) + first * 3_600_000_000
            some = data.draw(st.sampled_from([one for one in chain(definition) if isinstance(one, Ranged)]))
            if data.draw(st.booleans()):
                backfill_stages(world.lake, some, start, start + length * 3_600_000_000)
            else:
                backfill(world.lake, some, start, start + length * 3_600_000_000)
        bring_up(world.lake, definition)
        world.clean()
        whole = folded(Path(folder) / "whole", definition, ("01T00:00", records), (None, []))
        for stage in chain(definition):
            assert world.rows(stage) == whole.rows(stage), stage.name
        whole.group.close()
        world.group.close()


@pytest.mark.parametrize("definition", [DAILY, OF_PAIRS], ids=lambda one: one.name)
def test_L1_V4_backfills_on_spark_bring_every_stage_to_the_batch(
    plain: SparkSession, tmp_path: Path, definition: Pipeline
) -> None:
    world = folded(tmp_path / "streamed", definition, *LATE)
    spark = Lake(world.lake.settings.model_copy(update={"engine": "spark"}))
    # Of the hours of one day alone at first: the report names what a later stage lacks then.
    first = chain(definition)[0]
    assert isinstance(first, Ranged)
    done = backfill_stages(spark, first, instant(on("01T08:00")), instant(on("01T09:00")))
    assert {run.engine.engine for _, runs in done for run in runs} == {Engine.SPARK}
    bring_up(spark, definition)
    world.clean()
    records = [record for _, part in LATE for record in part]
    whole = folded(tmp_path / "whole", definition, ("01T00:00", records), (None, []))
    for stage in chain(definition):
        assert world.rows(stage) == whole.rows(stage), stage.name
    whole.group.close()
    world.group.close()


@pytest.mark.parametrize(
    "where", [Calendar("year"), Calendar("month"), Sliding(days(30), every=days(10)), Global()], ids=str
)
def test_a_backfill_to_the_end_of_time_of_answers_that_are_partitioned_by_months_or_years(
    tmp_path: Path, where: Windowing
) -> None:
    world = folded(tmp_path, replace(HOURLY, where=where), *LATE)
    world.land([ride("ann", "01T08:31", 5)], 2)
    done = [run for _, runs in backfill_stages(world.lake, world.pipeline, BEGINNING) for run in runs]
    assert sum(run.changed for run in done) > 0, "what no fold has read"
    assert not any(run.changed for _, runs in backfill_stages(world.lake, world.pipeline, BEGINNING) for run in runs)
