"""The definitions in `pipelines/`, each beside plain SQL over its log: what a good engineer would write by hand.

The SQL is one text for Spark and DuckDB. `records` stands for the log, each record once, with `at` as `happened`: the
former is a word of DuckDB's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tailrace import Log, Pipeline
from tailrace.generate.delivery import HOUR, Delivery
from tailrace.generate.logs import LOGS
from tailrace.model.time import instant, moment
from tailrace.plan.loading import load

ROOT = Path(__file__).parents[2]
FIRST = instant(datetime(2026, 1, 1, tzinfo=UTC))
DAY = 24 * HOUR

Answers = dict[tuple[Any, ...], tuple[Any, ...]]
"""The results by key and window start."""


@dataclass(frozen=True)
class Application:
    """A definition, `generated`, which log it reads is made up by, and its answers by hand."""

    name: str
    generated: str
    by_hand: str

    @property
    def file(self) -> str:
        return str(ROOT / "pipelines" / f"{self.name}.py")

    @property
    def pipeline(self) -> Pipeline:
        return load(self.file)

    @property
    def columns(self) -> str:
        pipeline = self.pipeline
        return ", ".join([*pipeline.key, "window_start", *pipeline.what])

    def by_place(self, rows: Iterable[Iterable[Any]]) -> Answers:
        """Rows of `columns`, by key and window start."""
        at = len(self.pipeline.key) + 1
        return {row[:at]: row[at:] for row in map(tuple, rows)}


_CASES = (
    # A sitting ends where a viewer sees no ad of the advertiser for ten minutes.
    Application("ads", "ads", """
        WITH begun AS (
            SELECT *, COALESCE(happened >= LAG(happened) OVER one + INTERVAL 10 MINUTES, TRUE) AS begins
            FROM records WINDOW one AS (PARTITION BY advertiser, viewer ORDER BY happened)
        ), numbered AS (
            SELECT *, COUNT_IF(begins) OVER (PARTITION BY advertiser, viewer ORDER BY happened) AS sitting FROM begun
        ), sittings AS (
            SELECT advertiser, MIN(happened) AS happened, COUNT(*) AS views, SUM(watched) AS watched,
                   SUM(watched * rate) AS cost
            FROM numbered GROUP BY advertiser, viewer, sitting
        )
        SELECT advertiser, DATE_TRUNC('day', happened) AS window_start, COUNT(*) AS sittings, SUM(views) AS views,
               SUM(watched) AS watched, SUM(LEAST(cost, 0.02)) AS owed
        FROM sittings GROUP BY advertiser, DATE_TRUNC('day', happened)"""),
    Application("ad_popularity", "ads", """
        WITH hourly AS (
            SELECT ad, DATE_TRUNC('hour', happened) AS hour, COUNT(*) AS views, COUNT_IF(watched >= length) AS whole
            FROM records GROUP BY ad, DATE_TRUNC('hour', happened)
        )
        SELECT ad, DATE_TRUNC('day', hour) AS window_start, COUNT(*) AS hours, SUM(views) AS views, SUM(whole) AS whole
        FROM hourly WHERE views >= 20 AND whole * 5 < views GROUP BY ad, DATE_TRUNC('day', hour)"""),
    Application("ad_abuse", "ads", """
        WITH by_minute AS (
            SELECT viewer, DATE_TRUNC('minute', happened) AS minute, COUNT(*) AS views
            FROM records GROUP BY viewer, DATE_TRUNC('minute', happened)
        )
        SELECT viewer, DATE_TRUNC('day', minute) AS window_start, COUNT(*) AS minutes, SUM(views) AS views,
               MAX(views) AS most
        FROM by_minute WHERE views >= 12 GROUP BY viewer, DATE_TRUNC('day', minute)"""),
    # A sitting is of the day in which half an hour without a view has gone by, the last microsecond of it.
    Application("recommendations", "ads", """
        WITH begun AS (
            SELECT *, COALESCE(happened >= LAG(happened) OVER one + INTERVAL 30 MINUTES, TRUE) AS begins
            FROM records WINDOW one AS (PARTITION BY viewer ORDER BY happened)
        ), numbered AS (
            SELECT *, COUNT_IF(begins) OVER (PARTITION BY viewer ORDER BY happened) AS sitting FROM begun
        ), ended AS (
            SELECT viewer, sitting, MAX(happened) + INTERVAL 30 MINUTES - INTERVAL 1 MICROSECOND AS happened
            FROM numbered GROUP BY viewer, sitting
        ), watched AS (
            SELECT DISTINCT n.viewer, n.sitting, n.video, e.happened
            FROM numbered AS n JOIN ended AS e ON n.viewer = e.viewer AND n.sitting = e.sitting
        )
        SELECT a.video, b.video AS other, DATE_TRUNC('day', a.happened) AS window_start, COUNT(*) AS sittings
        FROM watched AS a JOIN watched AS b ON a.viewer = b.viewer AND a.sitting = b.sitting AND a.video <> b.video
        GROUP BY a.video, b.video, DATE_TRUNC('day', a.happened)"""),
    Application("video_statistics", "ads", """
        SELECT video, DATE_TRUNC('hour', happened) AS window_start, COUNT(*) AS views, AVG(watched) AS mean,
               PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY watched) AS median,
               PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY watched) AS p90
        FROM records GROUP BY video, DATE_TRUNC('hour', happened)"""),
    # What has one id belongs together until ten minutes go by without any of it, and is of the hour in which it began.
    Application("log_join", "searches", """
        WITH begun AS (
            SELECT *, COALESCE(happened >= LAG(happened) OVER one + INTERVAL 10 MINUTES, TRUE) AS begins
            FROM records WINDOW one AS (PARTITION BY query_id ORDER BY happened)
        ), numbered AS (
            SELECT *, COUNT_IF(begins) OVER (PARTITION BY query_id ORDER BY happened) AS part FROM begun
        ), parts AS (
            SELECT query_id, part, MIN(happened) AS happened FROM numbered GROUP BY query_id, part
        )
        SELECT q.term, c.ad, DATE_TRUNC('hour', p.happened) AS window_start, COUNT(*) AS clicks,
               AVG(FLOOR((UNIX_MICROS(c.happened) - UNIX_MICROS(q.happened)) / 1000000)) AS mean_after
        FROM numbered AS c JOIN parts AS p ON c.query_id = p.query_id AND c.part = p.part
        LEFT JOIN numbered AS q ON c.query_id = q.query_id AND c.part = q.part AND q.kind = 'query'
        WHERE c.kind = 'click' GROUP BY q.term, c.ad, DATE_TRUNC('hour', p.happened)"""),
)  # fmt: skip

APPLICATIONS: Mapping[str, Application] = {one.name: one for one in _CASES}


def made(generated: str, *, rate: float, length: int, seed: int = 5) -> list[Delivery]:
    """A log that is made up, and a record three days later, which takes the watermark past all others."""
    found = LOGS[generated].made(rate=rate, length=length, seed=seed, first=FIRST)
    last = FIRST + 3 * DAY
    more = {name: "last" for name in ("view_id", "event_id") if name in found[-1].record}
    return [*found, Delivery(last, {**found[-1].record, **more, "at": last, "known": last})]


def once(log: Log, generated: str, deliveries: Iterable[Delivery]) -> list[dict[str, Any]]:
    """The records that are in the log: each once, as it came first (rule X5), its instants as Python has them."""
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in deliveries:
        record = {
            name: moment(value) if name in LOGS[generated].instants else value for name, value in one.record.items()
        }
        kept.setdefault(tuple(record[name] for name in log.id_columns), record)
    return list(kept.values())
