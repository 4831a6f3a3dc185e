"""The last bid of each bidder for each auction."""

from nexmark_log import AT_ONCE, BID, nexmark

from tailrace import RETRACTING, Col, Collect, Count, Derive, Global, Pack, Pipeline, Unpack

bids = Pipeline(
    name="q18_bids",
    log=nexmark,
    each=[
        Derive({"ago": Col("date_time") * -1}),
        Pack("bid", ("ago", "extra", "price", "channel", "url", "date_time")),
    ],
    keep=BID,
    key=("bidder", "auction"),
    what={"bids": Collect("bid")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
q18 = Pipeline(
    name="q18",
    log=bids.panes,
    each=Unpack("bids", first=1),
    key=("auction", "bidder", "price", "channel", "url", "date_time", "extra"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
