"""Each bid with a number of the channel that it came by, where there is one."""

import re
from collections.abc import Mapping
from typing import Any

from nexmark_log import BID, nexmark

from tailrace import Each, Map, Missing

KNOWN = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def numbered(bid: Mapping[str, Any]) -> dict[str, Any]:
    found = re.search(r"(?:&|^)channel_id=([^&]*)", bid["url"] or "")
    return {"channel_id": KNOWN.get((bid["channel"] or "").lower(), found and found[1])}


q21 = Map(
    name="q21",
    log=nexmark,
    each=Each(numbered, {"channel_id": "string"}),
    keep=BID & ~Missing("channel_id"),
    what=("auction", "bidder", "price", "channel", "channel_id", "date_time"),
)
