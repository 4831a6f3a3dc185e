"""Generate queries of a search engine, and clicks on the ads next to their results, as two logs (Photon, 1).

Queries and clicks arrive from many places with different delays, so a click may become known before its query. Some
queries never become known, and some clicks become known only hours later. A source may deliver the same record twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tailrace.generate.delivery import HOUR, MINUTE, SECOND, Delivery, Zipf, arrivals, by_known_time

TERMS, ADS, SHOWN = 200, 80, 5
"""`TERMS` is the number of search terms, `ADS` is the number of ads, and `SHOWN` is the number of ads per term."""

CLICKED, MORE = 0.35, 0.3
"""`CLICKED` is the probability that a query has at least one click. `MORE` is the probability that a click is followed
by another click.
"""

SLOW, LOST, OFFLINE, AGAIN = 0.05, 0.01, 0.01, 0.02
"""`SLOW` is the share of queries that become known minutes late, and `LOST` is the share of queries that never become
known. `OFFLINE` is the share of clicks that become known up to hours late, and `AGAIN` is the share of records that are
delivered twice.
"""

CLICKS = CLICKED / (1 - MORE)
"""The average number of clicks per query."""


def searches(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """Generate about `rate` records per second: queries in the `length` microseconds from `first` on, and their clicks.

    A record of log "searches" is a query with its `query_id` and `term`. A record of log "clicks" has its `click_id`,
    the `query_id` of its query, and the `ad`. Logs that start at different times have no ids in common. `at` is the
    event time, and `known` is the time at which the record becomes known. Most clicks happen within a minute after
    their query, but a few happen more than ten minutes later. Clicks after the end of the range are included if their
    query is in the range. Records that become known after the end of the range are also included.

    >>> made = searches(rate=50, length=60_000_000, seed=1, first=0)
    >>> made == searches(rate=50, length=60_000_000, seed=1, first=0)
    True
    >>> asked = {one.record["query_id"]: one.known for one in made if one.log == "searches"}
    >>> clicks = [one for one in made if one.log == "clicks"]
    >>> any(one.known < asked.get(one.record["query_id"], 0) for one in clicks)
    True
    """
    chance, popular, ads = Random(seed), Zipf(TERMS, 1.0), Zipf(SHOWN, 1.0)
    made: list[Delivery] = []
    for at in arrivals(chance, rate / (1 + CLICKS), first, first + length):
        query_id, term = f"query-{at}", popular.draw(chance)
        record = {"query_id": query_id, "term": f"term-{term:03}", "at": at}
        slow = chance.uniform(1, 10) * MINUTE if chance.random() < SLOW else 0
        if chance.random() >= LOST:
            made += _deliveries(chance, "searches", record, slow)
        clicked, clicks = at, 0
        more = chance.random() < CLICKED
        while more:
            clicked += int(chance.lognormvariate(3.0, 1.2) * SECOND)
            ad = f"ad-{(term * 7 + ads.draw(chance)) % ADS:02}"
            record = {"click_id": f"click-{at}-{clicks}", "query_id": query_id, "ad": ad, "at": clicked}
            offline = chance.uniform(0.2, 5) * HOUR if chance.random() < OFFLINE else 0
            made += _deliveries(chance, "clicks", record, offline)
            clicks += 1
            more = chance.random() < MORE
    return by_known_time(made)


def _deliveries(chance: Random, log: str, record: dict[str, Any], late: float) -> Iterator[Delivery]:
    """Yield the delivery of a record, about one second plus `late` microseconds after its event time.

    A share `AGAIN` of the records is delivered twice.
    """
    known = record["at"] + int(late) + int(chance.expovariate(1.0) * SECOND)
    record = record | {"known": known}
    yield Delivery(known, record, log)
    if chance.random() < AGAIN:
        yield Delivery(known + int(chance.uniform(1, 300) * SECOND), record, log)
