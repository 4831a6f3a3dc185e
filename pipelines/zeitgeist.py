"""Terms that are asked for much more, or much less, than they were: MillWheel's first example (section 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from queries import queries

from tailrace import Computation, Context, Field, Timer, minutes, seconds


@dataclass(frozen=True, kw_only=True)
class Zeitgeist(Computation):
    every: timedelta = seconds(1)
    memory: timedelta = minutes(2)
    sure: float = 3.5
    buckets: int = 3

    state = {
        "n": Field("bigint", 0),
        "rate": Field("double", 0.0),
        "seen": Field("bigint", 0),
        "off": Field("bigint", 0),
    }
    produces = {"what": "string", "n": "bigint", "expected": "double"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.n += 1
        if context.timer("bucket") is None:
            context.set_timer("bucket", record["at"] + self.every)

    def process_timer(self, context: Context, timer: Timer) -> None:
        term = context.state
        # At first the mean of what there was, then one that forgets.
        weight, known = max(self.every / self.memory, 1 / (term.seen + 1)), term.seen > self.memory / self.every / 4
        strange = (term.n - term.rate) / max(term.rate, 1.0) ** 0.5
        way = (strange > self.sure) - (strange < -self.sure)
        term.off = term.off + way if term.off * way > 0 else way
        if abs(term.off) == self.buckets and known:
            context.produce({"what": "spike" if way > 0 else "dip", "n": term.n, "expected": term.rate})
        term.rate, term.seen, term.n = term.rate + weight * (term.n - term.rate), term.seen + 1, 0
        # A term that nobody asks for any more is forgotten.
        term.clear() if term.rate < 0.01 else context.set_timer("bucket", timer.at + self.every)


zeitgeist = Zeitgeist(name="zeitgeist", log=queries, key="term", ordered=True)
