"""Routes that fall silent: nobody has left from one airport for another for a day."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flights import flights

from tailrace import Computation, Context, Field, Timer, days, hours


@dataclass(frozen=True, kw_only=True)
class Silences(Computation):
    after: timedelta = days(1)

    state = {"departures": Field("bigint", 0), "last": "timestamp"}
    produces = {"departures": "bigint", "last": "timestamp"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        route = context.state
        route.departures += 1
        if route.last is None or record["scheduled"] > route.last:
            route.last = record["scheduled"]
            context.set_timer("silent", route.last + self.after)

    def process_timer(self, context: Context, timer: Timer) -> None:
        context.produce({"departures": context.state.departures, "last": context.state.last})
        context.state.clear()


silences = Silences(name="silences", log=flights, key=("origin", "dest"), allowed_lateness=hours(3))
