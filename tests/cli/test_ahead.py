"""A watermark that a record of the future has carried ahead of the clock is told of."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.health import stream_faults
from tailrace.lake.read.stage_progress import StageProgress
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import duration, hours, instant
from tailrace.settings import PREFIX, Settings
from tests.support.lakes.small_lake import HOURLY, make

FAR = instant(datetime(2126, 1, 1, tzinfo=UTC))
NOW = instant(datetime(2026, 1, 1, 14, tzinfo=UTC))
STATUS = ["status", "tests/support/lakes/small_lake.py:HOURLY"]


def test_a_watermark_ahead_of_the_clock_is_told_of(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    make(settings)
    monkeypatch.setenv(f"{PREFIX}WAREHOUSE", str(settings.warehouse))
    monkeypatch.setenv(f"{PREFIX}CONTRACTS", str(settings.contracts))
    lake, ledger = Lake(settings), ledger_name(HOURLY.name)
    assert stream_faults(lake, HOURLY, NOW, duration(hours(9))) == []
    assert "ahead of" not in CliRunner().invoke(app, STATUS).output
    head = lake.head(ledger)
    said = {**head.properties, "epoch": "3", "watermark": str(FAR), "processing_time": str(NOW)}
    lake.mark(ledger, said, head.snapshot)
    (line,) = stream_faults(lake, HOURLY, NOW, duration(hours(9)))
    assert line.endswith("ahead")
    assert "ahead of the last epoch's clock" in " ".join(CliRunner().invoke(app, STATUS).output.split())
    told = json.loads(CliRunner().invoke(app, [*STATUS, "--json"]).stdout)
    assert told["ahead_seconds"] == (FAR - NOW) / 1e6


@pytest.mark.parametrize(("watermark", "over"), [(FAR, FAR - NOW), (NOW, 0), (NOW + duration(hours(24)), 0)])
def test_a_stage_has_how_far_its_watermark_is_ahead(watermark: int, over: int) -> None:
    assert StageProgress(name="hourly", watermark=watermark, processing_time=NOW).ahead == over
