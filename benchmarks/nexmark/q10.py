"""Each bid with the day and the minute under which a file of it would be kept."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from nexmark_log import BID, nexmark

from tailrace import Each, Map


def kept_under(bid: Mapping[str, Any]) -> dict[str, Any]:
    at = bid["date_time"].astimezone(UTC)
    return {"day": f"{at:%Y-%m-%d}", "minute": f"{at:%I:%M}"}


q10 = Map(
    name="q10",
    log=nexmark,
    each=Each(kept_under, {"day": "string", "minute": "string"}),
    keep=BID,
    what=("auction", "bidder", "price", "date_time", "day", "minute"),
)
