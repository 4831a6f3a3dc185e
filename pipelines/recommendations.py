"""Videos that are watched together: what a viewer watched in one sitting, told every five minutes, complete or not."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from ad_views import views

from tailrace import RETRACTING, AfterCount, Collect, Count, Each, Every, Fixed, Pipeline, Repeat, Sessions
from tailrace import days, hours, minutes


def pairs(sitting: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Each two videos of a sitting, both ways round."""
    for one, other in combinations(sorted(set(sitting["videos"])), 2):
        yield {"video": one, "other": other}
        yield {"video": other, "other": one}


viewings = Pipeline(
    name="viewings",
    log=views,
    key="viewer",
    what={"videos": Collect("video")},
    where=Sessions(minutes(30)),
    when=Every(minutes(5)),
    how=RETRACTING,
    allowed_lateness=hours(6),
)
together = Pipeline(
    name="watched_together",
    log=viewings.panes,
    each=Each(pairs, {"video": "string", "other": "string"}),
    key=("video", "other"),
    what={"sittings": Count()},
    where=Fixed(days(1)),
    when=Repeat(AfterCount(1)),
    how=RETRACTING,
)
