"""The bids for a few auctions."""

from functools import reduce
from operator import or_

from nexmark_log import AT_ONCE, BID, SECOND, nexmark

from tailrace import Count, Match, Pipeline

q2 = Pipeline(
    name="q2",
    log=nexmark,
    keep=BID & reduce(or_, (Match("auction", "==", id) for id in (1007, 1020, 2001, 2019, 2087))),
    key=("auction", "price"),
    what={"n": Count()},
    where=SECOND,
    when=AT_ONCE,
)
