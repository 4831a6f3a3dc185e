"""What several queries say of auctions begins here: with what is bid for each, and with those bids that count."""

from nexmark_log import AT_ONCE, AUCTION, BID, nexmark

from tailrace import RETRACTING, AnyValue, Col, Count, Derive, Global, If, Join, Map, Match, Max, Pipeline

bids_by_auction = Pipeline(
    name="bids_by_auction",
    log=nexmark,
    each=Derive({"item": If(AUCTION, Col("id"), Col("auction"))}),
    keep=AUCTION | BID,
    key="item",
    what={"item_name": AnyValue("item_name"), "bids": Count("auction"), "highest": Max("price")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)

ABOUT = ("item_name", "description", "initial_bid", "reserve", "expires", "seller", "category")
auctions = Map(name="auctions", log=nexmark, keep=AUCTION, what=("id", *ABOUT, "date_time"))
bids = Map(name="bids", log=nexmark, keep=BID, what=("auction", "bidder", "price", "date_time"))
offers = Join(
    name="offers",
    left=auctions.produced,
    right=bids.produced,
    on={"id": "auction"},
    where=Global(),
    left_columns={name: name for name in ABOUT} | {"opened_at": "date_time"},
    right_columns={"bidder": "bidder", "price": "price", "bid_at": "date_time"},
)
OPENED = ("id", *ABOUT, "opened_at")
TIMED = Derive({"since": Col("bid_at") - Col("opened_at"), "until": Col("expires") - Col("bid_at")})
IN_TIME = Match("since", ">=", 0) & Match("until", ">=", 0)

final_prices = Pipeline(
    name="final_prices",
    log=offers.produced,
    each=TIMED,
    keep=IN_TIME,
    key=("id", "category"),
    what={"final": Max("price")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
