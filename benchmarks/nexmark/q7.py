"""The highest bids of each ten seconds."""

from nexmark_log import BID, TEN, nexmark

from tailrace import RETRACTING, Col, Collect, Count, Derive, Match, Max, Pack, Pipeline, Unpack

BIDS = ("auction", "bidder", "price", "date_time")
bids = Pipeline(
    name="q7_bids",
    log=nexmark,
    each=Pack("bid", BIDS),
    keep=BID,
    what={"bids": Collect("bid"), "most": Max("price")},
    where=TEN,
    how=RETRACTING,
)
q7 = Pipeline(
    name="q7",
    log=bids.panes,
    each=[Unpack("bids"), Derive({"less": Col("most") - Col("price")})],
    keep=Match("less", "==", 0),
    key=BIDS,
    what={"n": Count()},
    where=TEN,
)
