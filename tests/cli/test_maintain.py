"""`maintain` says what the tables need, without a JVM, and what was done to them (rule X3)."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.operate import maintenance
from tailrace.operate.maintenance import Maintenance, TableMaintenance
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.recorded_ledgers import no_spark
from tests.support.lakes.small_lake import DEFINITION, append

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")


@pytest.fixture
def definition(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv("TAILRACE_KEEP_SNAPSHOTS", "0s")
    monkeypatch.setenv("COLUMNS", "160")
    path = tmp_path / "rides.py"
    path.write_text(DEFINITION)
    return str(path)


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["maintain", *args])


def test_a_dry_run_says_what_each_table_needs_and_changes_nothing(settings: Settings, definition: str) -> None:
    lake = small_lake.make(settings)
    for epoch in range(3, 8):
        append(lake, "rides", [{"city": "Oslo", "_epoch": epoch}], {"epoch": str(epoch)})
    before = lake.table("rides").metadata
    result = run(definition, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["dry_run"]
    log = next(one for one in found["tables"] if one["table"] == "rides")
    assert (log["files"], log["small_files"], log["snapshots"], log["expiring"]) == (6, 5, 7, 6)
    shown = run(definition, "--dry-run").stdout.splitlines()
    assert shown[0].split() == [
        "table",
        "files",
        "small",
        "deletes",
        "manifests",
        "snapshots",
        "expire",
        "left",
        "over",
    ]
    assert shown[1].split() == ["rides", "6", "5", "0", "6", "7", "6", "0"]
    assert "nothing was changed" in shown[-1]
    assert lake.table("rides").metadata == before
    assert not lake.has("rides__commits")


def test_a_lake_without_tables_is_an_error_that_says_what_to_do(definition: str) -> None:
    result = run(definition, "--dry-run")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "start a stream of its definition first" in result.stderr


DONE = Maintenance(
    (
        TableMaintenance(
            "rides", {"data files": (1200, 2), "manifests": (30, 1)}, 7, 1221, 3, (), (), 2.5, ("rewrite_data_files",)
        ),
        TableMaintenance("hourly_rides", {}, 0, 0, 0, ("follow_audit",), ("rewrite_data_files",), 0.5),
        TableMaintenance("hourly_rides__runs", {}, 0, 0, 0, (), (), 0.1),
    ),
    ("hourly_rides__replay_0123abcd",),
)


def test_a_lake_that_needs_nothing_is_maintained_without_spark(
    settings: Settings, definition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = small_lake.make(settings)
    data = Path(lake.table("rides").location().removeprefix("file://")) / "data"
    monkeypatch.setenv("TAILRACE_KEEP_SNAPSHOTS", "1d")
    monkeypatch.setattr("tailrace.engines.spark.session.open_session", lambda *_, **__: no_spark())
    for file in data.rglob("*"):
        os.utime(file, (time.time() - 4 * 86400,) * 2)
    result = run(definition)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "in the process: nothing to rewrite, expire or delete"
    # What a dead writer left behind is Spark's to delete.
    (data / "old.parquet").write_bytes(b"")
    os.utime(data / "old.parquet", (time.time() - 4 * 86400,) * 2)
    with pytest.raises(AssertionError, match="in the process"):
        maintenance.maintain(no_spark, lake, small_lake.HOURLY)


def test_what_was_done_is_reported(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[timedelta]()

    def done(spark: Any, lake: Lake, *args: Any, **options: Any) -> Maintenance:
        seen.append(lake.settings.keep_snapshots)
        return DONE

    monkeypatch.setattr(maintenance, "maintain", done)
    shown = [" ".join(line.split()) for line in run(definition).stdout.splitlines()]
    assert shown[1:] == [
        "rides 1,200 data files written to 2; 30 manifests written to 1; 7 snapshots expired, 1,221 files deleted with "
        "them; 3 orphan files deleted 2.5 s",
        "hourly_rides 1 leftover removed; rewrite_data_files overtaken by other commits, for the next time 0.5 s",
        "hourly_rides__runs as it was 0.1 s",
        "spark: rewrite_data_files",
        "hourly_rides__replay_0123abcd: dropped, left over by a replay that died",
    ]
    found = json.loads(run(definition, "--json").stdout)
    assert found["tables"][0]["rewritten"]["data files"] == {"from": 1200, "to": 2}
    assert found["tables"][1]["overtaken"] == ["rewrite_data_files"]
    assert found["leftover_tables"] == ["hourly_rides__replay_0123abcd"]
    assert seen == [timedelta(0)] * 2
