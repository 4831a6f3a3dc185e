"""How often someone bids, without ten seconds going by in between."""

from nexmark_log import BID, nexmark

from tailrace import Count, Pipeline, Sessions, seconds

q11 = Pipeline(
    name="q11",
    log=nexmark,
    keep=BID,
    key="bidder",
    what={"bids": Count()},
    where=Sessions(seconds(10)),
)
