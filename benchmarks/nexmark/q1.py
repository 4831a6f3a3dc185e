"""Each bid with its price in euros."""

from decimal import Decimal

from nexmark_log import AT_ONCE, BID, SECOND, nexmark

from tailrace import Col, Count, Derive, Pipeline

q1 = Pipeline(
    name="q1",
    log=nexmark,
    each=Derive({"euros": Col("price") * Decimal("0.908")}),
    keep=BID,
    key=("auction", "bidder", "euros", "date_time"),
    what={"n": Count()},
    where=SECOND,
    when=AT_ONCE,
)
