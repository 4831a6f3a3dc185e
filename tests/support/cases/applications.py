"""The definitions in `pipelines/`, each beside plain SQL over its logs: what a good engineer would write by hand.

The SQL is one text for Spark and DuckDB. `records` stands for the log, each record once, its event time as `happened`:
`at` is a word of DuckDB's own. Of several logs each is `records_of_` and its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

from tailrace import Log, Pipeline
from tailrace.generate import flights
from tailrace.generate.delivery import HOUR, MINUTE, Delivery, by_known_time
from tailrace.generate.made_up_logs import LOGS
from tailrace.ingest.sources import Files
from tailrace.model.base.time import instant, moment
from tailrace.plan.loader import load

ROOT = Path(__file__).parents[3]
DAY = 24 * HOUR

Answers = dict[tuple[Any, ...], tuple[Any, ...]]
"""The results by key and window start."""


def file(name: str) -> str:
    """The file of a definition."""
    return str(ROOT / "pipelines" / f"{name}.py")


@dataclass(frozen=True)
class Application:
    """A definition, which of `RECORDS` it is tried on, and its answers by hand."""

    name: str
    records: str
    by_hand: str

    @property
    def pipeline(self) -> Pipeline:
        return load(file(self.name))

    @property
    def views(self) -> Mapping[str, Log]:
        """The logs by the names that they have in the SQL."""
        logs = self.pipeline.sources
        return {"records" if len(logs) == 1 else f"records_of_{log.name}": log for log in logs}

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
    # A click without its query is of no term. A pair happened when the later of the two did.
    Application("log_join", "searches", """
        SELECT q.term, c.ad, DATE_TRUNC('hour', GREATEST(q.happened, c.happened)) AS window_start, COUNT(*) AS clicks,
               AVG(FLOOR((UNIX_MICROS(c.happened) - UNIX_MICROS(q.happened)) / 1000000)) AS mean_after
        FROM records_of_clicks AS c LEFT JOIN records_of_searches AS q ON c.query_id = q.query_id
        AND c.happened >= q.happened - INTERVAL 2 MINUTES AND c.happened <= q.happened + INTERVAL 10 MINUTES
        GROUP BY q.term, c.ad, DATE_TRUNC('hour', GREATEST(q.happened, c.happened))"""),
    Application("flights", "flights", """
        SELECT origin, DATE_TRUNC('hour', happened) AS window_start, COUNT(*) AS flights, COUNT(delay) AS departures,
               AVG(delay) AS mean_delay
        FROM records GROUP BY origin, DATE_TRUNC('hour', happened)"""),
)  # fmt: skip

APPLICATIONS: Mapping[str, Application] = {one.name: one for one in _CASES}


@dataclass(frozen=True)
class Records:
    """What the sources bring: `given` says which records of about a share of the time from `first` to `last`.

    `instants` are the columns that are instants, the event time among them.
    """

    first: int
    last: int
    instants: tuple[str, ...]
    given: Callable[[float, int], list[Delivery]]

    def made(self, share: float = 1.0, seed: int = 5) -> list[Delivery]:
        """The records in the order in which they become known, and of each log one of days later.

        The watermark of that passes all others.
        """
        found = self.given(share, seed)
        latest = {one.log: one for one in found}
        return [*found, *(self._later(one) for one in latest.values())]

    def _later(self, one: Delivery) -> Delivery:
        later: dict[str, object] = dict.fromkeys(self.instants, self.last + 3 * DAY)
        later |= {name: "last" for name in ("view_id", "query_id", "click_id", "flight_id") if name in one.record}
        return Delivery(self.last + 3 * DAY, {**one.record, **later}, one.log)


def _generated(log: str, rate: float, length: int) -> Records:
    first = instant(datetime(2026, 1, 1, tzinfo=UTC))

    def given(share: float, seed: int) -> list[Delivery]:
        return LOGS[log].generate(rate=rate, length=int(length * share), seed=seed, first=first)

    return Records(first, first + DAY, tuple(LOGS[log].instants), given)


def _flights() -> Records:
    """Real flights, on the day before the storm of 8 March 2013 and on that day."""
    first, last = date(2013, 3, 7), date(2013, 3, 9)

    def given(share: float, seed: int) -> list[Delivery]:
        found = flights.load(first, last).to_dict("records")
        records = [{str(name): value for name, value in one.items()} for one in found]
        chosen = Random(seed).sample(records, int(len(records) * share))
        for one in chosen:
            one |= {name: instant(one[name].to_pydatetime()) for name in ("scheduled", "known")}
            one["delay"] = one["delay"] if isinstance(one["delay"], int) else None
        return by_known_time(Delivery(one["known"], one) for one in chosen)

    begin, end = (instant(datetime(day.year, day.month, day.day, tzinfo=UTC)) for day in (first, last))
    return Records(begin, end, ("scheduled", "known"), given)


RECORDS: Mapping[str, Records] = {
    "ads": _generated("ads", 0.3, 9 * HOUR),
    "searches": _generated("searches", 0.3, 9 * HOUR),
    "queries": _generated("queries", 20, 4 * MINUTE),
    "flights": _flights(),
}


def once(log: Log, deliveries: Iterable[Delivery]) -> list[dict[str, Any]]:
    """The records that are in a log: each once, as it came first (rule X5), its instants as Python has them."""
    instants = [name for name, type in log.columns.items() if type == "timestamp"]
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place, one in enumerate(deliveries):
        if one.log in (None, log.name):
            record = {name: moment(value) if name in instants else value for name, value in one.record.items()}
            kept.setdefault(tuple(record[name] for name in log.id_columns) or (place,), record)
    return list(kept.values())


def stretch(made: Sequence[Delivery], files: int) -> int:
    """How long the time of a file is where so many have what there is before the last instant, in microseconds."""
    known = [one.known for one in made if one.known < made[-1].known]
    return max(1, (known[-1] - known[0]) // files)


def sources(logs: Sequence[Log], folder: Path, per_epoch: int | None = None) -> Mapping[str, Files]:
    """The folder of a log, or the folders of several inside of it, as the sources of a stream."""
    folders = {log.name: folder if len(logs) == 1 else folder / log.name for log in logs}
    return {name: Files(str(one), "json", per_epoch) for name, one in folders.items()}
