"""Where a record is, by `tailrace trace`: what it says adds up to the answers, late rows and rejected records."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace import (
    DISCARDING,
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Arrivals,
    Col,
    Count,
    Derive,
    Fixed,
    Join,
    Map,
    Match,
    Pipeline,
    Sessions,
    Sliding,
    Sum,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill
from tailrace.cli import main
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.filters import above
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.trace import lines
from tailrace.trace.answer_records import answer_records
from tailrace.trace.key_history import KeyValueError
from tailrace.trace.lines import find_line
from tailrace.trace.steps import InWindow, LeftOut, Passed, Row, State, Step
from tailrace.trace.tracing import Tracing
from tailrace.trace.wanted_records import Wanted, WantedError, find_records, line_number
from tests.ingest.test_deduplicating import ORDERS, START, order
from tests.support.depth import cases
from tests.support.engines.sessions import session
from tests.support.lakes.several_logs import CLICKS, PATIENT, SECOND, VIEWS, Logs, Part, random_epochs

LATER: dict[str, Any] = {
    "when": AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    "allowed_lateness": minutes(1),
}
EARNED = Pipeline(
    name="earned", log=CLICKS, key="ad", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(seconds(30)),
    how=RETRACTING, **LATER,
)  # fmt: skip
DEAR = Map(name="dear", log=CLICKS, each=Derive({"euros": Col("cents") // 2}), keep=Match("cents", ">=", 3))
TRACED: dict[str, Pipeline] = {
    "union": PATIENT,
    "sessions": Pipeline(name="sessions", log=VIEWS, key="ad", what={"n": Count()}, where=Sessions(seconds(20)),
                         how=RETRACTING, **LATER),
    "discarding": Pipeline(name="parts", log=CLICKS, key="ad", what={"n": Count()}, how=DISCARDING,
                           where=Sliding(minutes(1), every=seconds(30)), keep=Match("cents", ">", 2), **LATER),
    "arrivals": Pipeline(name="arrived", log=Arrivals(of=CLICKS), key="ad", what={"n": Count()},
                         where=Fixed(seconds(3))),
    "map": Pipeline(name="of_map", log=DEAR.produced, key="euros", what={"n": Count()}, where=Fixed(minutes(1)),
                    **LATER),
}  # fmt: skip
LATE = Pipeline(
    name="late_answers", log=EARNED.panes, key="n", what={"n_answers": Count(), "records": Sum("n")},
    where=Fixed(minutes(5)), how=RETRACTING, when=AfterWatermark(late=AfterCount(1)),
)  # fmt: skip


def landed(settings: Settings, seed: int, *definitions: Definition) -> Logs:
    logs = Logs(Lake(settings), now=lambda epoch: epoch * SECOND)
    for number, parts in enumerate(random_epochs(Random(seed), 9)):
        logs.land(parts)
        if number % 4 == 0:
            logs.fold(*definitions)
    logs.fold(*definitions)
    return logs


def traced(lake: Lake, definition: Definition) -> list[Step]:
    """What became of every record of the logs that a definition reads."""
    tracing = Tracing(lake, definition)
    found = [find_records(lake, log, Wanted(where="_epoch >= 0"), 10_000) for log in definition.sources]
    return [step for one in found for record in one.landed for step in tracing.of(record)]


def counted(steps: list[Step], name: str) -> Counter[Any]:
    """How many records each answer counts, by what was traced."""
    windows = [step for step in steps if isinstance(step, InWindow) and step.definition == name]
    return Counter((one.key, one.window.start, one.window.end) for one in windows if one.state is State.COUNTED)


def answers(lake: Lake, pipeline: Pipeline, count: str = "n") -> Counter[Any]:
    rows = lake.table(pipeline.name).scan().to_arrow().to_pylist()
    spans = [(instant(row["window_start"]), instant(row["window_end"])) for row in rows]
    keys = [tuple(row[name] for name in pipeline.key) for row in rows]
    return +Counter({(key, *span): row[count] for key, span, row in zip(keys, spans, rows, strict=True)})


@pytest.mark.parametrize("which", TRACED)
@pytest.mark.parametrize("seed", range(cases(1, 10)))
def test_X6_every_record_is_traced_to_the_answer_that_counts_it_or_to_its_late_row(
    settings: Settings, which: str, seed: int
) -> None:
    pipeline = TRACED[which]
    logs = landed(settings, seed + 3, pipeline)
    lake = logs.lake
    steps = traced(lake, pipeline)
    own = [step for step in steps if isinstance(step, InWindow)]
    # An answer counts its records and no other.
    assert counted(steps, pipeline.name) == answers(lake, pipeline)
    late = lake.table(f"{pipeline.name}__ledger").scan(row_filter="kind = 'late'").to_arrow().to_pylist()
    assert sum(one.late is not None for one in own) == len(late)
    assert {one.state for one in own if one.late is not None} <= {State.LATE}
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(pipeline)
    assert State.WAITING not in {one.state for one in traced(lake, pipeline) if isinstance(one, InWindow)}
    backfill(lake, pipeline, BEGINNING)
    steps = traced(lake, pipeline)
    assert {one.state for one in steps if isinstance(one, InWindow)} == {State.COUNTED}
    taken = [one for one in steps if isinstance(one, InWindow) and one.late is not None]
    assert len(taken) == len(late)
    assert all(one.run is not None and one.run.kind == "backfill" for one in taken)
    assert counted(steps, pipeline.name) == answers(lake, pipeline)


def test_a_record_is_followed_through_its_stages_and_joins(settings: Settings) -> None:
    join = Join(name="seen", left=VIEWS, right=EARNED.panes, on="ad", within=minutes(1), kind="left",
                left_columns={"viewed_at": "at"})  # fmt: skip
    lake = landed(settings, 3, LATE, join).lake
    steps = traced(lake, LATE)
    # A later answer has as many records as its answers count.
    inside = [one for one in steps if isinstance(one, InWindow) and one.definition == LATE.name]
    assert counted(steps, LATE.name) == answers(lake, LATE, "records")
    assert all(one.answer is not None for one in inside if one.state is State.COUNTED)
    rows = [one for one in traced(lake, join) if isinstance(one, Row)]
    standing = lake.table("seen__ledger").scan(row_filter="kind = 'production'").to_arrow().to_pylist()
    assert {one.values["viewed_at"] for one in rows} == {row["viewed_at"] for row in standing}
    taken = {(one.values["viewed_at"], one.values["n"], one.epoch) for one in rows if one.taken_back}
    assert bool(taken) == any(row["retraction"] for row in standing)
    late = [one for one in traced(lake, join) if isinstance(one, Passed) and one.behind is not None]
    assert len(late) == lake.table("seen__ledger").scan(row_filter="kind = 'late'").count()


def test_an_answer_is_of_just_the_records_that_it_counts(settings: Settings) -> None:
    lake = landed(settings, 3, LATE, TRACED["sessions"]).lake
    sessions = TRACED["sessions"]
    for row in lake.table(sessions.name).scan().to_arrow().to_pylist():
        found = answer_records(lake, sessions, (row["ad"],), instant(row["window_start"]), 1_000)
        assert sum(one.state is State.COUNTED for one in found.records) == row["n"]
    for pane in lake.table("earned__ledger").scan(row_filter="kind = 'pane'").to_arrow().to_pylist():
        found = answer_records(lake, EARNED, (pane["ad"],), instant(pane["window_start"]), 1_000)
        of = 0 if found.answer is None else found.answer.answer["n"]
        assert sum(one.state is State.COUNTED for one in found.records) == of
    for row in lake.table(LATE.name).scan().to_arrow().to_pylist():
        found = answer_records(lake, LATE, (row["n"],), instant(row["window_start"]), 1_000)
        assert len(found.answers) == row["n_answers"]
        assert sum(one.pane.answer["n"] for one in found.answers) == row["records"]
        few = answer_records(lake, LATE, (row["n"],), instant(row["window_start"]), 1)
        assert (len(few.answers), few.more) == (1, row["n_answers"] > 1)
    nowhere = answer_records(lake, EARNED, ("nobody",), instant(START), 5)
    assert (nowhere.window, nowhere.answer) == (None, None)


SHOP = replace(ORDERS, disorder=timedelta(minutes=30))
SALES = Pipeline(
    name="sales", log=SHOP, key="shop", what={"n": Count()}, where=Fixed(minutes(20)), keep=Match("cents", "<", 90),
    when=AfterWatermark(early=AfterCount(5), late=AfterCount(1)), allowed_lateness=minutes(10),
)  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with 1,600 orders: some again, some malformed, some late."""
    folder, chance = tmp_path_factory.mktemp("shop"), Random(5)
    (folder / "landing").mkdir()
    for number in range(8):
        lines = [json.dumps(order(chance.choice("ab"), chance.randrange(1_500), number / 4, chance.randrange(99)))
                 for _ in range(200)]  # fmt: skip
        lines = [line if chance.random() > 0.05 else line[:-3] for line in lines]
        file = folder / "landing" / f"{number}.json"
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    settings = Settings(warehouse=folder / "lake", driver_memory="1g", shuffle_partitions=2, engine="duckdb")
    lake = Lake(settings.model_copy(update={"contracts": folder / "contracts"}))
    stream = Stream(session(lake.settings), lake, [SALES], Files(str(folder / "landing"), "json", 1))
    stream.start(once=True)
    stream.wait()
    stream.close()
    (folder / "shop.py").write_text(DEFINITION)
    return lake


DEFINITION = """
from tests.trace.test_traces import SALES
"""


def test_X5_X6_a_trace_agrees_with_the_audit_record_by_record(shop: Lake) -> None:
    tracing, log = Tracing(shop, SALES), shop.table("orders").scan().to_arrow().to_pylist()
    rejected = shop.table("orders__rejected").scan().to_arrow().to_pylist()
    dropped = shop.head("orders").number("duplicates", 0)
    assert len(log) + len(rejected) + dropped == 1_600
    assert min(len(rejected), dropped) > 20
    found, records = Counter[Any](), find_records(shop, SHOP, Wanted(where="_epoch >= 0"), 2_000).landed
    assert len(records) == len(log) > 1_000
    for record in records:
        for step in tracing.of(record):
            assert isinstance(step, InWindow | LeftOut)
            found[step.state if isinstance(step, InWindow) else "left out"] += 1
    for row in Random(7).sample(log, 100):
        # The record that counts is found by its id: what came again was dropped.
        (record,) = find_records(shop, SHOP, Wanted(id=(row["shop"], str(row["number"]))), 5).landed
        assert record.place == (row["_epoch"], row["_source"], row["_offset"])
    held = shop.table("sales").scan().to_arrow().to_pylist()
    late = shop.table("sales__ledger").scan(row_filter="kind = 'late'").count()
    assert found[State.LATE] == late > 0
    assert found[State.COUNTED] == sum(row["n"] for row in held)
    assert found["left out"] == sum(row["cents"] >= 90 for row in log)
    assert found[State.GONE] == 0
    for row in rejected:
        place = Wanted(source=row["_source"].rsplit("/", 1)[-1], offset=row["_offset"])
        (refused,) = find_records(shop, SHOP, place, 5).rejected
        assert (refused.raw, refused.error) == (row["raw"], row["error"])
    # Its bytes have its id, though nothing could be read of them.
    shop_, number = re.findall(rb'"shop": "(.)", "number": (\d+)', rejected[0]["raw"])[0]
    by_id = find_records(shop, SHOP, Wanted(id=(shop_.decode(), number.decode())), 500).rejected
    assert rejected[0]["raw"] in [one.raw for one in by_id]


@pytest.mark.parametrize("scanned", [False, True])
def test_a_record_is_found_by_the_line_of_its_file(shop: Lake, scanned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if scanned:
        # As if Spark had scanned the files, and given other numbers.
        monkeypatch.setattr(lines, "_SCANNED", above("_offset", -1))
        monkeypatch.setattr(lines, "find_in_logs", lambda lake, logs, wanted, limit: [])
    log = shop.table("orders").scan().to_arrow().to_pylist()
    rejected = shop.table("orders__rejected").scan().to_arrow().to_pylist()
    for row in [*Random(7).sample(log, 8), *Random(7).sample(rejected, 4)]:
        file = Path(row["_source"].removeprefix("file:"))
        number = row["_offset"] + 1
        assert line_number(row["_source"], row["_offset"]) == number
        line = file.read_bytes().splitlines()[number - 1]
        (found,) = find_line(shop, [SHOP], Wanted.at_line(f"{file.name}:{number}"), 5)
        if "raw" in row:
            assert line == row["raw"]
            assert [one.raw for one in found.rejected][:1] == [line]
            assert found.landed == ()
        else:
            assert json.loads(line)["number"] == row["number"]
            assert row["number"] in [one.values["number"] for one in found.landed]
            assert {one.source for one in found.landed} == {row["_source"]}
    if scanned:
        with pytest.raises(WantedError, match="has no line 1,000"):
            find_line(shop, [SHOP], Wanted.at_line("0.json:1000"), 5)
    with pytest.raises(WantedError, match="expected a file and the number of a line"):
        Wanted.at_line("0.json:0")


def test_what_is_asked_for_badly_is_told_with_what_is_expected(shop: Lake) -> None:
    for wanted, expected in (
        (Wanted(where="cents ="), "expected a condition on its columns shop, number, cents"),
        (Wanted(where="euros = 3"), "euros"),
        (Wanted(where="cents = 'x'"), "cents"),
        (Wanted(id=("a",)), "the id of log orders is (shop, number): expected a value for each"),
        (Wanted(id=("a", "many")), "expected a bigint"),
    ):
        with pytest.raises((WantedError, KeyValueError)) as raised:
            find_records(shop, SHOP, wanted, 5)
        assert expected in str(raised.value)
    with pytest.raises(WantedError, match="has no record_id"):
        find_records(shop, replace(SHOP, record_id=()), Wanted(id=("1",)), 5)


def test_the_command_tells_people_and_programs_where_a_record_is(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(str(shop.settings.warehouse)).parent
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(shop.settings.warehouse))
    monkeypatch.setenv("COLUMNS", "200")
    row = shop.table("orders").scan(row_filter="cents < 90").to_arrow().to_pylist()[0]
    words = ["trace", f"{folder / 'shop.py'}:SALES"]
    own = [*words, "--id", row["shop"], "--id", str(row["number"])]
    told = CliRunner().invoke(main.app, own)
    assert told.exit_code == 0, told.output
    assert f"landed in epoch {row['_epoch']}" in told.output
    data = json.loads(CliRunner().invoke(main.app, [*own, "--json"]).output)
    (record,) = data["logs"][0]["records"]
    assert record["values"]["number"] == row["number"]
    assert {step["definition"] for step in record["steps"]} == {"sales"}
    bad = shop.table("orders__rejected").scan().to_arrow().to_pylist()[0]
    place = f"{bad['_source'].rsplit('/', 1)[-1]}:{bad['_offset']}"
    assert "rejected" in CliRunner().invoke(main.app, [*words, "--place", place]).output
    line = f"{bad['_source'].rsplit('/', 1)[-1]}:{bad['_offset'] + 1}"
    of_line = CliRunner().invoke(main.app, [*words, "--line", line])
    assert f"{place} (line {bad['_offset'] + 1})  rejected" in of_line.output
    window = CliRunner().invoke(main.app, [*words, "--key", row["shop"], "--window", row["at"].isoformat(), "--json"])
    assert json.loads(window.output)["key"] == {"shop": row["shop"]}
    for options in ([], ["--id", "a", "--where", "cents = 1"]):
        refused = CliRunner().invoke(main.app, [*words, *options])
        assert refused.exit_code != 0
        assert "expected one of --id, --place, --line, --where and --window" in refused.output
