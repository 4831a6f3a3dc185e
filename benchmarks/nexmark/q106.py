"""The least that any auction went for."""

from nexmark_auctions import final_prices
from nexmark_log import AT_ONCE

from tailrace import Global, Min, Pipeline

q106 = Pipeline(
    name="q106",
    log=final_prices.panes,
    what={"min_final": Min("final")},
    where=Global(),
    when=AT_ONCE,
)
