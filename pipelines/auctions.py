"""The three logs of an auction house: who joins, what is put up, and what is bid, each told in its own time."""

from tailrace import Log, seconds

persons = Log(
    name="persons",
    columns={"id": "bigint", "date_time": "timestamp", "extra": "string"}
    | {"name": "string", "email_address": "string", "credit_card": "string", "city": "string", "state": "string"},
    event_time="date_time",
    disorder=seconds(4),
    record_id="id",
)
auctions = Log(
    name="auctions",
    columns={"id": "bigint", "date_time": "timestamp", "expires": "timestamp", "extra": "string"}
    | {"item_name": "string", "description": "string", "initial_bid": "bigint", "reserve": "bigint"}
    | {"seller": "bigint", "category": "bigint"},
    event_time="date_time",
    disorder=seconds(4),
    record_id="id",
)
bids = Log(
    name="bids",
    columns={"auction": "bigint", "bidder": "bigint", "price": "bigint", "date_time": "timestamp"}
    | {"channel": "string", "url": "string", "extra": "string"},
    event_time="date_time",
    disorder=seconds(4),
)
