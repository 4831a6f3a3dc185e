"""The auctions that most of the last ten seconds' bids are for, every two seconds."""

from nexmark_log import BID, nexmark

from tailrace import RETRACTING, Count, Fixed, Highest, Pack, Pipeline, Sliding, Unpack, seconds

counts = Pipeline(
    name="q5_counts",
    log=nexmark,
    keep=BID,
    key="auction",
    what={"num": Count()},
    where=Sliding(seconds(10), every=seconds(2)),
    how=RETRACTING,
)
# A count is of its window's last microsecond, so those of one window, and no others, meet in two seconds.
most = Pipeline(
    name="q5_most",
    log=counts.panes,
    each=Pack("count", ("auction", "num")),
    what={"counts": Highest("count", by="num")},
    where=Fixed(seconds(2)),
    how=RETRACTING,
)
q5 = Pipeline(
    name="q5",
    log=most.panes,
    each=Unpack("counts"),
    key=("auction", "num"),
    what={"n": Count()},
    where=Fixed(seconds(2)),
)
