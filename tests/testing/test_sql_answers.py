"""`same_as_sql` compares a definition's answers with a plain query over its records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from tailrace import (
    Changes,
    Col,
    Count,
    Derive,
    Fixed,
    Global,
    Join,
    Last,
    Log,
    Mean,
    Pipeline,
    Sum,
    days,
    hours,
    minutes,
)
from tailrace.testing import RejectedError, SqlDifferenceError, SqlError, records_of, same_as_sql
from tests.testing.rides import HOURLY, RIDES, ride

BY_HOUR = """
    SELECT city, time_bucket(INTERVAL 1 HOUR, "at") AS window_start, count(*) AS rides, sum(cents) AS cents
    FROM records GROUP BY ALL
"""


@settings(max_examples=15)
@given(records_of(RIDES))
def test_the_answers_are_those_of_a_query(records: list[dict[str, Any]]) -> None:
    assert len(same_as_sql(HOURLY, records, BY_HOUR)) <= len(records)


def test_other_answers_fail_with_the_rows_that_differ() -> None:
    with pytest.raises(SqlDifferenceError) as told:
        same_as_sql(HOURLY, [ride("09:10", 3), ride("10:10", 4)], BY_HOUR.replace("sum(cents)", "max(cents) * 3"))
    assert str(told.value).splitlines() == [
        "the answers of hourly_rides are not those of the query",
        "2 differing",
        "- in the query   + the answers of hourly_rides",
        "   city   window_start      rides  cents",
        "-  Paris  2026-03-01T09:00  1      9",
        "+  Paris  2026-03-01T09:00  1      3      differs in cents",
        "-  Paris  2026-03-01T10:00  1      12",
        "+  Paris  2026-03-01T10:00  1      4      differs in cents",
    ]
    with pytest.raises(SqlDifferenceError, match="1 equal, 1 missing"):
        same_as_sql(HOURLY, [ride("09:10")], "SELECT 'Paris' AS city UNION ALL SELECT 'Rome'")
    with pytest.raises(SqlDifferenceError, match="1 extra"):
        same_as_sql(HOURLY, [ride("09:10")], "SELECT city FROM records WHERE city = 'Rome'")


def test_a_repeated_record_id_counts_once() -> None:
    log = replace(RIDES, record_id=("at", "city"))
    records = [ride("09:10", 1), ride("09:20", 2), ride("09:10", 1)]
    same_as_sql(replace(HOURLY, log=log), records, BY_HOUR)
    with pytest.raises(SqlDifferenceError):
        same_as_sql(HOURLY, records, BY_HOUR.replace("FROM records", "FROM (SELECT DISTINCT * FROM records)"))


def test_doubles_are_close_and_all_other_values_equal() -> None:
    log = Log(name="weights", columns={"at": "timestamp", "x": "double", "d": "decimal(4,2)"}, event_time="at")
    total = Pipeline(
        name="total", log=log, key=(), what={"x": Sum("x"), "mean": Mean("d"), "d": Sum("d")}, where=Global()
    )
    records = [
        {"at": f"2026-03-01T09:0{n}", "x": x, "d": d} for n, (x, d) in enumerate([(0.1, 1.1), (0.2, 2), (0.3, 3)])
    ]
    same_as_sql(total, records, "SELECT 0.1::DOUBLE + 0.2::DOUBLE + 0.3::DOUBLE AS x, 6.10 AS d")
    same_as_sql(total, records, "SELECT 0.6 AS x, 6.1::DOUBLE AS d, sum(d) / count(*) AS mean FROM records")
    for off in ("SELECT 0.600000005 AS x", "SELECT 6.11 AS d", "SELECT NULL AS x", "SELECT 'NaN'::DOUBLE AS x"):
        with pytest.raises(SqlDifferenceError):
            same_as_sql(total, records, off)
    same_as_sql(total, records, "SELECT 0.6000001 AS x", close=1e-6)
    nan = [{"at": "2026-03-01T09:00", "x": float("nan"), "d": None}]
    same_as_sql(total, nan, "SELECT 'NaN'::DOUBLE AS x, NULL AS d")


def test_a_date_is_its_midnight_in_utc() -> None:
    daily = replace(HOURLY, where=Fixed(days(1)))
    same_as_sql(daily, [ride("20:10")], 'SELECT city, "at"::DATE AS window_start FROM records')


def test_each_log_of_a_join_is_a_table_with_its_name() -> None:
    taxis = replace(RIDES, name="taxis")
    both = Join(name="both", left=RIDES, right=taxis, on="city", within=minutes(15), right_columns={"taxi": "cents"})
    given = {"rides": [ride("09:10", 1), ride("11:10", 2)], "taxis": [ride("09:20", 3), ride("09:30", 4)]}
    same_as_sql(
        both,
        given,
        """
        SELECT city, rides.cents AS cents, taxis.cents AS taxi
        FROM rides JOIN taxis USING (city)
        WHERE abs(epoch(rides."at") - epoch(taxis."at")) <= 15 * 60
        """,
    )


def test_a_row_that_is_taken_back_is_not_in_the_table() -> None:
    changes = Changes(name="cities", columns={"city": "string", "n": "int", "at": "timestamp"}, event_time="at")
    total = Pipeline(name="total", log=changes, key="city", what={"n": Sum("n")}, where=Global())
    row = {"city": "Paris", "n": 3, "at": "2026-03-01T09:00"}
    gone = [row, row | {"n": 4}, row | {"_sign": -1, "at": "2026-03-01T10:00"}]
    same_as_sql(total, gone, "SELECT city, sum(n) AS n FROM records GROUP BY city")


def test_a_query_that_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(
        SqlError, match="the query gives n: expected columns of the answers of hourly_rides, city, window"
    ):
        same_as_sql(HOURLY, [], "SELECT count(*) AS n FROM records")
    with pytest.raises(SqlError, match="DuckDB cannot run the query"):
        same_as_sql(HOURLY, [], "SELECT city FROM record")
    with pytest.raises(RejectedError, match="the event time at is missing"):
        same_as_sql(HOURLY, [{"city": "Paris"}], BY_HOUR)


def test_nested_values_and_steps_are_compared() -> None:
    lists = Log(name="l", columns={"at": "timestamp", "tags": "array<struct<n:int>>"}, event_time="at")
    most = Pipeline(
        name="most", log=lists, key="n", each=Derive({"n": Col("tags").size()}), where=Fixed(hours(1)),
        what={"last": Last("tags"), "records": Count()},
    )  # fmt: skip
    tags: list[Any] = [[{"n": 1}, {"n": None}], []]
    records = [{"at": f"2026-03-01T09:0{n}", "tags": own} for n, own in enumerate(tags)]
    same_as_sql(most, records, "SELECT tags AS last, len(tags) AS n, 1 AS records FROM records")
    with pytest.raises(SqlDifferenceError, match="differs in last"):
        same_as_sql(most, records, "SELECT [{'n': 1}] AS last, len(tags) AS n FROM records")
