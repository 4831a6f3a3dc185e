"""Clicks joined with the queries that they belong to: which ads are clicked on for which terms, and how soon."""

from searches import clicks, searches

from tailrace import RETRACTING, AfterCount, AfterWatermark, Col, Count, Derive, Fixed, Join, Mean, Pipeline
from tailrace import hours, minutes, seconds

clicks_of_queries = Join(
    name="clicks_of_queries",
    left=searches,
    right=clicks,
    on="query_id",
    within=(minutes(2), minutes(10)),
    kind="right",
    left_columns={"term": "term", "asked_at": "at"},
    right_columns={"ad": "ad", "clicked_at": "at"},
)
clicked = Pipeline(
    name="clicked_ads",
    log=clicks_of_queries.produced,
    each=Derive({"after": (Col("clicked_at") - Col("asked_at")) // seconds(1)}),
    key=("term", "ad"),
    what={"clicks": Count(), "mean_after": Mean("after")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=AfterCount(1)),
    how=RETRACTING,
)
