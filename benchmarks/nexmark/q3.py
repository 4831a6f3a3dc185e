"""Who sells something of category 10, of those who live in Oregon, Idaho or California."""

from nexmark_log import AUCTION, PERSON, nexmark

from tailrace import Global, Join, Map, Match

STATES = Match("state", "==", "or") | Match("state", "==", "id") | Match("state", "==", "ca")
sellers = Map(name="q3_sellers", log=nexmark, keep=PERSON & STATES, what=("id", "name", "city", "state"))
items = Map(name="q3_items", log=nexmark, keep=AUCTION & Match("category", "==", 10), what=("id", "seller"))
q3 = Join(
    name="q3",
    left=sellers.produced,
    right=items.produced,
    on={"id": "seller"},
    where=Global(),
    left_columns=("name", "city", "state"),
    right_columns={"item": "id"},
)
