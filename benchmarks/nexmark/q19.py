"""The ten highest bids for each auction, with their places."""

from nexmark_log import AT_ONCE, BID, nexmark

from tailrace import RETRACTING, Col, Collect, Count, Derive, Global, Pack, Pipeline, Unpack

BIDS = ("bidder", "price", "channel", "url", "date_time", "extra")
bids = Pipeline(
    name="q19_bids",
    log=nexmark,
    each=[Derive({"less": Col("price") * -1}), Pack("bid", ("less", *BIDS))],
    keep=BID,
    key="auction",
    what={"bids": Collect("bid")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
q19 = Pipeline(
    name="q19",
    log=bids.panes,
    each=Unpack("bids", first=10, place="rank_number"),
    key=("auction", *BIDS, "rank_number"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
