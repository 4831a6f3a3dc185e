"""Who sells something of category 10, of those who live in Oregon, Idaho or California."""

from nexmark_log import AT_ONCE, AUCTION, PERSON, nexmark

from tailrace import RETRACTING, Col, Collect, Count, Derive, Global, If, Match, Pack, Pairs, Pipeline

STATES = Match("state", "==", "or") | Match("state", "==", "id") | Match("state", "==", "ca")
sellers = Pipeline(
    name="q3_sellers",
    log=nexmark,
    each=[
        Derive({"who": If(PERSON, Col("id"), Col("seller"))}),
        Pack("person", ("name", "city", "state"), PERSON & STATES),
        Pack("opened", {"item": "id"}, AUCTION & Match("category", "==", 10)),
    ],
    keep=PERSON | AUCTION,
    key="who",
    what={"people": Collect("person"), "items": Collect("opened")},
    where=Global(),
    when=AT_ONCE,
    how=RETRACTING,
)
q3 = Pipeline(
    name="q3",
    log=sellers.panes,
    each=Pairs("people", "items"),
    key=("name", "city", "state", "item"),
    what={"n": Count()},
    where=Global(),
    when=AT_ONCE,
)
