"""Each bid with the folders of its page."""

from collections.abc import Mapping
from typing import Any

from nexmark_log import BID, nexmark

from tailrace import Each, Map

FOLDERS = ("dir1", "dir2", "dir3")


def folders(bid: Mapping[str, Any]) -> dict[str, Any]:
    parts = (bid["url"] or "").split("/")[3:6]
    return dict(zip(FOLDERS, [*parts, "", "", ""], strict=False))


q22 = Map(
    name="q22",
    log=nexmark,
    each=Each(folders, dict.fromkeys(FOLDERS, "string")),
    keep=BID,
    what=("auction", "bidder", "price", "channel", *FOLDERS, "date_time"),
)
