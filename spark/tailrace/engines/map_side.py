"""A map in a stream, on either engine: a fold whose only state is the clock."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic

from tailrace.engines.choose import EngineChoice
from tailrace.engines.row_side import Rows, RowSide, RowState, SteppedRows
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map


class MapSide(RowSide[Rows], Generic[Rows]):
    """A map on one engine; a subclass makes the rows in the engine's own way."""

    holds = False

    def __init__(self, lake: Lake, definition: Map, choice: EngineChoice) -> None:
        super().__init__(lake, definition, choice)
        self.map = definition

    @abstractmethod
    def made(self, bundle: Any, clock: Clock, generation: int) -> Rows:
        """Make the ledger's rows from a bundle."""

    def step(self, state: RowState, consumed: Any, clock: Clock) -> SteppedRows[Rows]:
        clock.after(state.clock)
        return SteppedRows(self.made(consumed, clock, state.generation), RowState(clock, state.generation))

    def onward(self, state: RowState) -> int:
        assert state.clock is not None
        return state.clock.watermark
