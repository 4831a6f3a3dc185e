"""What advertisers owe for the ads that were watched: a price for each sitting of a viewer, put right as it grows."""

from decimal import Decimal

from ad_views import views

from tailrace import EARLIEST, RETRACTING, AfterCount, AfterWatermark, Col, Count, Derive, Every, Fixed, If
from tailrace import Match, Pipeline, Sessions, Sum, days, hours, minutes

MOST = Decimal("0.02")
"""What one sitting costs an advertiser at most."""

sittings = Pipeline(
    name="ad_sittings",
    log=views,
    each=Derive({"cost": Col("watched") * Col("rate")}),
    key=("advertiser", "viewer"),
    what={"views": Count(), "watched": Sum("watched"), "cost": Sum("cost")},
    where=Sessions(minutes(10)),
    when=AfterWatermark(early=Every(minutes(5)), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(6),
    timestamp=EARLIEST,
)

bills = Pipeline(
    name="ad_bills",
    log=sittings.panes,
    each=Derive({"owed": If(Match("cost", ">", MOST), MOST, Col("cost"))}),
    key="advertiser",
    what={"sittings": Count(), "views": Sum("views"), "watched": Sum("watched"), "owed": Sum("owed")},
    where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
