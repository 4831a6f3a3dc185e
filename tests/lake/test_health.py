"""Whether a stream keeps up, as its tables say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.lake.read.health import answer_snapshots, health, stream_faults
from tailrace.model.base.time import duration, hours, instant
from tailrace.settings import Settings
from tests.support.lakes.rides import HOURLY, Case

LANDED = [("ann", 1, "08:00"), ("bob", 2, "09:30")]
AT = instant(datetime(2026, 1, 1, 12, 25, tzinfo=UTC))


def test_a_stream_that_falls_behind_is_told_of_by_how_much(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    assert health(case.lake, HOURLY) == []
    assert answer_snapshots(case.lake, HOURLY) == {}
    assert stream_faults(case.lake, HOURLY, AT, None) == ["hourly has no ledger yet"]
    assert stream_faults(case.lake, HOURLY, AT, None, young=True) == []

    case.land(*LANDED)
    case.drain(HOURLY)
    watermark = instant(datetime(2026, 1, 1, 9, 20, tzinfo=UTC))
    (found,) = health(case.lake, HOURLY)
    assert (found.name, found.epoch, found.watermark, found.answers_epoch) == ("hourly", 0, watermark, 0)
    assert answer_snapshots(case.lake, HOURLY) == {"hourly": str(case.lake.head("hourly").snapshot)}
    assert stream_faults(case.lake, HOURLY, AT, None) == []
    assert stream_faults(case.lake, HOURLY, AT, duration(hours(4))) == []
    assert stream_faults(case.lake, HOURLY, AT, duration(hours(3))) == [
        "the watermark of hourly is at 2026-01-01T09:20:00Z, 185 minutes behind"
    ]
