"""The definition that tests of the kit fold: rides by city and hour."""

from __future__ import annotations

from typing import Any

from tailrace import Count, Fixed, Log, Pipeline, Sum, hours, minutes

RIDES = Log(
    name="rides",
    columns={"at": "timestamp", "city": "string", "cents": "bigint"},
    event_time="at",
    disorder=minutes(15),
)
HOURLY = Pipeline(
    name="hourly_rides",
    log=RIDES,
    key="city",
    what={"rides": Count(), "cents": Sum("cents")},
    where=Fixed(hours(1)),
)


def ride(time: str, cents: int = 1, city: str = "Paris") -> dict[str, Any]:
    """A ride of the first of March."""
    return {"at": f"2026-03-01T{time}:00Z", "city": city, "cents": cents}
