"""Try whether a definition gives the same answers in any order and any cut of its records (law L1)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import duration, instant
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log
from tailrace.testing.differences import Difference
from tailrace.testing.epochs import EpochCutter, EpochsError
from tailrace.testing.folds import Output, folded
from tailrace.testing.given_records import Record, RecordReader, RejectedError, shown
from tailrace.testing.rows import Rows

TRIES = 30
"""The number of random orders that are tried, beside the special ones."""

FEWER = 4
"""The number of random orders inside a test of Hypothesis, which draws many lists of records itself."""

_MOST_FOLDS = 400
"""The maximum number of folds with which a smaller order is searched for."""


class OrderError(TailraceError, AssertionError):
    """The failure of a test: the answers of a definition depend on the order or the cut of its records."""


class _Arriving(NamedTuple):
    """A record on its way: as its source writes it, and as the log has it.

    `at` is its event time, and `reach` is the time from which the log's strategy computes a watermark: the event time,
    or the arrival time. Both are in microseconds.
    """

    log: str
    written: Record
    read: dict[str, Any]
    at: int
    reach: int


_Order: TypeAlias = "list[list[_Arriving]]"
"""Epochs of records."""

Records: TypeAlias = "Sequence[Record] | Mapping[str, Sequence[Record]]"
"""The records of a test: a list or, for a definition that reads several logs, a list for the name of each log."""


def any_order(
    definition: Definition,
    records: Records,
    *,
    within: timedelta | None = None,
    tries: int | None = None,
    seed: int = 0,
) -> Rows:
    """Check that a definition has the same last answers in any order and any cut of records, and return these answers.

    The answers are compared with those of one epoch with all records. Only orders are tried in which no record is too
    late: a record arrives at most `within` behind the latest event time of its log so far. By default, `within` is the
    bound of the log's own watermark strategy, such as `disorder`. If the definition has an `allowed_lateness`, records
    may be later; pass the sum of both as `within` to try this as well. Records that repeat an id must be equal.

    Raises `OrderError` with the smallest order that was found to give other answers. The orders are the same in each
    run; `seed` chooses others, and `tries` is their number.
    """
    __tracebackhide__ = True
    arriving = list(_read(definition, records))
    bounds = {log.name: _bound(log, within) for log in definition.sources}
    chance = random.Random(seed)
    trial = _Trial(definition)
    whole = sorted(arriving, key=lambda one: one.at)
    expected = trial.fold([whole] if whole else [])
    for order in _orders(whole, bounds, chance, _tries() if tries is None else tries):
        if not trial.fold(order).answers.compared(expected.answers).same:
            smallest = trial.smaller(order)
            raise OrderError(_message(definition, smallest, trial.difference(smallest), len(arriving), seed))
    return expected.answers


def _tries() -> int:
    hypothesis = sys.modules.get("hypothesis")
    return FEWER if hypothesis is not None and hypothesis.currently_in_test_context() else TRIES


def records_by_log(definition: Definition, records: Records) -> Mapping[str, Sequence[Record]]:
    """Return the records of each log that a definition reads."""
    logs = [log.name for log in definition.sources]
    if isinstance(records, Mapping):
        if unknown := [name for name in records if name not in logs]:
            raise EpochsError(f"records of {', '.join(map(str, unknown))}: expected records of {', '.join(logs)}")
        return records
    if len(logs) > 1:
        raise EpochsError(f"{definition.name} reads {', '.join(logs)}: write {{log name: [records]}} for them")
    return {logs[0]: list(records)}


def read_records(definition: Definition, records: Records) -> Iterator[tuple[Log, Record, dict[str, Any]]]:
    """Yield each record with its log, as its source writes it, and as the log has it.

    Raises `RejectedError` if a record is rejected.
    """
    given, rejected = records_by_log(definition, records), list[str]()
    read = []
    for log in definition.sources:
        reader = RecordReader(log)
        for record in given.get(log.name, ()):
            made = reader.read(record)
            if isinstance(made, str):
                rejected.append(f"{shown(record)}: {made}")
            else:
                read.append((log, record, made))
    if rejected:
        raise RejectedError(rejected, "leave them out: `fold` takes them with allow_rejected=True")
    yield from read


def _read(definition: Definition, records: Records) -> Iterator[_Arriving]:
    for log, record, read in read_records(definition, records):
        at = instant(read[log.event_time])
        arrived = at if log.arrival_time is None or not log.strategy.learns else instant(read[log.arrival_time])
        yield _Arriving(log.name, record, read, at, max(at, arrived))


def _bound(log: Log, within: timedelta | None) -> int | None:
    """Return how far behind a record may be, in microseconds; None if the records do not move the watermark."""
    if within is not None:
        return duration(within)
    if not log.strategy.follows_records:
        return None
    if log.strategy.bound is None:
        raise EpochsError(f"{log.name}: its watermark strategy has no bound: pass within=, such as within=minutes(10)")
    return duration(log.strategy.bound)


def _orders(
    records: Sequence[_Arriving], bounds: Mapping[str, int | None], chance: random.Random, tries: int
) -> Iterator[_Order]:
    """Yield the orders to try: one by one, as late as allowed, and random ones."""
    if not records:
        return
    yield [[one] for one in records]
    late = list(_as_late_as_allowed(records, bounds))
    yield [[one] for one in late]
    yield [late[: len(late) // 2], late[len(late) // 2 :]]
    for _ in range(tries):
        yield _cut(_shuffled(records, bounds, chance), chance)


def _as_late_as_allowed(records: Iterable[_Arriving], bounds: Mapping[str, int | None]) -> Iterator[_Arriving]:
    """Yield the latest records first, as far as no other record of their log is then too late."""
    left = sorted(records, key=lambda one: one.at)
    while left:
        first: dict[str, int] = {}
        for one in left:
            first.setdefault(one.log, one.at)
        place = max(
            (n for n, one in enumerate(left) if _may_be_next(one, first[one.log], bounds[one.log])),
            key=lambda n: left[n].at,
        )
        yield left.pop(place)


def _may_be_next(one: _Arriving, first: int, bound: int | None) -> bool:
    """Return True if a record makes no other record too late; `first` is the earliest event time that is left."""
    return bound is None or one.at == first or one.reach - first <= bound


def _shuffled(records: Sequence[_Arriving], bounds: Mapping[str, int | None], chance: random.Random) -> list[_Arriving]:
    """Let each record arrive up to the bound after it happened; so none is further behind than the bound.

    A record arrives after its own time of arrival, if the log's watermark follows this time.
    """
    span = max((one.at for one in records), default=0) - min((one.at for one in records), default=0) + 1

    def delay(one: _Arriving) -> int:
        bound, least = bounds[one.log], one.reach - one.at
        return chance.randint(least, max(least, span if bound is None else bound))

    arrivals = [(one.at + delay(one), chance.random(), one) for one in records]
    return [one for *_, one in sorted(arrivals, key=lambda arrival: arrival[:2])]


def _cut(records: Sequence[_Arriving], chance: random.Random) -> _Order:
    often = chance.choice([0.1, 0.3, 0.6, 1.0])
    order: _Order = [[]]
    for one in records:
        if order[-1] and chance.random() < often:
            order.append([])
        order[-1].append(one)
    return order


@dataclass
class _Trial:
    """The folds of one definition, and the search for a smaller order that differs."""

    definition: Definition
    folds: int = 0

    def fold(self, order: _Order) -> Output:
        self.folds += 1
        cutter = EpochCutter(self.definition.sources)
        for epoch in order:
            read: dict[str, list[Record]] = {}
            for one in epoch:
                read.setdefault(one.log, []).append(one.read)
            cutter.add_read(read)
        cutter.end()
        return folded(self.definition, cutter.cut)

    def difference(self, order: _Order) -> Difference:
        """Compare an order with one epoch of the same records."""
        whole = sorted((one for epoch in order for one in epoch), key=lambda one: one.at)
        return self.fold(order).answers.compared(self.fold([whole]).answers)

    def smaller(self, order: _Order) -> _Order:
        """Return a smaller order that differs: with fewer records, fewer epochs, or fewer records out of order."""
        most = self.folds + _MOST_FOLDS
        found = True
        while found:
            found = False
            for ways in (_without, _merged, _swapped):
                while (less := self._first(ways, order, most)) is not None:
                    order, found = less, True
        return order

    def _first(self, ways: Callable[[_Order], Iterator[_Order]], order: _Order, most: int) -> _Order | None:
        return next((one for one in ways(order) if self.folds < most and not self.difference(one).same), None)


def _without(order: _Order) -> Iterator[_Order]:
    """Yield the order without some records: first without many."""
    count = sum(map(len, order))
    size = count // 2
    while size:
        for start in range(0, count, size):
            gone, place, less = range(start, start + size), 0, list[list[_Arriving]]()
            for epoch in order:
                kept = [one for at, one in enumerate(epoch, place) if at not in gone]
                place += len(epoch)
                less += [kept] if kept else []
            if less:
                yield less
        size //= 2


def _merged(order: _Order) -> Iterator[_Order]:
    for place in range(len(order) - 1):
        yield [*order[:place], order[place] + order[place + 1], *order[place + 2 :]]


def _swapped(order: _Order) -> Iterator[_Order]:
    """Yield the order with two neighbours in the order of their times."""
    sizes, flat = [len(epoch) for epoch in order], [one for epoch in order for one in epoch]
    for place in range(len(flat) - 1):
        if flat[place].at > flat[place + 1].at:
            swapped = [*flat[:place], flat[place + 1], flat[place], *flat[place + 2 :]]
            starts = [sum(sizes[:n]) for n in range(len(sizes))]
            yield [swapped[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _message(definition: Definition, order: _Order, found: Difference, given: int, seed: int) -> str:
    several = len(definition.sources) > 1
    lines = [f"the answers of {definition.name} depend on the order or the cut of its records (seed {seed})"]
    count = sum(map(len, order))
    lines.append(f"{count} of {given} records are enough, in this order:")
    for number, epoch in enumerate(order):
        for place, one in enumerate(epoch):
            title = f"epoch {number}:" if place == 0 else " " * len(f"epoch {number}:")
            lines.append(f"  {title} {f'{one.log} ' if several else ''}{shown(one.written)}")
    lines += found.lines("in one epoch", "in this order")
    return "\n".join(lines)
