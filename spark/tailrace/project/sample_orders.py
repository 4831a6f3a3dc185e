"""Generate the orders of a small shop, with which a project begins that has no records of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime

_BEGIN = int(datetime(2026, 3, 1, 8, tzinfo=UTC).timestamp() * 1000)
_PRICES = {"tea": 4.5, "pot": 19.99, "cup": 7.25, "kettle": 34.9, "honey": 6.4}
_COUNTRIES = ("DE", "DE", "FR", "NL")
_APART, _BEHIND = 90_000, 240_000
"""The mean time between two orders, and the maximum time by which an order is late, in milliseconds."""


def sample_orders(count: int = 400) -> Iterator[str]:
    """Yield orders as lines of JSON, in the order of their arrival, which is not that of their times.

    The orders are always the same ones.
    """
    chance = random.Random(7)
    for number in range(count):
        items = [
            {"sku": sku, "unitPrice": _PRICES[sku], "quantity": chance.randint(1, 3)}
            for sku in chance.sample(sorted(_PRICES), chance.randint(1, 3))
        ]
        late = chance.randint(0, _BEHIND) if chance.random() < 0.2 else 0
        user = {"userId": f"user-{chance.randint(1, 60)}", "country": chance.choice(_COUNTRIES)}
        at = _BEGIN + number * _APART - late
        yield json.dumps({"orderId": f"order-{number:05}", "createdAt": at, "user": user, "items": items})
