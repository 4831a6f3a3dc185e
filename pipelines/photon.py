"""Clicks joined to their queries, each once however many regions join them: Photon (003; MillWheel, 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from searches import searches_and_clicks

from tailrace import Computation, Context, Field, Match, Once, Timer, hours


@dataclass(frozen=True, kw_only=True)
class Photon(Computation):
    waits: timedelta = hours(1)
    state = {"term": "string", "clicks": Field("array<string>", []), "ads": Field("array<string>", [])}
    produces = {"outcome": "string", "click_id": "string", "ad": "string", "term": "string"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        query = context.state
        if record["log"] == "searches":
            query.term = record["term"]
            context.set_timer("forget", record["at"] + 2 * self.waits)
            waiting = [context.timer(click) for click in query.clicks] if query.term else []
            for waited in filter(None, waiting):
                self.tell(context, "joined", waited)
        elif query.term:
            click = {"click_id": record["click_id"], "ad": record["ad"]}
            context.produce({"outcome": "joined", "term": query.term, **click})
        elif record["click_id"] not in query.clicks:
            query.clicks.append(record["click_id"])
            query.ads.append(record["ad"])
            context.set_timer(record["click_id"], record["at"] + self.waits, holds=record["at"])

    def process_timer(self, context: Context, timer: Timer) -> None:
        context.state.clear() if timer.name == "forget" else self.tell(context, "unjoinable", timer)

    def tell(self, context: Context, outcome: str, waited: Timer) -> None:
        query = context.state
        place = query.clicks.index(waited.name)
        click = {"click_id": query.clicks.pop(place), "ad": query.ads.pop(place)}
        context.delete_timer(waited.name)
        context.produce({"outcome": outcome, "term": query.term, **click}, event_time=waited.holds)


once = Once("joined_clicks", by="click_id", keep=Match("outcome", "==", "joined"))
photon = Photon(name="photon", log=searches_and_clicks, key="query_id", allowed_lateness=hours(1), once=once)
