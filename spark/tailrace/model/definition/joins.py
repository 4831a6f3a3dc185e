"""Joins: both sides of a key and window are gathered, and a later stage pairs them (Dataflow Model, 2.1, GroupByKey).

Both sides are in one log, so that one watermark says when both sides are there. A stage packs each side's columns
(`Pack`) and collects them (`Collect`); the next stage makes records of the pairs (`Pairs`). As the stages' answers are
corrected, so are the pairs: a pair that is no longer one is taken back. `Unpack` makes records of one side alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.conditions import Condition, condition_faults
from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.names import name_faults
from tailrace.model.base.time import duration, instant, waits
from tailrace.model.base.types import element_type, is_type, struct_fields
from tailrace.model.definition.record_steps import ElementWise, Record, new_column_faults
from tailrace.model.windows.windows import Sliding

Kind = Literal["inner", "left", "right", "full"]
KINDS = ("inner", "left", "right", "full")


@dataclass(frozen=True)
class Pack(ElementWise):
    """Some columns of a record packed into one more column, which is null in records that do not meet `keep`.

    `of` names the columns, or maps each packed name to its column: the two sides of a join have no name in common.

    >>> from tailrace.model.base.conditions import Match
    >>> click = Pack("click", of={"clicked": "ad"}, keep=Match("kind", "==", "click"))
    >>> types = {"kind": "string", "ad": "bigint"}
    >>> click.columns(types)["click"]
    'struct<clicked:bigint>'
    >>> [one["click"] for kind in ("click", "view") for one in click.records({"kind": kind, "ad": 7}, types)]
    [{'clicked': 7}, None]
    """

    name: str
    of: Mapping[str, str] | tuple[str, ...]
    keep: Condition | None = None

    def __post_init__(self) -> None:
        if isinstance(self.of, Mapping):
            object.__setattr__(self, "of", MappingProxyType(dict(self.of)))

    @property
    def fields(self) -> dict[str, str]:
        """The column of each packed name."""
        return dict(self.of) if isinstance(self.of, Mapping) else {name: name for name in self.of}

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        fields = ",".join(f"{name}:{types[column]}" for name, column in self.fields.items())
        return {**types, self.name: f"struct<{fields}>"}

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        packed = {name: record.get(column) for name, column in self.fields.items()}
        columns = {name: record.get(name) for name in types}
        yield {**record, self.name: packed if self.keep is None or self.keep.holds(Scalars(), columns, types) else None}

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        yield from new_column_faults(f"{path}.name", self.name, types)
        columns: object = self.of
        if not isinstance(columns, Mapping | tuple) or not columns or len(self.fields) < len(columns):
            yield Fault(f"{path}.of", columns, "columns, each once", 'write for example of=("ad", "clicked_at")')
            return
        for name, column in self.fields.items():
            yield from name_faults(f"{path}.of[{name!r}]", name)
            if column not in types:
                yield unknown_column(f"{path}.of[{name!r}]", column, types)
            elif not is_type(types[column]):
                yield Fault(f"{path}.of[{name!r}]", f"{column}: {types[column]}", "a plain column", "leave it out")
        if self.keep is not None:
            yield from condition_faults(f"{path}.keep", self.keep, types)


@dataclass(frozen=True)
class Near:
    """The condition that a right record lies near a left one: from `before` before the left one until `after` after it.

    `left` and `right` are the packed columns that hold their event times. The stage that gathers the records must have
    these `windows`: any two records that are near share a window, and `Pairs` takes the pair from just one window.

    >>> from tailrace.model.base.time import minutes
    >>> Near("asked_at", "clicked_at", after=minutes(10)).windows == Sliding(minutes(20), every=minutes(10))
    True
    """

    left: str
    right: str
    before: timedelta = timedelta(0)
    after: timedelta = timedelta(0)

    @property
    def windows(self) -> Sliding:
        """The windows to gather the records in: each record is in two of them."""
        return Sliding(2 * (self.before + self.after), every=self.before + self.after)

    def near(self, left: Record, right: Record) -> bool:
        """Tell whether two records are near each other."""
        a, b = left[self.left], right[self.right]
        return a is not None and b is not None and -self.before <= b - a <= self.after

    def owns(self, window_start: Any, record: Record, *, right: bool = False) -> bool:
        """Tell whether the window with this start is the record's own: the one sure to have all records near it.

        Law: each record has one window of its own.
        """
        at = record[self.right if right else self.left]
        if at is None:
            return False
        place = instant(at) - duration(self.after if right else self.before) - instant(window_start)
        return 0 <= place < duration(self.before + self.after)

    def faults(self, path: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the condition between sides with these columns."""
        for side, name, types in (("left", self.left, left), ("right", self.right, right)):
            if types.get(name) != "timestamp":
                declared = f"{name}: {types[name]}" if name in types else name
                expected = f"a timestamp of the {side} side ({', '.join(types)})"
                yield Fault(f"{path}.{side}", declared, expected, "pack the log's event time, and name it here")
        for name in ("before", "after"):
            if not waits(getattr(self, name)):
                yield Fault(f"{path}.{name}", getattr(self, name), "a duration of zero or more", "write minutes(10)")
        if all(waits(getattr(self, name)) for name in ("before", "after")) and not self.before + self.after:
            yield Fault(f"{path}.after", self.after, "a duration above zero, here or before", "write after=minutes(10)")


@dataclass(frozen=True)
class Pairs(ElementWise):
    """A record of each pair of two collected sides, with the columns of both; the lists themselves are left out.

    `kind` says whether an element with no partner gives a record, too, its partner's columns null: on the "left" side,
    on the "right" one, on both ("full") or on neither ("inner"). `near` leaves out pairs that are not near each other.

    >>> types = {"bids": "array<struct<price:bigint>>", "asks": "array<struct<cost:bigint>>"}
    >>> sides = {"bids": [{"price": 5}, {"price": 7}], "asks": [{"cost": 6}]}
    >>> list(Pairs("bids", "asks").records(sides, types))
    [{'price': 5, 'cost': 6}, {'price': 7, 'cost': 6}]
    >>> list(Pairs("bids", "asks", kind="full").records({"bids": [], "asks": [{"cost": 6}]}, types))
    [{'price': None, 'cost': 6}]
    """

    left: str
    right: str
    kind: Kind = "inner"
    near: Near | None = None

    @property
    def keeps_left(self) -> bool:
        """Whether an element of the left side without a partner gives a record."""
        return self.kind in ("left", "full")

    @property
    def keeps_right(self) -> bool:
        """Whether an element of the right side without a partner gives a record."""
        return self.kind in ("right", "full")

    def sides(self, types: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Find the columns of both sides and their types; none for a column that is no list of packed columns."""
        return _fields(types, self.left), _fields(types, self.right)

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        left, right = self.sides(types)
        return {name: type for name, type in types.items() if name not in (self.left, self.right)} | left | right

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        left, right = (dict.fromkeys(one) for one in self.sides(types))
        lefts, rights = record[self.left], record[self.right]
        shared = {name: value for name, value in record.items() if name not in (self.left, self.right)}
        for a in lefts:
            if self._owned(record, a):
                partners = [b for b in rights if self._meet(a, b)]
                for b in partners or ([right] if self.keeps_left else []):
                    yield {**shared, **a, **b}
        for b in rights if self.keeps_right else ():
            if self._owned(record, b, right=True) and not any(self._meet(a, b) for a in lefts):
                yield {**shared, **left, **b}

    def _meet(self, a: Record, b: Record) -> bool:
        return self.near is None or self.near.near(a, b)

    def _owned(self, record: Record, one: Record, *, right: bool = False) -> bool:
        return self.near is None or self.near.owns(record["window_start"], one, right=right)

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        sides = self.sides(types)
        for side, name, fields in zip(("left", "right"), (self.left, self.right), sides, strict=True):
            if not fields:
                yield _no_list(f"{path}.{side}", name, types)
            for one in fields:
                if one in types or (side == "right" and one in sides[0]):
                    expected = "a column that no other has the name of"
                    yield Fault(f"{path}.{side}", one, expected, "give it another name where it is packed")
        if self.kind not in KINDS:
            yield Fault(f"{path}.kind", self.kind, f"one of {', '.join(KINDS)}", 'leave it out for "inner"')
        if self.near is not None and all(sides):
            yield from self.near.faults(f"{path}.near", *sides)
            if types.get("window_start") != "timestamp":
                yield Fault(f"{path}.near", self.near, "the panes of a stage with its windows", "use log=earlier.panes")


@dataclass(frozen=True)
class Unpack(ElementWise):
    """A record of each element of a collected list, with the columns that were packed; the list itself is left out.

    `first` takes at most so many elements from the beginning of the list, which `Collect` orders by the packed columns,
    the first one first. `place` names a column that numbers the elements from 1.

    >>> types = {"bids": "array<struct<price:bigint,bidder:string>>"}
    >>> dearest = Unpack("bids", first=1, place="rank")
    >>> list(dearest.records({"bids": [{"price": 5, "bidder": "a"}, {"price": 7, "bidder": "b"}]}, types))
    [{'price': 5, 'bidder': 'a', 'rank': 1}]
    """

    name: str
    first: int | None = None
    place: str | None = None

    def fields(self, types: Mapping[str, str]) -> dict[str, str]:
        """Find the packed columns and their types; none for a column that is no list of packed columns."""
        return _fields(types, self.name)

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        placed = {} if self.place is None else {self.place: "bigint"}
        return {name: type for name, type in types.items() if name != self.name} | self.fields(types) | placed

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        shared = {name: value for name, value in record.items() if name != self.name}
        for place, one in enumerate(record[self.name][: self.first], start=1):
            yield {**shared, **one} if self.place is None else {**shared, **one, self.place: place}

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        fields, first = self.fields(types), self.first
        if not fields:
            yield _no_list(f"{path}.name", self.name, types)
        for one in fields:
            if one in types:
                expected = "a column that no other has the name of"
                yield Fault(f"{path}.name", one, expected, "give it another name where it is packed")
        if first is not None and (not isinstance(first, int) or isinstance(first, bool) or first < 1):
            yield Fault(f"{path}.first", first, "a whole number of at least 1", "leave it out for all of them")
        if self.place is not None:
            yield from new_column_faults(f"{path}.place", self.place, {**types, **fields})


def _fields(types: Mapping[str, str], name: str) -> dict[str, str]:
    """Find the columns packed in a list's elements, with their types; none for a column that is no such list."""
    return struct_fields(element_type(types.get(name, "")) or "") or {}


def _no_list(path: str, name: str, types: Mapping[str, str]) -> Fault:
    declared = f"{name}: {types[name]}" if name in types else name
    expected = "a list of packed columns, of the stage that is read"
    return Fault(path, declared, expected, 'collect it there: what={"clicks": Collect("click")}')
