"""Clicks joined with the queries that they belong to: which ads are clicked on for which terms, and how soon."""

from searches import searches

from tailrace import EARLIEST, RETRACTING, AfterCount, AfterWatermark, Col, Collect, Count, Derive, Fixed, Match
from tailrace import Mean, Pack, Pairs, Pipeline, Sessions, hours, minutes, seconds

sides = Pipeline(
    name="queries_and_clicks",
    log=searches,
    each=[
        Pack("query", {"asked_at": "at", "term": "term"}, keep=Match("kind", "==", "query")),
        Pack("click", {"clicked_at": "at", "ad": "ad"}, keep=Match("kind", "==", "click")),
    ],
    key="query_id",
    what={"queries": Collect("query"), "clicks": Collect("click")},
    where=Sessions(minutes(10)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(1),
    timestamp=EARLIEST,
)
clicked = Pipeline(
    name="clicked_ads",
    log=sides.panes,
    each=[
        Pairs("queries", "clicks", kind="right"),
        Derive({"after": (Col("clicked_at") - Col("asked_at")) // seconds(1)}),
    ],
    key=("term", "ad"),
    what={"clicks": Count(), "mean_after": Mean("after")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
