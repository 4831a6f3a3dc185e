"""Generate queries of a search engine, with a spike in one search term and a dip in another term (MillWheel, 2)."""

from __future__ import annotations

from random import Random

from tailrace.generate.delivery import SECOND, Delivery, Zipf, arrivals, by_known_time

TERMS, SKEW = 20, 0.9
SPIKE, DIP = "lottery", "term-00"
"""`SPIKE` is the term whose rate rises at the middle of the time range. `DIP` is the term whose rate falls after three
quarters of the time range.
"""

LASTS = 8 * SECOND
"""The length of the spike and of the dip, in microseconds."""

MANY, FEW = 2.0, 0.1
"""`MANY` is the additional rate during the spike, as a multiple of `rate`. `FEW` is the share of the queries for the
term `DIP` that remain during the dip.
"""


def queries(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """Generate about `rate` queries per second over `length` microseconds of event time from `first` on, sorted by
    `known`.

    A record is a query with its search term (`term`) and its event time (`at`). On average, a query becomes known one
    second after its event time.

    >>> a, b, c = (queries(rate=5, length=60_000_000, seed=seed, first=0) for seed in (1, 1, 2))
    >>> a == b, a == c
    (True, False)
    """
    chance, popular = Random(seed), Zipf(TERMS, SKEW)
    spike, dip = first + length // 2, first + length * 3 // 4
    asked = [(at, f"term-{popular.draw(chance):02}") for at in arrivals(chance, rate, first, first + length)]
    asked = [(at, term) for at, term in asked if not (term == DIP and 0 <= at - dip < LASTS) or chance.random() < FEW]
    asked += [(at, SPIKE) for at in arrivals(chance, rate / TERMS, first, first + length)]
    asked += [(at, SPIKE) for at in arrivals(chance, rate * MANY, spike, min(spike + LASTS, first + length))]
    known = ((at + int(chance.expovariate(1.0) * SECOND), {"term": term, "at": at}) for at, term in sorted(asked))
    return by_known_time(Delivery(*one) for one in known)
