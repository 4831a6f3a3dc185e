"""List the rows that a run changed: the answers before and after the run, and the reason for each change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import LATE, PANE, PRODUCTION, DefinitionTables
from tailrace.lake.schema.filters import at_most, equal, every
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import PANE_TIME
from tailrace.serve.reading.lake_reader import Session, cut_columns, digest_of
from tailrace.serve.reading.shown_text import count_text


@dataclass(frozen=True)
class Change:
    """A row that a run changed: its key columns, its window or instant, its values, and the reason for the change.

    `columns` contains the values of the key columns, cut to the length that a page shows. `key` is the digest of the
    row's key, for use in links. `before` is None for a new row, and `after` is None for a retracted row.
    """

    columns: Mapping[str, Any]
    key: str
    start: int
    end: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    reason: str


@dataclass(frozen=True)
class ChangeList:
    """One page of a run's changes, ordered by event time. `values` names the columns that the page shows."""

    values: tuple[str, ...]
    changes: tuple[Change, ...]
    page: int
    more: bool


def run_changes(session: Session, stage: Definition, run: Run, page: int) -> ChangeList:
    """Read one page of the changes that a run made, from the ledger rows that the run wrote."""
    own = tables_of(stage)
    there = session.lake.table(own.ledger.table).schema().column_names
    values = tuple(name for name in own.values if name in there)
    if own.answers is None:
        changes = _row_changes(session, own, run, page, values)
    else:
        changes = _window_changes(session, own, run, page, values, stage.fingerprints)
    return ChangeList(values, tuple(changes[: session.rows]), page, len(changes) > session.rows)


def _window_changes(
    session: Session, own: DefinitionTables, run: Run, page: int, values: tuple[str, ...], fingerprints: Collection[str]
) -> list[Change]:
    ledger = session.lake.table(own.ledger.table)
    schema = ledger.schema()
    keys = [name for name in own.keys if name in schema.column_names]
    by = ", ".join(map(name_of, (*keys, *SPAN)))
    # A retraction contains the retracted value. In discarding mode, the value of a pane counts only new records, so
    # read the whole answer from the column `answer`.
    answer = ["answer"] if "answer" in schema.column_names else []
    columns = ["kind", *keys, *SPAN, "generation", "pane_index", "retraction", "writer", *values, *answer]
    epoch = -1 if run.log_epoch is None else run.log_epoch
    with (
        session.relation(ledger, every(equal("kind", PANE), equal("generation", run.generation)), columns) as panes,
        session.relation(
            ledger, every(equal("kind", LATE), at_most("epoch", epoch)), ["kind", *keys, *SPAN, "epoch"]
        ) as late,
    ):
        before = _packed(cut_columns(schema, values))
        after = _packed(cut_columns(schema, values, "answer." if answer else ""))
        changed = (
            f"SELECT {by}, arg_max({before}, pane_index) FILTER (WHERE retraction) AS _before, "
            f"arg_max({after}, pane_index) FILTER (WHERE NOT retraction) AS _after FROM {panes} "
            f"WHERE kind = '{PANE}' AND generation = $generation AND writer = 'backfill' GROUP BY {by}"
        )
        counts = f"SELECT {by}, count(*) AS _late FROM {late} WHERE kind = '{LATE}' AND epoch <= $epoch GROUP BY {by}"
        same = " AND ".join(f"l.{name_of(one)} IS NOT DISTINCT FROM c.{name_of(one)}" for one in (*keys, *SPAN))
        items = [*cut_columns(schema, keys, "c."), f"{digest_of(keys, 'c.')} AS _key", "_before", "_after"]
        items += ["epoch_us(c.window_start) AS _start", "epoch_us(c.window_end) AS _end", "coalesce(_late, 0) AS _late"]
        order = ", ".join(["_start", *(f"c.{name_of(one)}" for one in keys)])
        found = session.all(
            f"SELECT {', '.join(items)} FROM ({changed}) c LEFT JOIN ({counts}) l ON {same} "
            f"ORDER BY {order} LIMIT $most OFFSET $skip",
            {"generation": run.generation, "epoch": epoch, "most": session.rows + 1, "skip": page * session.rows},
        )
    return [
        Change(
            {name: row[name] for name in keys}, row["_key"], row["_start"], row["_end"], row["_before"], row["_after"],
            _reason(row, same_definition=run.fingerprint in fingerprints),
        )
        for row in found
    ]  # fmt: skip


def _packed(items: Sequence[str]) -> str:
    """Return the SQL expression that packs a row's values into a struct.

    The struct also contains the index of the row's pane, because DuckDB allows no empty struct.
    """
    fields = [f"{name} := {value}" for value, _, name in (item.rpartition(" AS ") for item in items)]
    return f"struct_pack({', '.join(['_index := pane_index', *fields])})"


def _reason(row: Mapping[str, Any], *, same_definition: bool) -> str:
    """Return the reason why a window's answer changed, as far as the ledger shows the reason."""
    if row["_after"] is None:
        return "the log no longer gives an answer here"
    if row["_late"]:
        return f"took in {count_text(row['_late'], 'late record')}"
    if not same_definition:
        return "computed by another definition than today's"
    return "the log gives another answer" if row["_before"] else "the window had no answer"


def _row_changes(session: Session, own: DefinitionTables, run: Run, page: int, values: tuple[str, ...]) -> list[Change]:
    """Read the rows that a run emitted and retracted, for a definition without windows. Each row is one change."""
    ledger = session.lake.table(own.ledger.table)
    columns = ["kind", "generation", "retraction", "writer", PANE_TIME, *values]
    where = every(equal("kind", PRODUCTION), equal("generation", run.generation))
    with session.relation(ledger, where, columns) as name:
        items = [*cut_columns(ledger.schema(), values), "retraction AS _back", f"epoch_us({PANE_TIME}) AS _start"]
        found = session.all(
            f"SELECT {', '.join(items)} FROM {name} WHERE kind = '{PRODUCTION}' AND generation = ? "
            "AND writer = 'backfill' ORDER BY _start, _back DESC LIMIT ? OFFSET ?",
            [run.generation, session.rows + 1, page * session.rows],
        )
    return [
        Change({}, "", row["_start"], row["_start"], row, None, "retracted")
        if row["_back"]
        else Change({}, "", row["_start"], row["_start"], None, row, "given")
        for row in found
    ]
