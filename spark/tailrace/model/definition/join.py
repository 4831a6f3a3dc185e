"""A join: pairs of matching records from two logs, as one log (Dataflow Model, 2.1; Photon, 3).

Two records match if they have the same key and also meet the join's condition on event time. Either this condition
requires that the two event times are close to each other, or it requires that both records are in the same window. A
pair is output in the epoch in which the second of the two records arrives. The join's kind decides whether a record
without a partner is output. The option `unmatched` decides whether a record without a partner is output at once, or
only when the watermark shows that no partner can arrive any more. If an output turns out to be wrong, the join retracts
the output, just as a pipeline retracts a pane (Dataflow Model, 2.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from tailrace.model.base.errors import Fault, raise_faults, unknown_column
from tailrace.model.base.names import RESERVED, name_faults, reserved
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, length, waits
from tailrace.model.base.types import holds_reals
from tailrace.model.definition.definition import Windowless
from tailrace.model.definition.fingerprint import digest, of_log
from tailrace.model.definition.join_input import (
    JOIN_KINDS,
    JOIN_WINDOW,
    LEFT,
    RIGHT,
    SIDE,
    SIDES,
    UNMATCHED,
    WINDOWINGS,
    JoinInput,
    JoinKind,
    Unmatched,
)
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import NONE_SET_ASIDE, Reasons
from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union, taken_back
from tailrace.model.logs.log import PANE_TIME, Log
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import Accumulation, Timestamp
from tailrace.model.windows.windows import Fixed, Window, Windowing

TAKES_BACK = "takes_back"
"""The key, in the dict `Join.meaning`, for the fact that a stream may retract rows of the join."""


@dataclass(frozen=True, kw_only=True)
class Join(Windowless):
    """The pairs of records from two logs that have the same key and are close in time or in the same window.

    `on` names the key columns, or maps the key columns of the left log to the key columns of the right log; a record
    with a null key has no partner. `within` is the maximum difference between the event times of the two records. If
    `within` is a tuple of two durations, the right record may be earlier than the left record by at most the first
    duration, and later by at most the second duration. Instead of `within`, `where` can require that both records are
    in the same window; only windowings that assign windows by event time alone are allowed. `kind` says on which sides
    a record without a partner is output: on neither side ("inner"), on one side ("left" or "right"), or on both sides
    ("full"). In the output row of such a record, the columns of the other side are null. `unmatched` says when a record
    without a partner is output. With "wait", a record without a partner is output when no partner can arrive in time
    any more. With "tell", a record without a partner is output at once, and retracted if a partner arrives.

    `left_columns` and `right_columns` name the output columns of each side, by default all columns except the key. To
    rename columns, pass a mapping from output names to column names. The event time of a pair is the later of the event
    times of its two records. A record is too late if its event time is behind the watermark by more than
    `allowed_lateness`. In a join with `where`, a record is too late if the end of its window is behind the watermark by
    at least `allowed_lateness`. A side may also be the panes of a pipeline. When an answer of the pipeline is
    corrected, the pairs with the old answer are retracted, and pairs with the new answer are output. The default of
    `allowed_lateness` is the time for which the answers that the join reads may be corrected.

    >>> from tailrace.model.base.time import hours
    >>> asked = Log(name="asked", columns={"at": "timestamp", "q": "bigint", "term": "string"}, event_time="at")
    >>> clicked = Log(name="clicked", columns={"at": "timestamp", "q": "bigint", "ad": "string"}, event_time="at")
    >>> shown = Join(name="shown", left=asked, right=clicked, on="q", within=hours(1), left_columns="term",
    ...              right_columns={"ad": "ad", "clicked_at": "at"})
    >>> shown.results
    {'q': 'bigint', 'term': 'string', 'ad': 'string', 'clicked_at': 'timestamp'}
    """

    kind_name, state_name, repairs_late = "join", "kept records", True
    log_options = SIDES

    name: str
    left: Log
    right: Log
    on: str | Iterable[str] | Mapping[str, str]
    within: timedelta | tuple[timedelta, timedelta] | None = None
    where: Windowing | None = None
    kind: JoinKind = "inner"
    unmatched: Unmatched = "wait"
    allowed_lateness: timedelta | None = None
    left_columns: str | Iterable[str] | Mapping[str, str] | None = None
    right_columns: str | Iterable[str] | Mapping[str, str] | None = None

    # A join applies no steps and no condition. A record may have several partners, and each pair is a row.
    each, keep, multiplies = (), None, True

    set_aside: ClassVar[Reasons] = NONE_SET_ASIDE
    """The records of either side that the join rejects because they were set aside: every epoch that contained them
    failed (rule X7).
    """

    def __post_init__(self) -> None:
        for name in ("on", "left_columns", "right_columns"):
            value = getattr(self, name)
            if isinstance(value, str):
                value = (value,)
            if value is not None:
                kept = MappingProxyType(dict(value)) if isinstance(value, Mapping) else tuple(value)
                object.__setattr__(self, name, kept)
        raise_faults(self.name, _faults(self))

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The columns of the join's output rows, with their types."""
        return MappingProxyType(self.results)

    @cached_property
    def log(self) -> JoinInput:
        """The two logs of the join as one log."""
        of, take = {LEFT: self.left, RIGHT: self.right}, {side: self.taken(side) for side in SIDES}
        return JoinInput(name=self.name, of=of, take=take, tag=SIDE)

    @cached_property
    def used(self) -> frozenset[str]:
        # The join's log has only the columns that the join takes from its two logs.
        return frozenset(self.log.columns)

    @property
    def known_by(self) -> tuple[str, ...]:
        """The columns that identify a retracted record: the column that names the record's side, and the key
        columns.
        """
        return (SIDE, *self.keys)

    @cached_property
    def keys(self) -> Mapping[str, tuple[str, str]]:
        """The key columns: a mapping from an output name to a pair of the left log's column and the right log's
        column.
        """
        on: Any = self.on
        pairs = on.items() if isinstance(on, Mapping) else ((name, name) for name in on)
        return {left: (left, right) for left, right in pairs}

    def taken(self, side: str) -> dict[str, str]:
        """Return a dict from output name to column name for all output columns of a side, with the key columns
        first.
        """
        place = SIDES.index(side)
        return {name: pair[place] for name, pair in self.keys.items()} | self.own(side)

    def own(self, side: str) -> dict[str, str]:
        """Return a dict from output name to column name for the output columns of a side, except the key columns."""
        given: Any = self.left_columns if side == LEFT else self.right_columns
        if given is None:
            without = {pair[SIDES.index(side)] for pair in self.keys.values()} | {PANE_TIME}
            without |= set(JOIN_WINDOW) if isinstance(self.side(side), Panes) else set()
            return {name: name for name in self.side(side).columns if name not in without}
        return dict(given) if isinstance(given, Mapping) else {name: name for name in given}

    def reals(self, side: str) -> dict[str, str]:
        """Return a dict from output name to type for the output columns of a side that must have no negative zeros
        (rule M8).

        If rows may be retracted, rows are identified by their values. So two rows must not differ only in the sign of a
        zero.
        """
        types = {name: self.side(side).columns[column] for name, column in self.taken(side).items()}
        return {name: type for name, type in types.items() if self.takes_back and holds_reals(type)}

    def passed_on(self, column: str) -> tuple[Log, str] | None:
        found = ((self.side(side), self.taken(side).get(column)) for side in SIDES)
        return next(((log, of) for log, of in found if of is not None), None)

    def side(self, side: str) -> Log:
        """Return the log of a side."""
        return self.left if side == LEFT else self.right

    @property
    def results(self) -> dict[str, str]:
        """The output columns and their types, without the event time."""
        windows = dict.fromkeys(JOIN_WINDOW, "timestamp") if self.where is not None else {}
        return windows | {n: self.side(s).columns[column] for s in SIDES for n, column in self.taken(s).items()}

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The maximum times, in microseconds, by which the right record may be before and after the left record.

        For a join with windows (`where`), both maximum times are 0.
        """
        if self.within is None:
            return 0, 0
        before, after = self.within if isinstance(self.within, tuple) else (self.within, self.within)
        return duration(before), duration(after)

    @cached_property
    def lateness(self) -> int:
        """The allowed lateness in microseconds; by default, the time for which panes that the join reads may be
        corrected.
        """
        return self.log.trails if self.allowed_lateness is None else duration(self.allowed_lateness)

    @cached_property
    def takes_back(self) -> bool:
        """Whether a stream may retract rows.

        A row is retracted if one of its records is retracted, or if a record that was output without a partner gets a
        partner.
        """
        return self.log.takes_back or (self.kind != "inner" and (self.unmatched == "tell" or self.lateness > 0))

    def keeps(self, side: str) -> bool:
        """Return True if a record of this side is output even if the record has no partner."""
        return self.kind in ("full", side)

    def ahead(self, side: str) -> int:
        """Return the maximum time, in microseconds, by which a partner may be later than a record of this side, in
        event time.
        """
        return self.reach[1] if side == LEFT else self.reach[0]

    def kept(self, side: str) -> int:
        """Return how long the state keeps a record of this side, in microseconds.

        The time is counted from the moment at which the watermark passes the record's event time. A kept record may
        still get a partner. The state also keeps a record that already has a partner; otherwise, that partner would
        later be output as a record without a partner.
        """
        other = RIGHT if side == LEFT else LEFT
        return self.ahead(side) + self.lateness + (self.ahead(other) if self.keeps(other) else 0)

    @property
    def hold(self) -> int:
        """The time by which the watermark for the join's readers is behind the join's own watermark (rule T3).

        The time is in microseconds. A record that waits for a partner is output without a partner only when no partner
        can arrive any more. At that time, the join's watermark has passed the record's event time by about `hold`. The
        watermark for the readers must not have passed the record's event time yet, because the record would otherwise
        be late for the readers.
        """
        return 0 if self.kind == "inner" or self.unmatched == "tell" else self._span

    @property
    def trails(self) -> int:
        """The maximum time by which the event time of a new row or retraction may be behind the readers' watermark.

        The time is in microseconds. The readers' watermark is the watermark that the join passes on to its readers.
        """
        return self.lateness + self._span - self.hold

    @property
    def _span(self) -> int:
        """The maximum time, in microseconds, by which a row may be earlier than the record that causes the row to be
        output or retracted.

        The time is the difference between the event times of the row and the record.
        """
        if self.where is not None:
            return self.where.longest or 0
        return max((self.ahead(side) for side in SIDES if self.keeps(side)), default=0)

    def onward(self, watermark: int) -> int:
        """Return the watermark for the join's readers, given a watermark of the join; both are in microseconds."""
        return END_OF_TIME if watermark >= END_OF_TIME else max(BEGINNING, watermark - self.hold)

    def closed_until(self, watermark: int) -> int:
        """Return the event time, in microseconds, before which the output is final.

        When a stream has reached this watermark, it has already output all rows and retractions whose event times are
        before the returned time. These rows include the rows for records without a partner.
        """
        reached = self.onward(watermark)
        return reached if reached >= END_OF_TIME else max(BEGINNING, reached - (self.trails if self.takes_back else 0))

    def open_from(self, watermark: int) -> int:
        """Return the event time, in microseconds, from which on a backfill must not change rows.

        From this event time on, a stream may still change the rows that a backfill would write.
        """
        return END_OF_TIME if self.kind == "inner" and not self.takes_back else self.closed_until(watermark)

    def complete(self, side: str, at: int, window: Window | None, watermark: int) -> bool:
        """Return True if a record of a side can be output without a partner.

        With `unmatched="wait"`, the watermark must have passed the event times of all possible partners. With "tell",
        the result is always True.
        """
        if self.unmatched == "tell":
            return True
        if window is not None:
            return watermark >= window.end
        return watermark >= END_OF_TIME or watermark > at + self.ahead(side)

    def settled(self, side: str, at: int, window: Window | None, watermark: int) -> bool:
        """Return True if the partners of a record on this side are final: no partner can be added or retracted any
        more.
        """
        return self._past(at, window, watermark, self.ahead(side) + self.lateness)

    def closed(self, side: str, at: int, window: Window | None, watermark: int) -> bool:
        """Return True if the state can drop a record of a side, because the join no longer needs the record."""
        return self._past(at, window, watermark, self.kept(side))

    def too_late(self, at: int, window: Window | None, watermark: int) -> bool:
        """Return True if a record is too late for the join: the state may already have dropped the record's
        partners.
        """
        return self._past(at, window, watermark, self.lateness)

    def _past(self, at: int, window: Window | None, watermark: int, by: int) -> bool:
        """Return True if the watermark has passed a record by the required time.

        For a join with windows, the watermark must have reached the end of the record's window plus the allowed
        lateness. For a join without windows, the watermark must be past the record's event time by more than `by`
        microseconds.
        """
        if window is not None:
            return watermark >= min(END_OF_TIME, window.end + self.lateness)
        return watermark >= END_OF_TIME or watermark > at + by

    @property
    def meaning(self) -> dict[str, Any]:
        """The parts that determine the join's meaning, as a dict from the part's name to its value."""
        return self._meaning({side: self.taken(side) for side in SIDES})

    def _meaning(self, taken: Mapping[str, Mapping[str, str]], *, former: bool = False) -> dict[str, Any]:
        used = {side: None if former else set(taken[side].values()) for side in SIDES}
        found: dict[str, Any] = {
            side: digest(tuple(sorted(of_log(self.side(side), used[side]).items()))) for side in SIDES
        }
        if self.unmatched != "wait":
            found["unmatched"] = self.unmatched
        if self.takes_back:
            found[TAKES_BACK] = True
        return found | {
            "columns": [(side, sorted(taken[side].items())) for side in SIDES],
            "on": sorted(self.keys),
            "within": self.reach if self.where is None else written(self.where),
            "kind": self.kind,
            "lateness": timedelta(microseconds=self.lateness),
        }

    @property
    def fingerprint(self) -> str:
        """A digest of everything that determines the join's meaning; compare `Pipeline.fingerprint`."""
        return self._digest(self.meaning)

    @property
    def former_fingerprint(self) -> str:
        return self._digest(self._meaning({side: self.taken(side) for side in SIDES}, former=True))

    def fingerprint_of(self, columns: Collection[str]) -> str:
        wanted = {*columns, *self.keys}
        taken = {side: {n: of for n, of in self.taken(side).items() if n in wanted} for side in SIDES}
        return self._digest(self._meaning(taken))

    def _digest(self, meaning: Mapping[str, Any]) -> str:
        return digest(("join", sorted(meaning.items())))


def _faults(join: Join) -> Iterator[Fault]:
    """Find all faults of a join."""
    yield from name_faults("name", join.name)
    sides = {side: getattr(join, side) for side in SIDES}
    for side, log in sides.items():
        if not isinstance(log, Log):
            yield Fault(side, log, "a log", f'write {side}=Log(name="clicks", columns=..., event_time=...)')
        elif isinstance(log, Union):
            yield Fault(side, f"the union {log.name}", "a log that is no union", "join its logs one after the other")
        elif isinstance(log, Arrivals):
            yield log.refused(side)
        elif isinstance(log, Panes):
            yield from _panes_faults(side, log.of)
        elif isinstance(log, Productions) and isinstance(log.of, Map) and log.of.multiplies:
            expected = "one record of each, as a record is known by its place"
            yield Fault(side, f"what {log.name} makes", expected, "join its log first, and take the pairs through it")
        elif not log.kept:
            remedy = f'leave productions="weak" out of {log.name}'
            yield Fault(side, f"what {log.name} produces", "productions that are kept", remedy)
    if not all(isinstance(log, Log) for log in sides.values()):
        return
    columns = list(_column_faults(join))
    yield from columns
    if not columns:
        yield from _collisions(join)
    yield from _time_faults(join)


def _column_faults(join: Join) -> Iterator[Fault]:
    if not join.keys:
        yield Fault("on", join.on, "the columns of the key", 'write on="query_id"')
    for name, pair in join.keys.items():
        for side, column in zip(SIDES, pair, strict=True):
            if column not in join.side(side).columns:
                yield unknown_column(f"on[{name!r}]", column, join.side(side).columns)
        types = [join.side(side).columns.get(column) for side, column in zip(SIDES, pair, strict=True)]
        if None not in types and types[0] != types[1]:
            found, expected = f"{pair[1]}: {types[1]}", f"{types[0]}, as {pair[0]} is in {join.left.name}"
            yield Fault(f"on[{name!r}]", found, expected, "declare both as one type, or convert one with a Map")
    for side in SIDES:
        for name, column in join.own(side).items():
            path, types_ = f"{side}_columns[{name!r}]", join.side(side).columns
            yield from name_faults(path, name)
            if column not in types_:
                yield unknown_column(path, column, types_)
            elif name in RESERVED or name == SIDE or "__" in name:
                yield reserved(path, name)
    if join.left.name == join.right.name and (join.left_columns is None or join.right_columns is None):
        found, expected = f"{join.left.name} with itself", "names for the columns of each side"
        yield Fault(
            "right", found, expected, 'write left_columns={"first_at": "at"}, right_columns={"second_at": "at"}'
        )


def _collisions(join: Join) -> Iterator[Fault]:
    taken = list(join.keys) + [name for side in SIDES for name in join.own(side)]
    for name in sorted({name for name in taken if taken.count(name) > 1}):
        expected = "a name that one column alone goes out with"
        mend = f'give one of them another name: right_columns={{"right_{name}": "{name}"}}'
        yield Fault("right_columns", name, expected, mend)


def _time_faults(join: Join) -> Iterator[Fault]:
    for side in SIDES:
        if join.side(side).signed:
            yield taken_back(side, join.side(side), "")
    if (join.within is None) == (join.where is None):
        found = "neither" if join.within is None else "both"
        yield Fault("within", found, "either within or where", "write within=minutes(10), or where=Fixed(hours(1))")
    if join.within is not None:
        lengths = join.within if isinstance(join.within, tuple) else (join.within,)
        if len(lengths) > 2 or not all(waits(length) for length in lengths):
            expected = "a length, or two: before and after the left record"
            yield Fault("within", join.within, expected, "write within=(minutes(0), minutes(10))")
    if join.kind not in JOIN_KINDS:
        yield Fault("kind", join.kind, f"one of {', '.join(JOIN_KINDS)}", 'leave it out for "inner"')
    where = join.where
    if where is not None and not isinstance(where, WINDOWINGS):
        expected = "windows that a record's own time decides on"
        yield Fault("where", where, expected, "use Fixed, Sliding, Calendar or Global, or say within=")
    elif where is not None:
        yield from where.faults("where")
        if where.longest is None and any(join.side(side).takes_back for side in SIDES):
            expected = "windows that end, as panes are joined and may be taken back"
            yield Fault("where", where, expected, "use Fixed, Sliding or Calendar, or say within=")
        if isinstance(where, Fixed) and where.phase is not None:
            yield Fault("where.phase", where.phase, "windows that are the same for every key", "leave it out")
        if where.longest is None and not isinstance(where, Calendar) and join.kind != "inner":
            expected = 'kind="inner" in windows without end'
            mend = "a record without a partner would wait for ever: use Fixed, or say within="
            yield Fault("kind", join.kind, expected, mend)
    if join.unmatched not in UNMATCHED:
        yield Fault("unmatched", join.unmatched, f"one of {', '.join(UNMATCHED)}", 'leave it out for "wait"')
    elif join.unmatched == "tell" and join.kind == "inner":
        expected = 'a kind that gives records without a partner, for "tell"'
        yield Fault("unmatched", join.unmatched, expected, 'write kind="left", "right" or "full"')
    late, least = join.allowed_lateness, max(join.side(side).trails for side in SIDES)
    if late is not None and not waits(late):
        yield Fault("allowed_lateness", late, "a duration of zero or more", "write hours(3)")
    elif late is not None and duration(late) < least:
        expected = f"at least {length(least)}, for so long the panes that are joined are corrected"
        yield Fault("allowed_lateness", str(late), expected, "leave it out, and it waits just so long")


def _panes_faults(path: str, pipeline: Pipeline) -> Iterator[Fault]:
    """Find the faults of a pipeline whose panes are one side of a join."""
    if pipeline.how is not Accumulation.RETRACTING:
        found, expected = f"{pipeline.name}, {pipeline.how.value}", "a pipeline that takes back what it said before"
        yield Fault(path, found, expected, f"set how=RETRACTING in {pipeline.name}")
    if pipeline.timestamp is not Timestamp.END_OF_WINDOW:
        expected = "answers that happen as their windows end"
        found = f"{pipeline.name}, {pipeline.timestamp.value}"
        yield Fault(path, found, expected, f"leave timestamp out of {pipeline.name}")
    if pipeline.where.longest is None and not pipeline.where.merges:
        found, expected = f"{pipeline.name}, {written(pipeline.where)}", "windows that end"
        yield Fault(path, found, expected, f"use Fixed, Sliding, Calendar or Sessions in {pipeline.name}")
