"""Translate the common SQL, which is Spark's dialect, to DuckDB's dialect.

The table below lists every difference in meaning. sqlglot translates the syntax, but it does not handle the differences
in meaning between the two dialects:

| in Spark, with ANSI on | in DuckDB as sqlglot writes it | what this module writes |
|---|---|---|
| `CAST` fails if a value does not fit | `TRY_CAST` returns null | `CAST` |
| `TRY_CAST` occurs only for decimals to longs | the same, but slow | a cast by way of 18 digits (`_narrowed`) |
| a string cast to binary is its UTF-8 bytes | escapes are interpreted, non-ASCII letters fail | `encode` |
| `TRY_ADD`, `TRY_SUBTRACT`, `TRY_MULTIPLY` | `SAFE_ADD`, …, which DuckDB lacks | `TRY(a + b)` |
| the type of a decimal sum or product has enough digits | not if more than 18 are needed | one operand with 38 digits |
| `COLLECT_LIST` of no values is an empty list | null | `COALESCE(…, [])` |
| `COUNT_IF` of no rows is 0 | null | `COUNT(*) FILTER (…)` |
| `INLINE` returns a row for each struct | no such function | `UNNEST(…, max_depth := 2)` |
| a lambda's second parameter counts from 0 | it counts from 1 | the parameter minus 1 |
| `AGGREGATE` sums a list | a lambda's second parameter is a position | `list_sum` |
| nested values compare nulls as the lowest | nulls are the highest inside nested values | sort keys (`ordering`) |
| instants are accepted as local times | local times have a type of their own | macros with `AT TIME ZONE` |
| `SUM` of longs is a long: their halves are summed (`sql.terms.whole_total`) | `SUM` has 128 bits | one `SUM` |
| `CAST` truncates a double to a bigint, so queries call `RINT` | it rounds half to even | `CAST` without `RINT` |
| `PMOD`, `RINT`, `TIMESTAMP_MICROS`, `CRC32`, … | no such functions | macros, a function (`connection`) |
| a look into a JSON text is a function in Python | the same function, slow | macros, for most texts (`json_looks`) |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from tailrace.engines.duckdb.database.json_looks import look
from tailrace.engines.duckdb.database.ordering import extreme, outer, sort_list
from tailrace.model.base.types import MAX_PRECISION, decimal_parts
from tailrace.sql.terms import INSIDE, Query

NARROW = 18
"""The maximum number of digits with which DuckDB computes decimals in 64 bits. If the result of an operation on two
such decimals needs more digits, DuckDB raises an error.
"""


@lru_cache(maxsize=4096)
def in_duckdb(text: Query) -> str:
    """Translate a query from the common SQL into DuckDB's dialect.

    >>> in_duckdb(Query("SELECT CAST(a AS int) + 1L AS `b` FROM t"))
    'SELECT CAST(a AS INT) + CAST(1 AS BIGINT) AS "b" FROM t'
    """
    return write_tree(parse_query(text))


def parse_query(text: Query) -> exp.Expr:
    """Parse a query in the common SQL."""
    return sqlglot.parse_one(_FIELD.sub(_quoted_field, text), read="spark")


_FIELD = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|([<,])([a-z][a-z0-9_]*):(?=[a-z])")
"""A pattern for the field names in a struct type.

Spark accepts such a name unquoted even if it is an SQL keyword. The pattern also matches literals and quoted names,
which stay unchanged.
"""


def _quoted_field(found: re.Match[str]) -> str:
    return found[0] if found[2] is None else f"{found[1]}`{found[2]}`:"


def write_tree(tree: exp.Expr) -> str:
    """Return a parsed query as SQL text in DuckDB's dialect. The query's syntax tree is modified."""
    # Inner nodes are replaced first, because a rule may move a node's inner nodes into a new node.
    for node in reversed([node for node in tree.walk() if type(node) in _RULES]):
        node.replace(_RULES[type(node)](node))
    return str(tree.sql(dialect="duckdb", copy=False))


def in_duckdb_once(text: Query) -> str:
    """Translate a query that runs only once, without caching the translation.

    An example is a query that contains the number of an epoch.
    """
    return in_duckdb.__wrapped__(text)


def literal_row(values: Mapping[str, int | bool]) -> str:
    """Return a SELECT of one row of numbers and booleans, such as a clock's values, in DuckDB's dialect.

    >>> literal_row({"now": 5, "came": True})
    'SELECT 5::BIGINT AS now, true AS came'
    """
    terms = (str(value).lower() if isinstance(value, bool) else f"{value}::BIGINT" for value in values.values())
    return "SELECT " + ", ".join(f"{term} AS {name}" for term, name in zip(terms, values, strict=True))


def _cast(node: exp.Expression) -> exp.Expression:
    to = node.args["to"]
    if to.is_type(exp.DataType.Type.BINARY, exp.DataType.Type.VARBINARY) and _is_text(node.this):
        return exp.Anonymous(this="encode", expressions=[node.this])
    if isinstance(node.this, exp.Anonymous) and node.this.name.upper() == "RINT":
        # DuckDB's cast from a double to a bigint rounds as RINT does.
        return exp.Cast(this=node.this.expressions[0], to=to)
    # The parser turns each CAST of Spark's dialect into a TryCast node, too. Only a node that was written as TRY_CAST
    # is marked as safe.
    return _narrowed(node.this, to) if node.args.get("safe") else exp.Cast(this=_roomy(node.this, to), to=to)


def _is_text(value: exp.Expression) -> bool:
    """Return True if an expression is a string literal, or has a string literal in place of a null.

    The common SQL casts only such strings to binary; what it casts else is binary already.
    """
    last = value.expressions[-1] if isinstance(value, exp.Coalesce) and value.expressions else value
    return isinstance(last, exp.Literal) and last.is_string


def _narrowed(wide: exp.Expression, to: exp.DataType) -> exp.Expression:
    """Return DuckDB's expression that converts a decimal to a 64-bit number, or to null if the decimal does not fit.

    A cast by way of 18 digits takes a sixth of the time of a direct cast from 38 digits.
    """
    few = exp.TryCast(this=wide.copy(), to=exp.DataType.build("decimal(18,0)"))
    return exp.Coalesce(this=exp.Cast(this=few, to=to), expressions=[exp.TryCast(this=wide, to=to)])


def _roomy(computed: exp.Expression, to: exp.DataType) -> exp.Expression:
    """Cast one operand of a decimal operation to 38 digits if DuckDB's result type would have too few digits."""
    inside, digits = computed.unnest(), decimal_parts(to.sql().lower())
    if digits is None or digits[0] <= NARROW or not isinstance(inside, exp.Add | exp.Sub | exp.Mul):
        return computed
    own = decimal_parts(inside.left.args["to"].sql().lower()) if isinstance(inside.left, exp.Cast) else None
    if own is not None:
        inside.left.set("to", exp.DataType.build(f"decimal({MAX_PRECISION},{own[1]})"))
    return computed


def _tried(kind: type[exp.Binary]) -> Callable[[exp.Expression], exp.Expression]:
    """Return the rule for an arithmetic operation that yields null if the exact result does not fit the result type."""

    def written(node: exp.Expression) -> exp.Expression:
        made = kind(this=exp.paren(node.this, copy=False), expression=exp.paren(node.expression, copy=False))
        return exp.Anonymous(this="try", expressions=[made])

    return written


def _collected(node: exp.Expression) -> exp.Expression:
    """Return DuckDB's expression that collects all values except nulls into a list. The list may be empty."""
    values = [node.this.copy()]
    if isinstance(node, exp.ArrayUniqueAgg):
        values = [exp.Distinct(expressions=values)]
    there = exp.Where(this=exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null())))
    found = exp.Filter(this=exp.Anonymous(this="list", expressions=values), expression=there)
    return exp.Coalesce(this=found, expressions=[exp.Array()])


def _count_if(node: exp.Expression) -> exp.Expression:
    return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=node.this))


def _lambda(node: exp.Expression) -> exp.Expression:
    """Rewrite a lambda whose second parameter is an element's position.

    Positions count from 0 in Spark, and from 1 in DuckDB.
    """
    if len(node.expressions) < 2:
        return node
    place = node.expressions[1].name
    for column in list(node.this.find_all(exp.Column)):
        if column.name == place and not column.table:
            column.replace(exp.Paren(this=exp.Sub(this=column.copy(), expression=exp.Literal.number(1))))
    for name in list(node.this.find_all(exp.Identifier)):
        if name.name == place and not isinstance(name.parent, exp.Column | exp.Dot):
            name.replace(exp.Paren(this=exp.Sub(this=name.copy(), expression=exp.Literal.number(1))))
    return node


def _local(name: str) -> Callable[[exp.Expression], exp.Expression]:
    """Return the rule that calls the macro `name` on an instant and a time zone.

    sqlglot's own translation is correct only in UTC.
    """

    def written(node: exp.Expression) -> exp.Expression:
        at = node.this.this if isinstance(node.this, exp.Cast | exp.TryCast) else node.this
        return exp.Anonymous(this=name, expressions=[at, node.args["zone"]])

    return written


def _anonymous(node: exp.Anonymous) -> exp.Expression:
    if str(node.this).upper() == "OCTET_LENGTH":
        return exp.Anonymous(this="strlen", expressions=node.expressions)
    if node.this == INSIDE:
        return look(node)
    return node


def _inline(node: exp.Expression) -> exp.Expression:
    deep = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
    return exp.Anonymous(this="unnest", expressions=[node.this, deep])


def _sorted(node: exp.Expression) -> exp.Expr:
    """Return DuckDB's expression that sorts a list. Nulls sort as the lowest values, as in Spark."""
    down = isinstance(node.args.get("asc"), exp.Boolean) and not node.args["asc"].this
    return sort_list(node.this, down=down)


def _added_up(node: exp.Expression) -> exp.Expression:
    """Return DuckDB's expression for the sum of a list. Queries in the common SQL use `AGGREGATE` only to compute
    sums.
    """
    summed = exp.Anonymous(this="list_sum", expressions=[node.this])
    return exp.Cast(this=summed, to=exp.DataType.build("bigint"))


def _summed(node: exp.Expression) -> exp.Expression:
    """Return DuckDB's expression for a sum of integers.

    The common SQL computes such a sum as two sums: one of the integers' upper halves and one of their lower halves. In
    DuckDB, one sum is enough.
    """
    lower = node.expression
    if isinstance(lower, exp.Sum) and isinstance(lower.this, exp.BitwiseAnd):
        return exp.Sum(this=lower.this.this)
    return node


_RULES: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    exp.TryCast: _cast,
    exp.SafeAdd: _tried(exp.Add),
    exp.SafeSubtract: _tried(exp.Sub),
    exp.SafeMultiply: _tried(exp.Mul),
    exp.ArrayAgg: _collected,
    exp.ArrayUniqueAgg: _collected,
    exp.CountIf: _count_if,
    exp.Lambda: _lambda,
    exp.Anonymous: _anonymous,
    exp.Inline: _inline,
    exp.ArraySort: _sorted,
    exp.Min: extreme("arg_min"),
    exp.Max: extreme("arg_max"),
    exp.Least: outer("<"),
    exp.Greatest: outer(">"),
    exp.Add: _summed,
    exp.Reduce: _added_up,
    exp.AtTimeZone: _local("from_utc"),
    exp.FromTimeZone: _local("to_utc"),
}


def column_type(type: str) -> str:
    """Return DuckDB's name of a column type that is given in Spark's dialect.

    >>> column_type("array<struct<at:timestamp,n:decimal(8,2)>>")
    'STRUCT("at" TIMESTAMPTZ, "n" DECIMAL(8, 2))[]'
    """
    return exp.DataType.build(_FIELD.sub(_quoted_field, type), dialect="spark").sql("duckdb")


def table_columns(types: Mapping[str, str]) -> str:
    """Return a table's column definitions in DuckDB's dialect, from column names and types in Spark's dialect."""
    return ", ".join(f"{name_of(name)} {column_type(type)}" for name, type in types.items())


def name_of(column: str) -> str:
    """Quote a column name as a DuckDB identifier.

    >>> name_of('a"b')
    '"a""b"'
    """
    return '"' + column.replace('"', '""') + '"'
