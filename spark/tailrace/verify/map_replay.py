"""Replay a map: apply its steps to the records of recorded epochs, and compare the rows with the ledger (law L3).

A map has no state between epochs, so one query computes the rows of all epochs, on either engine. Each computed row is
compared with the ledger's rows for the same record.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import split_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.epoch.map_rows import PLACE, output
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, bracketed, quoted
from tailrace.verify.recorded_epochs import ReplayRange
from tailrace.verify.row_diff import Replayed
from tailrace.verify.rows_replay import RowsAgain, replayed_rows


def replay_map(definition: Map, lake: Lake, asked: ReplayRange) -> Replayed:
    """Apply a map's steps to the records of recorded epochs, and compare the resulting rows with the ledger's rows."""
    return replayed_rows(definition, lake, asked, _again)


def _again(definition: Map, session: Session, first: int, last: int) -> Iterator[RowsAgain]:
    within = f"epoch BETWEEN {first}L AND {last}L"
    streamed = log_records.streamed_rows(session, definition.log, last)
    good, failed = split_records(
        session, definition, session.materialized(Query(f"SELECT * FROM {streamed} WHERE _epoch >= {first}L"))
    )
    own = {name: quoted(name) for name in (*definition.results, PANE_TIME, *PLACE)}
    own |= {"epoch": "source_epoch", "retraction": "false"}
    yield RowsAgain(PRODUCTION, f"writer = 'stream' AND {within}", bracketed(output(definition, good)), own)
    if failed is not None:
        yield RowsAgain(REJECTED, within, failed, {"epoch": "_epoch", "reason": FAILED, **PLACE})
