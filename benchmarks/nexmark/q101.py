"""Each auction with the highest bid for it, if there is one."""

from nexmark_auctions import bids_by_auction
from nexmark_log import AT_ONCE

from tailrace import Count, Global, Missing, Pipeline

q101 = Pipeline(
    name="q101",
    log=bids_by_auction.panes,
    keep=~Missing("item_name"),
    key=("item", "item_name", "highest"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
