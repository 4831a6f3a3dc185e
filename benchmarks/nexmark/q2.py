"""The bids for a few auctions."""

from functools import reduce
from operator import or_

from nexmark_log import BID, nexmark

from tailrace import Map, Match

q2 = Map(
    name="q2",
    log=nexmark,
    keep=BID & reduce(or_, (Match("auction", "==", id) for id in (1007, 1020, 2001, 2019, 2087))),
    what=("auction", "price"),
)
