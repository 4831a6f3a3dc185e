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

    state = {"n": Field("bigint", 0), "rate": Field("double", 0), "seen": Field("bigint", 0), "off": Field("bigint", 0)}
    produces = {"what": "string", "n": "bigint", "expected": "double"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.n += 1
        if context.timer("bucket") is None:
            context.set_timer("bucket", record["at"] + self.every)

    def process_timer(self, context: Context, timer: Timer) -> None:
        term, buckets = context.state, self.memory / self.every
        strange = (term.n - term.rate) / max(term.rate, 1.0) ** 0.5
        way = (strange > 3.5) - (strange < -3.5)
        term.off = term.off + way if term.off * way > 0 else way
        if abs(term.off) == 3 and term.seen > buckets / 4:
            context.produce({"what": "spike" if way > 0 else "dip", "n": term.n, "expected": term.rate})
        # At first the mean of what there was, then one that forgets; so does a term that nobody asks for any more.
        term.rate += max(1 / buckets, 1 / (term.seen + 1)) * (term.n - term.rate)
        term.seen, term.n = term.seen + 1, 0
        term.clear() if term.rate < 0.01 else context.set_timer("bucket", timer.at + self.every)


zeitgeist = Zeitgeist(name="zeitgeist", log=queries, key="term", ordered=True)
