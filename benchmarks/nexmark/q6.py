"""What a seller's auctions went for, on average over the last eleven; as published, for the lowest bid each."""

from collections.abc import Mapping
from typing import Any

from nexmark_auctions import IN_TIME, TIMED, offers
from nexmark_log import AT_ONCE

from tailrace import RETRACTING, Collect, Each, Global, Mean, Pack, Pipeline, Unpack


def frames(seller: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each auction of a seller with the prices that its average is of: its own, and those of the ten before it."""
    sold = seller["sold"]
    return [
        {"id": one["id"], "sold_at": one["bid_at"], "final": other["price"]}
        for place, one in enumerate(sold)
        for other in sold[max(0, place - 10) : place + 1]
    ]


GLOBALLY = {"where": Global(), "when": AT_ONCE}
lowest = Pipeline(
    name="q6_lowest", log=offers.produced, each=[TIMED, Pack("offer", ("price", "bid_at"))],
    keep=IN_TIME, key=("id", "seller"), what={"offers": Collect("offer")}, how=RETRACTING, **GLOBALLY,
)  # fmt: skip
sellers = Pipeline(
    name="q6_sellers", log=lowest.panes, each=[Unpack("offers", first=1), Pack("sale", ("bid_at", "id", "price"))],
    key="seller", what={"sold": Collect("sale")}, how=RETRACTING, **GLOBALLY,
)  # fmt: skip
q6 = Pipeline(
    name="q6",
    log=sellers.panes,
    each=Each(frames, {"id": "bigint", "sold_at": "timestamp", "final": "bigint"}),
    key=("seller", "id", "sold_at"),
    what={"avg": Mean("final")},
    **GLOBALLY,
)
