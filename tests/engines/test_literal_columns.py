"""Columns that are one literal in all rows: set apart and put back, a query's rows are what they were."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.database.literal_columns import append_literals, split_literals
from tailrace.sql.terms import Query
from tests.support.engines.engine_runs import CONNECTION

POOLS = (
    ("'pane'", "'late'", "CAST(NULL AS string)", "CAST(t AS string)", "IF(n > 1L, 'pane', NULL)"),
    ("CAST(-7L AS bigint)", "CAST(NULL AS bigint)", "n", "n + 1L", "CAST(n AS bigint)", "COALESCE(NULL, n)"),
    ("CAST(TIMESTAMP_MICROS(-5L) AS timestamp)", "CAST(TIMESTAMP_MICROS(n) AS timestamp)"),
    ("true", "false", "n > 1L"),
)
"""Columns of one type each: literals, and what rows have of their own."""
COLUMNS = st.sampled_from(POOLS).flatmap(lambda pool: st.tuples(st.sampled_from(pool), st.sampled_from(pool)))
ROWS = "(SELECT * FROM VALUES (1L, 'a'), (2L, 'b'), (3L, NULL) AS t(n, t))"
SIDES = (("TRUE", "a"), ("FALSE", "b"))


def column(place: int, value: str) -> str:
    return f"{value} AS `column {place}`"


def fetched(text: str) -> pa.Table:
    return CONNECTION.execute(text).to_arrow_table()


@given(st.lists(COLUMNS, min_size=1), st.booleans())
def test_the_rows_are_those_of_the_query_but_for_columns_of_nulls(
    columns: Sequence[tuple[str, str]], union: bool
) -> None:
    texts = [", ".join(column(place, pair[side]) for place, pair in enumerate(columns)) for side in range(2)]
    text = Query(f"SELECT {texts[0]} FROM {ROWS} WHERE n > 1L")
    if union:
        text = Query(f"{text} UNION ALL SELECT {texts[1]} FROM {ROWS}")
    rest, apart = split_literals(text)
    literals = None if apart is None else fetched(apart)
    rows = append_literals(fetched(rest), literals)
    names = [f"column {place}" for place in range(len(columns))]
    found = [{name: row.get(name) for name in names} for row in rows.to_pylist()]
    assert sorted(map(str, found)) == sorted(map(str, fetched(in_duckdb_once(text)).to_pylist()))


def test_what_a_run_says_of_each_row_is_set_apart() -> None:
    rows = "SELECT 'pane' AS kind, CAST(2L AS bigint) AS generation, who, {} AS retraction FROM t WHERE {}"
    rest, literals = split_literals(Query(" UNION ALL ".join(rows.format(*side) for side in SIDES)))
    assert (
        rest == "SELECT who, TRUE AS retraction FROM t WHERE a UNION ALL SELECT who, FALSE AS retraction FROM t WHERE b"
    )
    assert literals == "SELECT 'pane' AS kind, CAST(CAST(2 AS BIGINT) AS BIGINT) AS generation"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT n, 1 AS a FROM t",
        "SELECT n, 1 AS a FROM t UNION SELECT n, 1 AS a FROM u",
        "SELECT n, 1 AS a FROM t GROUP BY n",
        "SELECT n, 1 AS a FROM t ORDER BY a LIMIT 3",
        "WITH u AS (SELECT 1 AS n) SELECT n, 1 AS a FROM u",
        "SELECT *, 1 AS a FROM t UNION ALL SELECT m, n, 1 AS a FROM u",
        "SELECT *, 1 AS a FROM t UNION ALL SELECT n, 1 AS a FROM u",
        "SELECT n, 1 AS a FROM t UNION ALL SELECT n, 2 AS a FROM u",
        "SELECT n, 1 FROM t",
        "SELECT 1 AS a, 2 AS b FROM t",
        "SELECT n, RAND() AS a FROM t",
    ],
)
def test_columns_that_others_depend_on_stay_where_they_are(text: str) -> None:
    assert split_literals(Query(text)) == (in_duckdb_once(Query(text)), None)
