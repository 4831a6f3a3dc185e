"""Generate the orders of a shop in several countries, as its web shop and its app send them: nested, in camelCase.

Prices are doubles, an order has one to six items, and instants are milliseconds. Some phones are offline, so their
orders become known hours later. A source may deliver an order twice. A newer app sends fields that nobody announced.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tailrace.generate.delivery import HOUR, MINUTE, SECOND, Delivery, Zipf, arrivals, by_known_time

COUNTRIES = ("DE", "FR", "GB", "IT", "NL", "PL", "SE", "US")
PRODUCTS = 200
OFFLINE, AGAIN, NEWER = 0.05, 0.01, 0.1
"""Shares of orders: from an offline phone, delivered twice, and from a newer app."""


def orders(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """Generate about `rate` orders per second over `length` microseconds of event time from `first` on, sorted by
    `known`.

    A record is an order: `orderId`, the `user` with `id` and `country`, the time `createdAt` in milliseconds (the event
    time), and its `items` with `sku`, `unitPrice` and `quantity`.

    >>> made = orders(rate=5, length=60_000_000, seed=1, first=0)
    >>> made == orders(rate=5, length=60_000_000, seed=1, first=0), sorted(made[0].record)
    (True, ['createdAt', 'items', 'orderId', 'user'])
    """
    chance = Random(seed)
    users = max(20, int(rate * length / SECOND / 6))
    eager, popular = Zipf(users, 0.4), Zipf(PRODUCTS, 0.9)
    prices = [round(chance.lognormvariate(2.8, 0.9), 2) for _ in range(PRODUCTS)]
    made = list[Delivery]()
    for number, at in enumerate(arrivals(chance, rate, first, first + length)):
        user = eager.draw(chance)
        record: dict[str, Any] = {
            "orderId": f"order-{number:08}",
            "user": {"id": f"user-{user:05}", "country": COUNTRIES[user % len(COUNTRIES)]},
            "createdAt": at // 1000,
            "items": list(_items(chance, popular, prices)),
        }
        if chance.random() < NEWER:
            record |= {"appVersion": "7.1", "gift": {"wrapped": chance.random() < 0.5}}
        offline = chance.random() < OFFLINE
        known = at + int(chance.uniform(10 * MINUTE, 9 * HOUR) if offline else chance.expovariate(1.0) * SECOND)
        made.append(Delivery(known, record))
        if chance.random() < AGAIN:
            made.append(Delivery(known + int(chance.uniform(1, 300) * SECOND), record))
    return by_known_time(made)


def _items(chance: Random, popular: Zipf, prices: list[float]) -> Iterator[dict[str, Any]]:
    for product in dict.fromkeys(popular.draw(chance) for _ in range(chance.randrange(1, 7))):
        yield {"sku": f"sku-{product:03}", "unitPrice": prices[product], "quantity": chance.randrange(1, 4)}
