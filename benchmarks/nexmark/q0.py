"""Each bid as it is: what passing records on costs."""

from nexmark_log import AT_ONCE, BID, SECOND, nexmark

from tailrace import Count, Pipeline

q0 = Pipeline(
    name="q0",
    log=nexmark,
    keep=BID,
    key=("auction", "bidder", "price", "date_time"),
    what={"n": Count()},
    where=SECOND,
    when=AT_ONCE,
)
