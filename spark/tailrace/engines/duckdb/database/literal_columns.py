"""Separate the columns of a query that have one literal in all rows, so that rows are sorted and kept without them.

Half of the columns of a backfill's ledger rows are such: the numbers of the run, and columns that only a stream fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from tailrace.engines.duckdb.database.dialect import parse_query, write_tree
from tailrace.sql.terms import Query


class SplitQuery(NamedTuple):
    """A query without its literal columns, and a query of a row of these, None without any.

    Both in DuckDB's dialect.
    """

    rest: str
    literals: str | None


def split_literals(text: Query) -> SplitQuery:
    """Separate the literal columns of a query, or of a union of queries; at least one column stays.

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
    """Add literal columns, given as a row, to rows; null columns are left out."""
    if literals is None:
        return rows
    for name in literals.column_names:
        (value,) = literals[name]
        if value.is_valid:
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _selects(tree: exp.Expr) -> list[exp.Select]:
    """List the queries of which a query is the union, with repeated rows.

    None where a query's rows depend on each other. The columns of each query must depend on one row alone: it must not
    group rows or drop repeated ones.
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
"""The parts of a query by which its rows depend on each other, or on another query."""


def _side_by_side(columns: Sequence[Sequence[exp.Expr]]) -> bool:
    """Tell whether the columns of the queries correspond by place; a `*` stands for several columns."""
    named = all(isinstance(one, exp.Alias | exp.Column) and not one.is_star for own in columns for one in own)
    return len(columns) == 1 or (named and len({len(own) for own in columns}) == 1)


def _alike(columns: Sequence[exp.Expr]) -> bool:
    """Tell whether a column is the same literal in all queries."""
    named = all(isinstance(one, exp.Alias) and _is_literal(one) for one in columns)
    return named and len({one.this.sql() for one in columns}) == 1


def _is_literal(node: exp.Expr) -> bool:
    """Tell whether a column is a literal or a null, perhaps with a cast."""
    if isinstance(node, exp.Alias | exp.Cast | exp.Neg):
        return _is_literal(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.upper() == "TIMESTAMP_MICROS" and all(map(_is_literal, node.expressions))
    return isinstance(node, exp.Literal | exp.Null | exp.Boolean)
