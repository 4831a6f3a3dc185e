"""Parts of a user's own that transcripts are written with: windows, a combiner and a trigger that are not built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tailrace import OwnCombiner, OwnWindows
from tailrace.model.base.time import duration
from tailrace.model.triggers.trigger import Moment, Ready, Trigger
from tailrace.model.windows.windows import NOTHING, Window


@dataclass(frozen=True)
class Bursts(OwnWindows):
    """Sessions that a record of at least `loud` keeps open three times as long."""

    gap: timedelta
    loud: int

    columns = ("value",)
    merges = True

    @property
    def reach(self) -> int:
        return 3 * duration(self.gap)

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        loud = (record.get("value") or 0) >= self.loud
        return [Window(at, at + duration(self.gap) * (3 if loud else 1))]


@dataclass(frozen=True)
class Lengths(OwnWindows):
    """A window from when a record happened, for as many minutes as its value says; they stay apart."""

    columns = ("value",)

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        return [Window(at, at + record["value"] * 60_000_000)]


@dataclass(frozen=True)
class Product(OwnCombiner):
    """What whole numbers other than 0 multiply to; it can take them out again."""

    column: str
    uncombines = True

    def zero(self) -> Any:
        return 1

    def add(self, state: Any, value: Any) -> Any:
        return state * value

    def merge(self, a: Any, b: Any) -> Any:
        return a * b

    def uncombine(self, a: Any, b: Any) -> Any:
        return a // b

    def output(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class Doubling(Trigger):
    """After 1, 2, 4, 8 ... fresh records: ever rarer panes."""

    def slots(self) -> dict[str, bool | int]:
        return {"wanted": 1}

    def ready(self, o: Any, slots: Any, moment: Moment) -> Ready:
        return Ready(o.at_least(moment.fresh, slots["wanted"]), o.literal(False, "boolean"))

    def fired(self, o: Any, slots: Any, moment: Moment) -> dict[str, Any]:
        return {"wanted": o.add(slots["wanted"], slots["wanted"], "bigint")}
