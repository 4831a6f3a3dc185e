"""What a run changed, row by row: the answer before, the answer after, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import LATE, PANE, PRODUCTION, DefinitionTables
from tailrace.lake.schema.filters import among, at_most, equal, every
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import PANE_TIME
from tailrace.serve.reading.lake_reader import Session, cut_columns, digest_of
from tailrace.serve.reading.shown_text import counted


@dataclass(frozen=True)
class Change:
    """A row that a run changed: its key (cut), its window or instant, the values before and after, and why.

    `before` is None for a row that was not there, `after` for one that was taken back. `key` names it in links.
    """

    columns: Mapping[str, Any]
    key: str
    start: int
    end: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    why: str


@dataclass(frozen=True)
class ChangeList:
    """One page of a run's changes, by event time; `values` names the columns that have a before and an after."""

    values: tuple[str, ...]
    changes: tuple[Change, ...]
    page: int
    more: bool


def run_changes(session: Session, stage: Definition, run: Run, page: int, *, same_definition: bool) -> ChangeList:
    """Read one page of what a run changed, from the rows of its generation that it wrote to the ledger."""
    own = tables_of(stage)
    if own.answers is not None:
        return _windows(session, own, run, page, same_definition=same_definition)
    return _rows(session, own, run, page)


def _windows(session: Session, tables: DefinitionTables, run: Run, page: int, *, same_definition: bool) -> ChangeList:
    ledger = session.lake.table(tables.ledger.table)
    there = ledger.schema().column_names
    keys = [name for name in tables.keys if name in there]
    values = [name for name in tables.values if name in there]
    whole = "answer" in there
    own = every(equal("kind", PANE), equal("generation", run.generation))
    columns = ["kind", *keys, *SPAN, "generation", "pane_index", "retraction", "writer", *values]
    late = every(equal("kind", LATE), at_most("epoch", -1 if run.log_epoch is None else run.log_epoch))
    by = [*keys, *SPAN]
    side = {False: "", True: "answer." if whole else ""}
    with (
        session.relation(ledger, own, [*columns, *(["answer"] if whole else [])]) as panes,
        session.relation(ledger, late, ["kind", *keys, *SPAN, "epoch"]) as missed,
    ):
        wrote = f"kind = '{PANE}' AND generation = $generation AND writer = 'backfill'"
        of = {
            back: ", ".join(
                [*map(name_of, by), *(f"{side[not back]}{name_of(one)} AS {name_of(one)}" for one in values)]
            )
            for back in (True, False)
        }
        latest = f"row_number() OVER (PARTITION BY {', '.join(map(name_of, by))} ORDER BY pane_index DESC) AS _place"
        texts = {
            back: f"SELECT * FROM (SELECT {of[back]}, {latest} FROM {panes} WHERE {wrote} "
            f"AND {'' if back else 'NOT '}retraction) WHERE _place = 1"
            for back in (True, False)
        }
        counts = (
            f"SELECT {', '.join(map(name_of, by))}, count(*) AS _late FROM {missed} "
            f"WHERE kind = '{LATE}' AND epoch <= $epoch GROUP BY ALL"
        )
        same = " AND ".join(f"{{0}}.{name_of(one)} IS NOT DISTINCT FROM k.{name_of(one)}" for one in by)
        every_key = " UNION ".join(
            f"SELECT {', '.join(map(name_of, by))} FROM ({texts[back]})" for back in (True, False)
        )
        schema = ledger.schema()
        items = [
            *cut_columns(schema, keys, "k."),
            f"{digest_of(keys, 'k.')} AS _key",
            "epoch_us(k.window_start) AS _start",
            "epoch_us(k.window_end) AS _end",
            *(f"{item.rpartition(' AS ')[0]} AS {name_of(f'b_{one}')}" for one, item in _items(schema, values, "b.")),
            *(f"{item.rpartition(' AS ')[0]} AS {name_of(f'a_{one}')}" for one, item in _items(schema, values, "a.")),
            "b._place IS NOT NULL AS _was",
            "a._place IS NOT NULL AS _is",
            "coalesce(l._late, 0) AS _late",
        ]
        query = (
            f"SELECT {', '.join(items)} FROM ({every_key}) k LEFT JOIN ({texts[True]}) b ON {same.format('b')} "
            f"LEFT JOIN ({texts[False]}) a ON {same.format('a')} LEFT JOIN ({counts}) l ON {same.format('l')} "
            f"ORDER BY {', '.join(['_start', *(f'k.{name_of(one)}' for one in keys)])} LIMIT $most OFFSET $after"
        )
        given = {
            "generation": run.generation,
            "epoch": -1 if run.log_epoch is None else run.log_epoch,
            "most": session.rows + 1,
            "after": page * session.rows,
        }
        found = session.all(query, given)
    changes = tuple(_change(row, keys, values, same_definition=same_definition) for row in found[: session.rows])
    return ChangeList(tuple(values), changes, page, len(found) > session.rows)


def _items(schema: Any, names: list[str], prefix: str) -> list[tuple[str, str]]:
    return list(zip(names, cut_columns(schema, names, prefix), strict=True))


def _change(row: Mapping[str, Any], keys: list[str], values: list[str], *, same_definition: bool) -> Change:
    return Change(
        {name: row[name] for name in keys},
        row["_key"],
        row["_start"],
        row["_end"],
        {name: row[f"b_{name}"] for name in values} if row["_was"] else None,
        {name: row[f"a_{name}"] for name in values} if row["_is"] else None,
        _why(row, same_definition=same_definition),
    )


def _why(row: Mapping[str, Any], *, same_definition: bool) -> str:
    """Say why a window's answer changed, as far as the ledger tells."""
    if not row["_is"]:
        return "the log gives no answer here any more"
    if row["_late"]:
        return f"took in {counted(row['_late'], 'late record')}"
    if not same_definition:
        return "another definition than today's computed it"
    return "the log gives another answer" if row["_was"] else "the window had no answer"


def _rows(session: Session, tables: DefinitionTables, run: Run, page: int) -> ChangeList:
    """Read the rows that a run gave and took back, where rows are of no window; each is a change of its own."""
    ledger = session.lake.table(tables.ledger.table)
    there = ledger.schema().column_names
    values = [name for name in tables.values if name in there]
    own = every(among("kind", (PRODUCTION,)), equal("generation", run.generation))
    columns = ["kind", "generation", "retraction", "writer", PANE_TIME, *values]
    with session.relation(ledger, own, columns) as name:
        items = [*cut_columns(ledger.schema(), values), "retraction AS _back", f"epoch_us({PANE_TIME}) AS _start"]
        query = (
            f"SELECT {', '.join(items)} FROM {name} WHERE kind = '{PRODUCTION}' AND generation = ? "
            "AND writer = 'backfill' ORDER BY _start, _back DESC LIMIT ? OFFSET ?"
        )
        found = session.all(query, [run.generation, session.rows + 1, page * session.rows])
    changes = tuple(
        Change(
            {},
            "",
            row["_start"],
            row["_start"],
            {one: row[one] for one in values} if row["_back"] else None,
            None if row["_back"] else {one: row[one] for one in values},
            "taken back" if row["_back"] else "given",
        )
        for row in found[: session.rows]
    )
    return ChangeList(tuple(values), changes, page, len(found) > session.rows)
