"""`late` says what came too late and how to repair it, without a JVM (rule X6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace import Count, Fixed, Global, Pipeline, Sessions, hours, minutes
from tailrace.cli.main import app
from tailrace.cli.terminal.formats import parse_instant
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.late_records import LateRange, LateReport
from tailrace.lake.read.late_report import late_report
from tailrace.lake.schema.lake_errors import OtherDefinitionError
from tailrace.lake.schema.owned_tables import contracts
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.base.time import instant, moment
from tailrace.plan.loader import load
from tailrace.serve.reading.lake_reader import Reader
from tailrace.serve.reading.stage_overview import late_state
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import HOURLY, RIDES, append, at

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

VISITS = Pipeline(name="visits", log=RIDES, key="city", what={"rides": Count()}, where=Sessions(minutes(30)))


def late(city: str, start: datetime, end: datetime, epoch: int, behind: int = 0) -> dict[str, Any]:
    return {
        "kind": "late", "city": city, "window_start": start, "window_end": end, "epoch": epoch, "event_time": start,
        "behind": behind * 60_000_000, "reason": "expired", "source_epoch": epoch, "source_partition": "one",
        "source_offset": 1,
    }  # fmt: skip


def lake_of(settings: Settings, pipeline: Pipeline, rows: list[dict[str, Any]], watermark: datetime) -> Lake:
    lake = Lake(settings)
    for contract in contracts(pipeline):
        lake.ensure(contract)
    said: Mapping[str, str] = {"epoch": "9", "watermark": str(instant(watermark)), "fingerprint": pipeline.fingerprint}
    append(lake, ledger_contract(pipeline).table, rows, said)
    return lake


def covered(lake: Lake, pipeline: Pipeline, first: datetime, last: datetime, epoch: int, status: str) -> None:
    runs = Runs(lake, pipeline)
    run = runs.start("backfill", instant(first), instant(last), log_epoch=epoch)
    runs.note(run, status=status)


def run(*args: str) -> list[str]:
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def reported(lake: Lake, pipeline: Pipeline) -> LateReport:
    """The report of the late records, which is the same where the page has an engine group them."""
    found, reader = late_report(lake, pipeline), Reader.of(lake)
    with closing(reader), reader.session() as session:
        assert late_state(session, pipeline) == found
    return found


def said(ranges: tuple[LateRange, ...]) -> list[tuple[int, int, int, int]]:
    return [(one.first, one.last, one.records, one.windows) for one in ranges]


def test_windows_that_touch_are_one_range_and_those_apart_are_two(settings: Settings) -> None:
    rows = [late("Oslo", at(9), at(10), 2), late("Rome", at(9), at(10), 4), late("Oslo", at(10), at(11), 3)]
    lake = lake_of(settings, HOURLY, [*rows, late("Oslo", at(14), at(15), 3, behind=150)], at(23))
    found = reported(lake, HOURLY)
    assert said(found.ranges) == [(instant(at(9)), instant(at(11)), 3, 2), (instant(at(14)), instant(at(15)), 1, 1)]
    assert [(one.first_epoch, one.last_epoch, one.behind) for one in found.ranges] == [(2, 4, 0), (3, 3, 9_000_000_000)]
    assert found.ready == found.ranges


def test_X4_a_range_that_the_stream_can_reach_is_not_ready(settings: Settings) -> None:
    # Hours close two hours after their end: at half past twelve the one that ends at ten has.
    rows = [late("Oslo", at(9), at(10), 2), late("Oslo", at(11), at(12), 2)]
    found = reported(lake_of(settings, HOURLY, rows, at(12, 30)), HOURLY)
    assert [one.first for one in found.ready] == [instant(at(9))]
    assert len(found.ranges) == 2


def test_V5_what_a_committed_backfill_has_taken_in_is_repaired(settings: Settings) -> None:
    rows = [late("Oslo", at(hour), at(hour + 1), epoch) for hour, epoch in ((8, 2), (9, 2), (9, 5), (10, 2), (11, 2))]
    lake = lake_of(settings, HOURLY, rows, at(23))
    covered(lake, HOURLY, at(9), at(10), 4, "committed")
    covered(lake, HOURLY, at(10), at(11), 4, "failed")
    covered(lake, HOURLY, at(11, 30), at(13), 4, "committed")
    found = reported(lake, HOURLY)
    # Repaired: nine o'clock's of epoch 2, which the backfill's log had; eleven's, whose window ends in the range.
    assert (found.records, found.repaired) == (5, 2)
    assert said(found.ranges) == [(instant(at(8)), instant(at(11)), 3, 3)]


def test_V5_the_range_of_a_session_reaches_as_far_as_the_one_it_joins(settings: Settings) -> None:
    rows = [late("Oslo", at(9), at(9, 30), 2), late("Rome", at(9), at(9, 30), 2)]
    lake = lake_of(settings, VISITS, rows, at(23))
    answer = {"window_start": at(9, 20), "window_end": at(12), "generation": 1, "epoch": 1, "pane_index": 0, "rides": 2}
    held = [answer | {"city": "Oslo"}, answer | {"city": "Bern", "window_start": at(8)}]
    append(lake, "visits", held, {"epoch": "9"})
    assert said(reported(lake, VISITS).ranges) == [(instant(at(9)), instant(at(12)), 2, 2)]
    # The session ends after the range: the backfill did not compute it, and Rome's it did.
    covered(lake, VISITS, at(9), at(10), 9, "committed")
    assert said(reported(lake, VISITS).ranges) == [(instant(at(9)), instant(at(12)), 1, 1)]
    covered(lake, VISITS, at(9), at(12), 9, "committed")
    assert reported(lake, VISITS).ranges == ()


def test_the_command_shows_ranges_and_the_backfills_to_run(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("COLUMNS", "200")
    small_lake.make(settings)
    file = tmp_path / "my rides.py"
    file.write_text(small_lake.DEFINITION)
    assert run("late", str(file)) == [
        "hourly_rides  1 late record",
        "range                        records  windows  epochs  behind      closed",
        "[2026-01-01T09:00Z, 10:00Z)        1        1       2  2 h 30 min  yes",
        "",
        "to take them in:",
        f"tailrace backfill '{file}' --from 2026-01-01T09:00:00Z --to 2026-01-01T10:00:00Z",
    ]
    assert json.loads("\n".join(run("late", str(file), "--json"))) == {
        "pipeline": "hourly_rides",
        "stages": [
            {
                "pipeline": "hourly_rides", "records": 1, "repaired": 0, "closed_until": "2026-01-01T10:30:00Z",
                "ranges": [
                    {
                        "range": ["2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z"], "records": 1, "windows": 1,
                        "epochs": [2, 2], "behind_seconds": 9000.0, "ready": True,
                    }
                ],
            }
        ],
        "behind": [],
    }  # fmt: skip


def test_many_ranges_are_repaired_by_one_backfill(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    file = tmp_path / "rides.py"
    file.write_text(small_lake.DEFINITION)
    rows = [late("Oslo", at(hour), at(hour + 1), 2) for hour in (1, 3, 5, 7, 9)]
    lake_of(settings, HOURLY, rows, at(11, 15))
    shown = run("late", str(file))
    # The last of them, which ends at ten, closes at twelve.
    assert shown[-1] == f"tailrace backfill {file} --from 2026-01-01T01:00:00Z --to 2026-01-01T08:00:00Z"
    assert any(line.endswith("in 45 min") for line in shown)


def test_records_for_a_window_of_all_time_are_repaired_by_a_backfill_of_all_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    file = tmp_path / "ever.py"
    file.write_text(
        "from tests.support.lakes.small_lake import RIDES\nfrom tailrace import AfterCount, Count, Global, Pipeline\n"
        "EVER = Pipeline(\n    name='ever', log=RIDES, what={'rides': Count()}, where=Global(), when=AfterCount(3), "
        "finishing='close'\n)\n"
    )
    ever = load(str(file))
    (beginning, end) = Global().assign(0)[0]
    row = late("Oslo", moment(beginning), moment(end), 2)
    del row["city"]
    lake_of(settings, ever, [row], moment(end))
    command = run("late", str(file))[-1].split()
    assert [parse_instant(text, "") for text in command[-3::2]] == [beginning, end]


def test_another_definition_of_the_same_name_is_refused(settings: Settings) -> None:
    lake = lake_of(settings, HOURLY, [], at(9))
    with pytest.raises(OtherDefinitionError, match="another meaning"):
        late_report(lake, replace(HOURLY, where=Fixed(hours(2))))


def test_late_before_the_first_stream(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    file = tmp_path / "rides.py"
    file.write_text(small_lake.DEFINITION)
    expected = f"hourly_rides: no stream has run yet in {settings.warehouse}: tailrace stream {file} --from DIR"
    assert run("late", str(file)) == [expected]


def test_a_ledger_with_nothing_late_has_no_range(settings: Settings) -> None:
    fixed = Pipeline(name="calm", log=RIDES, what={"rides": Count()}, where=Fixed(hours(1)))
    assert reported(lake_of(settings, fixed, [], at(9)), fixed).ranges == ()
    calm = Pipeline(name="calm_visits", log=RIDES, what={"rides": Count()}, where=Sessions(hours(1)))
    assert reported(lake_of(settings, calm, [], at(9)), calm).ranges == ()
