"""What a map makes of records in SQL: the ledger's rows of an epoch or a run, and those that stand by now.

A row is known by the place of the record that it was made of (`PLACE`). What a record gave is taken back, and given
again in a higher generation, as a whole; a retraction has the version of what takes its place, as a pane's does (V1).
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.contracts import PRODUCTION, REJECTED, map_contract, spark_type
from tailrace.model.base.clock import Clock
from tailrace.model.definition.log import PANE_TIME
from tailrace.model.definition.map import Map
from tailrace.sql.records.assignment import kept
from tailrace.sql.records.selections import FAILED, selected
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.terms import null, quoted

PLACE = {"source_epoch": "_epoch", "source_partition": "_source", "source_offset": "_offset"}
"""Where a row's record is in the log: the ledger's columns, and the record's own."""


def stepped(definition: Map, source: str) -> str | None:
    """The records of a relation after all steps, as one query in brackets; None where a step is code of one's own."""
    types = dict(definition.log.columns)
    for one in definition.each:
        items = selected(one, types, [*types, *PLACE.values()])
        if items is None:
            return None
        source, types = f"(SELECT {', '.join(items)} FROM {source})", dict(one.columns(types))
    return source


def given(definition: Map, records: str) -> str:
    """What goes out of a relation of records after the steps: the columns, the event time, and the place of each."""
    items = [quoted(name) for name in definition.results]
    items.append(f"{quoted(definition.log.event_time)} AS {PANE_TIME}")
    items += [f"{theirs} AS {ours}" for ours, theirs in PLACE.items()]
    return f"SELECT {', '.join(items)} FROM {records}{kept(definition)}"


def of_epoch(definition: Map, records: str, clock: Clock, generation: int) -> str:
    """The ledger's rows of what goes out of an epoch's records after the steps."""
    own = {
        "kind": f"'{PRODUCTION}'",
        "generation": f"{generation}L",
        "epoch": f"{clock.epoch}L",
        "retraction": "false",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "writer": "'stream'",
    }
    named = {name: quoted(name) for name in (*definition.results, PANE_TIME, *PLACE)}
    return f"SELECT {_row(definition, named | own)} FROM ({given(definition, records)})"


def of_rejected(definition: Map, rejected: str, clock: Clock) -> str:
    """The ledger's rows of the records of a view that a step rejected."""
    values = {
        "kind": f"'{REJECTED}'",
        PANE_TIME: quoted(definition.log.event_time),
        "epoch": f"{clock.epoch}L",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "reason": FAILED,
        **PLACE,
    }
    return f"SELECT {_row(definition, values)} FROM {rejected}"


def current(definition: Map, ledger: str, within: str = "true") -> str:
    """The rows of a ledger's relation that stand: of each place those of the highest generation, no retractions.

    `within` is a condition on the event time, the same for all that is of one place.
    """
    items = ", ".join([*map(quoted, definition.results), PANE_TIME, *PLACE])
    rows = f"SELECT * FROM {ledger} WHERE kind = '{PRODUCTION}' AND {within}"
    # None of a stream's is of a higher generation than another's of the same place: there is one.
    mended = f"SELECT * FROM ({rows}) WHERE writer = 'backfill'"
    same = " AND ".join(f"m.{name} <=> s.{name}" for name in PLACE)
    higher = f"SELECT 1 FROM ({mended}) m WHERE {same} AND m.generation > s.generation"
    return f"SELECT {items} FROM ({rows}) s WHERE NOT retraction AND NOT EXISTS ({higher})"


def records(definition: Map, ledger: str) -> str:
    """The rows of a ledger's relation that stand, as readers of the map have them (`stage_records.productions`)."""
    columns = ", ".join(map(quoted, definition.produced.columns))
    place = ", ".join(f"{ours} AS {theirs}" for ours, theirs in PLACE.items())
    return f"SELECT {columns}, {place} FROM ({current(definition, ledger)})"


def differences(definition: Map, computed: str, held: str, *, doubled: bool = False) -> str:
    """What is computed beside what is held, row by row: `new_*`, `old_*`, and what became of each in `change`.

    `change` is same, changed, new (only computed) or gone (only held). Where a step makes several records of one, those
    of one place are put side by side in the order of their values, and one that differs changes them all; with
    `doubled` also where none does, for who looks whether a row is there twice.
    """
    several = definition.several or doubled
    results, place = [quoted(name) for name in definition.results], list(PLACE)
    number = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(place)} ORDER BY {', '.join(results)})"
    sides = {
        letter: f"SELECT *, {number if several else 1} AS _number FROM ({text})"
        for letter, text in (("c", computed), ("h", held))
    }
    both = " AND ".join([*(f"c.{name} <=> h.{name}" for name in place), "c._number = h._number"])
    same = " AND ".join(f"c.{name} <=> h.{name}" for name in results)
    change = f"CASE WHEN h._number IS NULL THEN 'new' WHEN c._number IS NULL THEN 'gone' WHEN {same} THEN 'same'"
    items = [f"COALESCE(c.{name}, h.{name}) AS {name}" for name in (*place, PANE_TIME)]
    items += [f"{letter}.{quoted(name)} AS {quoted(f'{which}_{name}')}"
              for letter, which in (("c", "new"), ("h", "old")) for name in definition.results]  # fmt: skip
    text = (
        f"SELECT {', '.join(items)}, {change} ELSE 'changed' END AS change "
        f"FROM ({sides['c']}) c FULL OUTER JOIN ({sides['h']}) h ON {both}"
    )
    if not several:
        return text
    alike = f"MIN(IF(change = 'same', 1, 0)) OVER (PARTITION BY {', '.join(place)}) = 1"
    chosen = "IF(change = 'same' AND NOT alike, 'changed', change) AS change"
    return f"SELECT * EXCEPT (change, alike), {chosen} FROM (SELECT *, {alike} AS alike FROM ({text}))"


def new(definition: Map, computed: str) -> str:
    """The shape of `differences` where nothing is held."""
    items = [*PLACE, PANE_TIME, *(f"{quoted(n)} AS {quoted(f'new_{n}')}" for n in definition.results)]
    items += [f"CAST(NULL AS {type}) AS {quoted(f'old_{name}')}" for name, type in definition.results.items()]
    return f"SELECT {', '.join(items)}, 'new' AS change FROM ({computed})"


def corrected(definition: Map, view: str, written: BackfillVersion) -> str:
    """The ledger's rows of differences: retractions of what was held, and what is computed."""
    own = {
        "kind": f"'{PRODUCTION}'",
        "generation": f"{written.generation}L",
        "epoch": f"{written.epoch}L",
        "processing_time": f"TIMESTAMP_MICROS({written.processing_time}L)",
        "writer": "'backfill'",
        **{name: name for name in (PANE_TIME, *PLACE)},
    }
    texts = []
    for which, retraction, holds in (("old", "true", "('changed', 'gone')"), ("new", "false", "('changed', 'new')")):
        values = {name: quoted(f"{which}_{name}") for name in definition.results}
        row = _row(definition, own | values | {"retraction": retraction})
        texts.append(f"SELECT {row} FROM {view} WHERE change IN {holds}")
    return " UNION ALL ".join(texts)


def _row(definition: Map, values: Mapping[str, str]) -> str:
    """The select-list of a row of the ledger; null where there is no value."""
    types = {name: spark_type(column.shape) for name, column in map_contract(definition).columns.items()}
    return ", ".join(f"{values.get(name, null(type))} AS {quoted(name)}" for name, type in types.items())
