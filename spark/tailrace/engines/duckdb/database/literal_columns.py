"""Remove from a query the columns that contain the same literal in all rows, so that they can be added afterwards.

Rows are sorted and stored without these columns. Half of the columns of a backfill's ledger rows are literal: the
columns with numbers that identify the run, and the columns that only a stream fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from tailrace.engines.duckdb.database.dialect import parse_query, write_tree
from tailrace.sql.terms import Query


class SplitQuery(NamedTuple):
    """A query without its literal columns, and a query that returns one row of the literal columns.

    `rest` and `literals` are in DuckDB's dialect. `literals` is None if the query has no literal columns.
    """

    rest: str
    literals: str | None


def split_literals(text: Query) -> SplitQuery:
    """Separate the literal columns of a query, or of a union of queries.

    If all columns are literal, the query stays as it is.

    >>> split_literals(Query("SELECT 'pane' AS kind, n FROM t UNION ALL SELECT 'pane' AS kind, -n AS n FROM t"))
    SplitQuery(rest='SELECT n FROM t UNION ALL SELECT -n AS n FROM t', literals="SELECT 'pane' AS kind")
    """
    tree = parse_query(text)
    selects = _selects(tree)
    columns = [select.expressions for select in selects]
    alike = list(map(_alike, zip(*columns, strict=True))) if _side_by_side(columns) else []
    if not any(alike) or all(alike):
        return SplitQuery(write_tree(tree), None)
    literals = exp.select(*(column.copy() for column, apart in zip(columns[0], alike, strict=True) if apart))
    for select, own in zip(selects, columns, strict=True):
        select.set("expressions", [column for column, apart in zip(own, alike, strict=True) if not apart])
    return SplitQuery(write_tree(tree), write_tree(literals))


def append_literals(rows: pa.Table, literals: pa.Table | None) -> pa.Table:
    """Add literal columns to rows. `literals` is a table of one row. A column of `literals` that is null is not
    added.
    """
    if literals is None:
        return rows
    for name in literals.column_names:
        (value,) = literals[name]
        if value.is_valid:
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _selects(tree: exp.Expr) -> list[exp.Select]:
    """List the SELECT queries that a UNION ALL query combines, or the query itself if it is a single SELECT.

    The list is empty if, in any of these queries, a row depends on other rows. This is the case if a query groups,
    sorts, limits or deduplicates rows, for example.
    """
    found, waiting = list[exp.Select](), [tree]
    while waiting:
        one = waiting.pop()
        if any(one.args.get(part) for part in _MORE):
            return []
        if isinstance(one, exp.Union):
            waiting += (one.right, one.left)
        elif isinstance(one, exp.Select):
            found.append(one)
        else:
            return []
    return found


_MORE = ("with_", "distinct", "group", "having", "qualify", "order", "limit", "offset")
"""The clauses of a SELECT query that make a row of the result depend on other rows or on another query."""


def _side_by_side(columns: Sequence[Sequence[exp.Expr]]) -> bool:
    """Return True if the columns at the same position in several queries are the same column of the combined result.

    The result is False if the queries have different numbers of columns, or if one of several queries selects an
    unnamed expression or `*`, which stands for several columns. For a single query, the result is always True.
    """
    named = all(isinstance(one, exp.Alias | exp.Column) and not one.is_star for own in columns for one in own)
    return len(columns) == 1 or (named and len({len(own) for own in columns}) == 1)


def _alike(columns: Sequence[exp.Expr]) -> bool:
    """Return True if a column is the same literal in all queries.

    `columns` contains the expression that each query has for this column.
    """
    named = all(isinstance(one, exp.Alias) and _is_literal(one) for one in columns)
    return named and len({one.this.sql() for one in columns}) == 1


def _is_literal(node: exp.Expr) -> bool:
    """Return True if a column is a literal or null, possibly with a cast or a minus sign."""
    if isinstance(node, exp.Alias | exp.Cast | exp.Neg):
        return _is_literal(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.upper() == "TIMESTAMP_MICROS" and all(map(_is_literal, node.expressions))
    return isinstance(node, exp.Literal | exp.Null | exp.Boolean)
