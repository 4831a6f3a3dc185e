"""A day's bids for each auction, and what they offer."""

from nexmark_log import AT_ONCE, BID, nexmark
from nexmark_ranks import BIDS, RANKED

from tailrace import Calendar, Max, Mean, Min, Pipeline, Sum

q17 = Pipeline(
    name="q17",
    log=nexmark,
    each=RANKED,
    keep=BID,
    key="auction",
    what=BIDS
    | {"min_price": Min("price"), "max_price": Max("price"), "avg_price": Mean("price"), "sum_price": Sum("price")},
    where=Calendar("day"),
    when=AT_ONCE,
)
