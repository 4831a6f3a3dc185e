"""Viewers that are programs: a dozen ads begun in a minute, looked at once 90 % of its views are there."""

from ad_views import views

from tailrace import RETRACTING, AfterCount, AfterWatermark, AtPercentile, Count, Fixed, Match, Max, Pipeline, Sum
from tailrace import days, hours, minutes

by_minute = Pipeline(
    name="views_by_minute",
    log=views,
    key="viewer",
    what={"views": Count()},
    where=Fixed(minutes(1)),
    when=AfterWatermark(early=AtPercentile(90), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(6),
)
abuse = Pipeline(
    name="ad_abuse",
    log=by_minute.panes,
    keep=Match("views", ">=", 12),
    key="viewer",
    what={"minutes": Count(), "views": Sum("views"), "most": Max("views")},
    where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
