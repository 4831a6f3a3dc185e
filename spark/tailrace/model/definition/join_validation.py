"""The faults of a join, all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Protocol

from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.names import RESERVED, name_faults, reserved
from tailrace.model.base.time import duration, waits
from tailrace.model.base.types import is_type
from tailrace.model.definition.join_input import JOIN_KINDS, SIDE, SIDES, UNMATCHED, WINDOWINGS
from tailrace.model.definition.map import Map
from tailrace.model.definition.source_text import length, written
from tailrace.model.definition.validation import DeclaredPipeline
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union, taken_back
from tailrace.model.logs.log import Log
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import Accumulation, Timestamp
from tailrace.model.windows.windows import Fixed, Windowing


class DeclaredJoin(Protocol):
    """The parts of a join that its checks look at."""

    @property
    def name(self) -> str: ...

    @property
    def left(self) -> Log: ...

    @property
    def right(self) -> Log: ...

    @property
    def on(self) -> object: ...

    @property
    def within(self) -> timedelta | tuple[timedelta, timedelta] | None: ...

    @property
    def where(self) -> Windowing | None: ...

    @property
    def kind(self) -> str: ...

    @property
    def unmatched(self) -> str: ...

    @property
    def allowed_lateness(self) -> timedelta | None: ...

    @property
    def left_columns(self) -> object: ...

    @property
    def right_columns(self) -> object: ...

    @property
    def keys(self) -> Mapping[str, tuple[str, str]]: ...

    def side(self, side: str) -> Log: ...

    def own(self, side: str) -> dict[str, str]: ...


def join_faults(join: DeclaredJoin) -> Iterator[Fault]:
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
            yield from panes_faults(side, log.of)
        elif isinstance(log, Productions) and isinstance(log.of, Map) and log.of.multiplies:
            expected = "one record of each, as a record is known by its place"
            yield Fault(side, f"what {log.name} makes", expected, "join its log first, and take the pairs through it")
        elif isinstance(log, Productions) and not log.kept:
            remedy = f'leave productions="weak" out of {log.name}'
            yield Fault(side, f"what {log.name} produces", "productions that are kept", remedy)
    if not all(isinstance(log, Log) for log in sides.values()):
        return
    columns = list(_column_faults(join))
    yield from columns
    if not columns:
        yield from _collisions(join)
    yield from _time_faults(join)


def _column_faults(join: DeclaredJoin) -> Iterator[Fault]:
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
            elif not is_type(types_[column]):
                yield Fault(path, f"{column}: {types_[column]}", "a plain column", "leave it out")
            elif name in RESERVED or name == SIDE or "__" in name:
                yield reserved(path, name)
    if join.left.name == join.right.name and (join.left_columns is None or join.right_columns is None):
        found, expected = f"{join.left.name} with itself", "names for the columns of each side"
        yield Fault(
            "right", found, expected, 'write left_columns={"first_at": "at"}, right_columns={"second_at": "at"}'
        )


def _collisions(join: DeclaredJoin) -> Iterator[Fault]:
    taken = list(join.keys) + [name for side in SIDES for name in join.own(side)]
    for name in sorted({name for name in taken if taken.count(name) > 1}):
        expected = "a name that one column alone goes out with"
        mend = f'give one of them another name: right_columns={{"right_{name}": "{name}"}}'
        yield Fault("right_columns", name, expected, mend)


def _time_faults(join: DeclaredJoin) -> Iterator[Fault]:
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


def panes_faults(path: str, pipeline: DeclaredPipeline) -> Iterator[Fault]:
    """Find the faults of a pipeline whose panes are joined."""
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
