"""The input of a join: the join's two logs as one log, in which every record has a column that names its side."""

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
"""The name of the column, in the input of a join, that says whether a record is from the left or the right log."""

JOIN_WINDOW = ("window_start", "window_end")
"""The output columns of a join with windows: the start and the end of the window that contains both records of a
pair.
"""

WINDOWINGS = (Fixed, Sliding, Calendar, Global)
"""The windowings that a join may use: they assign a record to windows by the record's event time alone."""


@dataclass(frozen=True, kw_only=True)
class JoinInput(Union):
    """The two logs of a join as one log: a union whose two members are the sides of the join.

    For each side, `take` has a dict from the join's column names to the column names of that side's log.
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
