"""The auctions with at least as many bids as auctions have on average."""

from nexmark_auctions import bids_by_auction
from nexmark_log import AT_ONCE

from tailrace import RETRACTING, Col, Collect, Count, Derive, Global, If, Match, Missing, Pack, Pipeline, Sum, Unpack

everything = Pipeline(
    name="q102_everything",
    log=bids_by_auction.panes,
    each=[Derive({"bid_for": If(Match("bids", ">", 0), 1, 0)}), Pack("auction", ("item", "item_name", "bids"))],
    what={"auctions": Collect("auction"), "all_bids": Sum("bids"), "all_bid_for": Sum("bid_for")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
# Of whole numbers b >= n // m just where n < (b + 1) * m.
q102 = Pipeline(
    name="q102",
    log=everything.panes,
    each=[Unpack("auctions"), Derive({"above": (Col("bids") + 1) * Col("all_bid_for") - Col("all_bids")})],
    keep=~Missing("item_name") & Match("bids", ">", 0) & Match("above", ">", 0),
    key=("item", "item_name", "bids"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
