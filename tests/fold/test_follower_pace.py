"""The answers follow every few epochs, and less often where that takes much of the time, but within their freshness."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest

from tailrace.fold.follower_pace import FOLLOW_EVERY, Pace, Trailing


class World:
    """A stream whose epochs take a second each, beside bringings up of answers that take `dear` seconds."""

    def __init__(self, dear: float, pace: Pace) -> None:
        self.now, self.dear = 0.0, dear
        pace.now = lambda: self.now
        self.trailing = Trailing("p", pace)
        self.followed: list[float] = []
        self.waited = 0.0
        self._running: tuple[float, Iterator[None]] | None = None

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.now += 1
            self._end(self.now)
            self.trailing.published()
            if self.trailing.asks():
                self._end(None)
                block = self.trailing.following(self.trailing.epochs)
                block.__enter__()
                self.followed.append(self.now)
                self._running = self.now + self.dear, block  # type: ignore[assignment]
            if self.trailing.waits():
                self._end(None)

    def _end(self, until: float | None) -> None:
        """End what runs, if it is done by then; None waits for it."""
        if self._running is None:
            return
        done, block = self._running
        if until is None or done <= until:
            self.waited += max(0.0, done - self.now)
            self.now, later = done, self.now
            block.__exit__(None, None, None)  # type: ignore[attr-defined]
            self.now = max(done, later)
            self._running = None


def gaps(world: World) -> list[float]:
    """The times between one bringing up and the next, but the first, which nobody knows the cost of."""
    return [later - earlier for earlier, later in zip(world.followed[1:], world.followed[2:], strict=False)]


def test_where_it_is_cheap_it_follows_every_few_epochs() -> None:
    world = World(0.1, Pace.of(None, timedelta(minutes=1)))
    world.run(100)
    assert set(gaps(world)) == {FOLLOW_EVERY - 2}
    assert world.waited == 0


def test_where_it_is_dear_it_takes_a_quarter_of_the_time_and_the_stream_never_waits() -> None:
    world = World(12, Pace.of(None, timedelta(minutes=1)))
    world.run(500)
    assert set(gaps(world)) == {48}
    assert world.waited <= 12, "for the first alone"


@pytest.mark.parametrize("dear", [20, 40, 59])
def test_within_its_freshness_it_follows_however_dear_it_is(dear: float) -> None:
    world = World(dear, Pace.of(None, timedelta(minutes=1)))
    world.run(1000)
    assert max(gaps(world)) <= 61


def test_a_number_of_epochs_that_was_asked_for_holds_whatever_it_costs() -> None:
    world = World(12, Pace.of(3, timedelta(minutes=1)))
    world.run(60)
    assert world.waited > 60, "the stream waits for it"


@pytest.mark.parametrize("follow_every", [None, 5])
def test_answers_of_a_stream_that_rests_are_no_longer_behind_than_their_freshness(follow_every: int | None) -> None:
    world = World(1, Pace.of(follow_every, timedelta(minutes=1)))
    world.run(2)
    asked = []
    for _ in range(200):
        world.now += 1
        if world.trailing.asks():
            asked.append(world.now)
    assert asked == [61], "once, a minute after the first epoch that they lack"


def test_few_epochs_do_not_leave_the_answers_behind_for_longer_than_their_freshness() -> None:
    pace = Pace.of(None, timedelta(minutes=1))
    now = 0.0
    pace.now = lambda: now
    trailing, asked = Trailing("p", pace), []
    for _ in range(20):
        now += 25
        trailing.published()
        if trailing.asks():
            asked.append(now)
    assert {later - earlier for earlier, later in pairwise(asked)} == {100}
