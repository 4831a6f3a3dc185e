"""A join on real tables: streamed with corrections, backfilled, audited, replayed, and held against plain SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Collect,
    Count,
    Fixed,
    Match,
    Near,
    Pack,
    Pairs,
    Pipeline,
    Sum,
    days,
    minutes,
)
from tailrace.backfill.pipeline_backfill import backfill
from tailrace.model.base.time import BEGINNING, instant
from tailrace.settings import Settings
from tailrace.verify.pipeline_audit import audit
from tailrace.verify.stage_replay import replay
from tests.support.rides import RIDES, Case

SOON = Near("there_at", "back_at", after=minutes(30))
SIDES = Pipeline(
    name="sides",
    log=RIDES,
    each=(
        Pack("there", {"there_at": "day", "there_cents": "cents"}, Match("cents", "<", 100)),
        Pack("back", {"back_at": "day", "back_cents": "cents"}, Match("cents", ">=", 100)),
    ),
    key="who",
    what={"there": Collect("there"), "back": Collect("back")},
    where=SOON.windows,
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=minutes(120),
)
RETURNS = Pipeline(
    name="returns",
    log=SIDES.panes,
    each=Pairs("there", "back", kind="full", near=SOON),
    key=("who", "there_cents", "back_cents"),
    what={"n": Count(), "paid": Sum("back_cents")},
    where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
DAY_AFTER = instant(datetime(2026, 1, 3, tzinfo=UTC))
PLAIN = """
WITH rides AS (SELECT * FROM rides WHERE who <> 'end'), there AS (SELECT * FROM rides WHERE cents < 100),
  back AS (SELECT * FROM rides WHERE cents >= 100)
SELECT COALESCE(t.who, b.who) AS who, t.cents AS there_cents, b.cents AS back_cents, COUNT(*) AS n, SUM(b.cents) AS paid
FROM there t FULL JOIN back b
  ON t.who = b.who AND b.day BETWEEN t.day AND t.day + INTERVAL 30 MINUTES
GROUP BY ALL
"""


@pytest.mark.slow
def test_L1_a_streamed_join_is_the_join_of_plain_sql_and_a_backfill_changes_nothing(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    case.land(("ann", 1, "08:05"), ("bob", 101, "08:20"))
    case.land(("ann", 102, "08:25"), ("ann", 103, "08:50"), ("zoe", 4, "09:00"))
    case.land(("bob", 2, "08:10"), ("ann", 3, "08:20"), ("zoe", 104, "09:45"))
    case.land(("cat", 5, "10:30"), ("cat", 105, "10:30"), ("ann", 106, "08:05"))
    case.land(("end", 6, "05T00:00"))
    case.drain(RETURNS)
    expected = {tuple(row) for row in plain.sql(PLAIN).collect()}
    answered = "SELECT who, there_cents, back_cents, n, paid FROM returns WHERE who <> 'end'"
    found = [tuple(row) for row in plain.sql(answered).collect()]
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert {("ann", 1, 102, 1, 102), ("zoe", 4, None, 1, None), ("zoe", None, 104, 1, 104)} < expected
    retractions = plain.sql("SELECT COUNT(*) FROM returns__ledger WHERE kind = 'pane' AND retraction").first()
    assert retractions is not None
    assert retractions[0] > 0
    for stage in RETURNS.stages:
        checked = audit(case.lake, stage)
        assert checked.ok, checked.checks
        assert replay(case.lake, stage).ok
        [done] = backfill(case.lake, stage, BEGINNING, DAY_AFTER)
        assert (done.changed, done.retracted) == (0, 0)
        assert done.untouched > 0
    assert {tuple(row) for row in plain.sql(answered).collect()} == expected
