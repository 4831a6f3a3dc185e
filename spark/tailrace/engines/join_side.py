"""A join in a stream, on either engine: what it keeps of its records is in their logs, and restored from there.

The ledger has no partials of a join. So an epoch writes what it gives and no more, however long records are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from tailrace.engines.choose import EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.join import SIDES, Join
from tailrace.model.logs.log import Log
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Query, Relation, bracketed

Rows = TypeVar("Rows")

Streamed: TypeAlias = Callable[[Session, Log, int, "int | None"], Relation]
"""A function that writes the query of a log's records as streamed: up to an epoch, from an event time on."""


@dataclass(frozen=True)
class JoinKept:
    """The state of a join between two epochs: the last epoch's clock, the generation, the number of kept records."""

    clock: Clock | None
    generation: int
    count: int = 0

    @property
    def watermark(self) -> int:
        """The watermark by which the next epoch's records are judged, in microseconds."""
        return BEGINNING if self.clock is None else self.clock.watermark

    def forget(self) -> None:
        """Do nothing: no memory is held for this state alone."""


@dataclass(frozen=True)
class SteppedJoin(Generic[Rows]):
    """The result of an epoch: the rows to write to the ledger, in the engine's own form, and the state after it."""

    rows: Rows
    state: JoinKept


class JoinSide(ABC, Generic[Rows]):
    """A join on one engine. `streamed` reads the records of its logs, to restore what is kept."""

    holds = True

    def __init__(self, lake: Lake, join: Join, choice: EngineChoice, streamed: Streamed) -> None:
        self.lake, self.join, self.choice, self.streamed = lake, join, choice, streamed
        self.ledger = ledger_name(join.name)

    def consume(self, bundle: Any, state: JoinKept) -> Any:
        return bundle

    def onward(self, state: JoinKept) -> int:
        assert state.clock is not None
        return self.join.onward(state.clock.watermark)

    def due(self, state: JoinKept, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        return None

    @abstractmethod
    def step(self, state: JoinKept, consumed: Any, clock: Clock) -> SteppedJoin[Rows]:
        """Take the join through an epoch. Raises `ClockError` if the clock goes back."""

    def held(self, session: Session, clock: Clock, snapshot: int | None = None) -> dict[str, Query]:
        """Write the queries of the entries that are kept after the epoch of `clock`, by side."""
        records = self.streamed(session, self.join.log, clock.epoch, join_rows.oldest(self.join, clock.watermark))
        late = session.table(self.ledger, equal("kind", LATE), snapshot)
        found = {}
        for side in SIDES:
            entries = bracketed(join_rows.entries(self.join, records, side))
            there = join_rows.not_late(self.join, side, entries, late)
            found[side] = Query(
                f"SELECT * FROM ({there}) WHERE NOT ({join_rows.closed(self.join, side, clock.watermark)})"
            )
        return found
