"""The input of a join: its two logs as one log, whose records say which side they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tailrace.model.base.errors import Fault
from tailrace.model.logs.derived_logs import Union
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.windows import Fixed, Global, Sliding

JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]
JOIN_KINDS = ("inner", "left", "right", "full")

Unmatched: TypeAlias = Literal["wait", "tell"]
UNMATCHED = ("wait", "tell")

LEFT, RIGHT = SIDES = ("left", "right")

SIDE = "side"
"""The column of a join's input that says which side a record is of."""

JOIN_WINDOW = ("window_start", "window_end")
"""The columns that say in which window the two records are, where a join has windows."""

WINDOWINGS = (Fixed, Sliding, Calendar, Global)
"""The windowings that a join may have: which window a record is in, its own time decides."""


@dataclass(frozen=True, kw_only=True)
class JoinInput(Union):
    """The two logs of a join as one; the members are its sides.

    `take` maps the names that the join gives to each side's columns.
    """

    take: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def takes_back(self) -> bool:
        return any(log.takes_back for log in self.parts)

    @property
    def trails(self) -> int:
        return max(log.trails for log in self.parts)

    def columns_of(self, member: str) -> Mapping[str, str]:
        return self.take[member]

    def _given_faults(self) -> Iterable[Fault]:
        return ()

    def _faults(self) -> Iterable[Fault]:
        """Find none: the join has looked at its sides."""
        return ()
