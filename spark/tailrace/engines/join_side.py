"""A join in a stream, on either engine: what it keeps of its records is in their logs, and restored from there.

The ledger has no partials of a join. So an epoch writes what it gives and no more, however long records are kept.
"""

from __future__ import annotations

from typing import Generic

from tailrace.engines.choose import EngineChoice
from tailrace.engines.log_records import streamed
from tailrace.engines.row_side import Rows, RowSide, RowState
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Query, bracketed


class JoinSide(RowSide[Rows], Generic[Rows]):
    """A join on one engine, which restores the kept records from the logs."""

    holds = True

    def __init__(self, lake: Lake, join: Join, choice: EngineChoice) -> None:
        super().__init__(lake, join, choice)
        self.join = join

    def onward(self, state: RowState) -> int:
        assert state.clock is not None
        return self.join.onward(state.clock.watermark)

    def held(self, session: Session, clock: Clock, snapshot: int | None = None) -> dict[str, Query]:
        """Write the queries of the entries that are kept after the epoch of `clock`, by side."""
        records = streamed(session, self.join.log, clock.epoch, join_rows.oldest(self.join, clock.watermark))
        late = session.table(self.ledger, equal("kind", LATE), snapshot)
        found = {}
        for side in SIDES:
            entries = bracketed(join_rows.entries(self.join, records, side))
            kept = bracketed(join_rows.added(self.join, side, entries))
            there = join_rows.not_late(self.join, side, kept, late)
            found[side] = Query(
                f"SELECT * FROM ({there}) WHERE NOT ({join_rows.closed(self.join, side, clock.watermark)})"
            )
        return found
