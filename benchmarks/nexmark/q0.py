"""Each bid as it is: what passing records on costs."""

from nexmark_log import BID, nexmark

from tailrace import Map

q0 = Map(name="q0", log=nexmark, keep=BID, what=("auction", "bidder", "price", "date_time"))
