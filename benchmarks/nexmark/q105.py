"""Each auction that is bid for, with how many bids it has."""

from nexmark_auctions import bids_by_auction
from nexmark_log import AT_ONCE

from tailrace import Count, Global, Match, Missing, Pipeline

q105 = Pipeline(
    name="q105",
    log=bids_by_auction.panes,
    keep=~Missing("item_name") & Match("bids", ">", 0),
    key=("item", "item_name", "bids"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
