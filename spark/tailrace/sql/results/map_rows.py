"""The rows of a map in SQL: those that an epoch or a run writes into the ledger, and those that stand by now.

A row is known by the place of the record that it was made of (`PLACE`). The rows of a record are taken back, and given
again in a higher generation, as a whole; a retraction has the version of the row that takes its place, as a pane's does
(V1).
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.contracts import PRODUCTION, REJECTED, spark_type
from tailrace.lake.schema.map_tables import map_contract
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.query_shapes import equal_in, filled
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.records.selections import FAILED
from tailrace.sql.results.backfill_rows import BackfillVersion, production_rows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, quoted

PLACE = {"source_epoch": "_epoch", "source_partition": "_source", "source_offset": "_offset"}
"""The place in the log of a row's record: the ledger's columns, each with the record's own."""


def output(definition: Map, records: Relation) -> Query:
    """Write the SQL of what goes out of a relation of records after the steps: columns, event time and place."""
    items = [quoted(name) for name in definition.results]
    items.append(f"{quoted(definition.log.event_time)} AS {PANE_TIME}")
    items += [f"{theirs} AS {ours}" for ours, theirs in PLACE.items()]
    return Query(f"SELECT {', '.join(items)} FROM {records}{keep_clause(definition)}")


def of_epoch(definition: Map, records: Relation, clock: Clock, generation: int) -> Query:
    """Write the SQL of the ledger rows of an epoch, from a relation of its records after the steps."""
    own = {
        "kind": f"'{PRODUCTION}'",
        "generation": f"{generation}L",
        "epoch": f"{clock.epoch}L",
        "retraction": "false",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "writer": "'stream'",
    }
    named = {name: quoted(name) for name in (*definition.results, PANE_TIME, *PLACE)}
    return Query(f"SELECT {_row(definition, named | own)} FROM ({output(definition, records)})")


def of_rejected(definition: Map, rejected: Relation, clock: Clock) -> Query:
    """Write the SQL of the ledger rows of the records of a view that a step rejected."""
    values = {
        "kind": f"'{REJECTED}'",
        PANE_TIME: quoted(definition.log.event_time),
        "epoch": f"{clock.epoch}L",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "reason": FAILED,
        **PLACE,
    }
    return Query(f"SELECT {_row(definition, values)} FROM {rejected}")


def current(definition: Map, ledger: Relation, within: Condition = ALWAYS) -> Query:
    """Write the SQL of a ledger's rows that stand: at each place those of the highest generation, no retractions.

    `within` is a condition on the event time, which all rows of one place have in common.
    """
    items = ", ".join([*map(quoted, definition.results), PANE_TIME, *PLACE])
    rows = f"SELECT * FROM {ledger} WHERE kind = '{PRODUCTION}' AND {within}"
    # Only a backfill's row can be of a higher generation: of the stream's rows, a place has one generation.
    mended = f"SELECT * FROM ({rows}) WHERE writer = 'backfill'"
    same = " AND ".join(f"m.{name} <=> s.{name}" for name in PLACE)
    higher = f"SELECT 1 FROM ({mended}) m WHERE {same} AND m.generation > s.generation"
    return Query(f"SELECT {items} FROM ({rows}) s WHERE NOT retraction AND NOT EXISTS ({higher})")


def records(definition: Map, ledger: Relation) -> Query:
    """Write the SQL of a ledger's rows that stand, as readers of the map have them (`stage_records.productions`)."""
    columns = ", ".join(map(quoted, definition.produced.columns))
    place = ", ".join(f"{ours} AS {theirs}" for ours, theirs in PLACE.items())
    return Query(f"SELECT {columns}, {place} FROM ({current(definition, ledger)})")


def differences(definition: Map, computed: Query, held: Query, *, doubled: bool = False) -> Query:
    """Write the SQL of computed rows beside held ones: `new_*`, `old_*`, and `change`.

    `change` is same, changed, new (only computed) or gone (only held). Where a step makes several records of one, the
    rows of one place are put side by side in the order of their values, and one that differs changes them all. Where no
    step does, a row that is held more than once is changed; with `doubled` its rows are put side by side as well, and
    each counts.
    """
    multiplies = definition.multiplies or doubled
    if not multiplies:
        by, values = ", ".join(PLACE), [*map(quoted, definition.results), PANE_TIME]
        each = ", ".join(f"ANY_VALUE({name}) AS {name}" for name in values)
        held = Query(f"SELECT {by}, {each}, COUNT(*) AS _times FROM ({held}) GROUP BY {by}")
    results, place = [quoted(name) for name in definition.results], list(PLACE)
    number = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(place)} ORDER BY {', '.join(results)})"
    sides = {
        letter: f"SELECT *, {number if multiplies else 1} AS _number FROM ({text})"
        for letter, text in (("c", computed), ("h", held))
    }
    both, same = equal_in("c", "h", place, ["_number"]), equal_in("c", "h", results)
    same = same if multiplies else Condition(" AND ".join(filter(None, [same, "h._times = 1"])))
    change = f"CASE WHEN h._number IS NULL THEN 'new' WHEN c._number IS NULL THEN 'gone' WHEN {same} THEN 'same'"
    items = [f"COALESCE(c.{name}, h.{name}) AS {name}" for name in (*place, PANE_TIME)]
    items += [f"{letter}.{quoted(name)} AS {quoted(f'{which}_{name}')}"
              for letter, which in (("c", "new"), ("h", "old")) for name in definition.results]  # fmt: skip
    text = Query(
        f"SELECT {', '.join(items)}, {change} ELSE 'changed' END AS change "
        f"FROM ({sides['c']}) c FULL OUTER JOIN ({sides['h']}) h ON {both}"
    )
    if not multiplies:
        return text
    alike = f"MIN(IF(change = 'same', 1, 0)) OVER (PARTITION BY {', '.join(place)}) = 1"
    chosen = "IF(change = 'same' AND NOT alike, 'changed', change) AS change"
    return Query(f"SELECT * EXCEPT (change, alike), {chosen} FROM (SELECT *, {alike} AS alike FROM ({text}))")


def new(definition: Map, computed: Query) -> Query:
    """Write the SQL of `differences` where no row is held."""
    items = [*PLACE, PANE_TIME, *(f"{quoted(n)} AS {quoted(f'new_{n}')}" for n in definition.results)]
    items += [f"CAST(NULL AS {type}) AS {quoted(f'old_{name}')}" for name, type in definition.results.items()]
    return Query(f"SELECT {', '.join(items)}, 'new' AS change FROM ({computed})")


def corrected(definition: Map, view: Relation, written: BackfillVersion) -> Query:
    """Write the SQL of the ledger rows of differences: retractions of held rows, and the computed rows."""
    return production_rows(_types(definition), (PANE_TIME, *PLACE), definition.results, view, written)


def _row(definition: Map, values: Mapping[str, str]) -> str:
    """Write the select-list of a ledger row; null where there is no value."""
    return filled(_types(definition), values)


def _types(definition: Map) -> dict[str, str]:
    """List the columns of the ledger and their types."""
    return {name: spark_type(column.shape) for name, column in map_contract(definition).columns.items()}
