"""Run maps and joins on either engine (`engines.protocol.Side`).

A fold writes each output row of a map or join only once. The ledger does not store a join's state: the records that the
join keeps are restored from the join's logs. An epoch therefore writes only the rows that the join outputs, however
long the join keeps records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic

from tailrace.engines.log_records import streamed_rows
from tailrace.engines.protocol import EpochState, Rows, SteppedRows
from tailrace.engines.session_protocol import Session
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.model.definition.map import Map
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Query, bracketed


class RowSide(ABC, Generic[Rows]):
    """The base class for folding a map or a join.

    `MapSide` and `JoinSide` define the step. The base class of an engine writes the rows (`DuckProducer`,
    `SparkProducer`).
    """

    def nothing(self, generation: int) -> EpochState:
        return EpochState(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> EpochState:
        return EpochState(clock, generation)

    def consume(self, bundle: Any, state: EpochState) -> Any:
        return bundle

    def due(self, state: EpochState, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        return None

    def close(self) -> None:
        """Do nothing, because this class keeps nothing that must be freed."""


class MapSide(RowSide[Rows], Generic[Rows]):
    """The base class for folding a map on an engine. The map's only state is the clock."""

    definition: Map
    holds = False

    @abstractmethod
    def made(self, bundle: Any, clock: Clock, generation: int) -> Rows:
        """Compute an epoch's ledger rows from a bundle."""

    def step(self, state: EpochState, consumed: Any, clock: Clock) -> SteppedRows[Rows, EpochState]:
        clock.after(state.clock)
        return SteppedRows(self.made(consumed, clock, state.generation), EpochState(clock, state.generation))

    def onward(self, state: EpochState) -> int:
        return state.watermark


class JoinSide(RowSide[Rows], Generic[Rows]):
    """The base class for folding a join on an engine.

    The records that the join keeps are restored from the join's logs.
    """

    definition: Join
    ledger: str
    holds = True

    def onward(self, state: EpochState) -> int:
        return self.definition.onward(state.watermark)

    def held(self, session: Session, clock: Clock, snapshot: int | None = None) -> dict[str, Query]:
        """For each side of the join, return the query of the records that are still kept after the epoch of `clock`."""
        join, found = self.definition, {}
        records = streamed_rows(session, join.log, clock.epoch, join_rows.oldest(join, clock.watermark))
        late = session.table(self.ledger, equal("kind", LATE), snapshot)
        for side in SIDES:
            entries = bracketed(join_rows.entries(join, records, side))
            kept = bracketed(join_rows.added_entries(join, side, entries))
            there = join_rows.not_late(join, side, kept, late)
            found[side] = Query(f"SELECT * FROM ({there}) WHERE NOT ({join_rows.closed(join, side, clock.watermark)})")
        return found
