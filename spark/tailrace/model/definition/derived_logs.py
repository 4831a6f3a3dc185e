"""Logs that definitions give one another: a stage's panes, and the productions of a computation or a map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.model.base.errors import Fault
from tailrace.model.definition.log import Log

if TYPE_CHECKING:
    from tailrace.model.definition.computation import Computation
    from tailrace.model.definition.map import Map
    from tailrace.model.definition.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class _Given(Log):
    """A definition's output as its readers' log: the rows are in the definition's ledger, and no source lands them."""

    of: Pipeline | Computation | Map = field(kw_only=True)

    @property
    def landed(self) -> bool:
        return False

    @property
    def source(self) -> Log:
        return self.of.source

    def _faults(self) -> Iterable[Fault]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Panes(_Given):
    """The panes of a stage as the log of a later one; `Pipeline.panes` makes it.

    Its columns are the key, the results, `window_start` and `window_end`, and `event_time`. It has no bounds and no
    disorder of its own: its watermark is the stage's (rule T3).
    """

    of: Pipeline = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Productions(_Given):
    """The productions of a computation or a map as the log of another definition; their `produced` makes it.

    Its columns are a computation's key and `produces`, or the columns that go out of a map, and `event_time`. A stream
    takes nothing of it back. Its watermark is that of the definition that produces it (rule T3), and no record of a
    computation is ever late.
    """

    of: Computation | Map = field(kw_only=True)

    @property
    def kept(self) -> bool:
        """Whether the ledger keeps the productions; else they are computed again where they are needed again."""
        return getattr(self.of, "productions", "strong") == "strong"
