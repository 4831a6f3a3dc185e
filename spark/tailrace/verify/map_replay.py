"""A replay of a map: its steps over the records of recorded epochs give the rows that the stream gave (law L3).

A map carries nothing from one epoch to the next, so all epochs are one query, on either engine; each row is compared
with the ledger's rows of the same record.
"""

from __future__ import annotations

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import taken
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.records.selections import FAILED
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Query, Relation, quoted
from tailrace.verify.audit_checks import in_common
from tailrace.verify.row_diff import SHOWN, RowCount
from tailrace.verify.rows_replay import Compared, RowsReplayed, replayed_rows


def replay_map(lake: Lake, definition: Map, first: int | None = None, last: int | None = None) -> RowsReplayed:
    """Replay the epochs `first` to `last` through the map's steps; by default from the first to the last of the ledger.

    Raises `ReplayError` where an epoch is not in the ledger, and `OtherDefinitionError` where the ledger is another
    definition's.
    """
    return replayed_rows(lake, definition, first, last, _compared)


def _compared(session: Session, ledger: Relation, first: int, last: int, definition: Map) -> Compared:
    within = f"epoch BETWEEN {first}L AND {last}L"
    streamed = log_records.streamed(session, definition.log, last)
    records = session.materialized(Query(f"SELECT * FROM {streamed} WHERE _epoch >= {first}L"))
    good, failed = taken(session, definition, records)
    items = ", ".join([*map(quoted, definition.results), PANE_TIME, *map_rows.PLACE])
    held = Query(f"SELECT {items} FROM {ledger} WHERE kind = '{PRODUCTION}' AND writer = 'stream' AND {within}")
    rows = session.materialized(map_rows.differences(definition, map_rows.output(definition, good), held, doubled=True))
    kinds = session.rows(Query(f"SELECT change, COUNT(*) AS n FROM {rows} GROUP BY change"))
    by = {row["change"]: row["n"] for row in kinds}
    both = by.get("same", 0) + by.get("changed", 0)
    counts = {PRODUCTION: RowCount(both + by.get("gone", 0), both + by.get("new", 0), by.get("same", 0))}
    if failed is not None:
        rejected = Relation(f"(SELECT * FROM {ledger} WHERE kind = '{REJECTED}' AND {within})")
        same = in_common(session, rejected, failed, map_rows.PLACE | {"reason": FAILED})
        counts[REJECTED] = RowCount(session.count(rejected), session.count(failed), same)
    return counts, tuple(session.rows(Query(f"SELECT * FROM {rows} WHERE change <> 'same' LIMIT {SHOWN}")))
