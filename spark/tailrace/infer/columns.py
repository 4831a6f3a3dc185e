"""Decide the columns of a log from the values of a sample: names, places, types, and what is not certain."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from tailrace.infer.observations import ISO_DAY, ISO_INSTANT, Numbers, Observed, Texts
from tailrace.infer.python_text import quoted
from tailrace.infer.words import MONEY, TIMES, snake, words
from tailrace.model.base.types import MAX_PRECISION, struct_type
from tailrace.model.logs.shapes import Path, Plain

_FEW = 4
"""The maximum number of digits after the point with which an amount of money becomes a decimal."""

_NAMES = 64
"""The number of different names from which on the fields of an object may be the keys of a map."""

_PRECISION = 18
"""The precision of decimals for amounts of money."""

NOISY = "decimal with the noise of doubles"
"""Stands for the type of amounts of money that carry the noise of doubles, such as 38.970000000000006."""


@dataclass(frozen=True)
class Given:
    """The properties of a place that are known before its values are examined: type, form, remark and places."""

    type: str
    form: str | None = None
    note: str = ""
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Column:
    """An inferred column: its place, its type, the places and forms of its inner values, and remarks."""

    name: str
    place: Path
    seen: Observed
    type: str = ""
    places: dict[str, str] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rounded: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The place of the column, as comments show it."""
        return quoted(place_text(self.place))


def columns_of(root: Observed, opened: Collection[Path], given: Mapping[Path, Given], unsure: str) -> list[Column]:
    """Decide the columns of a log, in the order in which their fields were seen first.

    An object becomes a struct, or, if its place is among `opened`, one column for each of its fields. `given` has the
    places whose type is known. `unsure` is the type of values of several kinds.
    """
    taken, made = set[str](), list[Column]()
    places = list(_places(root, (), opened))
    # A field whose name can be kept keeps it, whatever other names become.
    kept = {place for place, _ in places if len(place) == 1 and snake(place[0]) == place[0]}
    taken |= {place[0] for place in kept}
    for place, seen in places:
        name = place[0] if place in kept else unique(snake("_".join(place)), taken)
        column = Column(name, place, seen)
        decided = given.get(place)
        if decided is None:
            decision = _Decision(column, unsure)
            column.type = decision.known(decision.type(seen, name, place[-1]), name)
        else:
            column.type = decided.type
            column.notes += [decided.note] if decided.note else []
            column.forms |= {name: decided.form} if decided.form else {}
            column.places |= {f"{name}{path}": place for path, place in decided.places.items()}
        made.append(column)
    return made


def _places(root: Observed, at: Path, opened: Collection[Path]) -> Iterator[tuple[Path, Observed]]:
    for name, seen in root.fields.items():
        place = (*at, name)
        if place in opened:
            yield from _places(seen, place, opened)
        else:
            yield place, seen


@dataclass
class _Decision:
    """The decision about one column, with the remarks that it makes."""

    column: Column
    unsure: str

    def type(self, seen: Observed, path: str, name: str, *, element: bool = False) -> str:
        """Decide the type of the values at a place inside the column; `path` is its dotted name, `name` its own.

        `element` says that the values are elements of a list or a map, which have no forms of instants.
        """
        kinds = seen.kinds
        if not kinds:
            self._note(path, "has no value" if seen.nulls else "has no element, in any record")
            return self.unsure
        if len(kinds) > 1:
            counts = ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items())
            self._note(path, f"is of several kinds: {counts}")
            return self.unsure
        match next(iter(kinds)):
            case "boolean":
                return "boolean"
            case "number":
                return self._number(seen.numbers, path, name, element=element)
            case "text":
                return self._text(seen.texts, path, element=element)
            case "list":
                return self._deep(path) if seen.cut else f"array<{self._element(seen.element, path, name)}>"
        return self._object(seen, path, name)

    def _element(self, seen: Observed, path: str, name: str) -> str:
        return self.known(self.type(seen, path, name, element=True), path)

    def known(self, type: str, path: str) -> str:
        """Return a type that columns have, for a type or for `NOISY`."""
        if type != NOISY:
            return type
        self._note(path, "has values such as 38.970000000000006, which are rounded")
        self.column.rounded.append(path)
        return f"decimal({_PRECISION},2)"

    def _deep(self, path: str) -> str:
        self._note(path, "is nested deeply, or has very many fields")
        return self.unsure

    def _object(self, seen: Observed, path: str, name: str) -> str:
        if seen.cut:
            return self._deep(path)
        if not seen.fields:
            self._note(path, "has no field, in any record")
            return f"map<string,{self.unsure}>"
        if _is_map(seen):
            value = Observed()
            for each in seen.fields.values():
                value.merge(each)
            return f"map<string,{self._element(value, path, name)}>"
        taken = {one for one in seen.fields if snake(one) == one}
        types = {}
        for one, inner in seen.fields.items():
            own = one if snake(one) == one else unique(snake(one), taken)
            if own != one:
                self.column.places[f"{path}.{own}"] = place_text((one,))
            types[own] = self.known(self.type(inner, f"{path}.{own}", one), f"{path}.{own}")
        return struct_type(types)

    def _number(self, seen: Numbers, path: str, name: str, *, element: bool) -> str:
        unit = epoch_unit(seen)
        if unit is not None and TIMES & words(name) and not element:
            self.column.forms[path] = unit
            return "timestamp"
        if unit is not None and unit != "seconds":
            self._note(path, f"might be instants in {unit}")
        if seen.whole == seen.count:
            if seen.low is not None and seen.high is not None and seen.low >= -(2**63) and seen.high < 2**63:
                return "bigint"
            return f"decimal({MAX_PRECISION},0)" if seen.before <= MAX_PRECISION else self._odd(path)
        if MONEY & words(name) and seen.before <= _PRECISION - _FEW:
            if seen.after <= _FEW:
                return f"decimal({_PRECISION},{max(2, seen.after)})"
            if seen.noisy and seen.clean_after <= 2:
                return NOISY
        if seen.doubles:
            return "double"
        fits = seen.before + seen.after <= MAX_PRECISION
        return f"decimal({MAX_PRECISION},{seen.after})" if fits else self._odd(path)

    def _odd(self, path: str) -> str:
        self._note(path, "has numbers that no type of numbers can have")
        return self.unsure

    def _text(self, seen: Texts, path: str, *, element: bool) -> str:
        form = self._form(seen, path)
        if form is not None and not (element and form.form is not None):
            if form.form is not None:
                self.column.forms[path] = form.form
            if form.type == "timestamp" and not seen.zoned:
                self._note(path, 'has no offset, and is read as UTC: for other clocks, add zone="Europe/Berlin"')
            return form.type
        if seen.commas and seen.commas + seen.numeric == seen.count:
            self._note(
                path,
                'has numbers with a decimal comma ("1,50"), which are texts here: to add them up, have the '
                "source write a point",
            )
        elif seen.numeric == seen.count:
            self._note(path, "has numbers that are written as texts; only numbers without quotes can be added up")
        return "string"

    def _form(self, seen: Texts, path: str) -> Plain | None:
        forms = seen.forms or ()
        if not forms or ISO_DAY in forms or ISO_INSTANT in forms:
            return next((one for one in (ISO_DAY, ISO_INSTANT) if one in forms), None)
        texts = [one.form or "" for one in forms]
        if {"%d/%m", "%m/%d"} <= {one[:5] for one in texts}:
            self._note(path, f"may be of the form {' or '.join(map(quoted, texts))}: set instants")
            return None
        return Plain("timestamp" if "%M" in texts[0] else "date", texts[0])

    def _note(self, path: str, text: str) -> None:
        inside = path.partition(".")[2]
        self.column.notes.append(f"{inside} {text}" if inside else text)


def _is_map(seen: Observed) -> bool:
    """Return True if the fields of an object look like the keys of a map.

    They do if there are many, of which each object has few, or if they are numbers or long codes; and if all values are
    of one kind.
    """
    kinds = {kind for one in seen.fields.values() for kind in one.kinds}
    if len(kinds) > 1:
        return False
    codes = sum(_CODE.fullmatch(name) is not None for name in seen.fields)
    return codes == len(seen.fields) or (len(seen.fields) >= _NAMES and seen.longest * 2 <= len(seen.fields))


def epoch_unit(seen: Numbers) -> str | None:
    """Return the unit in which all numbers are instants between 2000 and 2100; None if there is no such unit."""
    if seen.low is None or seen.high is None:
        return None
    for unit, factor in _UNITS.items():
        if _FIRST * factor <= seen.low and seen.high < _LAST * factor:
            return unit
    return None


def place_text(place: Path) -> str:
    """Return the text of a place, such as a log's option `fields` has it.

    >>> place_text(("user", "home country", "a.b"))
    'user.`home country`.`a.b`'
    """
    return ".".join(one if _PLAIN.fullmatch(one) else f"`{one.replace('`', '``')}`" for one in place)


def unique(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it."""
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made


_CODE = re.compile(r"[0-9]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{20,}|[0-9a-f]{16,}")
_PLAIN = re.compile("[A-Za-z0-9_]+")
_FIRST, _LAST = Decimal(946_684_800), Decimal(4_102_444_800)
_UNITS = {
    "seconds": 1, "milliseconds": 1000, "microseconds": 10**6, "nanoseconds": 10**9,
}  # fmt: skip
