"""Generate views of video ads, as a streaming video provider records them (Dataflow Model, 1).

A few videos and advertisers have most of the views. Some devices are offline, so all views on such a device become
known at the same time, hours later. A source may deliver the same view twice. A few viewers are robots that view one ad
after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from tailrace.generate.delivery import HOUR, MINUTE, SECOND, Delivery, Zipf, arrivals, by_known_time

ADVERTISERS, ADS, VIDEOS = 12, 60, 300
OFFLINE, AGAIN, ROBOT = 0.04, 0.01, 0.0006
"""Shares of sittings and views. A sitting is a period in which a viewer watches without a break.

`OFFLINE` is the share of sittings on an offline device, and `AGAIN` is the share of views that are delivered twice.
`ROBOT` is the probability, for each view, that a robot also views a series of ads.
"""

LENGTHS = (6, 15, 20, 30)
"""The possible lengths of an ad, in seconds."""


@dataclass(frozen=True)
class _Ad:
    name: str
    advertiser: str
    seconds: int
    rate: Decimal
    appeal: float
    """The probability that a viewer watches the ad to its end."""


@dataclass
class _Sitting:
    video: int
    until: int
    back_online: int | None


@dataclass
class _World:
    chance: Random
    viewers: int
    sittings: dict[int, _Sitting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ads = [self._ad(number) for number in range(ADS)]
        self.popular_ads, self.popular_videos = Zipf(ADS, 0.8), Zipf(VIDEOS, 1.1)
        self.eager = Zipf(self.viewers, 0.3)

    def _ad(self, number: int) -> _Ad:
        chance = self.chance
        appeal = 0.08 if number % 9 == 4 else chance.uniform(0.4, 0.95)
        rate = Decimal(chance.randrange(100, 900)).scaleb(-6)
        return _Ad(f"ad-{number:02}", f"advertiser-{number % ADVERTISERS:02}", chance.choice(LENGTHS), rate, appeal)

    def sitting(self, viewer: int, at: int) -> _Sitting:
        """Return the viewer's current sitting, or a new sitting if the last one has ended.

        A viewer sometimes changes the video during a sitting.
        """
        chance = self.chance
        sitting = self.sittings.get(viewer)
        if sitting is None or sitting.until < at:
            offline = at + int(chance.uniform(10 * MINUTE, 9 * HOUR)) if chance.random() < OFFLINE else None
            length = int(chance.lognormvariate(3.0, 0.8) * MINUTE)
            sitting = _Sitting(self.popular_videos.draw(chance), at + length, offline)
            self.sittings[viewer] = sitting
        elif chance.random() < 0.2:
            sitting.video = self.popular_videos.draw(chance)
        return sitting

    def view(self, number: int, viewer: str, sitting: _Sitting, ad: _Ad, at: int) -> Iterator[Delivery]:
        chance = self.chance
        whole = chance.random() < ad.appeal
        watched = ad.seconds if whole else chance.randrange(1, ad.seconds)
        online = at + watched * SECOND + int(chance.expovariate(1.0) * SECOND)
        known = online if sitting.back_online is None else max(online, sitting.back_online)
        record: dict[str, Any] = {"view_id": f"view-{number:08}", "viewer": viewer}
        record |= {"video": f"video-{sitting.video:03}", "ad": ad.name, "advertiser": ad.advertiser}
        record |= {"watched": watched, "length": ad.seconds, "rate": ad.rate, "at": at, "known": known}
        yield Delivery(known, record)
        if chance.random() < AGAIN:
            yield Delivery(known + int(chance.uniform(1, 300) * SECOND), record)


def ads(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """Generate about `rate` views per second over `length` microseconds of event time from `first` on, sorted by
    `known`.

    A record is a view of an ad: `view_id`, `viewer`, `video`, `ad` and the ad's `advertiser`. In a record, `watched` is
    the number of seconds that the viewer watched, `length` is the length of the ad in seconds, and `rate` is the price
    per second. `at` is the time at which the view began (the event time), and `known` is the time at which the record
    becomes known. Views that become known after the end of the range are included.

    >>> made = ads(rate=5, length=60_000_000, seed=1, first=0)
    >>> made == ads(rate=5, length=60_000_000, seed=1, first=0), made != ads(rate=5, length=60_000_000, seed=2, first=0)
    (True, True)
    """
    chance = Random(seed)
    world = _World(chance, viewers=max(20, int(rate * length / SECOND / 8)))
    made: list[Delivery] = []
    number = 0
    for at in arrivals(chance, rate, first, first + length):
        if chance.random() < ROBOT:
            robot = f"viewer-r{number:05}"
            sitting = _Sitting(world.popular_videos.draw(chance), at, None)
            for place in range(chance.randrange(30, 90)):
                ad = world.ads[world.popular_ads.draw(chance)]
                made += world.view(number, robot, sitting, ad, at + place * 2 * SECOND)
                number += 1
        who = world.eager.draw(chance)
        ad = world.ads[world.popular_ads.draw(chance)]
        made += world.view(number, f"viewer-{who:05}", world.sitting(who, at), ad, at)
        number += 1
    return by_known_time(made)
