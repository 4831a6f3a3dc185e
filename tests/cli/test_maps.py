"""What the commands say of a map, on a lake that a fold in this process has made: no JVM is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.fold_kinds import RowFold
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import FoldSetup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.change.restoration import UndoneBackfill, restore
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.settings import Settings
from tests.model.test_map_definitions import EUROS, SALES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EPOCHS = 3


def no_spark() -> Any:
    raise AssertionError("Spark was started")


def bundle(epoch: int) -> pa.Table:
    """Two records of an epoch, a minute apart."""
    rows = [
        {"at": NOON + timedelta(minutes=2 * epoch + place), "cents": 100 * epoch + 150 * place}
        | {"_epoch": epoch, "_source": "sales.json", "_offset": 2 * epoch + place}
        for place in range(2)
    ]
    return pa.Table.from_pylist(rows, schema=iceberg_schema(log_contract(SALES)).as_arrow())


def fold(lake: Lake) -> RowFold:
    return RowFold(EUROS, FoldSetup(lake, StreamEngines(no_spark, lake), Pace.of(None, lake.settings.freshness)))


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with a log of `EPOCHS` epochs, and the map's ledger up to the last one."""
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("COLUMNS", "200")
    lake = Lake(settings)
    for contract in (log_contract(SALES), rejected_contract(SALES)):
        lake.ensure(contract)
    running = fold(lake)
    for epoch in range(EPOCHS):
        rows, clock = bundle(epoch), Clock(epoch, instant(NOON) + epoch, instant(NOON) + epoch)
        said = {"epoch": str(epoch), "watermark": str(clock.watermark), "processing_time": str(clock.processing_time)}
        lake.change("sales", FileChange(tuple(lake.write_files("sales", rows))), said, lake.head("sales").snapshot)
        running.stage(PassedEpoch.of(rows, clock), Phases())
        running.publish()
    running.close()
    return lake


@pytest.fixture
def definition(tmp_path: Path) -> str:
    path = tmp_path / "euros.py"
    path.write_text("from tests.model.test_map_definitions import EUROS\n")
    return str(path)


def run(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout if status == 0 else done.stderr


def data(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


def euros() -> list[int]:
    """The rows that stand, in the order of event time."""
    rows = json.loads(run("sql", "select euros from euros__rows order by event_time", "--format", "json"))
    return [row["euros"] for row in rows]


def test_a_map_is_told_of_as_other_definitions_are(lake: Lake, definition: str) -> None:
    assert euros() == [0, 1, 1, 2, 2, 3]
    found = data("status", definition)
    assert (found["epoch"], found["productions"], found["open_windows"]) == (EPOCHS - 1, 6, None)
    shown = run("status", definition)
    assert "rows" in shown
    assert "late records" not in shown
    found = data("audit", definition)
    assert found["ok"], found
    assert (found["counts"]["records"], found["counts"]["rows"]) == (6, 6)
    found = data("explain", definition)
    assert [one["stage"] for one in found["stages"]] == ["read", "step", "rows", "ledger"]
    assert "euros__ledger" in run("explain", definition)
    assert "FROM bundle" in run("explain", definition, "--sql")
    assert "as agreed" in run("tables", "show", definition)


def falsify(lake: Lake) -> None:
    """Change the ledger as if the step had given something else of a record, and nothing of the last one."""
    rows = lake.table("euros__ledger").scan().to_arrow().sort_by("event_time").to_pylist()
    said, schema = dict(lake.head("euros__ledger").properties), lake.table("euros__ledger").schema().as_arrow()
    ledger = lake.table("euros__ledger")
    ledger.overwrite(pa.Table.from_pylist([{**rows[0], "euros": 7}, *rows[1:5]], schema=schema))
    lake.change("euros__ledger", FileChange(()), said, lake.head("euros__ledger").snapshot)


def test_a_backfill_leaves_what_is_equal_and_mends_what_is_not(lake: Lake, definition: str) -> None:
    found = data("backfill", definition, "--from", "2026-01-01")
    assert (found["changed"], found["untouched"], found["retracted"]) == (0, 6, 0)
    assert found["engine"] == "duckdb"
    falsify(lake)
    assert not same_as_batch(definition)
    found = data("backfill", definition, "--from", "2026-01-01", "--to", "2026-01-01T12:04:00Z")
    assert (found["changed"], found["untouched"], found["retracted"]) == (1, 3, 0)
    shown = run("backfill", definition, "--from", "2026-01-01")
    assert "1 row given anew" in shown
    assert euros() == [0, 1, 1, 2, 2, 3]
    assert same_as_batch(definition)


def same_as_batch(definition: str) -> bool:
    """Whether an audit finds the rows to be the batch's; that the ledger was changed by hand it says, too."""
    found = json.loads(CliRunner().invoke(app, ["audit", definition, "--json"]).stdout)
    [same] = [check["ok"] for check in found["checks"] if check["name"] == "rows are the batch's"]
    return bool(same)


def test_a_run_of_a_scheduler_is_of_what_the_watermark_has_passed(lake: Lake) -> None:
    pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")
    from tailrace.airflow.ranges import Extent

    extent = Extent.of(lake, EUROS)
    assert extent.closed == instant(NOON) + EPOCHS - 1
    assert extent.latest == instant(NOON + timedelta(minutes=2 * EPOCHS - 1)) + 1


def test_a_restore_names_the_backfills_that_it_undoes_before_it_changes_anything(lake: Lake, definition: str) -> None:
    falsify(lake)
    done = data("backfill", definition, "--from", "2026-01-01", "--to", "2026-01-01T12:04:00Z")
    made = done["run"]
    before = lake.head("euros__ledger").snapshot

    def refuse(undone: Sequence[UndoneBackfill]) -> None:
        assert [(one.stage, one.run.run) for one in undone] == [("euros", made)]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        restore(lake, [EUROS], 0, foretell=refuse)
    assert lake.head("euros__ledger").snapshot == before
    again = f"tailrace backfill {definition} --from 2026-01-01T00:00:00Z --to 2026-01-01T12:04:00Z"
    shown = CliRunner().invoke(app, ["restore", definition, "--epoch", "0"])
    assert f"undoing 1 backfill made after epoch 0: {made} of euros" in shown.stderr
    assert again in shown.stdout.splitlines()
    shown = CliRunner().invoke(app, ["restore", definition, "--epoch", "0", "--json"])
    assert json.loads(shown.stdout) == {"epoch": 0, "restored": [], "undone": [], "again": []}


def test_a_map_goes_back_to_an_epoch_and_is_folded_on_from_there(lake: Lake, definition: str) -> None:
    done = restore(lake, [EUROS], 0, reason="tried")
    assert [(one.before, one.epoch) for one in done] == [(EPOCHS - 1, 0)]
    assert euros() == [0, 1]
    assert [run.kind for run in Runs(lake, EUROS).all()] == ["stream", "restore"]
    running = fold(lake)
    for epoch in range(1, EPOCHS):
        clock = Clock(epoch, instant(NOON) + epoch, instant(NOON) + epoch)
        running.stage(PassedEpoch.of(bundle(epoch), clock), Phases())
        running.publish()
    running.close()
    assert euros() == [0, 1, 1, 2, 2, 3]
    assert data("audit", definition)["ok"]


def test_a_sample_gives_rows_and_has_nothing_to_draw(definition: str, tmp_path: Path) -> None:
    sample = tmp_path / "sales.jsonl"
    sample.write_text('{"at": "2026-01-01T12:00:00Z", "cents": 250}\n{"at": "no"}\n')
    found = data("simulate", definition, str(sample))
    assert [one["values"] for one in found["rows"]] == [{"euros": 2}]
    assert [one["line"] for one in found["rejected"]] == [2]
    assert "1 row" in run("simulate", definition, str(sample))
    said = run("simulate", definition, str(sample), "--html", str(tmp_path / "plot.html"), status=2)
    assert "is a map" in said


def test_L3_a_replay_gives_the_rows_of_the_stream_again(lake: Lake, definition: str) -> None:
    found = data("replay", definition)
    assert (found["ok"], found["epochs"]) == (True, [0, EPOCHS - 1])
    assert found["rows"]["production"] == {"ledger": 6, "replay": 6, "same": 6}
    assert "the ledger comes out again, row for row" in run("replay", definition, "--epochs", "1")
    assert "there are none from 1 to 9" in run("replay", definition, "--epochs", "1..9", status=2)
    assert "has no windows" in run("replay", definition, "--as-of", "1", status=2)
    # As if a row had come twice: an audit sees it, too.
    head, row = lake.head("euros__ledger"), lake.table("euros__ledger").scan().to_arrow().slice(0, 1)
    lake.change(
        "euros__ledger", FileChange(tuple(lake.write_files("euros__ledger", row))), head.properties, head.snapshot
    )
    found = json.loads(CliRunner().invoke(app, ["replay", definition, "--json"]).stdout)
    assert found["rows"]["production"]["ledger"] == 7
    assert [one["times"] for one in found["differences"]] == [{"ledger": 2, "replay": 1}]
    assert not same_as_batch(definition)


@pytest.mark.parametrize("command", ["late", "panes", "plan"])
def test_commands_for_windows_say_that_a_map_has_none(definition: str, command: str) -> None:
    assert "euros is a map, and has no windows" in run(command, definition, status=2)
