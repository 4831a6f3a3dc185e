"""A plan says what runs: its SQL is that of the native execution, its stages are the definition's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tailrace import (
    ACCUMULATING,
    DISCARDING,
    AfterCount,
    AfterDelay,
    AfterMatch,
    AfterWatermark,
    AllOf,
    AnyOf,
    ApproxDistinct,
    AtWatermark,
    Calendar,
    Count,
    Derive,
    Each,
    Every,
    Fixed,
    Global,
    Log,
    Map,
    Match,
    Max,
    Pipeline,
    Repeat,
    Sequence,
    Sessions,
    Sliding,
    SparkFrame,
    Until,
    Value,
    hours,
    minutes,
    seconds,
)
from tailrace.cli.main import app
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions.parts_execution import PartsExecution
from tailrace.engines.duckdb.executions.sql_execution import SqlExecution
from tailrace.engines.spark.executions.native import Native
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.source_text import written
from tailrace.plan.explainer import format_sql, plan_data, plan_page
from tailrace.plan.plans import plan, plan_kind
from tailrace.plan.stages import Beginning, Execution, KeptState, KindPlan, Plan, ledger_stage, stage
from tailrace.settings import Settings
from tailrace.sql.epoch.partials import partials
from tailrace.sql.terms import Relation
from tests.support.lakes.small_lake import HOURLY, make

WHERE = [
    Fixed(hours(1)),
    Fixed(hours(1), phase="city"),
    Calendar("day"),
    Sliding(hours(1), every=minutes(10)),
    Sessions(minutes(30)),
    Global(),
]
DEFINITIONS = [
    *(replace(HOURLY, where=where) for where in WHERE),
    replace(HOURLY, how=DISCARDING, key=()),
    replace(HOURLY, when=Repeat(AfterMatch(Match("city", "==", "Rome"))), finishing="close"),
    replace(HOURLY, how=ACCUMULATING, when=AfterCount(3), finishing="close"),
    replace(HOURLY, what={"highest": Max("city")}, on_time="if_non_empty", closing="always"),
]


EXECUTORS = Settings(engine="spark", windows_in_driver=0)
SPARK, DUCKDB = Settings(engine="spark"), Settings(engine="duckdb")


def build(pipeline: Pipeline, settings: Settings = DUCKDB) -> Plan:
    return plan(pipeline, settings)


def text_of(pipeline: Pipeline) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(plan_page(build(pipeline), {}))
        return console.export_text()


def named(texts: Mapping[str, str | None], views: Mapping[str, Relation]) -> dict[str, str]:
    """Texts with plain names in place of an execution's views, without those that a definition lacks."""
    found = {query: text for query, text in texts.items() if text is not None}
    for name, view in views.items():
        found = {query: text.replace(view, name) for query, text in found.items()}
    return found


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
def test_the_sql_is_what_executors_run(pipeline: Pipeline) -> None:
    # It composes the texts without a session.
    native: Any = Native(None, pipeline, None)  # type: ignore[arg-type]
    texts = native._texts
    runs = {
        "partials": texts.partials,
        "transitions": texts.transitions,
        "ledger": texts.ledger[0],
        "too_late": texts.late,
        "refused": texts.refused,
        "state": texts.remaining,
        "restore": native.rows.restored("ledger"),
    }
    found = {query.name: query.text for query in build(pipeline, EXECUTORS).kind.queries}
    assert found == named(runs, native._views)


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
def test_the_sql_is_what_duckdb_runs(pipeline: Pipeline) -> None:
    made: Any = SqlExecution(connect(DUCKDB).cursor(), pipeline)
    texts = made._texts
    runs = {
        "partials": texts.partials,
        "transitions": texts.transitions,
        "ledger": texts.ledger[0],
        "panes": texts.ledger[1],
        "too_late": texts.late,
        "refused": texts.refused,
        "state": texts.remaining,
        "restore": made.rows.within_reach(Relation("ledger"), 0),
    }
    runs = {name: text and in_duckdb(text) for name, text in runs.items()} | {"touched": made._touched}
    found = {query.name: query.text for query in build(pipeline).kind.queries}
    assert found == named(runs, made._names)


def test_the_sql_of_windows_in_the_driver_is_of_both_engines() -> None:
    made: Any = PartsExecution(connect(DUCKDB).cursor(), HOURLY)
    queries = {query.name: query for query in build(HOURLY, SPARK).kind.queries}
    assert {name for name, query in queries.items() if query.by is Execution.SPARK} == {"partials", "too_late"}
    assert queries["together"].text == made._together.replace("tailrace_share", "partials")
    assert queries["partials"].text == partials(HOURLY, Relation("bundle"), Relation("clock"), by_slices=True)


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
def test_breaking_sql_into_lines_changes_white_space_only(pipeline: Pipeline) -> None:
    for query in (*build(pipeline).kind.queries, *build(pipeline, EXECUTORS).kind.queries):
        assert "".join(format_sql(query.text).split()) == "".join(query.text.split())


def test_a_text_in_sql_is_left_whole() -> None:
    for text in ("SELECT 'a FROM (b', `WHERE`", "SELECT 'a FROM (b', \"WHERE\""):
        assert format_sql(text) == text


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
@pytest.mark.parametrize("settings", [DUCKDB, SPARK, EXECUTORS], ids=["duckdb", "driver", "executors"])
def test_every_stage_says_what_it_does_where_and_why(pipeline: Pipeline, settings: Settings) -> None:
    made = build(pipeline, settings)
    found = plan_data(made, {})
    assert [stage["stage"] for stage in found["stages"]] == [
        "read", "assign", "judge", "aggregate", "merge" if pipeline.where.merges else "join", "data triggers",
        "watermark", "on time", "close", "ledger", "answers",
    ]  # fmt: skip
    assert all(stage["says"] and stage["why"] and stage["execution"] != "python" for stage in found["stages"])
    for one in made.kind.stages:
        if one.query:
            assert made.query(one.query).text
    assert [table["table"] for table in found["tables"]] == [contract.table for contract in made.tables]
    json.dumps(found)


def test_the_kept_state_is_the_native_state() -> None:
    made = build(HOURLY, EXECUTORS)
    listed = made.query("state").text.removeprefix("SELECT ").split(" FROM ")[0].replace("`", "").split(", ")
    assert [column.name for column in state_of(HOURLY).columns] == listed


def state_of(pipeline: Pipeline) -> KeptState:
    found = build(pipeline).kind.state
    assert found is not None
    return found


def test_state_is_sized_by_what_stays_open() -> None:
    # One hour of window, two of lateness and one of disorder.
    assert state_of(HOURLY).facts == {"overlapping": 4, "open_for": 7_200_000_000}
    assert state_of(replace(HOURLY, where=Sliding(hours(1), every=minutes(30)))).facts["overlapping"] == 8
    assert state_of(replace(HOURLY, where=Global())).facts["overlapping"] == 1
    sessions = state_of(replace(HOURLY, where=Sessions(minutes(30)))).facts
    assert (sessions["overlapping"], sessions["open_for"]) == (None, 9_000_000_000)


@pytest.mark.parametrize(
    ("settings", "windows", "records"),
    [
        (DUCKDB, Execution.DUCKDB, Execution.DUCKDB),
        (SPARK, Execution.DUCKDB, Execution.SPARK),
        (EXECUTORS, Execution.SPARK, Execution.SPARK),
    ],
)
def test_the_engine_is_an_argument(settings: Settings, windows: Execution, records: Execution) -> None:
    made = build(HOURLY, settings)
    assert {made.stage(name).execution for name in ("assign", "judge", "aggregate")} == {records}
    assert {made.stage(name).execution for name in ("join", "data triggers", "on time", "close")} == {windows}
    assert made.stage("watermark").execution is Execution.PROCESS
    commit = {Execution.DUCKDB: "files", Execution.SPARK: "by_size"}[windows]
    assert made.stage("ledger").facts["commit"] == commit


@dataclass(frozen=True)
class Own(Fixed):
    """A custom windowing, if only by its name."""


@dataclass(frozen=True)
class OwnSessions(Sessions):
    """One whose windows merge, maybe by a rule of its own."""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"where": OwnSessions(hours(1))}, "where: OwnSessions is a custom windowing"),
        (
            {"where": OwnSessions(hours(1)), "what": {"ways": ApproxDistinct("price"), "n": Count()}},
            "what['ways']: ApproxDistinct combines in Python",
        ),
    ],
)
def test_what_cannot_be_compiled_runs_in_python_and_the_plan_says_why(changed: dict[str, Any], why: str) -> None:
    made = build(replace(HOURLY, **changed))
    assert python(made) == {"assign", "judge", "aggregate", *_MET, "data triggers", "on time", "close"}
    assert all(why in one.why for one in made.kind.stages if one.execution is Execution.PYTHON)
    assert [query.name for query in made.kind.queries] == ["touched", "restore"]
    assert why in " ".join(text_of(replace(HOURLY, **changed)).split())


def test_a_combiner_of_ones_own_is_all_of_a_step_that_runs_in_python() -> None:
    made = build(replace(HOURLY, what={"ways": ApproxDistinct("price"), "n": Count()}))
    assert python(made) == {"aggregate"}
    assert "its code is called for the values of whole windows" in made.stage("aggregate").why


def python(made: Plan) -> set[str]:
    """The stages that are Python's; windows that merge and others meet under one name."""
    names = {one.name for one in made.kind.stages if one.execution is Execution.PYTHON}
    return names - {"merge", "join"} | (_MET if names & {"merge", "join"} else set())


_MET = {"merge or join"}


def test_of_windows_of_ones_own_that_stay_apart_only_their_assignment_is_python() -> None:
    pipeline = replace(HOURLY, where=Own(hours(1)))
    made = build(pipeline)
    assert python(made) == {"assign"}
    assert [query.name for query in made.kind.queries] == [query.name for query in build(HOURLY).kind.queries]
    assert "its code is called for each record" in " ".join(text_of(pipeline).split())


def test_a_plan_reads_as_the_definition_is_written() -> None:
    text = text_of(HOURLY)
    assert "Fixed(hours(1)): each record is in 1 window" in text
    assert "AfterWatermark(late=AfterCount(1))" in text
    assert "too late once the watermark was 2 hours past the window's end" in text
    assert "it stays until the watermark is 2 hours past its end: 4 windows of a" in " ".join(text.split())
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "timedelta" not in text_of(replace(HOURLY, when=Repeat(AnyOf(Every(minutes(1)), AfterDelay(seconds(1.5))))))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Fixed(hours(1)), "Fixed(hours(1))"),
        (Fixed(minutes(90), offset=minutes(5)), "Fixed(minutes(90), offset=minutes(5))"),
        (Sessions(seconds(1.5)), "Sessions(seconds(1.5))"),
        (Global(), "Global()"),
        (Count(), "Count()"),
        (Max("price"), "Max('price')"),
        (AtWatermark(), "AtWatermark()"),
        (AfterWatermark(early=AfterCount(2)), "AfterWatermark(early=AfterCount(2))"),
        (
            AfterWatermark(Every(minutes(1)), AfterCount(1)),
            "AfterWatermark(early=Every(minutes(1)), late=AfterCount(1))",
        ),
        (Sequence(AfterCount(1), AtWatermark()), "Sequence(AfterCount(1), AtWatermark())"),
        (Until(AfterCount(1), stop=AtWatermark()), "Until(AfterCount(1), stop=AtWatermark())"),
        (Repeat(AllOf(AfterCount(1), AfterDelay(hours(48)))), "Repeat(AllOf(AfterCount(1), AfterDelay(days(2))))"),
        (timedelta(0), "seconds(0)"),
    ],
)
def test_parts_are_written_as_one_writes_them(part: object, text: str) -> None:
    import tailrace

    assert written(part) == text
    assert eval(text, vars(tailrace)) == part


def test_the_plan_of_a_computation_says_when_its_code_is_called() -> None:
    text = CliRunner().invoke(app, ["explain", "pipelines/photon.py"]).stdout
    for said in ("process_record", "process_timer", "kept in the ledger", "photon__ledger"):
        assert said in text, text
    told = json.loads(CliRunner().invoke(app, ["explain", "pipelines/photon.py", "--json"]).stdout)
    where = {one["stage"]: one["execution"] for one in told["stages"]}
    assert (where["read"], where["records"], where["timers"]) == ("process", "python", "python")
    on_spark = ["explain", "pipelines/photon.py", "--engine", "spark", "--json"]
    there = json.loads(CliRunner().invoke(app, on_spark).stdout)
    assert there["engine"] == "spark"
    assert {one["stage"]: one["execution"] for one in there["stages"]}["read"] == "spark"


def test_a_step_of_a_map_is_python_only_where_it_is_code_for_a_record() -> None:
    code, frame = Each(dict, {"more": "int"}), SparkFrame(lambda frame: frame, {"same": "int"})
    mapped = Map(name="mapped", log=HOURLY.log, each=(code, frame, Derive({"two": Value(2)})), what=("two",))
    said = [one.execution for one in plan(mapped, DUCKDB).kind.stages if one.name == "step"]
    assert said == [Execution.PYTHON, Execution.SPARK, Execution.SPARK]


def test_a_kind_of_ones_own_is_planned_once_it_is_registered() -> None:
    @dataclass(frozen=True)
    class Tap(Definition):
        name: str = "tap"
        log: Log = HOURLY.log
        kind_name = "tap"
        fingerprint = "0"

    begin = Beginning(build(HOURLY).engine)
    with pytest.raises(KindError, match="Tap: no kind of definition that there is a plan for"):
        plan_kind(Tap(), begin)

    def tap_plan(definition: Tap, begin: Beginning) -> KindPlan:
        return KindPlan((stage("drip", begin.sql, "drop by drop"), ledger_stage(definition, begin.commit, "drops")))

    plan_kind.register(Tap, tap_plan)
    found = plan_data(Plan(Tap(), begin.choice, plan_kind(Tap(), begin), ()), {})
    assert (found["tap"], [one["says"] for one in found["stages"]]) == (
        "tap", [["drop by drop"], ["to tap__ledger: drops, one commit an epoch"]],
    )  # fmt: skip


def test_tables_that_are_there_are_told_with_their_sizes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    make(settings)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    told = json.loads(CliRunner().invoke(app, ["explain", "tests/support/lakes/small_lake.py", "--json"]).stdout)
    sizes = {table["table"]: table["size"] for table in told["tables"]}
    files = [task.file for task in Lake(settings).table("hourly_rides__ledger").scan().plan_files()]
    counted = {"rows": sum(file.record_count for file in files), "files": len(files)}
    assert sizes["hourly_rides__ledger"] == {**counted, "bytes": sum(file.file_size_in_bytes for file in files)}
    shown = CliRunner().invoke(app, ["explain", "tests/support/lakes/small_lake.py"]).stdout
    assert f"{sizes['hourly_rides__ledger']['rows']} rows" in " ".join(shown.split())


def test_explain_prints_the_sql_whole_when_asked() -> None:
    plain = CliRunner().invoke(app, ["explain", "pipelines/flights.py"])
    assert plain.exit_code == 0
    assert "SELECT" not in plain.stdout
    full = CliRunner().invoke(app, ["explain", "pipelines/flights.py", "--sql"]).stdout
    found = json.loads(CliRunner().invoke(app, ["explain", "pipelines/flights.py", "--json"]).stdout)
    squeezed = "".join(full.split())
    for query in found["queries"]:
        assert "".join(query["text"].split()) in squeezed
