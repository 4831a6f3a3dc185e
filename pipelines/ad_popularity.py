"""Ads to stop: at least 20 views in an hour, and fewer than one in five of them to the end."""

from ad_views import views

from tailrace import RETRACTING, AfterCount, AfterWatermark, Col, Count, Derive, Every, Fixed, If, Match, Pipeline
from tailrace import Sum, days, hours, minutes

statistics = Pipeline(
    name="ad_statistics",
    log=views,
    each=[Derive({"left": Col("length") - Col("watched")}), Derive({"whole": If(Match("left", "<=", 0), 1, 0)})],
    key=("ad", "video"),
    what={"views": Count(), "whole": Sum("whole"), "watched": Sum("watched")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=Every(minutes(5)), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(6),
)
by_ad = Pipeline(
    name="ads_by_hour",
    log=statistics.panes,
    key="ad",
    what={"videos": Count(), "views": Sum("views"), "whole": Sum("whole")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
unpopular = Pipeline(
    name="unpopular_ads",
    log=by_ad.panes,
    each=Derive({"too_few": Col("views") - Col("whole") * 5}),
    keep=Match("views", ">=", 20) & Match("too_few", ">", 0),
    key="ad",
    what={"hours": Count(), "views": Sum("views"), "whole": Sum("whole")},
    where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
