"""How often someone's bids come in each ten seconds of processing time."""

from nexmark_log import BID, nexmark

from tailrace import DISCARDING, Count, Every, Global, Pipeline, seconds

q12 = Pipeline(
    name="q12",
    log=nexmark,
    keep=BID,
    key="bidder",
    what={"bids": Count()},
    where=Global(),
    when=Every(seconds(10)),
    how=DISCARDING,
)
