"""What plain batch SQL answers, of the same events: DuckDB, which shares nothing with a definition or an execution.

Where the published queries leave open which of equal rows is meant (q9, q18, q19), the SQL says it as the definitions
do. A window ends before the next one begins, also in q7, whose text has a bid of that very instant in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.queries import COLUMNS, Row

KINDS: Mapping[str, Mapping[str, pa.DataType]] = {
    "person": dict.fromkeys(("name", "email_address", "credit_card", "city", "state", "extra"), pa.string())
    | {"id": pa.int64(), "date_time": pa.timestamp("us")},
    "auction": dict.fromkeys(("item_name", "description", "extra"), pa.string())
    | dict.fromkeys(("id", "initial_bid", "reserve", "seller", "category"), pa.int64())
    | dict.fromkeys(("date_time", "expires"), pa.timestamp("us")),
    "bid": dict.fromkeys(("channel", "url", "extra"), pa.string())
    | dict.fromkeys(("auction", "bidder", "price"), pa.int64())
    | {"date_time": pa.timestamp("us")},
}
"""The columns of each kind of record."""

_TEN = "time_bucket(INTERVAL 10 SECOND, date_time)"
_IN_TIME = "FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
_FINAL = f"SELECT a.id, a.category, max(b.price) AS final {_IN_TIME} GROUP BY ALL"
_COUNTED = """SELECT a.id, a.item_name, count(b.auction) AS bids, max(b.price) AS highest
    FROM auction a LEFT JOIN bid b ON a.id = b.auction GROUP BY ALL"""
_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price BETWEEN 10000 AND 999999",
    "rank3": "price >= 1000000",
}
_BIDS = ", ".join(f"count(*) FILTER ({met}) AS {rank}_bids" for rank, met in _RANKS.items())
_DISTINCT = ", ".join(
    f"count(DISTINCT {who}) FILTER ({met}) AS {rank}_{who}s"
    for who in ("bidder", "auction")
    for rank, met in _RANKS.items()
)
_EUROS = "CAST(price AS DECIMAL(20, 0)) * 0.908"
_DAY = "strftime(date_time, '%Y-%m-%d')"

SQL: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": f"SELECT auction, bidder, {_EUROS} AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001, 2019, 2087)",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM person p, auction a
        WHERE p.id = a.seller AND a.category = 10 AND p.state IN ('or', 'id', 'ca')""",
    "q4": f"SELECT category, avg(final) AS avg FROM ({_FINAL}) GROUP BY category",
    "q5": """WITH sliding AS (SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time) - INTERVAL 2 SECOND * i AS start
            FROM bid, range(5) steps(i)),
        counted AS (SELECT auction, start, count(*) AS num FROM sliding GROUP BY ALL)
        SELECT auction, num, start + INTERVAL 10 SECOND AS ends FROM counted
        QUALIFY num = max(num) OVER (PARTITION BY start)""",
    "q6": f"""WITH lowest AS (SELECT a.id, a.seller, b.price, b.date_time {_IN_TIME}
            QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price, b.date_time) = 1)
        SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY date_time, id
            ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg FROM lowest""",
    "q7": f"""SELECT auction, price, bidder, date_time, {_TEN} + INTERVAL 10 SECOND AS ends FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY {_TEN})""",
    "q8": f"""SELECT DISTINCT p.id, p.name, p.start AS starttime, p.start + INTERVAL 10 SECOND AS ends
        FROM (SELECT *, {_TEN} AS start FROM person) p JOIN (SELECT *, {_TEN} AS start FROM auction) a
        ON p.id = a.seller AND p.start = a.start""",
    "q9": f"""SELECT a.id, item_name, description, initial_bid, reserve, a.date_time, expires, seller, category,
            auction, bidder, price, b.date_time AS bid_date_time {_IN_TIME}
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.date_time, bidder) = 1""",
    "q10": f"SELECT auction, bidder, price, date_time, {_DAY} AS date, strftime(date_time, '%I:%M') AS time FROM bid",
    "q11": """WITH apart AS (SELECT *, date_time >= lag(date_time) OVER one + INTERVAL 10 SECOND AS begins
            FROM bid WINDOW one AS (PARTITION BY bidder ORDER BY date_time)),
        numbered AS (SELECT *, count(*) FILTER (begins) OVER (PARTITION BY bidder ORDER BY date_time) AS n FROM apart)
        SELECT bidder, count(*) AS bids, min(date_time) AS starttime, max(date_time) + INTERVAL 10 SECOND AS endtime,
            endtime AS ends FROM numbered GROUP BY bidder, n""",
    "q14": f"""SELECT auction, bidder, {_EUROS} AS price,
            CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(date_time) BETWEEN 7 AND 19 THEN 'otherTime' ELSE 'nightTime' END AS bidtimetype,
            date_time, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE {_EUROS} > 1000000 AND {_EUROS} < 50000000""",
    "q15": f"SELECT {_DAY} AS day, {_BIDS}, {_DISTINCT} FROM bid GROUP BY day",
    "q16": f"""SELECT channel, {_DAY} AS day, max(strftime(date_time, '%I:%m')) AS minute, {_BIDS}, {_DISTINCT}
        FROM bid GROUP BY channel, day""",
    "q17": f"""SELECT auction, {_DAY} AS day, {_BIDS}, min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price)::BIGINT AS sum_price FROM bid GROUP BY auction, day""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, extra) = 1""",
    "q19": """SELECT auction, bidder, price, channel, url, date_time, extra,
            row_number() OVER (PARTITION BY auction ORDER BY price DESC, bidder, channel, url, date_time, extra)
            AS rank_number FROM bid QUALIFY rank_number <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.date_time AS bid_date_time, b.extra AS bid_extra,
            item_name, description, initial_bid, reserve, a.date_time AS auction_date_time, expires, seller, category,
            a.extra AS auction_extra FROM bid b JOIN auction a ON auction = a.id WHERE category = 10""",
    "q21": """WITH found AS (SELECT *, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id FROM bid)
        SELECT auction, bidder, price, channel, channel_id FROM found WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3 FROM bid""",
    "q101": f"""SELECT id AS auction_id, item_name AS auction_item_name, highest AS current_highest_bid
        FROM ({_COUNTED})""",
    "q102": f"""SELECT id AS auction_id, item_name AS auction_item_name, bids AS bid_count FROM ({_COUNTED})
        WHERE bids > 0 AND bids >= (SELECT count(*) // count(DISTINCT auction) FROM bid)""",
    "q103": f"SELECT id AS auction_id, item_name AS auction_item_name FROM ({_COUNTED}) WHERE bids >= 20",
    "q104": f"SELECT id AS auction_id, item_name AS auction_item_name FROM ({_COUNTED}) WHERE bids = 0 OR bids >= 20",
    "q105": f"""SELECT id AS auction_id, item_name AS auction_item_name, bids AS bid_count FROM ({_COUNTED})
        WHERE bids > 0""",
    "q106": f"SELECT min(final) AS min_final FROM ({_FINAL})",
}
"""Each query, over tables `person`, `auction` and `bid`. Those that tell of a window as it is over say when it ends."""


class Events:
    """The tables of some records of the log, or of the Parquet files of a folder, to ask SQL of."""

    def __init__(self, records: Iterable[Mapping[str, Any]] | Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        if isinstance(records, Path):
            for kind, types in KINDS.items():
                items = ", ".join(f"{n}::TIMESTAMP AS {n}" if pa.types.is_timestamp(t) else n for n, t in types.items())
                asked = f"SELECT {items} FROM read_parquet('{records}/*.parquet') WHERE kind = '{kind}'"
                self._connection.execute(f"CREATE VIEW {kind} AS {asked}")
            return
        rows: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in KINDS}
        for record in records:
            rows[record["kind"]].append(record)
        for kind, types in KINDS.items():
            some = [{name: _naive(one.get(name)) for name in types} for one in rows[kind]]
            self._connection.register(
                f"given_{kind}", pa.Table.from_pylist(some, schema=pa.schema(list(types.items())))
            )
            self._connection.execute(f"CREATE TABLE {kind} AS FROM given_{kind}")

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def answer(self, name: str) -> list[Row]:
        """The rows of a query's answer, in no order, with the columns in the order of `COLUMNS`."""
        asked = self._connection.execute(SQL[name])
        given = [column[0] for column in asked.description or ()]
        places = [given.index(column.partition("=")[0]) for column in COLUMNS[name]]
        return [tuple(_zoned(row[place]) for place in places) for row in asked.fetchall()]

    def differing(self, name: str, file: Path, told: datetime | None) -> list[str]:
        """What is wrong with a Parquet file of a query's answer: rows that are missing or too many, a few of them.

        With `told`, of windows that end no later.
        """
        columns = [column.partition("=")[0] for column in COLUMNS[name]]
        items = ", ".join(f"{c}::TIMESTAMP AS {c}" if c.endswith("time") else c for c in columns)
        over = "" if told is None else f" WHERE ends::TIMESTAMP <= TIMESTAMP '{told.replace(tzinfo=None)}'"
        sides = {"expected": f"SELECT {items} FROM ({SQL[name]}){over}", "found": f"SELECT {items} FROM '{file}'{over}"}
        asked = {"missing": ("expected", "found"), "not expected": ("found", "expected")}
        return [
            f"{what}: {row}"
            for what, (one, other) in asked.items()
            for row in self._connection.execute(f"({sides[one]}) EXCEPT ALL ({sides[other]}) LIMIT 3").fetchall()
        ]


def differences(expected: Iterable[Row], found: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that are missing of `found`, and those that are too many; a row that is twice is there twice.

    Exact but for means, which are doubles: numbers that are no integers agree to nine digits.
    """
    left: dict[Row, list[Row]] = {}
    for row in found:
        left.setdefault(_exact(row), []).append(row)
    missing = []
    for row in expected:
        others = left.get(_exact(row), [])
        like = next((place for place, other in enumerate(others) if _alike(row, other)), None)
        if like is None:
            missing.append(row)
        else:
            others.pop(like)
    return missing, [row for others in left.values() for row in others]


def _exact(row: Row) -> Row:
    return tuple(None if isinstance(value, float | Decimal) else value for value in row)


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(
        math.isclose(x, y, rel_tol=1e-9) if isinstance(x, float | Decimal) else x == y
        for x, y in zip(a, b, strict=True)
    )


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _zoned(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
