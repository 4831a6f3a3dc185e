"""A sample computation that outputs the number of clicks of each completed visit (like MillWheel, 4.6, but smaller)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from tailrace.model.base.time import EPOCH, seconds
from tailrace.model.definition.computation import Computation, Context, Field, Timer
from tailrace.model.logs.log import Log
from tailrace.model.step.step import Record

__all__ = ["CLICKS", "Visits", "clicks", "example"]

CLICKS = Log(name="clicks", columns={"who": "string", "at": "timestamp"}, event_time="at")
"""The log of the clicks."""


@dataclass(frozen=True, kw_only=True)
class Visits(Computation):
    """A computation that outputs the number of clicks of each visit.

    A visit ends when its key has no click for `gap`; the event time of a visit is the time of its first click.
    """

    gap: timedelta = timedelta(seconds=30)

    state: ClassVar = {"clicks": Field("bigint", 0), "began": "timestamp"}
    produces: ClassVar = {"clicks": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        visit, end = context.state, context.timer("end")
        visit.clicks += 1
        visit.began = record["at"] if visit.began is None else min(visit.began, record["at"])
        over = record["at"] + self.gap
        context.set_timer("end", over if end is None else max(over, end.at), holds=visit.began)

    def process_timer(self, context: Context, timer: Timer) -> None:
        context.produce({"clicks": context.state.clicks}, event_time=context.state.began)
        context.state.clear()


def example(**options: Any) -> Visits:
    """Build a `Visits` computation over the log of clicks; `options` override the arguments that are passed to
    `Visits`, such as `gap`.
    """
    given: dict[str, Any] = {"name": "visits", "log": CLICKS, "key": "who"}
    return Visits(**given | options)


def clicks(text: str) -> list[Record]:
    """Parse clicks from text; each click has the user, and the time in seconds since 1970.

    >>> [(one["who"], one["at"].second) for one in clicks("a 0, b 7")]
    [('a', 0), ('b', 7)]
    """
    pairs = (one.split() for one in text.split(","))
    return [{"who": who, "at": EPOCH + seconds(float(at))} for who, at in pairs]
