"""What several queries say of auctions begins here: with what is bid for each, and with those bids that count."""

from nexmark_log import AT_ONCE, AUCTION, BID, nexmark

from tailrace import RETRACTING, AnyValue, Col, Collect, Count, Derive, Global, If, Match, Max, Pack, Pairs, Pipeline

ITEM = Derive({"item": If(AUCTION, Col("id"), Col("auction"))})

bids_by_auction = Pipeline(
    name="bids_by_auction",
    log=nexmark,
    each=ITEM,
    keep=AUCTION | BID,
    key="item",
    what={"item_name": AnyValue("item_name"), "bids": Count("auction"), "highest": Max("price")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)

OPENED = ("id", "item_name", "description", "initial_bid", "reserve", "opened_at", "expires", "seller", "category")
auctions_and_bids = Pipeline(
    name="auctions_and_bids",
    log=nexmark,
    each=[
        ITEM,
        Pack("opened", {name: {"opened_at": "date_time"}.get(name, name) for name in OPENED}, AUCTION),
        Pack("bid", {"bid_at": "date_time", "bidder": "bidder", "price": "price"}, BID),
    ],
    keep=AUCTION | BID,
    key="item",
    what={"auctions": Collect("opened"), "bids": Collect("bid")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
PAIRED = Pairs("auctions", "bids")
TIMED = Derive({"since": Col("bid_at") - Col("opened_at"), "until": Col("expires") - Col("bid_at")})
IN_TIME = Match("since", ">=", 0) & Match("until", ">=", 0)

final_prices = Pipeline(
    name="final_prices",
    log=auctions_and_bids.panes,
    each=[PAIRED, TIMED],
    keep=IN_TIME,
    key=("id", "category"),
    what={"final": Max("price")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
