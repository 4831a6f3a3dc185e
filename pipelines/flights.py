"""How late New York's flights leave: each airport's departures of an hour, as they become known."""

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Every, Fixed, Log, Mean, Pipeline, hours, minutes

flights = Log(
    name="flights",
    columns={"flight_id": "string", "origin": "string", "dest": "string", "carrier": "string", "flight": "bigint"}
    | {"scheduled": "timestamp", "known": "timestamp", "delay": "bigint"},
    event_time="scheduled",
    arrival_time="known",
    disorder=hours(1),
)

hourly_departures = Pipeline(
    name="hourly_departures",
    log=flights,
    key="origin",
    what={"flights": Count(), "departures": Count("delay"), "mean_delay": Mean("delay")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=Every(minutes(15)), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(3),
)
