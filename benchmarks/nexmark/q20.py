"""Each bid with its auction, of those of category 10."""

from nexmark_auctions import ITEM
from nexmark_log import AT_ONCE, AUCTION, BID, nexmark

from tailrace import RETRACTING, Collect, Count, Global, Match, Pack, Pairs, Pipeline

ABOUT = ("item_name", "description", "initial_bid", "reserve", "expires", "seller", "category")
OPENED = {name: name for name in ABOUT} | {"auction_date_time": "date_time", "auction_extra": "extra"}
BIDS = {name: name for name in ("auction", "bidder", "price", "channel", "url")}
BIDS |= {"bid_date_time": "date_time", "bid_extra": "extra"}
sides = Pipeline(
    name="q20_sides",
    log=nexmark,
    each=[ITEM, Pack("opened", OPENED, AUCTION & Match("category", "==", 10)), Pack("bid", BIDS, BID)],
    keep=AUCTION | BID,
    key="item",
    what={"auctions": Collect("opened"), "bids": Collect("bid")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
q20 = Pipeline(
    name="q20",
    log=sides.panes,
    each=Pairs("auctions", "bids"),
    key=(*BIDS, *OPENED),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
