"""The log of an auction house, which all Nexmark queries read: persons, auctions and bids, told apart by `kind`."""

from tailrace import Log, Match, Repeat, AfterCount, Fixed, seconds

nexmark = Log(
    name="nexmark",
    columns={"kind": "string", "id": "bigint", "date_time": "timestamp", "extra": "string"}
    | {"name": "string", "email_address": "string", "credit_card": "string", "city": "string", "state": "string"}
    | {"item_name": "string", "description": "string", "initial_bid": "bigint", "reserve": "bigint"}
    | {"expires": "timestamp", "seller": "bigint", "category": "bigint"}
    | {"auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "string", "url": "string"},
    event_time="date_time",
    disorder=seconds(4),
)
PERSON, AUCTION, BID = (Match("kind", "==", kind) for kind in ("person", "auction", "bid"))

AT_ONCE = Repeat(AfterCount(1))
"""Each epoch says what it changed."""

TEN = Fixed(seconds(10))
