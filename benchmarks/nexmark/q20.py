"""Each bid with its auction, of those of category 10."""

from nexmark_auctions import ABOUT
from nexmark_log import AUCTION, BID, nexmark

from tailrace import Global, Join, Map, Match

ten = Match("category", "==", 10)
auctions = Map(name="q20_auctions", log=nexmark, keep=AUCTION & ten, what=("id", *ABOUT, "date_time", "extra"))
BIDS = ("bidder", "price", "channel", "url")
bids = Map(name="q20_bids", log=nexmark, keep=BID, what=("auction", *BIDS, "date_time", "extra"))
q20 = Join(
    name="q20",
    left=bids.produced,
    right=auctions.produced,
    on={"auction": "id"},
    where=Global(),
    left_columns={name: name for name in BIDS} | {"bid_date_time": "date_time", "bid_extra": "extra"},
    right_columns={name: name for name in ABOUT} | {"auction_date_time": "date_time", "auction_extra": "extra"},
)
