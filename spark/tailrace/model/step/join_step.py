"""The reference execution of one epoch of a join: it pairs the records of two logs, and keeps records for later epochs.

A pair is output in the epoch in which its second record arrives, so the pairs do not depend on how the records are
divided into epochs (rule L1). An epoch is processed in three phases. First, records that are too late are left out; the
watermark from before the epoch decides which records are too late. Then the records are paired with their partners.
Last, the watermark advances, records without a partner are output, and records that can get no further partner are
removed from the state (rules T4, M1). When a record of either side is retracted, the pairs of this record are retracted
as well. When a record that was output without a partner gets a partner, the earlier output is retracted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tailrace.model.base.algebra import Scalars, sort_key
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, instant, moment
from tailrace.model.combiners.basic import without_negative_zeros
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import JOIN_WINDOW, LEFT, RIGHT, SIDE
from tailrace.model.logs.log import PANE_TIME, PLACE, SIGN, sign_of
from tailrace.model.windows.windows import Window, windows_within_time

Place: TypeAlias = "tuple[Any, ...]"


@dataclass(frozen=True, eq=False)
class Kept:
    """An entry of a join's state: a record of one side of the join. If the join has windows, there is one entry per
    record and window.

    `at` is the event time of the record, in microseconds. Values are equal as in tables, where NaN equals NaN.
    """

    side: str
    values: Mapping[str, Any]
    at: int
    window: Window | None
    place: Place
    taken: bool = False
    """True if this entry is the retraction of a record with equal values; False if this entry is a record."""

    @cached_property
    def equal_values(self) -> Mapping[str, Any]:
        """For each column, a key that is the same for equal values."""
        return {name: sort_key(value) for name, value in self.values.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Kept):
            return NotImplemented
        return self._identity == other._identity and self.equal_values == other.equal_values

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return (self.side, self.at, self.window, self.place)


@dataclass(frozen=True)
class JoinState:
    """The state of a join between two epochs: the last epoch's clock, and the records that may still get a partner."""

    clock: Clock | None = None
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class Joined:
    """An output row of a join, for a pair or for a record without a partner.

    `at` is the event time of the row, in microseconds. `left` and `right` are the positions of the row's records in
    their logs. If `retraction` is true, the row retracts an earlier row with the same values.
    """

    values: Mapping[str, Any]
    at: int
    epoch: int
    left: Place | None
    right: Place | None
    retraction: bool = False


@dataclass(frozen=True)
class LateKept:
    """A record that arrived too late for a join, and the watermark at the time when the record arrived."""

    record: Kept
    epoch: int
    watermark: int


def step(
    join: Join, state: JoinState, bundle: Iterable[Mapping[str, Any]], clock: Clock
) -> tuple[JoinState, list[Joined], list[LateKept]]:
    """Process one epoch of a join; `bundle` contains the records of both sides (`Join.log`).

    >>> from tailrace.model.base.time import EPOCH, minutes
    >>> from tailrace.model.logs.log import Log
    >>> asked, clicked = (Log(name=name, columns={"at": "timestamp", "q": "bigint"}, event_time="at")
    ...                   for name in ("asked", "clicked"))
    >>> join = Join(name="j", left=asked, right=clicked, on="q", within=minutes(5), kind="left",
    ...             left_columns={"asked": "at"}, right_columns={"clicked": "at"})
    >>> given = [*join.log.records("left", [dict(q=1, at=EPOCH), dict(q=2, at=EPOCH)]),
    ...          *join.log.records("right", [dict(q=1, at=EPOCH + minutes(1))])]
    >>> state, pairs, _ = step(join, JoinState(), given, Clock(0, 0, 0))
    >>> [one.values["q"] for one in pairs]
    [1]
    >>> [one.values["q"] for one in step(join, state, [], Clock(1, 10**9, 0))[1]]
    [2]
    """
    clock.after(state.clock)
    before = BEGINNING if state.clock is None else state.clock.watermark
    came = [one for record in bundle for one in _kept(join, record)]
    late = [LateKept(one, clock.epoch, before) for one in came if join.too_late(one.at, one.window, before)]
    gone, new = _netted(one for one in came if not join.too_late(one.at, one.window, before))
    stay = _without(state.kept, gone)
    then, now = _Together(join, state.kept, before), _Together(join, [*stay, *new], clock.watermark)
    fresh, lost = {id(one) for one in new}, {id(one) for one in state.kept} - {id(one) for one in stay}
    asked = [one for one in state.kept if not join.settled(one.side, one.at, one.window, before)]
    told = {id(one): one for one in asked if then.alone(one)}
    tells = {id(one): one for one in (*asked, *new) if id(one) not in lost and now.alone(one)}
    found = [_pair(join, *pair, clock.epoch, retraction=True) for pair in then.pairs(lost)]
    found += [_unmatched(join, told[one], clock.epoch, retraction=True) for one in told if one not in tells]
    found += [_pair(join, *pair, clock.epoch) for pair in now.pairs(fresh)]
    found += [_unmatched(join, tells[one], clock.epoch) for one in tells if one not in told]
    kept = (one for one in (*stay, *new) if not join.closed(one.side, one.at, one.window, clock.watermark))
    return JoinState(clock, tuple(kept)), found, late


def meet(join: Join, left: Kept, right: Kept) -> bool:
    """Return True if a left record and a right record form a pair."""
    if any(left.values[name] is None or left.equal_values[name] != right.equal_values[name] for name in join.keys):
        return False
    if left.window != right.window:
        return False
    before, after = join.reach
    return join.where is not None or -before <= right.at - left.at <= after


def record_of(joined: Joined) -> dict[str, Any]:
    """Convert an output row of a join to the record that the readers of the join receive."""
    places = ((None,) * len(PLACE) if place is None else place for place in (joined.left, joined.right))
    source = "|".join(":".join("" if part is None else str(part) for part in place) for place in places)
    place = dict(zip(PLACE, (joined.epoch, source, None), strict=True))
    return {**joined.values, PANE_TIME: moment(joined.at), **place, SIGN: -1 if joined.retraction else 1}


def _kept(join: Join, record: Mapping[str, Any]) -> Iterator[Kept]:
    side, at = record[SIDE], instant(record[PANE_TIME])
    values = without_negative_zeros(Scalars(), {name: record[name] for name in join.taken(side)}, join.reals(side))
    # An answer of another definition is identified by its values, so its position is left out. The retraction of the
    # answer arrives in a later epoch, and so has another position.
    place = (None,) * len(PLACE) if join.side(side).takes_back else tuple(record.get(name) for name in PLACE)
    windows = [None] if join.where is None else windows_within_time(join.where, at, values)
    for window in windows:
        yield Kept(side, values, at, window, place, taken=sign_of(record) < 0)


def _netted(came: Iterable[Kept]) -> tuple[list[Kept], list[Kept]]:
    """Divide an epoch's records into retracted and added records; leave out records that the epoch both adds and
    retracts.
    """
    gone, new = list[Kept](), list[Kept]()
    for one in came:
        against, own = (new, gone) if one.taken else (gone, new)
        if one in against:
            against.remove(one)
        else:
            own.append(one)
    return gone, new


def _without(kept: Iterable[Kept], gone: Iterable[Kept]) -> list[Kept]:
    left = list(kept)
    for one in gone:
        left.remove(one)
    return left


class _Together:
    """The records of both sides at a given watermark, and the pairs that these records form.

    The possible partners of a record are looked up by key and window.
    """

    def __init__(self, join: Join, kept: Sequence[Kept], watermark: int) -> None:
        self._join, self._kept, self._watermark = join, kept, watermark
        self._found: dict[Any, list[Kept]] = {}
        for one in kept:
            self._found.setdefault(self._place(one.side, one), []).append(one)

    def _place(self, side: str, one: Kept) -> tuple[Any, ...]:
        return (side, one.window, *(one.equal_values[name] for name in self._join.keys))

    def _partners(self, one: Kept) -> list[Kept]:
        return self._found.get(self._place(RIGHT if one.side == LEFT else LEFT, one), [])

    def pairs(self, of: Collection[int]) -> Iterator[tuple[Kept, Kept]]:
        """Yield each pair that contains at least one record whose `id()` is in `of`."""
        for left in self._kept:
            for right in self._partners(left) if left.side == LEFT else ():
                if (id(left) in of or id(right) in of) and meet(self._join, left, right):
                    yield left, right

    def alone(self, one: Kept) -> bool:
        """Return True if a record has no partner and must be output without a partner at this watermark."""
        join = self._join
        if not join.keeps(one.side) or not join.complete(one.side, one.at, one.window, self._watermark):
            return False
        return not any(meet(join, *((one, it) if one.side == LEFT else (it, one))) for it in self._partners(one))


def _unmatched(join: Join, one: Kept, epoch: int, *, retraction: bool = False) -> Joined:
    left, right = (one, None) if one.side == LEFT else (None, one)
    return _pair(join, left, right, epoch, retraction=retraction)


def _pair(join: Join, left: Kept | None, right: Kept | None, epoch: int, *, retraction: bool = False) -> Joined:
    there = [one for one in (left, right) if one is not None]
    values = dict.fromkeys(join.results)
    for one in there:
        values |= one.values
    if (window := there[0].window) is not None:
        values |= dict(zip(JOIN_WINDOW, map(moment, window), strict=True))
    first, second = (None if one is None else one.place for one in (left, right))
    return Joined(values, max(one.at for one in there), epoch, first, second, retraction)
