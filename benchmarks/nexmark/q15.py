"""A day's bids, bidders and auctions, by what is offered."""

from nexmark_log import AT_ONCE, BID, nexmark
from nexmark_ranks import BIDS, DISTINCT, RANKED

from tailrace import Calendar, Pipeline

q15 = Pipeline(
    name="q15",
    log=nexmark,
    each=RANKED,
    keep=BID,
    what=BIDS | DISTINCT,
    where=Calendar("day"),
    when=AT_ONCE,
)
