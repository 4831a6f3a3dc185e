"""A map in a stream, on either engine: a fold whose only state is the clock (`engines.protocol.Side`)."""

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
from tailrace.model.definition.map import Map

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class MapState:
    """The state of a map between two epochs: the last epoch's clock, and the stream's generation. No window is open."""

    clock: Clock | None
    generation: int
    count: int = 0

    def forget(self) -> None:
        """Do nothing: no memory is held for this state."""


@dataclass(frozen=True)
class SteppedMap(Generic[Rows]):
    """The result of an epoch: the rows to write to the ledger, in the engine's own form, and the state after it."""

    rows: Rows
    state: MapState


class MapSide(ABC, Generic[Rows]):
    """A map on one engine; a subclass makes and writes the rows in the engine's own way."""

    holds = False

    def __init__(self, lake: Lake, definition: Map, choice: EngineChoice) -> None:
        self.lake, self.map, self.choice = lake, definition, choice
        self.ledger = ledger_name(definition.name)

    @abstractmethod
    def made(self, bundle: Any, clock: Clock, generation: int) -> Rows:
        """Make the ledger's rows from a bundle."""

    @abstractmethod
    def write(self, stepped: SteppedMap[Rows], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        """Write an epoch's rows to the ledger's branch, to be published in a commit with these properties."""

    def nothing(self, generation: int) -> MapState:
        return MapState(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> MapState:
        return MapState(clock, generation)

    def consume(self, bundle: Any, state: MapState) -> Any:
        return bundle

    def step(self, state: MapState, consumed: Any, clock: Clock) -> SteppedMap[Rows]:
        clock.after(state.clock)
        return SteppedMap(self.made(consumed, clock, state.generation), MapState(clock, state.generation))

    def onward(self, state: MapState) -> int:
        assert state.clock is not None
        return state.clock.watermark

    def due(self, state: MapState, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        return None

    def close(self) -> None:
        """Do nothing: a map holds nothing."""
