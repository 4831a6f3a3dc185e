"""Write SQL parts that many queries share: first rows of groups, select lists, comparisons, and overlapping windows.

The names of columns are passed to these functions as they are written in SQL: quoted if necessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tailrace.lake.schema.column_groups import VERSION
from tailrace.sql.terms import Condition, Query, Relation, quoted

NEWEST = tuple(f"{name} DESC" for name in VERSION)
"""The order of panes by version, from the highest version to the lowest (rule V1)."""


def first_of(rows: Relation, by: Sequence[str], order: Iterable[str]) -> Query:
    """Return the query for the first row of each group, in the order `order`; the columns `by` define the groups.

    >>> first_of("p", [], ["n"]).removeprefix("SELECT * EXCEPT (_place) FROM ")
    '(SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS _place FROM p) WHERE _place = 1'
    """
    groups = f"PARTITION BY {', '.join(by)} " if by else ""
    place = f"ROW_NUMBER() OVER ({groups}ORDER BY {', '.join(order)}) AS _place"
    return Query(f"SELECT * EXCEPT (_place) FROM (SELECT *, {place} FROM {rows}) WHERE _place = 1")


def islands(
    rows: Relation, by: Sequence[str], order: Iterable[str], *, alike: bool = False, alone: str | None = None
) -> Query:
    """Return the query that adds the column `island`: the number of a window's island within its group (`by`).

    An island is a set of windows that overlap, directly or through other windows of the set (rule M2). `order` begins
    with the windows' starts. If `alike` is True, all windows have the same length. The previous window then has the
    latest end so far, and reading this end is faster than computing the maximum of all earlier ends. A window that
    meets the condition `alone` starts an island.

    >>> islands("s", ["team"], ["at"], alike=True).split(" FROM ")[1]
    '(SELECT *, IF(window_start >= LAG(window_end) OVER (PARTITION BY team ORDER BY at), 1L, 0L) AS apart'
    """
    groups = f"PARTITION BY {', '.join(by)} " if by else ""
    over = f"{groups}ORDER BY {', '.join(order)}"
    before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    ended = f"LAG(window_end) OVER ({over})" if alike else f"MAX(window_end) OVER ({over} {before})"
    apart = f"{f'({alone}) OR ' if alone else ''}window_start >= {ended}"
    spaced = f"SELECT *, IF({apart}, 1L, 0L) AS apart FROM {rows}"
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return Query(f"SELECT *, SUM(apart) OVER ({over} {frame}) AS island FROM ({spaced})")


def select_list(types: Mapping[str, str], values: Mapping[str, str]) -> str:
    """Return the select list for a table's columns. The SQL expressions in `values` are cast to the columns' types.

    >>> select_list({"kind": "string", "epoch": "bigint"}, {"kind": "'pane'"})
    "CAST('pane' AS string) AS `kind`, CAST(NULL AS bigint) AS `epoch`"

    A column without an SQL expression in `values` is null.
    """
    return ", ".join(f"CAST({values.get(name, 'NULL')} AS {type}) AS {quoted(name)}" for name, type in types.items())


def named_struct(terms: Mapping[str, str]) -> str:
    """Return the SQL expression for a struct.

    >>> named_struct({"n": "COUNT(*)"})
    "NAMED_STRUCT('n', COUNT(*))"

    `terms` maps the name of each field to the field's SQL expression.
    """
    return f"NAMED_STRUCT({', '.join(f'{name!r}, {term}' for name, term in terms.items())})"


def instants(*names: str, of: str = "") -> dict[str, str]:
    """Map columns in microseconds to the SQL expressions that convert the columns to timestamps.

    In an expression, `of` is put before the column's name.

    >>> instants("window_end", of="p.")
    {'window_end': 'TIMESTAMP_MICROS(p.window_end)'}
    """
    return {name: f"TIMESTAMP_MICROS({of}{name})" for name in names}


def equal_in(left: str, right: str, names: Iterable[str], never_null: Iterable[str] = ()) -> Condition:
    """Return the condition that a row of `left` and a row of `right` are equal in the given columns.

    Two nulls count as equal in the columns `names`. The columns `never_null` are compared with `=`, which lets an
    engine use a hash join.

    >>> equal_in("s", "p", ["team"], ["window_start"])
    's.team <=> p.team AND s.window_start = p.window_start'
    """
    nullable = [f"{left}.{name} <=> {right}.{name}" for name in names]
    return Condition(" AND ".join([*nullable, *(f"{left}.{name} = {right}.{name}" for name in never_null)]))


def side_by_side(left: tuple[str, Relation], right: tuple[str, Relation], on: Condition) -> Relation:
    """Return the full outer join of two named relations.

    >>> side_by_side(("a", "new"), ("b", "old"), "a.id = b.id")
    '(SELECT *, true AS _there FROM new) a FULL OUTER JOIN (SELECT *, true AS _there FROM old) b ON a.id = b.id'

    The column `_there` of a relation is null in rows of the join for which the relation has no row.
    """
    sides = (f"(SELECT *, true AS _there FROM {rows}) {name}" for name, rows in (left, right))
    return Relation(f"{' FULL OUTER JOIN '.join(sides)} ON {on}")
