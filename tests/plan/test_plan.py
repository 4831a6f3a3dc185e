"""A plan says what runs: its SQL is that of the native execution, its stages are the definition's answers."""

from __future__ import annotations

import json
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
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.spark.executions.native import Native
from tailrace.model.definition.source_text import written
from tailrace.plan import map_plan
from tailrace.plan.builder import build
from tailrace.plan.explainer import data, plan_page, pretty
from tailrace.plan.plan_stages import Execution
from tests.support.small_lake import HOURLY

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


BY = EngineChoice(Engine.DUCKDB, "while it fits")


def text_of(pipeline: Pipeline) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(plan_page(pipeline, build(pipeline), BY))
        return console.export_text()


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
def test_the_sql_is_what_the_native_execution_runs(pipeline: Pipeline) -> None:
    native: Any = Native(None, pipeline)  # type: ignore[arg-type]  # it compiles without a session
    runs = {
        "partials": native._partials,
        "transitions": native._transitions,
        "ledger": native._ledger_rows,
        "too_late": native._late,
        "refused": native._refused,
        "state": native._remains,
        "restore": native.rows.restored("ledger"),
    }
    if pipeline.finishing != "close":
        del runs["refused"]
    for name, view in native._views.items():
        runs = {query: text.replace(view, name) for query, text in runs.items()}
    assert {query.name: query.text for query in build(pipeline).queries} == runs


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
def test_breaking_sql_into_lines_changes_white_space_only(pipeline: Pipeline) -> None:
    for query in build(pipeline).queries:
        assert "".join(pretty(query.text).split()) == "".join(query.text.split())


def test_a_text_in_sql_is_left_whole() -> None:
    assert pretty("SELECT 'a FROM (b', `WHERE`") == "SELECT 'a FROM (b', `WHERE`"


@pytest.mark.parametrize("pipeline", DEFINITIONS, ids=lambda one: one.fingerprint)
def test_every_stage_says_what_it_does_where_and_why(pipeline: Pipeline) -> None:
    plan = build(pipeline)
    found = data(plan, BY)
    assert [stage["stage"] for stage in found["stages"]] == [
        "read", "assign", "judge", "aggregate", "merge" if pipeline.where.merges else "join", "data triggers",
        "watermark", "on time", "close", "ledger", "answers",
    ]  # fmt: skip
    assert all(
        stage["says"] and stage["why"] and stage["execution"] in ("native", "driver") for stage in found["stages"]
    )
    for stage in plan.stages:
        if hasattr(stage, "query"):
            assert plan.query(stage.query).text
    assert [table["table"] for table in found["tables"]] == [contract.table for contract in plan.tables]
    json.dumps(found)


def test_the_kept_state_is_the_native_state() -> None:
    plan = build(HOURLY)
    listed = plan.query("state").text.removeprefix("SELECT ").split(" FROM ")[0].replace("`", "").split(", ")
    assert [column.name for column in plan.state.columns] == listed


def test_state_is_sized_by_what_stays_open() -> None:
    plan = build(HOURLY)
    # One hour of window, two of lateness and one of disorder.
    assert (plan.state.overlapping, plan.state.open_for) == (4, 7_200_000_000)
    assert build(replace(HOURLY, where=Sliding(hours(1), every=minutes(30)))).state.overlapping == 8
    assert build(replace(HOURLY, where=Global())).state.overlapping == 1
    sessions = build(replace(HOURLY, where=Sessions(minutes(30)))).state
    assert (sessions.overlapping, sessions.open_for) == (None, 9_000_000_000)


def test_native_but_for_the_clock() -> None:
    where = {type(stage).__name__: stage.choice.execution for stage in build(HOURLY).stages}
    assert {name for name, execution in where.items() if execution is not Execution.NATIVE} == {"AdvanceWatermark"}


@dataclass(frozen=True)
class Own(Fixed):
    """A windowing of one's own, if only by its name."""


@dataclass(frozen=True)
class OwnSessions(Sessions):
    """One whose windows merge, maybe by a rule of its own."""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"where": OwnSessions(hours(1))}, "where: OwnSessions is a windowing of one's own"),
        ({"what": {"ways": ApproxDistinct("price"), "n": Count()}}, "what['ways']: ApproxDistinct combines in Python"),
    ],
)
def test_what_cannot_be_compiled_runs_in_python_and_the_plan_says_why(changed: dict[str, Any], why: str) -> None:
    plan = build(replace(HOURLY, **changed))
    python = {type(stage).__name__ for stage in plan.stages if stage.choice.execution is Execution.PYTHON}
    assert python == {"Assign", "Judge", "Aggregate", "Meet", "DataTriggers", "WatermarkTriggers", "Close"}
    assert all(why in stage.choice.why for stage in plan.stages if stage.choice.execution is Execution.PYTHON)
    assert [query.name for query in plan.queries] == ["restore"]
    assert why in " ".join(text_of(replace(HOURLY, **changed)).split())


def test_of_windows_of_ones_own_that_stay_apart_only_their_assignment_is_python() -> None:
    pipeline = replace(HOURLY, where=Own(hours(1)))
    plan = build(pipeline)
    python = {type(stage).__name__ for stage in plan.stages if stage.choice.execution is Execution.PYTHON}
    assert python == {"Assign"}
    assert [query.name for query in plan.queries] == [query.name for query in build(HOURLY).queries]
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
    assert (where["read"], where["records"], where["timers"]) == ("native", "python", "python")


def test_a_step_of_a_map_is_python_only_where_it_is_code_for_a_record() -> None:
    code, frame = Each(dict, {"more": "int"}), SparkFrame(lambda frame: frame, {"same": "int"})
    mapped = Map(name="mapped", log=HOURLY.log, each=(code, frame, Derive({"two": Value(2)})), what=("two",))
    said = [execution for name, execution, _ in map_plan.stages(mapped) if name == "step"]
    assert said == [Execution.PYTHON, Execution.NATIVE, Execution.NATIVE]


def test_explain_prints_the_sql_whole_when_asked() -> None:
    plain = CliRunner().invoke(app, ["explain", "pipelines/flights.py"])
    assert plain.exit_code == 0
    assert "SELECT" not in plain.stdout
    full = CliRunner().invoke(app, ["explain", "pipelines/flights.py", "--sql"]).stdout
    found = json.loads(CliRunner().invoke(app, ["explain", "pipelines/flights.py", "--json"]).stdout)
    squeezed = "".join(full.split())
    for query in found["queries"]:
        assert "".join(query["text"].split()) in squeezed
