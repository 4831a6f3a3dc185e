"""The same of each channel, with the time of its last bid, as its text has it: hour and month."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from nexmark_log import AT_ONCE, BID, nexmark
from nexmark_ranks import BIDS, DISTINCT, RANKED

from tailrace import Calendar, Each, Max, Pipeline


def written(bid: Mapping[str, Any]) -> dict[str, Any]:
    return {"time": f"{bid['date_time'].astimezone(UTC):%I:%m}"}


q16 = Pipeline(
    name="q16",
    log=nexmark,
    each=[RANKED, Each(written, {"time": "string"})],
    keep=BID,
    key="channel",
    what={"minute": Max("time")} | BIDS | DISTINCT,
    where=Calendar("day"),
    when=AT_ONCE,
)
