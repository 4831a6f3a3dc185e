"""Two stages of rides, in a file that a DAG names."""

from __future__ import annotations

DEFINITION = """
from tailrace import RETRACTING, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, days, minutes

log = Log(name="rides", columns={"who": "string", "at": "timestamp"}, event_time="at", disorder=minutes(10))
hourly = Pipeline(
    name="hourly", log=log, key="who", what={"n": Count()}, where=Fixed(minutes(60)), when=AfterWatermark(),
    how=RETRACTING, allowed_lateness=minutes(0),
)
daily = Pipeline(
    name="daily", log=hourly.panes, key="who", what={"n": Sum("n")}, where=Fixed(days(1)), when=AfterWatermark(),
)
"""


def ride(at: str) -> dict[str, str]:
    return {"who": "ann", "at": f"{at}:00Z"}
