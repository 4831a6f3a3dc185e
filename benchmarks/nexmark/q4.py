"""What auctions of a category go for, on average: the highest bid made in time."""

from nexmark_auctions import final_prices
from nexmark_log import AT_ONCE

from tailrace import Global, Mean, Pipeline

q4 = Pipeline(
    name="q4",
    log=final_prices.panes,
    key="category",
    what={"avg": Mean("final")},
    where=Global(),
    when=AT_ONCE,
)
