"""A definition that gives rows once and for all, a map or a join, on either engine (`engines.protocol.Side`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tailrace.engines.choose import EngineChoice
from tailrace.engines.protocol import EpochCounts
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Windowless
from tailrace.model.definition.map import Map

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class RowState:
    """The state between two epochs: the last epoch's clock, the stream's generation, how many records are kept."""

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
class SteppedRows(Generic[Rows]):
    """The result of an epoch: the rows to write to the ledger, in the engine's own form, and the state after it."""

    rows: Rows
    state: RowState


class RowSide(ABC, Generic[Rows]):
    """A map or a join on one engine: one subclass steps each kind, another writes and reads the rows of each engine."""

    def __init__(self, lake: Lake, definition: Windowless, choice: EngineChoice) -> None:
        self.lake, self.choice = lake, choice
        self.definition, self.ledger = definition, ledger_name(definition.name)

    @abstractmethod
    def step(self, state: RowState, consumed: Any, clock: Clock) -> SteppedRows[Rows]:
        """Take the definition through an epoch. Raises `ClockError` if the clock goes back."""

    @abstractmethod
    def write(self, stepped: SteppedRows[Rows], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        """Write an epoch's rows to the ledger's branch, to be published in a commit with these properties."""

    def nothing(self, generation: int) -> RowState:
        return RowState(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> RowState:
        return RowState(clock, generation)

    def consume(self, bundle: Any, state: RowState) -> Any:
        return bundle

    def due(self, state: RowState, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        return None

    def close(self) -> None:
        """Do nothing: nothing is held."""


class MapSide(RowSide[Rows], Generic[Rows]):
    """A map on one engine, whose only state is the clock; a subclass makes the rows in the engine's own way."""

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
