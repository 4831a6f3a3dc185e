"""The input of a join: its two logs as one log, in which every record names its side."""

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
"""The column of a join's input that names the side of a record."""

JOIN_WINDOW = ("window_start", "window_end")
"""The columns for the start and the end of the window that both records are in, if the join has windows."""

WINDOWINGS = (Fixed, Sliding, Calendar, Global)
"""The windowings that a join may have: they assign a record to windows by its event time alone."""


@dataclass(frozen=True, kw_only=True)
class JoinInput(Union):
    """The two logs of a join as one log, with the two sides as its members.

    `take` has, for each side, a dict from the join's column name to the side's column name.
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
        """Return no faults, because the join checks its sides itself."""
        return ()
