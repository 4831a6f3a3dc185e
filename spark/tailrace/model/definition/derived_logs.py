"""Logs that definitions give one another: a stage's panes, and the productions of a computation or a map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tailrace.model.base.errors import Fault
from tailrace.model.definition.log import Log


class Producer(Protocol):
    """A definition whose output is the log of others."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Log:
        """The log that a source fills and that the definition reads, directly or through others."""

    @property
    def fingerprint(self) -> str: ...


P = TypeVar("P", bound=Producer)


@dataclass(frozen=True, kw_only=True)
class _Output(Log, Generic[P]):
    """A definition's output as its readers' log: the rows are in the definition's ledger, and no source lands them."""

    of: P = field(kw_only=True)

    @property
    def landed(self) -> bool:
        return False

    @property
    def source(self) -> Log:
        return self.of.source

    def _faults(self) -> Iterable[Fault]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Panes(_Output[P]):
    """The panes of a stage as the log of a later one; `Pipeline.panes` makes it.

    Its columns are the key, the results, `window_start` and `window_end`, and `event_time`. It has no bounds and no
    disorder of its own: its watermark is the stage's (rule T3).
    """


@dataclass(frozen=True, kw_only=True)
class Productions(_Output[P]):
    """The productions of a computation or a map as the log of another definition; their `produced` makes it.

    Its columns are a computation's key and `produces`, or the columns that go out of a map, and `event_time`. A stream
    takes nothing of it back. Its watermark is that of the definition that produces it (rule T3), and no record of a
    computation is ever late.
    """

    @property
    def kept(self) -> bool:
        """Whether the ledger keeps the productions; else they are computed again where they are needed again."""
        return getattr(self.of, "productions", "strong") == "strong"
