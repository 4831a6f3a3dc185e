"""The auctions that do not have some bids, but fewer than 20."""

from nexmark_auctions import bids_by_auction
from nexmark_log import AT_ONCE

from tailrace import Count, Global, Match, Missing, Pipeline

q104 = Pipeline(
    name="q104",
    log=bids_by_auction.panes,
    keep=~Missing("item_name") & (Match("bids", "==", 0) | Match("bids", ">=", 20)),
    key=("item", "item_name"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
