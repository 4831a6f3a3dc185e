"""Generate persons, auctions and bids of an auction house for the Nexmark queries, in one log or in three logs.

Proportions, hot keys and prices follow the benchmark's published description (Tucker and others, "NEXMark: a benchmark
for queries over data streams", 2002, and the queries that were added later). Of every 50 records, one is a person who
joins, three are auctions that open, and the others are bids. Half of the bids are for one hot auction. Three of four
bids come from one hot bidder, and three of four auctions come from one hot seller. The hot auction, bidder and seller
change from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tailrace.generate.delivery import SECOND, Delivery, arrivals, by_known_time

EVERY, AUCTIONS = 50, 3
"""In each group of `EVERY` consecutive records, the first is a person, the next `AUCTIONS` are auctions, and the others
are bids.
"""

FIRST_ID = 1000
"""The id of the first person, and of the first auction."""

HOT = 100
"""The number of new persons after which the hot seller and the hot bidder change, and the number of new auctions after
which the hot auction changes.
"""

OPEN, ACTIVE = 100, 1000
"""`OPEN` is how many of the latest auctions receive bids, and `ACTIVE` is how many of the latest persons bid or
sell.
"""

MOST_BEHIND = 4 * SECOND - 1
"""The maximum delay, in microseconds, between a record's event time and the time at which the record becomes known."""

CATEGORIES = 5
"""The number of categories. The first category has the number 10."""

_STATES = ("az", "ca", "id", "or", "wa", "wy")
_CITIES = ("bend", "boise", "cheyenne", "kent", "phoenix", "portland", "redmond", "san francisco", "seattle")
_FIRST_NAMES = ("deiter", "john", "kate", "luke", "noah", "paul", "peter", "sarah", "saul", "vicky", "walter")
_LAST_NAMES = ("abrams", "bartels", "jones", "noris", "shultz", "smith", "spencer", "walton", "white")
_CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
"""Half of the bids use one of these channels. Each of the other bids uses one of `_OTHER_CHANNELS` further channels."""

_OTHER_CHANNELS = 10_000


@dataclass
class _House:
    """An auction house that generates `rate` records per second, one after another."""

    chance: Random
    rate: float
    people: int = 0
    auctions: int = 0

    def __post_init__(self) -> None:
        self.letters = "".join(self.chance.choices("abcdefghijklmnopqrstuvwxyz", k=4096))

    def record(self, number: int, at: int) -> dict[str, Any]:
        """Generate the record at index `number` of the log, with the event time `at`."""
        place = number % EVERY
        made = self.person() if place == 0 else self.auction(at) if place <= AUCTIONS else self.bid()
        return {**made, "date_time": at}

    def person(self) -> dict[str, Any]:
        chance = self.chance
        name = f"{chance.choice(_FIRST_NAMES)} {chance.choice(_LAST_NAMES)}"
        self.people += 1
        return {
            "kind": "person",
            "id": FIRST_ID + self.people - 1,
            "name": name,
            "email_address": f"{self.text(4, 10)}@{self.text(3, 8)}.com",
            "credit_card": " ".join(f"{chance.randrange(10_000):04}" for _ in range(4)),
            "city": chance.choice(_CITIES),
            "state": chance.choice(_STATES),
            "extra": self.text(0, 100),
        }

    def auction(self, at: int) -> dict[str, Any]:
        chance, price = self.chance, self.price()
        self.auctions += 1
        # On average, an auction is open for about as long as the auction house takes to open another `OPEN` auctions.
        turns = OPEN * EVERY / AUCTIONS / self.rate
        return {
            "kind": "auction",
            "id": FIRST_ID + self.auctions - 1,
            "item_name": self.text(4, 20),
            "description": self.text(10, 100),
            "initial_bid": price,
            "reserve": price + self.price(),
            "expires": at + SECOND + int(chance.uniform(0, 2 * turns) * SECOND),
            "seller": self.someone(hot=0),
            "category": 10 + chance.randrange(CATEGORIES),
            "extra": self.text(0, 200),
        }

    def bid(self) -> dict[str, Any]:
        chance = self.chance
        channel = chance.choice(_CHANNELS) if chance.random() < 0.5 else f"channel-{chance.randrange(_OTHER_CHANNELS)}"
        tag = f"&channel_id={chance.getrandbits(31)}" if chance.random() < 0.9 else ""
        path = "/".join(self.text(3, 5) for _ in range(3))
        return {
            "kind": "bid",
            "auction": self.some_auction(),
            "bidder": self.someone(hot=1),
            "price": self.price(),
            "channel": channel,
            "url": f"https://auctions.example/{path}/item.htm?query=1{tag}",
            "extra": self.text(0, 60),
        }

    def some_auction(self) -> int:
        """Return an auction to bid for.

        With probability 1/2, the result is the hot auction; otherwise, it is one of the latest `OPEN` auctions.
        """
        latest = max(1, self.auctions)
        if self.chance.random() < 0.5:
            return FIRST_ID + (latest - 1) // HOT * HOT
        return FIRST_ID + self.chance.randrange(max(0, latest - OPEN), latest)

    def someone(self, hot: int) -> int:
        """Return a person: the hot person with probability 3/4, otherwise one of the latest `ACTIVE` persons.

        If `hot` is 0, the hot person is the hot seller. If `hot` is 1, the hot person is the hot bidder.
        """
        latest = max(1, self.people)
        if self.chance.random() < 0.75:
            return FIRST_ID + min(latest - 1, (latest - 1) // HOT * HOT + hot)
        return FIRST_ID + self.chance.randrange(max(0, latest - ACTIVE), latest)

    def price(self) -> int:
        """Return a random price in cents, from one dollar to a million dollars.

        The distribution is log-uniform: each order of magnitude is equally likely.
        """
        return round(100 * 10 ** self.chance.uniform(0, 6))

    def text(self, least: int, most: int) -> str:
        """Return a text of random letters, with a length from `least` to `most`."""
        length = self.chance.randint(least, most)
        begin = self.chance.randrange(len(self.letters) - length)
        return self.letters[begin : begin + length]


def nexmark_events(*, rate: float, length: int, seed: int, first: int) -> Iterator[Delivery]:
    """Yield the records of `nexmark` as deliveries, in the order of event time."""
    chance = Random(seed)
    house = _House(chance, rate)
    for number, at in enumerate(arrivals(chance, rate, first, first + length)):
        behind = chance.expovariate(1.0) if chance.random() < 0.95 else chance.uniform(0, 4)
        yield Delivery(at + min(MOST_BEHIND, int(behind * SECOND)), house.record(number, at))


def auctions(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """Generate the records of `nexmark` as three logs, "persons", "auctions" and "bids", sorted by `known`."""
    made = nexmark(rate=rate, length=length, seed=seed, first=first)
    own = ({name: value for name, value in one.record.items() if name != "kind"} for one in made)
    return [replace(one, record=record, log=f"{one.record['kind']}s") for one, record in zip(made, own, strict=True)]


def nexmark(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """Generate about `rate` records per second over `length` microseconds of event time from `first` on, sorted by
    `known`.

    `kind` is the kind of record. A "person" has `id`, `name`, `email_address`, `credit_card`, `city` and `state`. An
    "auction" has `id`, `item_name`, `description`, `initial_bid` and `reserve` in cents, its end time `expires`, its
    `seller` and its `category`. A "bid" has its `auction`, its `bidder`, its `price` in cents, `channel` and `url`.
    Every record also has a random text, `extra`, and its event time, `date_time`. A record becomes known less than 4
    seconds after its event time.

    >>> a, b, c = (nexmark(rate=50, length=2_000_000, seed=seed, first=0) for seed in (1, 1, 2))
    >>> a == b, a == c
    (True, False)
    """
    return by_known_time(nexmark_events(rate=rate, length=length, seed=seed, first=first))
