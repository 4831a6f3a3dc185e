"""Observe the values of a sample: for each place of the records, what kinds of values are there.

A sample may be hostile, so the depth, the number of fields and the length of names are bounded. Values beyond a bound
are counted, but not looked into.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isinf
from typing import Any

from tailrace.model.base.json_scalars import Number
from tailrace.model.logs.json_records import JsonRecords, text_value
from tailrace.model.logs.log import Log
from tailrace.model.logs.shapes import Path, Plain

DEPTH = 8
"""The maximum number of nested objects and lists that are looked into."""

FIELDS = 500
"""The maximum number of fields of an object that are looked into."""

LONGEST_NAME = 200
"""The maximum number of characters of a field's name."""

FORMATS = (
    "%Y-%m-%d %H:%M:%S %z", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M",
    "%d.%m.%Y", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y",
    "%m/%d/%Y %I:%M:%S %p", "%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z", "%a %b %d %H:%M:%S %Y",
    "%b %d, %Y %H:%M:%S", "%d %b %Y %H:%M:%S", "%Y%m%dT%H%M%S%z", "%Y%m%dT%H%M%S",
)  # fmt: skip
"""The formats of `strptime` that are tried for texts. A text of eight digits alone is not taken for a day."""

ISO_INSTANT, ISO_DAY = Plain("timestamp"), Plain("date")


@dataclass
class Numbers:
    """The numbers at a place."""

    count: int = 0
    whole: int = 0
    low: Decimal | None = None
    high: Decimal | None = None
    before: int = 0
    """The maximum number of digits before the point."""
    after: int = 0
    """The maximum number of digits after the point, without zeros at the end."""
    noisy: int = 0
    """The number of values such as 38.970000000000006, which two digits after the point describe."""
    clean_after: int = 0
    """The maximum number of digits after the point of all values that are not noisy."""
    doubles: bool = True
    """Whether a double can have each value: no whole number is too large, and no number becomes zero or infinite."""

    def add(self, digits: str) -> None:
        """Count a number, given its digits."""
        whole = _WHOLE.fullmatch(digits) is not None
        self.count += 1
        self.whole += whole
        try:
            number = Decimal(digits)
        except ArithmeticError:
            # The exponent is too large for any column.
            self.doubles, self.before = False, 10**6
            return
        self.low = number if self.low is None or number < self.low else self.low
        self.high = number if self.high is None or number > self.high else self.high
        _, figures, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        while figures and figures[-1] == 0 and exponent < 0:
            figures, exponent = figures[:-1], exponent + 1
        after = -exponent if number and exponent < 0 else 0
        self.before = max(self.before, number.adjusted() + 1 if number else 1)
        self.after = max(self.after, after)
        made = float(digits)
        self.doubles &= not isinf(made) and not (made == 0 and number) and not (whole and abs(number) > 2**53)
        if after >= 12 and abs(made - round(made, 2)) <= abs(made) * 1e-12:
            self.noisy += 1
        else:
            self.clean_after = max(self.clean_after, after)

    def merge(self, other: Numbers) -> None:
        """Count the numbers of another place, too."""
        ends = [one for one in (self.low, self.high, other.low, other.high) if one is not None]
        self.low, self.high = (min(ends), max(ends)) if ends else (None, None)
        for name in ("count", "whole", "noisy"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("before", "after", "clean_after"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.doubles &= other.doubles


@dataclass
class Texts:
    """The texts at a place: how many there are, and the forms of instants and days that all of them have."""

    count: int = 0
    forms: tuple[Plain, ...] | None = None
    zoned: int = 0
    """The number of texts that have an offset from UTC, or `Z`."""
    numeric: int = 0
    """The number of texts that are numbers."""
    commas: int = 0
    """The number of texts that are numbers with a decimal comma."""

    def add(self, text: str) -> None:
        """Count a text."""
        self.count += 1
        tried = _FORMS if self.forms is None else self.forms
        self.forms = tuple(one for one in tried if _has_form(text, one)) if len(text) < 64 else ()
        if self.forms:
            self.zoned += ":" in text and _ZONED.search(text) is not None
        self.numeric += _NUMBER.fullmatch(text) is not None
        self.commas += COMMA.fullmatch(text) is not None

    def merge(self, other: Texts) -> None:
        """Count the texts of another place, too."""
        if other.forms is not None:
            self.forms = tuple(one for one in other.forms if self.forms is None or one in self.forms)
        for name in ("count", "zoned", "numeric", "commas"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Observed:
    """The values at one place of the sampled records: the place itself, and all places inside it.

    >>> seen = Observed()
    >>> for record in ({"id": Number("1"), "tags": ["a"]}, {"id": None, "tags": []}):
    ...     seen.add(record)
    >>> seen.fields["id"].nulls, seen.fields["id"].numbers.count, seen.fields["tags"].element.texts.count
    (1, 1, 1)
    """

    nulls: int = 0
    booleans: int = 0
    numbers: Numbers = field(default_factory=Numbers)
    texts: Texts = field(default_factory=Texts)
    objects: int = 0
    lists: int = 0
    longest: int = 0
    """The maximum number of elements of a list, or of fields of an object."""
    fields: dict[str, Observed] = field(default_factory=dict)
    inner: Observed | None = None
    cut: bool = False
    """Whether something inside the values was not looked into."""

    @property
    def element(self) -> Observed:
        """The elements of all lists at this place."""
        if self.inner is None:
            self.inner = Observed()
        return self.inner

    @property
    def kinds(self) -> dict[str, int]:
        """The number of values of each kind that is there, without nulls."""
        counts = {
            "boolean": self.booleans, "number": self.numbers.count, "text": self.texts.count, "object": self.objects,
            "list": self.lists,
        }  # fmt: skip
        return {kind: count for kind, count in counts.items() if count}

    @property
    def values(self) -> int:
        """The number of values, without nulls."""
        return sum(self.kinds.values())

    def add(self, value: Any, depth: int = 0) -> None:
        """Count a value of a record in JSON, whose numbers are `Number`."""
        match value:
            case None:
                self.nulls += 1
            case bool():
                self.booleans += 1
            case Number():
                self.numbers.add(value)
            case str():
                self.texts.add(value)
            case Mapping():
                self.objects += 1
                self.longest = max(self.longest, len(value))
                self._add_fields(value, depth + 1)
            case _:
                self.lists += 1
                self.longest = max(self.longest, len(value))
                self._add_elements(value, depth + 1)

    def _add_fields(self, value: Mapping[str, Any], depth: int) -> None:
        for name, inner in value.items():
            there = name in self.fields
            if depth > DEPTH or len(name) > LONGEST_NAME or not name or (not there and len(self.fields) >= FIELDS):
                self.cut = True
            else:
                self.fields.setdefault(name, Observed()).add(inner, depth)

    def _add_elements(self, value: Sequence[Any], depth: int) -> None:
        if depth > DEPTH:
            self.cut = True
            return
        for one in value:
            self.element.add(one, depth)

    def merge(self, other: Observed) -> None:
        """Count the values of another place, too."""
        for name in ("nulls", "booleans", "objects", "lists"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.numbers.merge(other.numbers)
        self.texts.merge(other.texts)
        self.cut |= other.cut
        self.longest = max(self.longest, other.longest)
        for name, inner in other.fields.items():
            if name in self.fields or len(self.fields) < FIELDS:
                self.fields.setdefault(name, Observed()).merge(inner)
            else:
                self.cut = True
        if other.inner is not None:
            self.element.merge(other.inner)


def value_at(record: Mapping[str, Any], place: Path) -> Any:
    """Return the value at a place of a record; None if there is none.

    >>> value_at({"user": {"country": "DE"}}, ("user", "country")), value_at({"user": 7}, ("user", "country"))
    ('DE', None)
    """
    found: Any = record
    for name in place:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


_ANY = JsonRecords(Log(name="any", columns={"at": "timestamp"}, event_time="at"))
_FORMS = (ISO_INSTANT, ISO_DAY, *(Plain("timestamp", one) for one in FORMATS))
COMMA = re.compile(r"[-+]?(?:[0-9]+|[0-9]{1,3}(?:[. '][0-9]{3})+),[0-9]+")
"""Numbers with a decimal comma."""

_WHOLE = re.compile("-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ZONED = re.compile(r"(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$")


def micros_of(text: str, form: Plain) -> int:
    """Return an instant in microseconds, or the number of a day, that a text in this form has.

    Raises `ValueError` if the text does not have the form.
    """
    made: int = text_value(_ANY, form, text)
    return made


def _has_form(text: str, form: Plain) -> bool:
    try:
        micros_of(text, form)
    except (ValueError, ArithmeticError, TypeError):
        return False
    return True


def instant_forms(text: str) -> bool:
    """Return True if a text has the form of an instant or a day."""
    return len(text) < 64 and any(_has_form(text, one) for one in _FORMS)
