"""Clicks joined to their queries, each once however many regions join them: Photon (003; MillWheel, 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from searches import searches_and_clicks

from tailrace import Batch, Computation, Context, Field, Match, Once, Timer, hours


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

    def process_batch(self, batch: Batch) -> None:
        """Do the same for all keys at once; a key with two queries, or a click twice, is left to the code above."""
        rows, terms = batch.records, batch.state["term"]
        of, count = rows["_key"].to_numpy(), rows.num_rows
        asks = pc.equal(rows["log"], "searches").to_numpy()
        asked, known = np.full(len(terms), count), filled(terms)
        asked[of[asks]] = np.flatnonzero(asks)
        odd = np.bincount(of[asks], minlength=len(terms)) + known > 1
        odd[of[~filled(rows["term"].combine_chunks()) & asks]] = True
        odd[of[~filled(rows["click_id"].combine_chunks()) & ~asks]] = True
        # From this row of its key on, a click's query is known.
        since = np.where(known, -1, asked)
        clicks = np.flatnonzero(~asks)
        early = clicks[clicks < since[of[clicks]]]
        held, ads = (pc.list_flatten(batch.state[name]) for name in ("clicks", "ads"))
        holder = pc.list_parent_indices(batch.state["clicks"]).to_numpy()
        names = [held, rows["click_id"].take(early).combine_chunks(), batch.timers["name"].combine_chunks()]
        name = pa.concat_arrays(names).dictionary_encode().indices.to_numpy().astype(np.int64)
        whose = np.concatenate([holder, of[early], batch.timers["_key"].to_numpy()])
        pair, waiting = whose * (len(name) + 1) + name, len(held) + len(early)
        twice = np.unique(pair[:waiting], return_counts=True)
        odd[whose[:waiting][np.isin(pair[:waiting], twice[0][twice[1] > 1])]] = True
        odd[holder[~np.isin(pair[: len(held)], pair[waiting:])]] = True
        batch.by_record(odd)

        term = pa.concat_arrays([terms, rows["term"].combine_chunks()])
        term = batch.state["term"] = term.take(np.where(asked < count, len(terms) + asked, np.arange(len(terms))))
        asks = asks & ~odd[of]
        batch.set_timers(asks, "forget", pc.add(rows["at"].filter(asks), pa.scalar(2 * self.waits)))
        joined = {"outcome": "joined"}
        # Clicks that waited before this epoch, in their order; a timer knows the time of its click.
        now = np.flatnonzero((since[holder] < count) & ~odd[holder])
        timers = np.argsort(pair[waiting:])
        timer = timers[np.searchsorted(pair[waiting:][timers], pair[now])] if len(now) else now
        when, query = batch.timers["holds"].take(timer), since[holder[now]]
        told = {"click_id": held.take(now), "ad": ads.take(now), "term": term.take(holder[now])}
        batch.produce(query, joined | told, when)
        batch.delete_timers(query, held.take(now))
        clicks = clicks[~odd[of[clicks]]]
        waits = clicks[since[of[clicks]] == count]
        joins = clicks[since[of[clicks]] < count]
        told = {name: rows[name].take(joins) for name in ("click_id", "ad")} | {"term": term.take(of[joins])}
        batch.produce(np.maximum(joins, since[of[joins]]), joined | told, rows["at"].take(joins))
        for field, column in (("clicks", "click_id"), ("ads", "ad")):
            lists = batch.state[field]
            lists = pc.if_else(since < count, pa.scalar([], lists.type), lists)
            batch.state[field] = batch.appended(lists, of[waits], rows[column].take(waits))
        at = rows["at"].take(waits)
        batch.set_timers(waits, rows["click_id"].take(waits), pc.add(at, pa.scalar(self.waits)), holds=at)

    def process_timers(self, batch: Batch) -> None:
        forget = pc.equal(batch.due["name"], "forget").to_numpy()
        batch.by_record(~forget)
        for name, field in self.fields.items():
            batch.state[name] = field.default


def filled(texts: pa.Array) -> Any:
    """Which texts are neither null nor empty."""
    return pc.fill_null(pc.greater(pc.binary_length(texts), 0), False).to_numpy(zero_copy_only=False)


once = Once("joined_clicks", by="click_id", keep=Match("outcome", "==", "joined"))
photon = Photon(name="photon", log=searches_and_clicks, key="query_id", allowed_lateness=hours(1), once=once)
