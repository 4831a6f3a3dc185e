"""The pairs of a join in SQL: those that stand by now, and how they differ from those that the logs give (rule V4).

A pair is known by its records' places, and by its window where the join has those.
"""

from __future__ import annotations

from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.model.definition.join import JOIN_WINDOW, SIDES, Join
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.epoch.join_rows import JOIN_PLACE, row_types
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.stage_records import pair_place
from tailrace.sql.results.backfill_rows import BackfillVersion, production_rows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, quoted


def identity(join: Join) -> list[str]:
    """Name the ledger's columns by which a pair is known."""
    return [*(name for side in SIDES for name in JOIN_PLACE[side]), *(JOIN_WINDOW if join.where is not None else ())]


def output(join: Join, rows: Query) -> Query:
    """Write the SQL of what a join gives (`join_rows.finished`), as the ledger has it: columns, event time, places."""
    places = [name for side in SIDES for name in JOIN_PLACE[side]]
    items = [*map(quoted, join.results), f"TIMESTAMP_MICROS(at) AS {PANE_TIME}", *places]
    return Query(f"SELECT {', '.join(items)} FROM ({rows})")


def current(join: Join, ledger: Relation, within: Condition = ALWAYS) -> Query:
    """Write the SQL of a ledger's pairs that stand: of each the row of the highest version, if it is no retraction.

    `within` is a condition on the event time.
    """
    places = [name for side in SIDES for name in JOIN_PLACE[side]]
    items = ", ".join([*map(quoted, join.results), PANE_TIME, *places, "epoch"])
    rows = f"SELECT * FROM {ledger} WHERE kind = '{PRODUCTION}' AND {within}"
    mended = f"SELECT * FROM ({rows}) WHERE writer = 'backfill'"
    same = equal_in("m", "s", identity(join))
    higher = f"SELECT 1 FROM ({mended}) m WHERE {same} AND m.generation > s.generation"
    return Query(f"SELECT {items} FROM ({rows}) s WHERE NOT retraction AND NOT EXISTS ({higher})")


def records(join: Join, ledger: Relation) -> Query:
    """Write the SQL of a ledger's pairs that stand, as readers of the join have them (`stage_records.productions`)."""
    columns = ", ".join(map(quoted, join.produced.columns))
    return Query(f"SELECT {columns}, {pair_place(join)} FROM ({current(join, ledger)})")


def differences(join: Join, computed: Query, held: Query) -> Query:
    """Write the SQL of computed pairs beside held ones: `new_*`, `old_*`, and `change`.

    `change` is same, changed, new (only computed) or gone (only held).
    """
    results, place = [quoted(name) for name in join.results if name not in JOIN_WINDOW], identity(join)
    texts = {name: f"SELECT *, true AS _there FROM ({text})" for name, text in (("c", computed), ("h", held))}
    both, same = equal_in("c", "h", place), equal_in("c", "h", [*results, PANE_TIME])
    change = f"CASE WHEN h._there IS NULL THEN 'new' WHEN c._there IS NULL THEN 'gone' WHEN {same} THEN 'same'"
    items = [f"COALESCE(c.{name}, h.{name}) AS {name}" for name in place]
    items += [f"{letter}.{quoted(name)} AS {quoted(f'{which}_{name}')}"
              for letter, which in (("c", "new"), ("h", "old")) for name in _values(join)]  # fmt: skip
    return Query(
        f"SELECT {', '.join(items)}, {change} ELSE 'changed' END AS change "
        f"FROM ({texts['c']}) c FULL OUTER JOIN ({texts['h']}) h ON {both}"
    )


def corrected(join: Join, view: Relation, written: BackfillVersion) -> Query:
    """Write the SQL of the ledger rows of differences: retractions of held pairs, and the computed pairs."""
    return production_rows(row_types(join), identity(join), _values(join), view, written)


def _values(join: Join) -> list[str]:
    """Name what a pair has besides its identity."""
    return [*(name for name in join.results if name not in JOIN_WINDOW), PANE_TIME]
