"""Average what the auctions of a category go for: the highest bid that was made in time (Nexmark's query 4)."""

from auctions import auctions, bids

from tailrace import RETRACTING, AfterCount, Col, Derive, Global, Join, Match, Max, Mean, Pipeline, Repeat

offers = Join(
    name="offers",
    left=auctions,
    right=bids,
    on={"id": "auction"},
    where=Global(),
    left_columns={"category": "category", "opened_at": "date_time", "expires": "expires"},
    right_columns={"bid_at": "date_time", "price": "price"},
)
at_once = Repeat(AfterCount(1))
final_prices = Pipeline(
    name="final_prices",
    log=offers.produced,
    each=Derive({"since": Col("bid_at") - Col("opened_at"), "until": Col("expires") - Col("bid_at")}),
    keep=Match("since", ">=", 0) & Match("until", ">=", 0),
    key=("id", "category"),
    what={"price": Max("price")},
    where=Global(),
    when=at_once,
    how=RETRACTING,
)
prices_of_categories = Pipeline(
    name="prices_of_categories",
    log=final_prices.panes,
    key="category",
    what={"mean_price": Mean("price")},
    where=Global(),
    when=at_once,
)
