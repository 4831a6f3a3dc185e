"""A replay of a map: its steps over the records of recorded epochs give the rows that the stream gave (law L3).

A map carries nothing from one epoch to the next, so all epochs are one query, on either engine; each row is compared
with the ledger's rows of the same record.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.engines.batch import log_records
from tailrace.engines.batch.batch_answers import taken
from tailrace.engines.batch.run_engine import here_first, session_for
from tailrace.engines.choose import EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.pins import pinned
from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.records.selections import FAILED
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Query, Relation, quoted
from tailrace.verify.audit_checks import in_common
from tailrace.verify.recorded_epochs import ReplayError
from tailrace.verify.row_diff import SHOWN, RowCount


@dataclass(frozen=True)
class RowsReplayed:
    """The result of a replay of the epochs `first` to `last`: counts by the ledger's kinds of rows.

    `latest` is the last epoch of the ledger, `quoted` are a few rows that differ.
    """

    first: int
    last: int
    latest: int
    counts: Mapping[str, RowCount]
    quoted: tuple[Mapping[str, Any], ...]
    seconds: float
    engine: EngineChoice

    @property
    def ok(self) -> bool:
        """Whether the replay gave exactly the ledger's rows."""
        return all(count.ledger == count.replay == count.same for count in self.counts.values())


def replay_map(lake: Lake, definition: Map, first: int | None = None, last: int | None = None) -> RowsReplayed:
    """Replay the epochs `first` to `last` through the map's steps; by default from the first to the last of the ledger.

    Raises `ReplayError` where an epoch is not in the ledger, and `OtherDefinitionError` where the ledger is another
    definition's.
    """
    check_definition(lake, definition)
    ledger = ledger_name(definition.name)
    head = lake.head(ledger)
    latest = head.number("epoch")
    begin, end = 0 if first is None else first, latest if last is None else last
    if begin > end or end > latest:
        raise ReplayError(f"{ledger} has epochs 0 to {latest}: there are none from {begin} to {end}")

    def run(lake: Lake) -> RowsReplayed:
        started = time.perf_counter()
        reads = [*log_records.read(lake, definition.log, end), (ledger, EVERYTHING)]
        with (
            session_for(lake, definition, "replay", reads) as session,
            pinned(lake, {ledger: head.snapshot}),
        ):
            counts, differ = _compared(session, definition, session.table(ledger, snapshot=head.snapshot), begin, end)
            seconds = time.perf_counter() - started
            return RowsReplayed(begin, end, latest, counts, differ, seconds, session.choice)

    return here_first(lake, run)


def _compared(
    session: Session, definition: Map, ledger: Relation, first: int, last: int
) -> tuple[dict[str, RowCount], tuple[Mapping[str, Any], ...]]:
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
