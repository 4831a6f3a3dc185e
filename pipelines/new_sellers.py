"""Find who has joined and put something up in the same ten seconds (Nexmark's query 8)."""

from auctions import auctions, persons

from tailrace import Count, Fixed, Join, Pipeline, seconds

ten_seconds = Fixed(seconds(10))
joined_and_sold = Join(
    name="joined_and_sold",
    left=persons,
    right=auctions,
    on={"id": "seller"},
    where=ten_seconds,
    left_columns="name",
    right_columns={"item": "id"},
)
new_sellers = Pipeline(
    name="new_sellers",
    log=joined_and_sold.produced,
    key=("id", "name"),
    what={"items": Count()},
    where=ten_seconds,
)
