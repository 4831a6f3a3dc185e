"""The pairs of a join in SQL: those that stand by now, and how they differ from those that the logs give (rule V4).

A pair is known by its records' places, and by its window where the join has those. Of a join that takes back, a row is
known by all that it says: what stands is what was given less what was taken back, each row as often as that is so.
"""

from __future__ import annotations

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import JOIN_WINDOW, SIDES
from tailrace.model.logs.log import PANE_TIME, SIGN
from tailrace.sql.epoch.join_rows import row_types
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.stage_records import pair_place
from tailrace.sql.results.backfill_rows import BackfillVersion, production_rows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, quoted


def identity(join: Join) -> list[str]:
    """Name the ledger's columns by which a pair is known."""
    return [*(name for side in SIDES for name in JOIN_PLACE[side]), *(JOIN_WINDOW if join.where is not None else ())]


def output(join: Join, rows: Query, *also: str) -> Query:
    """Write the SQL of what a join gives (`join_rows.finished`), as the ledger has it: columns, event time, places.

    `also` are further columns of the rows.
    """
    places = [name for side in SIDES for name in JOIN_PLACE[side]]
    items = [*map(quoted, join.results), f"TIMESTAMP_MICROS(_at) AS {PANE_TIME}", *places, *also]
    return Query(f"SELECT {', '.join(items)} FROM ({rows})")


def current(join: Join, ledger: Relation, within: Condition = ALWAYS, until: int | None = None) -> Query:
    """Write the SQL of a ledger's pairs that stand: of each the row of the highest version, if it is no retraction.

    `within` is a condition on the event time, `until` the last epoch that counts. Of a join that takes back, column
    `epoch` says nothing.
    """
    columns = _columns(join)
    rows = f"SELECT * FROM {ledger} WHERE kind = '{PRODUCTION}' AND {within}"
    rows += "" if until is None else f" AND epoch <= {until}L"
    if join.takes_back:
        given, taken = (f"SELECT {columns} FROM ({rows}) WHERE {which}" for which in ("NOT retraction", "retraction"))
        return Query(f"SELECT *, 0L AS epoch FROM ({given} EXCEPT ALL {taken})")
    mended = f"SELECT * FROM ({rows}) WHERE writer = 'backfill'"
    same = equal_in("m", "s", identity(join))
    higher = f"SELECT 1 FROM ({mended}) m WHERE {same} AND m.generation > s.generation"
    return Query(f"SELECT {columns}, epoch FROM ({rows}) s WHERE NOT retraction AND NOT EXISTS ({higher})")


def records(join: Join, ledger: Relation, until: int) -> Query:
    """Write the SQL of a ledger's pairs that stand, as readers of the join have them (`stage_records.productions`)."""
    columns = ", ".join(map(quoted, join.produced.columns))
    place = pair_place(join) + (f", 1 AS {SIGN}" if join.takes_back else "")
    return Query(f"SELECT {columns}, {place} FROM ({current(join, ledger, until=until)})")


def differences(join: Join, computed: Query, held: Query) -> Query:
    """Write the SQL of computed pairs beside held ones: `new_*`, `old_*`, and `change`.

    `change` is same, changed, new (only computed) or gone (only held). A pair that is held more than once is changed.
    """
    if join.takes_back:
        return _multiset_differences(join, computed, held)
    results, place = [quoted(name) for name in join.results if name not in JOIN_WINDOW], identity(join)
    by = ", ".join(place)
    values = ", ".join(f"ANY_VALUE({name}) AS {name}" for name in [*results, PANE_TIME])
    once = f"SELECT {by}, {values}, COUNT(*) AS _times FROM ({held}) GROUP BY {by}"
    texts = {name: f"SELECT *, true AS _there FROM ({text})" for name, text in (("c", computed), ("h", once))}
    both, same = equal_in("c", "h", place), equal_in("c", "h", [*results, PANE_TIME]) + " AND h._times = 1"
    change = f"CASE WHEN h._there IS NULL THEN 'new' WHEN c._there IS NULL THEN 'gone' WHEN {same} THEN 'same'"
    items = [f"COALESCE(c.{name}, h.{name}) AS {name}" for name in place]
    items += [f"{letter}.{quoted(name)} AS {quoted(f'{which}_{name}')}"
              for letter, which in (("c", "new"), ("h", "old")) for name in _values(join)]  # fmt: skip
    return Query(
        f"SELECT {', '.join(items)}, {change} ELSE 'changed' END AS change "
        f"FROM ({texts['c']}) c FULL OUTER JOIN ({texts['h']}) h ON {both}"
    )


def _multiset_differences(join: Join, computed: Query, held: Query) -> Query:
    """Write the SQL of `differences` of rows that are known by all that they say: none is changed."""
    columns, place = _columns(join), identity(join)
    ours, theirs = (f"SELECT {columns} FROM ({text})" for text in (computed, held))
    texts = []
    for change, rows in (("new", f"{ours} EXCEPT ALL {theirs}"), ("gone", f"{theirs} EXCEPT ALL {ours}"),
                         ("same", f"{ours} INTERSECT ALL {theirs}")):  # fmt: skip
        items = list(place)
        for which, there in (("new", change != "gone"), ("old", change != "new")):
            items += [f"{quoted(name) if there else f'IF(false, {quoted(name)}, NULL)'} AS {quoted(f'{which}_{name}')}"
                      for name in _values(join)]  # fmt: skip
        texts.append(f"SELECT {', '.join(items)}, '{change}' AS change FROM ({rows})")
    return Query(" UNION ALL ".join(texts))


def corrected(join: Join, view: Relation, written: BackfillVersion) -> Query:
    """Write the SQL of the ledger rows of differences: retractions of held pairs, and the computed pairs."""
    return production_rows(row_types(join), identity(join), _values(join), view, written)


def _columns(join: Join) -> str:
    """List the columns of a pair: what it says, its event time, and its records' places."""
    return ", ".join([*map(quoted, join.results), PANE_TIME, *(name for side in SIDES for name in JOIN_PLACE[side])])


def _values(join: Join) -> list[str]:
    """Name what a pair has besides its identity."""
    return [*(name for name in join.results if name not in JOIN_WINDOW), PANE_TIME]
