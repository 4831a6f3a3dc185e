"""People, auctions and bids of an auction house: the log that the Nexmark queries are asked of.

Proportions, hot keys and prices follow the benchmark's published description (Tucker and others, "NEXMark: a benchmark
for queries over data streams", 2002, and the queries that came to be added to it since). Of 50 records one is a person
who joins, three are auctions that open, and the others are bids. Half of the bids go to one hot auction and three of
four come from one hot bidder, each of them another one after a while; so do auctions from sellers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.generate.delivery import SECOND, Delivery, arrivals, in_order

EVERY, AUCTIONS = 50, 3
"""Of so many records in a row the first is a person, so many are auctions, and the others are bids."""

FIRST_ID = 1000
"""Of persons and of auctions."""

HOT = 100
"""One of so many persons or auctions in a row is the hot one."""

OPEN, ACTIVE = 100, 1000
"""So many of the latest auctions are bid for, and so many of the latest persons bid and sell."""

MOST_BEHIND = 4 * SECOND - 1
"""No record becomes known later than this after it happened, in microseconds."""

CATEGORIES = 5
"""How many categories there are, numbered from 10."""

_STATES = ("az", "ca", "id", "or", "wa", "wy")
_CITIES = ("bend", "boise", "cheyenne", "kent", "phoenix", "portland", "redmond", "san francisco", "seattle")
_FIRST_NAMES = ("deiter", "john", "kate", "luke", "noah", "paul", "peter", "sarah", "saul", "vicky", "walter")
_LAST_NAMES = ("abrams", "bartels", "jones", "noris", "shultz", "smith", "spencer", "walton", "white")
_CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
"""Where half of the bids come from; the others come from one of many others."""

_OTHER_CHANNELS = 10_000


@dataclass
class _House:
    """What makes up one record after the other, at rate records a second."""

    chance: Random
    rate: float
    people: int = 0
    auctions: int = 0

    def __post_init__(self) -> None:
        self.letters = "".join(self.chance.choices("abcdefghijklmnopqrstuvwxyz", k=4096))

    def record(self, number: int, at: int) -> dict[str, Any]:
        """The record of this number in the log, which happens at this instant."""
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
        # It stays open for about as long as it takes the house to open the ones that are bid for beside it.
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
        """One of the auctions that are bid for: the hot one, half the time."""
        latest = max(1, self.auctions)
        if self.chance.random() < 0.5:
            return FIRST_ID + (latest - 1) // HOT * HOT
        return FIRST_ID + self.chance.randrange(max(0, latest - OPEN), latest)

    def someone(self, hot: int) -> int:
        """One of the latest persons: the hot one, three times of four; sellers and bidders each have one of theirs."""
        latest = max(1, self.people)
        if self.chance.random() < 0.75:
            return FIRST_ID + min(latest - 1, (latest - 1) // HOT * HOT + hot)
        return FIRST_ID + self.chance.randrange(max(0, latest - ACTIVE), latest)

    def price(self) -> int:
        """In cents: as often between one and ten dollars as between ten and a hundred thousand times that."""
        return round(100 * 10 ** self.chance.uniform(0, 6))

    def text(self, least: int, most: int) -> str:
        """Some letters that mean nothing."""
        length = self.chance.randint(least, most)
        begin = self.chance.randrange(len(self.letters) - length)
        return self.letters[begin : begin + length]


def records(*, rate: float, length: int, seed: int, first: int) -> Iterator[Delivery]:
    """The records of `nexmark` in the order in which they happen, each with when it becomes known."""
    chance = Random(seed)
    house = _House(chance, rate)
    for number, at in enumerate(arrivals(chance, rate, first, first + length)):
        behind = chance.expovariate(1.0) if chance.random() < 0.95 else chance.uniform(0, 4)
        yield Delivery(at + min(MOST_BEHIND, int(behind * SECOND)), house.record(number, at))


def nexmark(*, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
    """About `rate` records a second for `length` microseconds from the instant `first` on, as they become known.

    `kind` says what a record is: a "person", with `id`, `name`, `email_address`, `credit_card`, `city`, `state`; an
    "auction", with `id`, `item_name`, `description`, `initial_bid` and `reserve` in cents, when it `expires`, its
    `seller` and `category`; or a "bid", with its `auction`, `bidder`, `price` in cents, `channel`, `url`. Each has some
    `extra` text and `date_time`, when it happened (the event time). It becomes known at most 4 seconds later.

    >>> a, b, c = (nexmark(rate=50, length=2_000_000, seed=seed, first=0) for seed in (1, 1, 2))
    >>> a == b, a == c
    (True, False)
    """
    return in_order(records(rate=rate, length=length, seed=seed, first=first))
