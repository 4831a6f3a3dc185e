"""Find who sells something of category 10, of those who live in Oregon, Idaho or California (Nexmark's query 3)."""

from auctions import auctions, persons

from tailrace import Global, Join, Map, Match

nearby = Match("state", "==", "or") | Match("state", "==", "id") | Match("state", "==", "ca")
sellers = Map(name="persons_nearby", log=persons, keep=nearby, what=("id", "name", "city", "state"))
items = Map(name="items_of_ten", log=auctions, keep=Match("category", "==", 10), what=("id", "seller"))
nearby_sellers = Join(
    name="nearby_sellers",
    left=sellers.produced,
    right=items.produced,
    on={"id": "seller"},
    where=Global(),
    left_columns=("name", "city", "state"),
    right_columns={"item": "id"},
)
