"""Compare rows in SQL: count the rows of two queries, or put computed rows next to rows that are already in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.sql.query_shapes import equal_in, side_by_side
from tailrace.sql.terms import Condition, Query, bracketed, quoted


def counted_rows(ours: Query, theirs: Query, columns: Iterable[str]) -> Query:
    """Return the query for the distinct rows of two queries.

    `_ours` and `_theirs` count how often each query has the row. Only the given columns are compared. Two nulls count
    as equal.
    """
    by = ", ".join(columns)
    sides = ((ours, "1L AS _ours, 0L AS _theirs"), (theirs, "0L AS _ours, 1L AS _theirs"))
    both = " UNION ALL ".join(f"SELECT {by}, {once} FROM ({rows})" for rows, once in sides)
    sums = ", ".join(f"CAST(SUM({name}) AS bigint) AS {name}" for name in ("_ours", "_theirs"))
    return Query(f"SELECT {by}, {sums} FROM ({both}) GROUP BY {by}")


@dataclass(frozen=True)
class ComparedRows:
    """Defines which columns identify a row, and which columns may differ between a computed row and a held row.

    Computed rows are the result of a query. Held rows are the rows that a table already has.

    The columns in `identity` identify a row; their names are quoted if SQL requires quotes. The columns in `filled` are
    never null. `values` maps the columns that may differ to their types. All rows with the same identity have the same
    values in the `common` columns. Only computed rows have the `carried` columns.

    With `several`, several rows may have the same identity. Rows with the same identity are compared in the order of
    their values. If one of these rows differs, all rows with this identity count as changed. With `by_all`, a row is
    identified by all its values, and several rows may be equal. Each row that differs is then either new or gone, and
    no row counts as changed.
    """

    identity: tuple[str, ...]
    values: Mapping[str, str]
    filled: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    several: bool = False
    by_all: bool = False

    def each_once(self, held: Query) -> Query:
        """Return the query for one held row per identity; `_times` is the number of held rows of the identity.

        A table should have one row per identity. If other writers wrote several rows with one identity, the query
        returns any one of these rows.
        """
        by = ", ".join(self.identity)
        names = ", ".join(f"ANY_VALUE({name}) AS {name}" for name in [*map(quoted, self.values), *self.common])
        return Query(f"SELECT {by}, {names}, COUNT(*) AS _times FROM ({held}) GROUP BY {by}")

    def differences(self, computed: Query, held: Query) -> Query:
        """Return the query for the full outer join of computed rows and held rows with the same identity.

        The columns are the identity, the computed values (`new_*`), the held values (`old_*`), and `change`. `change`
        is `same`, `changed`, `new` (only computed) or `gone` (only held). If an identity has at most one computed row,
        but more than one held row, the row counts as changed. The names of the carried columns begin with `part_`.
        """
        values = [quoted(name) for name in self.values]
        known = [*self.identity, *(values if self.by_all else ())]
        numbered = self.several or self.by_all
        if numbered:
            number = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(known)} ORDER BY {', '.join(values)}) AS _number"
            computed, held = (Query(f"SELECT *, {number} FROM ({rows})") for rows in (computed, held))
            same, filled = [equal_in("c", "h", values)], ["_number", *self.filled]
        else:
            same, filled = [equal_in("c", "h", values), Condition("h._times = 1")], [*self.filled]
            held = self.each_once(held)
        on = equal_in("c", "h", [name for name in known if name not in filled], filled)
        items = [f"COALESCE(c.{name}, h.{name}) AS {name}" for name in (*self.identity, *self.common)]
        items += [
            f"{side}.{quoted(name)} AS {quoted(f'{which}_{name}')}"
            for side, which in (("c", "new"), ("h", "old"))
            for name in self.values
        ]
        items += [f"c.{quoted(name)} AS {quoted(f'part_{name}')}" for name in self.carried]
        change = "CASE WHEN h._there IS NULL THEN 'new' WHEN c._there IS NULL THEN 'gone'"
        change += f" WHEN {' AND '.join(filter(None, same)) or 'true'} THEN 'same' ELSE 'changed' END AS change"
        both = side_by_side(("c", bracketed(computed)), ("h", bracketed(held)), on)
        text = Query(f"SELECT {', '.join([*items, change])} FROM {both}")
        return self._as_a_whole(text) if self.several and not self.by_all else text

    def new(self, computed: Query) -> Query:
        """Return a simpler query than `differences`, for the case that there are no held rows: all computed rows are
        new.
        """
        items = [*self.identity, *self.common]
        items += [f"{quoted(name)} AS {quoted(f'new_{name}')}" for name in self.values]
        items += [f"CAST(NULL AS {type}) AS {quoted(f'old_{name}')}" for name, type in self.values.items()]
        items += [f"{quoted(name)} AS {quoted(f'part_{name}')}" for name in self.carried]
        return Query(f"SELECT {', '.join(items)}, 'new' AS change FROM ({computed})")

    def _as_a_whole(self, differences: Query) -> Query:
        """Return the query that marks all rows of an identity as changed if one of these rows differs."""
        by = ", ".join(self.identity)
        alike = f"MIN(IF(change = 'same', 1, 0)) OVER (PARTITION BY {by}) = 1 AS alike"
        chosen = "IF(change = 'same' AND NOT alike, 'changed', change) AS change"
        return Query(f"SELECT * EXCEPT (change, alike), {chosen} FROM (SELECT *, {alike} FROM ({differences}))")
