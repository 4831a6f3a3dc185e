"""The auctions with at least 20 bids."""

from nexmark_auctions import bids_by_auction
from nexmark_log import AT_ONCE

from tailrace import Count, Global, Match, Missing, Pipeline

q103 = Pipeline(
    name="q103",
    log=bids_by_auction.panes,
    keep=~Missing("item_name") & Match("bids", ">=", 20),
    key=("item", "item_name"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
