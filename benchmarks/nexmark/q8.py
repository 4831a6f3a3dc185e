"""Who has joined and sold something in the same ten seconds."""

from nexmark_log import AUCTION, PERSON, TEN, nexmark

from tailrace import RETRACTING, AnyValue, Col, Count, Derive, If, Match, Missing, Pipeline

joined = Pipeline(
    name="q8_joined",
    log=nexmark,
    each=Derive({"who": If(PERSON, Col("id"), Col("seller"))}),
    keep=PERSON | AUCTION,
    key="who",
    what={"name": AnyValue("name"), "sold": Count("seller")},
    where=TEN,
    how=RETRACTING,
)
q8 = Pipeline(
    name="q8",
    log=joined.panes,
    keep=~Missing("name") & Match("sold", ">", 0),
    key=("who", "name"),
    what={"n": Count()},
    where=TEN,
)
