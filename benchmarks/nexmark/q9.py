"""Each auction with the bid that wins it: the highest made in time, of equal ones the first."""

from nexmark_auctions import IN_TIME, OPENED, TIMED, offers
from nexmark_log import AT_ONCE

from tailrace import RETRACTING, Col, Collect, Count, Derive, Global, Pack, Pipeline, Unpack

LESS = Derive({"less": Col("price") * -1})
ranked = Pipeline(
    name="q9_offers",
    log=offers.produced,
    each=[TIMED, LESS, Pack("offer", ("less", "bid_at", "bidder", "price"))],
    keep=IN_TIME,
    key=OPENED,
    what={"offers": Collect("offer")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
q9 = Pipeline(
    name="q9",
    log=ranked.panes,
    each=Unpack("offers", first=1),
    key=(*OPENED, "bidder", "price", "bid_at"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
