"""Each bid with the folders of its page."""

from collections.abc import Mapping
from typing import Any

from nexmark_log import AT_ONCE, BID, SECOND, nexmark

from tailrace import Count, Each, Pipeline

FOLDERS = ("dir1", "dir2", "dir3")


def folders(bid: Mapping[str, Any]) -> dict[str, Any]:
    parts = (bid["url"] or "").split("/")[3:6]
    return dict(zip(FOLDERS, [*parts, "", "", ""], strict=False))


q22 = Pipeline(
    name="q22",
    log=nexmark,
    each=Each(folders, dict.fromkeys(FOLDERS, "string")),
    keep=BID,
    key=("auction", "bidder", "price", "channel", *FOLDERS, "date_time"),
    what={"n": Count()},
    where=SECOND,
    when=AT_ONCE,
)
