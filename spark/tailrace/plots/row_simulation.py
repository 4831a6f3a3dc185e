"""A map or a join that the reference execution folds over a sample, and the rows that it outputs."""

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
    """A definition that outputs rows (a map or a join), folded over epochs. There is no plot for such a definition."""

    @property
    @abstractmethod
    def rows(self) -> Sequence[Mapped | Joined]:
        """The rows that the fold output, in order."""

    @property
    @abstractmethod
    def reads(self) -> str:
        """A few words that describe the kind of the definition and its inputs."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the rows that the fold output."""
        return list(self.definition.results)

    @property
    def signs(self) -> Sequence[int] | None:
        """The sign of each row: -1 for a retracted row, else 1. None if the definition retracts no rows."""
        return None

    @property
    def late(self) -> Sequence[LateKept] | None:
        """The late records. None if the definition has no lateness."""
        return None


class MapSimulation(RowSimulation[Map]):
    """A map folded over epochs."""

    @property
    def rows(self) -> Sequence[Mapped]:
        return self.run.mapped

    @property
    def reads(self) -> str:
        return f"map of {self.definition.log.name}"


class JoinSimulation(RowSimulation[Join]):
    """A join folded over epochs."""

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
