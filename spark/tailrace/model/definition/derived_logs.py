"""Logs that definitions give one another: a stage's panes, and what a computation or a map produces."""

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
    """The log that a definition is to its readers: the rows are in its ledger, and no source lands them."""

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
    """What a computation or a map produces as the log of another definition; their `produced` makes it.

    Its columns are a computation's key and those that it says it produces, or those that go out of a map, and
    `event_time`. A stream takes nothing of it back. Its watermark is that of who produces it (rule T3), and no record
    of a computation is ever late.
    """

    of: Computation | Map = field(kw_only=True)

    @property
    def kept(self) -> bool:
        """Whether the ledger keeps them; else they are computed again where they are wanted again."""
        return getattr(self.of, "productions", "strong") == "strong"
