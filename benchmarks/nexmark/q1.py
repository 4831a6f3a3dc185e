"""Each bid with its price in euros."""

from decimal import Decimal

from nexmark_log import BID, nexmark

from tailrace import Col, Derive, Map

q1 = Map(
    name="q1",
    log=nexmark,
    each=Derive({"euros": Col("price") * Decimal("0.908")}),
    keep=BID,
    what=("auction", "bidder", "euros", "date_time"),
)
