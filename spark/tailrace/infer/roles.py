"""Find the parts that columns may play: event time, arrival time, record id, key and amount."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tailrace.infer.columns import Column, place_text
from tailrace.infer.observations import FORMATS, Observed, micros_of, value_at
from tailrace.infer.python_text import quoted
from tailrace.infer.words import (
    AMOUNTS,
    ARRIVALS,
    EVENT_TIMES,
    GROUPS,
    IDS,
    LATER,
    MONEY,
    NO_AMOUNTS,
    TIMES,
    snake,
    words,
)
from tailrace.model.base.json_scalars import Number
from tailrace.model.base.names import RESERVED_KEYS
from tailrace.model.base.time import instant
from tailrace.model.base.types import decimal_parts, struct_fields
from tailrace.model.logs.json_records import instant_of_number
from tailrace.model.logs.log import EARLIEST, LATEST, UNITS
from tailrace.model.logs.shapes import Path, Plain, place_of

Record = Mapping[str, Any]

_CENTURY = instant(datetime(2000, 1, 1, tzinfo=UTC)), instant(datetime(2100, 1, 1, tzinfo=UTC))
_SURE = 1000
"""The number of sampled records from which on a unique column with the log's name may be the record id."""


@dataclass(frozen=True)
class Leaf:
    """A plain value of the records: its place, the path with which expressions reach it, its type, and its form.

    `there` is the number of records that have the value.
    """

    place: Path
    path: str
    type: str
    form: str | None
    there: int

    @property
    def name(self) -> str:
        """The name of the value, without the names of the objects around it."""
        return "_id" if self.place[-1] == "_id" else snake(self.place[-1])

    @property
    def title(self) -> str:
        """The place of the value, as comments show it."""
        return quoted(place_text(self.place))

    @property
    def column(self) -> str:
        """The name of a column with this value."""
        return self.path.replace(".", "_")


def leaves_of(columns: Sequence[Column]) -> list[Leaf]:
    """Return the plain values of the columns, and of the structs in columns; not of lists and maps."""
    return [leaf for one in columns for leaf in _leaves(one, one.name, one.place, one.type, one.seen)]


def _leaves(column: Column, path: str, place: Path, type: str, seen: Observed) -> Iterator[Leaf]:
    fields = struct_fields(type)
    if fields is None:
        if "<" not in type:
            yield Leaf(place, path, type, column.forms.get(path), seen.values)
        return
    for name, inner in fields.items():
        own = place_of(column.places.get(f"{path}.{name}", name)) or (name,)
        yield from _leaves(column, f"{path}.{name}", place + own, inner, seen.fields.get(own[0], Observed()))


def event_times(leaves: Sequence[Leaf], records: Sequence[Record]) -> list[Leaf]:
    """Return the candidates for the event time, the best one first."""
    made = [one for one in leaves if one.type in ("timestamp", "date") and one.there]
    bounds = instant(EARLIEST), instant(LATEST)
    inside = {one: sum(bounds[0] <= at < bounds[1] for at in _known(times_of(one, records))) for one in made}

    def rank(leaf: Leaf) -> tuple[Any, ...]:
        name = EVENT_TIMES.index(leaf.name) if leaf.name in EVENT_TIMES else len(EVENT_TIMES)
        later = 2 if words(leaf.place[-1]) & ARRIVALS else 1 if words(leaf.place[-1]) & LATER else 0
        return (inside[leaf] < len(records), later, leaf.type == "date", name, len(leaf.place), -inside[leaf])

    return sorted((one for one in made if inside[one]), key=rank)


def likely_event_time(root: Observed, records: Sequence[Record], more: int) -> tuple[Path, str | None] | None:
    """Return the place and the form of instants that at least half of the records have, and more than `more` records.

    Unlike `event_times`, it also finds a place at which some records have other values.
    """
    best, found = more, None
    for place in _scalar_places(root, ()):
        if words(place[-1]) & TIMES:
            values = [value_at(one, place) for one in records]
            for form in (None, *(unit for unit in UNITS if unit != "days"), *FORMATS):
                shape = Plain("timestamp", form)
                inside = sum(_in_century(_micros(one, shape)) for one in values)
                if inside * 2 >= len(records) and inside > best:
                    best, found = inside, (place, form)
    return found


def _scalar_places(seen: Observed, at: Path) -> Iterator[Path]:
    for name, inner in seen.fields.items():
        if inner.numbers.count or inner.texts.count:
            yield (*at, name)
        yield from _scalar_places(inner, (*at, name))


def _in_century(at: int | None) -> bool:
    return at is not None and _CENTURY[0] <= at < _CENTURY[1]


def arrival_time(event: Leaf, leaves: Sequence[Leaf], records: Sequence[Record]) -> Leaf | None:
    """Return the column with the time when records became known: always there, and never before the event time."""
    times = times_of(event, records)
    for one in leaves:
        if one.type == "timestamp" and one != event and words(one.place[-1]) & ARRIVALS and one.there == len(records):
            known = times_of(one, records)
            if all(a is not None and b is not None and a <= b for a, b in zip(times, known, strict=True)):
                return one
    return None


def times_of(leaf: Leaf, records: Sequence[Record]) -> list[int | None]:
    """Return the instants of a column in microseconds; None where a record has none."""
    form = Plain("timestamp", leaf.form)
    return [_micros(value_at(one, leaf.place), form) for one in records]


def _micros(value: Any, form: Plain) -> int | None:
    if isinstance(value, datetime):
        return instant(value if value.tzinfo else value.replace(tzinfo=UTC))
    try:
        if isinstance(value, Number):
            return instant_of_number(value, form) if form.form else None
        return micros_of(value, form) if isinstance(value, str) else None
    except (ValueError, ArithmeticError, KeyError):
        return None


def _known(times: Sequence[int | None]) -> list[int]:
    return [one for one in times if one is not None]


def unique_leaves(leaves: Sequence[Leaf], records: Sequence[Record]) -> list[Leaf]:
    """Return the columns that have a value in each record, with another value in each different record."""
    whole = {_frozen(one) for one in records}
    made = []
    for leaf in leaves:
        named = leaf.type == "string" or (leaf.type in ("bigint", "int") and "id" in words(leaf.place[-1]))
        if named and leaf.there == len(records):
            values = {str(value_at(one, leaf.place)) for one in records}
            if len(values) == len(whole):
                made.append(leaf)
    return made


def repeated(records: Sequence[Record]) -> int:
    """Return the number of records that are in the sample once more.

    >>> repeated([{"id": 1}, {"id": 2}, {"id": 1}])
    1
    """
    return len(records) - len({_frozen(one) for one in records})


def record_id(unique: Sequence[Leaf], log: str, records: int, again: int) -> Leaf | None:
    """Return the column that identifies a record, if there is no doubt about it.

    Either the column's name says so, or `again` records are in the sample once more, and only one column has the name
    of an id.
    """
    named = [one for one in unique if len(one.place) == 1 and "id" in words(one.place[-1])]
    if again and len(named) == 1:
        return named[0]
    names = [*IDS, *([f"{_singular(log)}_id"] if records >= _SURE else [])]
    return next((one for name in names for one in unique if one.name == name and len(one.place) == 1), None)


def key_of(leaves: Sequence[Leaf], records: Sequence[Record]) -> Leaf | None:
    """Return a plausible column to group by: one with few values, and with a value in nearly all records."""
    found = list[tuple[tuple[Any, ...], Leaf]]()
    for place, leaf in enumerate(leaves):
        plain = leaf.type in ("string", "boolean", "bigint", "int")
        if not plain or leaf.there * 10 < 9 * len(records) or leaf.column in RESERVED_KEYS:
            continue
        values = len({str(value_at(one, leaf.place)) for one in records})
        if 2 <= values <= max(2, min(200, len(records) // 4)):
            own = words(leaf.place[-1])
            named = next((number for number, name in enumerate(GROUPS) if name in own), len(GROUPS))
            unlikely = leaf.type != "string" and named == len(GROUPS)
            found.append(((unlikely, "id" in own, named, len(leaf.place), place), leaf))
    return min(found)[1] if found else None


def amount_of(leaves: Sequence[Leaf]) -> Leaf | None:
    """Return a plausible column to add up: a number with the name of an amount, else a number with a point."""
    found = list[tuple[tuple[Any, ...], Leaf]]()
    for place, leaf in enumerate(leaves):
        exact, own = decimal_parts(leaf.type) is not None, words(leaf.place[-1])
        named = bool(own & AMOUNTS)
        if not leaf.there or not (exact or leaf.type in ("double", "bigint", "int")) or own & NO_AMOUNTS:
            continue
        if named or leaf.type == "double":
            found.append(((not own & MONEY, not named, not exact, -leaf.there, len(leaf.place), place), leaf))
    return min(found)[1] if found else None


@dataclass(frozen=True)
class Lateness:
    """How far records are behind the latest event time before them, in their order: shares and the maximum."""

    late: int
    usual: timedelta
    most: timedelta


def lateness(parts: Sequence[Sequence[int]], share: float = 0.99) -> Lateness:
    """Compute the lateness of records; each part has the event times of a file or partition, in order.

    >>> lateness([[10_000_000, 9_000_000, 20_000_000]]).most
    datetime.timedelta(seconds=1)
    """
    behind = list[int]()
    for part in parts:
        latest = None
        for at in part:
            latest = at if latest is None or at > latest else latest
            behind.append(latest - at)
    return shares(behind, share)


def shares(behind: Sequence[int], share: float = 0.99) -> Lateness:
    """Return how many of these times are above zero, the time that a share of them has at most, and the maximum."""
    behind = sorted(behind)
    usual = behind[min(len(behind) - 1, int(share * len(behind)))] if behind else 0
    late = sum(one > 0 for one in behind)
    return Lateness(late, timedelta(microseconds=usual), timedelta(microseconds=behind[-1] if behind else 0))


def rounded_up(length: timedelta) -> tuple[int, str]:
    """Return a round duration that is no shorter: a count, and the function of the unit.

    >>> rounded_up(timedelta(seconds=7)), rounded_up(timedelta(minutes=50)), rounded_up(timedelta(0))
    ((10, 'seconds'), (1, 'hours'), (0, 'seconds'))
    """
    for unit, one, counts in (
        ("seconds", timedelta(seconds=1), (0, 1, 2, 5, 10, 15, 30)),
        ("minutes", timedelta(minutes=1), (1, 2, 5, 10, 15, 30)),
        ("hours", timedelta(hours=1), (1, 2, 3, 6, 12)),
    ):
        for count in counts:
            if length <= count * one:
                return count, unit
    return -(-length // timedelta(days=1)), "days"


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((name, _frozen(value[name])) for name in sorted(value))
    return tuple(map(_frozen, value)) if isinstance(value, list) else str(value)


def _singular(name: str) -> str:
    return name[:-3] + "y" if name.endswith("ies") else name.removesuffix("s")
