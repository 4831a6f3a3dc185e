"""Bids between a million and fifty, in euros, with the time of day and how many a c they have."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from nexmark_log import BID, nexmark

from tailrace import Col, Derive, Each, If, Map, Match, hours


def letters(bid: Mapping[str, Any]) -> dict[str, Any]:
    return {"c_counts": (bid["extra"] or "").count("c")}


NIGHT = Match("hour", "<=", 6) | Match("hour", ">=", 20)
DAY = Match("hour", ">=", 8) & Match("hour", "<=", 18)
q14 = Map(
    name="q14",
    log=nexmark,
    each=[
        Derive({"euros": Col("price") * Decimal("0.908")}),
        Derive({"hour": Col("date_time") // hours(1) - Col("date_time") // hours(24) * 24}),
        Derive({"time_of_day": If(DAY, "dayTime", If(NIGHT, "nightTime", "otherTime"))}),
        Each(letters, {"c_counts": "bigint"}),
    ],
    keep=BID & Match("euros", ">", 1_000_000) & Match("euros", "<", 50_000_000),
    what=("auction", "bidder", "euros", "time_of_day", "date_time", "c_counts"),
)
