"""Writers that run side by side in a world where anything fails, as a seed has it.

Each writer is a greenlet, and each call that it makes of the lake is a fault point, before it and after it: there
another writer may go on, this one may die, be paused, find the catalog locked or the disk full, or lose the reply to
what it did. A world with the same seed goes the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from greenlet import getcurrent, greenlet

from tailrace.lake.schema.lake_errors import FencedError, MovedError
from tests.support.faults.lake_in_memory import MemoryLake

COMMITS = frozenset(("move", "mark", "graft", "enter", "write", "change", "gather"))
"""What changes a table; the rest of the lake's calls look."""

CALLS = COMMITS | {"ensure", "made", "head", "refs", "commits", "unname", "rows"}


RARE = ("after graft", "after mark")
"""Where replies are lost more often, for there are few of them."""


class Killed(BaseException):
    """The writer's process is no more."""


class Trouble(OSError):  # noqa: N818  (it reads as what it says)
    """The catalog is locked, the disk is full, or a reply was lost."""


class NotYetError(RuntimeError):
    """What a backfill says where there is nothing to compute yet, or it cannot be had."""


GIVES_UP = (FencedError, NotYetError)
"""What a writer ends of without any fault: another one has the lease, or there is nothing to do."""


@dataclass
class Chances:
    """How likely each fault is at a fault point."""

    killed: float = 0.008
    locked: float = 0.004
    full: float = 0.01
    lost: float = 0.02
    paused: float = 0.01
    yielded: float = 0.35


@dataclass
class World:
    """A lake and its writers. `faults` is how many more there may be; `told` is what happened."""

    seed: int
    faults: int = 6
    chances: Chances = field(default_factory=Chances)
    now: float = 0.0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.lake = MemoryLake()
        self.writers: list[Writer] = []
        self.hub = getcurrent()
        self.current: Writer | None = None

    def start(self, name: str, work: Callable[[Writer], Any], then: Callable[[str], None] | None = None) -> Writer:
        """Start a writer; `then` is called with how it ended."""
        writer = Writer(self, name, work, then)
        self.writers.append(writer)
        return writer

    def run(self) -> None:
        """Let the writers go on in turns, until all have ended."""
        while self.writers:
            ready = [one for one in self.writers if one.paused <= 0] or self.writers
            for one in self.writers:
                one.paused -= 1
            self.current = self.chance.choice(ready)
            self.current.thread.switch()
            self.current = None

    # What `time` is to the protocol.

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 10 * seconds
        if self.current is not None:
            self.current.rest()


class Writer:
    """One process. Half of them write their commits themselves, as DuckDB's do, the others on branches, as Spark's."""

    def __init__(
        self, world: World, name: str, work: Callable[[Writer], Any], then: Callable[[str], None] | None
    ) -> None:
        self.world, self.name, self.work, self.then = world, name, work, then
        self.thread = greenlet(self._work, parent=world.hub)
        self.dead, self.paused = False, 0
        self.direct = world.chance.random() < 0.5
        self.lake = Faulty(world.lake, self)

    def _work(self) -> None:
        ended = "ended"
        try:
            self.work(self)
        except Killed:
            ended = "killed"
        except (Trouble, *GIVES_UP) as error:
            ended = f"{type(error).__name__}: {error}"
        finally:
            self.world.writers.remove(self)
        self.world.told.append(f"{self.name}: {ended}")
        if self.then is not None:
            self.then(ended)

    def rest(self) -> None:
        """Let another writer go on."""
        self.world.hub.switch()
        self.check()

    def check(self) -> None:
        if self.dead:
            raise Killed

    def point(self, place: str, *, commits: bool, after: bool, writes: bool = False) -> None:
        """A fault point."""
        self.check()
        world, chances, draw = self.world, self.world.chances, self.world.chance.random
        if world.faults > 0:
            lost = chances.lost * (10 if place.startswith(RARE) else 1)
            if (commits and draw() < chances.killed * 4) or draw() < chances.killed:
                self.dead = True
                return self._fault("killed", place, Killed())
            if not after and commits and draw() < chances.locked:
                return self._fault("locked", place, Trouble(f"database is locked, before {place}"))
            if not after and writes and draw() < chances.full:
                return self._fault("full", place, Trouble(f"no space left on device, before {place}"))
            if after and commits and draw() < lost:
                error = Trouble(f"no reply, {place}") if writes or draw() < 0.5 else MovedError(f"lost reply, {place}")
                return self._fault("lost", place, error)
            if draw() < chances.paused:
                world.faults -= 1
                world.told.append(f"{self.name}: paused {place}")
                self.paused = world.chance.choice([20, 100, 400])
                return self.rest()
        if draw() < chances.yielded:
            self.rest()
        return None

    def _fault(self, kind: str, place: str, error: BaseException) -> None:
        self.world.faults -= 1
        self.world.told.append(f"{self.name}: {kind} {place}")
        raise error


class Faulty:
    """The lake as a writer sees it."""

    def __init__(self, lake: MemoryLake, writer: Writer) -> None:
        self._lake, self._writer = lake, writer
        self.tell, self.direct = lake.tell, writer.direct
        self.spark_name, self.contents, self.gained = lake.spark_name, lake.contents, lake.gained

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, table: Any, *args: Any, **options: Any) -> Any:
        place = (
            f"{name} {getattr(table, 'table', table)} {args[0] if args and isinstance(args[0], str) else ''}".strip()
        )
        commits, writes = name in COMMITS, name in ("write", "gather")
        self._writer.point(f"before {place}", commits=commits, after=False, writes=writes)
        found = getattr(self._lake, name)(table, *args, **options)
        self._writer.point(f"after {place}", commits=commits, after=True, writes=writes)
        return found
