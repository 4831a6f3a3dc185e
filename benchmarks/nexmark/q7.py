"""The highest bids of each ten seconds."""

from nexmark_log import BID, TEN, nexmark

from tailrace import RETRACTING, Count, Highest, Pack, Pipeline, Unpack

BIDS = ("auction", "bidder", "price", "date_time")
bids = Pipeline(
    name="q7_bids",
    log=nexmark,
    each=Pack("bid", BIDS),
    keep=BID,
    what={"bids": Highest("bid", by="price")},
    where=TEN,
    how=RETRACTING,
)
q7 = Pipeline(
    name="q7",
    log=bids.panes,
    each=Unpack("bids"),
    key=BIDS,
    what={"n": Count()},
    where=TEN,
)
