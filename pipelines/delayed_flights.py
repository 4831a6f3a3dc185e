"""Each flight that left an hour late or more, as it becomes known: rows out of rows, with neither key nor window."""

from flights import flights

from tailrace import Col, Derive, Map, Match

delayed_flights = Map(
    name="delayed_flights",
    log=flights,
    each=Derive({"hours_late": Col("delay") // 60}),
    keep=Match("delay", ">=", 60),
    what=("flight_id", "origin", "dest", "carrier", "delay", "hours_late"),
)
