"""Simulate a map or a join on a sample of records, and return the output rows.

The reference execution (plain Python that defines the correct results) runs the definition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map, Mapped
from tailrace.model.step.join_step import Joined, LateKept
from tailrace.plots.simulation import ChainSimulation

R = TypeVar("R", bound=Ranged)


class RowSimulation(ChainSimulation[R]):
    """The simulation of a definition that outputs rows (a map or a join). Maps and joins have no plot."""

    @property
    @abstractmethod
    def rows(self) -> Sequence[Mapped | Joined]:
        """The output rows of the simulation, in order."""

    @property
    @abstractmethod
    def reads(self) -> str:
        """A short text that describes the kind of the definition and its inputs."""

    @property
    def signs(self) -> Sequence[int] | None:
        """The sign of each output row: -1 for a retracted row, else 1.

        The value is None if the definition retracts no rows.
        """
        return None

    @property
    def late(self) -> Sequence[LateKept] | None:
        """The records that arrived too late.

        The value is None if records cannot be late for this kind of definition.
        """
        return None


class MapSimulation(RowSimulation[Map]):
    """The simulation of a map."""

    @property
    def rows(self) -> Sequence[Mapped]:
        return self.run.mapped

    @property
    def reads(self) -> str:
        return f"map of {self.definition.log.name}"


class JoinSimulation(RowSimulation[Join]):
    """The simulation of a join."""

    @property
    def rows(self) -> Sequence[Joined]:
        return self.run.joined

    @property
    def reads(self) -> str:
        join = self.definition
        return f"{join.kind} join of {join.left.name} and {join.right.name}"

    @property
    def signs(self) -> Sequence[int] | None:
        return [-1 if row.retraction else 1 for row in self.rows] if self.definition.takes_back else None

    @property
    def late(self) -> Sequence[LateKept]:
        return self.run.late_for_join
