"""A run without parameters takes a whole interval that is closed, whatever the clocks of a zone do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tailrace.airflow.timetable import ByHand
from tailrace.model.base.time import instant, moment
from tests.support.depth import cases

FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
CRONS = ("0 0 * * *", "0 2 * * *", "30 1 * * *", "0 * * * *", "0 */6 * * *", "0 0 * * 0")


def changes(zone: ZoneInfo) -> list[datetime]:
    """The instants at which a zone sets its clocks, to the quarter of an hour."""
    found, step = [], timedelta(days=3)
    at = FIRST
    while at < LAST:
        if (before := at.astimezone(zone).utcoffset()) != (at + step).astimezone(zone).utcoffset():
            low, high = at, at + step
            while high - low > timedelta(minutes=15):
                middle = low + (high - low) / 2
                low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
            found.append(high)
        at += step
    return found


def test_the_last_interval_is_whole_and_closed_in_every_zone() -> None:
    """Zones whose clocks are set at the same instants by the same lengths are one; a few changes of each are tried."""
    random, kinds = Random(7), dict[tuple[object, ...], tuple[str, list[datetime]]]()
    for name in sorted(available_timezones()):
        found = changes(zone := ZoneInfo(name))
        sizes = tuple((at, at.astimezone(zone).utcoffset()) for at in found)
        kinds.setdefault((FIRST.astimezone(zone).utcoffset(), *sizes), (name, found))
    assert len(kinds) > 60
    for name, found in kinds.values():
        for at in random.sample(found, min(len(found), cases(2, deeper=40))):
            cron = random.choice(CRONS)
            table, before = ByHand(cron, name), None
            for hours in (-24, -2, -1, 0, 1, 2, 3, 25):
                end = instant(at + timedelta(hours=hours))
                first, last = table.last_before(end)
                assert first < last <= end, (name, cron, moment(end))
                assert last - first < 8 * 86_400_000_000
                # Later ends give the same interval, or one that follows: none overlaps another in part.
                assert before is None or (first, last) == before or first >= before[1], (name, cron, moment(end))
                before = first, last


@pytest.mark.parametrize(
    ("cron", "zone", "closed", "expected"),
    [
        ("0 0 * * *", "America/Santiago", "2026-09-06T20:00Z", ("2026-09-05T04:00Z", "2026-09-06T04:00Z")),
        ("0 2 * * *", "America/New_York", "2026-03-08T20:00Z", ("2026-03-07T07:00Z", "2026-03-08T07:00Z")),
        ("0 2 * * *", "Europe/Oslo", "2026-03-29T20:00Z", ("2026-03-28T01:00Z", "2026-03-29T01:00Z")),
        ("0 0 * * *", "Africa/Cairo", "2026-04-24T20:00Z", ("2026-04-22T22:00Z", "2026-04-23T22:00Z")),
        ("0 0 * * *", "UTC", "2026-04-24T00:00Z", ("2026-04-23T00:00Z", "2026-04-24T00:00Z")),
    ],
)
def test_where_the_clocks_skip_the_time_of_the_cron_the_day_is_as_a_backfill_has_it(
    cron: str, zone: str, closed: str, expected: tuple[str, str]
) -> None:
    first, last = ByHand(cron, zone).last_before(instant(datetime.fromisoformat(closed)))
    assert tuple(moment(one).strftime("%Y-%m-%dT%H:%MZ") for one in (first, last)) == expected
