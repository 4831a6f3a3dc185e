"""What the common SQL means is the same on both engines, wherever the platform relies on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.model.base.conditions import Match
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.base.types import WHOLE
from tailrace.sql.epoch.holds import due_terms
from tailrace.sql.terms import Sql, sorted_list, sum_counts
from tailrace.sql.wide_numbers import beyond, decimal, narrow
from tests.support.engines.engine_runs import CONNECTION

VALUES = {
    "the remainder of a negative number": "PMOD(-7L, 3L)",
    "periods before 1970": "((-7L - PMOD(-7L, 3L)) DIV 3L)",
    "a division of longs as doubles": "CAST(7L AS double) / CAST(2L AS double)",
    "the first instant": f"UNIX_MICROS(TIMESTAMP_MICROS({BEGINNING}L))",
    "the last instant": f"UNIX_MICROS(TIMESTAMP_MICROS({END_OF_TIME}L))",
    "an instant before 1970": "UNIX_MICROS(TIMESTAMP_MICROS(-1L))",
    "a checksum": "CRC32(CAST('abc é \\\\x41' AS binary))",
    "a checksum of nothing": "CRC32(CAST(COALESCE(CAST(NULL AS string), '') AS binary))",
    "bytes of a text": "CAST(OCTET_LENGTH('é') AS bigint)",
    "texts go by their bytes": "'a' < 'B'",
    "beyond the basic plane, too": "'\uffff' < '\U0001f600'",
    "a number that is none is above all": "CAST('NaN' AS double) > 1e300D",
    "the least ignores what is missing": "LEAST(2L, CAST(NULL AS bigint))",
    "the greatest ignores what is missing": "GREATEST(CAST(NULL AS bigint), 2L)",
    "missing is missing": "CAST(NULL AS bigint) <=> CAST(NULL AS bigint)",
    "a condition that is missing": "IF(CAST(NULL AS boolean), 1L, 2L)",
    "a list in order, what is missing first": "SORT_ARRAY(ARRAY(2L, NULL, 1L))",
    "and the other way, last": "SORT_ARRAY(ARRAY(2L, NULL, 1L), false)",
    "a list of texts in order": "SORT_ARRAY(ARRAY('b', 'A', 'é', 'z'))",
    "each once": "SORT_ARRAY(ARRAY_UNION(ARRAY(1L, 2L), ARRAY(2L, 3L)))",
    "the first of a list": "SLICE(ARRAY(3L, 2L, 1L), 1, 2)",
    "more than there are": "SLICE(ARRAY(3L), 1, 2)",
    "none of an empty list": "TRY_ELEMENT_AT(SORT_ARRAY(CAST(ARRAY() AS array<bigint>)), 1)",
    "how many": "CAST(SIZE(ARRAY(1L, NULL)) AS bigint)",
    "places are counted from 0": "TRANSFORM(ARRAY(5L, 6L), (one, place) -> one + place)",
    "a half goes to the even number": "CAST(RINT(CAST('2.5' AS double)) AS bigint)",
    "and so does a negative one": "CAST(RINT(CAST('-3.5' AS double)) AS bigint)",
    "nearly a half is none": "RINT(CAST('0.49999999999999994' AS double))",
    "a large double is rounded to itself": "CAST(RINT(CAST('4611686018427387904' AS double)) AS bigint)",
    "a number that is none is above infinity": "CAST('NaN' AS double) > CAST('Infinity' AS double)",
    "a decimal is rounded as it is cast": "CAST(CAST('2.345' AS decimal(10,3)) AS decimal(10,2))",
}
for _number in (0, 1, -1, 10**18 - 1, 10**18, -(10**18), 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**38 - 1):
    _wide = decimal(_number, WHOLE)
    VALUES |= {f"{_number} as a bigint, or none": narrow(_wide), f"{_number} where it is no bigint": beyond(_wide)}
VALUES["nothing as a bigint"] = narrow(f"CAST(NULL AS {WHOLE})")
STRUCTS = (
    ("2L", "NULL", "NULL"), ("NULL", "1L", "'b'"), ("2L", "NULL", "'a'"), ("2L", "1L", "NULL"), ("NULL", "NULL", "'b'"),
    ("2L", "NULL", "NULL"), ("NULL", "1L", "'b'"),
)  # fmt: skip
"""Values of three fields, of which two are in one: what is missing, and what is there twice."""


def _row(a: str, b: str, c: str) -> str:
    inner = f"IF({b} IS NULL AND {c} IS NULL, NULL, NAMED_STRUCT('b', CAST({b} AS bigint), 'c', CAST({c} AS string)))"
    return f"NAMED_STRUCT('a', CAST({a} AS bigint), 'd', {inner})"


def _counted(*values: tuple[str, int]) -> str:
    rows = (f"NAMED_STRUCT('value', {value}, 'n', {n}L)" for value, n in values)
    return f"ARRAY({', '.join(rows)})"


_TYPE = "struct<a:bigint,d:struct<b:bigint,c:string>>"
_ROWS = [_row(*fields) for fields in STRUCTS]
VALUES |= {
    "structs go field by field, what is missing first": sorted_list(f"ARRAY({', '.join(_ROWS)})", f"array<{_TYPE}>"),
    "equal ones count together, and none of which none is left": sum_counts(
        _counted(*zip(_ROWS, (1, 2, 3, 1, -1, -1, 2), strict=True)), f"array<struct<value:{_TYPE},n:bigint>>"
    ),
    "of no values none": sum_counts("ARRAY()", "array<struct<value:bigint,n:bigint>>"),
    "each as often as it is there": Sql().spread(_counted(("1L", 2), ("3L", -1), ("4L", 1))),
    "the largest that is there": Sql().end(_counted(("1L", 2), ("3L", 1), ("4L", -1)), last=True),
    "the smallest of none": Sql().end(_counted(("1L", -1)), last=False),
}
OF_ROWS = {
    "a list of what is there": "SORT_ARRAY(COLLECT_LIST(n))",
    "a list of nothing": "COLLECT_LIST(IF(n > 9L, n, NULL))",
    "each once": "SORT_ARRAY(COLLECT_SET(n))",
    "a sum": "CAST(SUM(n) AS bigint)",
    "how many": "COUNT_IF(n > 1L)",
    "the least": "MIN(s)",
    "the greatest with what is no number": "MAX(d)",
    "whether all": "BOOL_AND(n > 0L)",
}
FAIL = {
    "a text that is no number": "CAST('x' AS bigint)",
    "a long beyond its bounds": "9223372036854775807L + 1L",
    "an int beyond its bounds": "CAST(2147483648L AS int)",
    "a decimal beyond its digits": "CAST(CAST('99.99' AS decimal(4,2)) + CAST('0.01' AS decimal(4,2)) AS decimal(4,2))",
}
ROWS = (
    "(SELECT * FROM VALUES (1L, 'b', 1e0D), (2L, 'A', CAST('NaN' AS double)), (2L, NULL, NULL), (NULL, 'é', 5e0D) "
    "AS t(n, s, d){where})"
)


def both(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    (on_spark,) = (tuple(row.asDict(recursive=True).values()) for row in spark.sql(text).collect())
    (on_duckdb,) = (tuple(row.values()) for row in CONNECTION.execute(in_duckdb(text)).to_arrow_table().to_pylist())
    return list(zip(on_spark, on_duckdb, strict=True))


def test_the_place_of_an_element_is_counted_from_0_and_nothing_else_is_moved() -> None:
    text = "SELECT TRANSFORM(list, (one, place) -> one + place + other.place) AS moved FROM rows, other"
    rows = "(SELECT [10, 20] AS list) AS rows, (SELECT 100 AS place) AS other"
    asked = in_duckdb(text).replace("rows, other", rows).replace("rows CROSS JOIN other", rows)
    assert CONNECTION.execute(asked).fetchall() == [([110, 121],)]


def test_T4_the_next_delay_to_wait_for_is_the_first_that_is_not_over_now() -> None:
    state = "(VALUES (70), (71), (85), (NULL)) AS state(waiting_since)"
    for now, due in ((99, 100), (100, 101), (114, 115), (115, None)):
        (term,) = due_terms(now, [30])
        asked = in_duckdb(f"SELECT {term} FROM rows").replace("rows", state)
        assert CONNECTION.execute(asked).fetchone() == (due,)


def test_what_a_condition_compares_a_file_can_rule_out_by_its_statistics(tmp_path: Path) -> None:
    """No row of a file whose greatest number is 99 is looked at for 100."""
    file = tmp_path / "numbers.parquet"
    CONNECTION.execute(f"COPY (SELECT NULLIF(range, 7) AS n FROM range(100)) TO '{file}'")
    for value, looked_at in ((100, 0), (50, 100)):
        condition = Match("n", "==", value).holds(Sql(), {"n": "n"}, {"n": "bigint"})
        asked = in_duckdb(f"SELECT * FROM numbers WHERE {condition}").replace("numbers", f"'{file}'")
        ((_, plan),) = CONNECTION.execute(f"EXPLAIN (ANALYZE, FORMAT json) {asked}").fetchall()
        scans = _scans(json.loads(plan))
        assert sum(scan["operator_rows_scanned"] for scan in scans) == looked_at


def _scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    within = [one for child in plan.get("children", []) for one in _scans(child)]
    return [plan, *within] if "SCAN" in plan.get("operator_type", "") else within


ZONED = """
from tailrace.engines.duckdb.database.connection import connect
from tailrace.settings import Settings
database = connect(Settings(), threads=1)
for connection in (database, database.cursor()):
    assert connection.execute("SELECT CAST(make_timestamptz(0) AS text)").fetchone() == ("1970-01-01 00:00:00+00",)
"""


def test_every_connection_to_a_database_takes_instants_for_utc_whatever_the_machine_does() -> None:
    subprocess.run([sys.executable, "-c", ZONED], env={**os.environ, "TZ": "America/New_York"}, check=True)


def test_values_come_out_alike(plain: SparkSession) -> None:
    items = ", ".join(f"{term} AS c{place}" for place, term in enumerate(VALUES.values()))
    for what, (on_spark, on_duckdb) in zip(VALUES, both(plain, f"SELECT {items}"), strict=True):
        assert on_spark == on_duckdb, what


@pytest.mark.parametrize("where", ["", " WHERE n > 9L"], ids=["some", "none"])
def test_aggregates_come_out_alike(plain: SparkSession, where: str) -> None:
    items = ", ".join(f"{term} AS c{place}" for place, term in enumerate(OF_ROWS.values()))
    found = both(plain, f"SELECT {items} FROM {ROWS.format(where=where)}")
    for what, (on_spark, on_duckdb) in zip(OF_ROWS, found, strict=True):
        assert repr(on_spark) == repr(on_duckdb), what


def test_rows_of_a_list_come_out_alike(plain: SparkSession) -> None:
    text = "SELECT SUM(a) AS a, COUNT(*) AS n FROM (SELECT INLINE(ARRAY(NAMED_STRUCT('a', 1L), NAMED_STRUCT('a', 2L))))"
    assert [one == other for one, other in both(plain, text)] == [True, True]


@pytest.mark.parametrize("term", FAIL.values(), ids=list(FAIL))
def test_what_cannot_be_fails_and_is_not_null(plain: SparkSession, term: str) -> None:
    with pytest.raises(PySparkException):
        plain.sql(f"SELECT {term}").collect()
    with pytest.raises(duckdb.Error):
        CONNECTION.execute(in_duckdb(f"SELECT {term}")).fetchall()


def test_a_sum_of_longs_beyond_their_bounds_fails(plain: SparkSession) -> None:
    text = "SELECT CAST(SUM(n) AS bigint) AS n FROM VALUES (9223372036854775807L), (1L) AS t(n)"
    with pytest.raises(PySparkException):
        plain.sql(text).collect()
    with pytest.raises(duckdb.Error):
        CONNECTION.execute(in_duckdb(text)).fetchall()
