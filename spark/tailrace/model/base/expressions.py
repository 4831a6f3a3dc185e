"""Expressions that compute a value from one record's columns, represented as data that every execution, in Python or
SQL, evaluates in the same way.

In an expression, an instant is represented by the microseconds since 1970, and a duration by its length in
microseconds. So the difference of two instants can be divided by a duration, for example to count minutes. If an
operand is missing, the result is missing as well.

A null result has two possible causes: a value is missing, or the result does not fit its type. Only the second cause is
a fault, for which the record is rejected. `Expression.missing` returns True only for the first cause, so an execution
can distinguish the two causes without raising an error. Only a result of type bigint can fail to fit, because a decimal
result type has enough digits for every result. `Expression.unfit` returns those parts of an expression that may have a
result that does not fit its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from operator import add, mul, sub

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.conditions import Condition, Contains, condition_faults, term_at
from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.json_places import is_target, steps_of
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration
from tailrace.model.base.types import (
    MAX_PRECISION,
    column_of,
    decimal_parts,
    element_type,
    is_exact_number,
    stored_type,
    type_at,
)

_BIGINT_DIGITS = 20
"""The number of decimal digits that `Arithmetic` reserves for an operand of type bigint."""

_BIGINT = (-(2**63), 2**63 - 1)
"""The smallest and the largest whole number that a bigint can hold."""

_BOUNDS = {"int": (-(2**31), 2**31 - 1), "bigint": _BIGINT, "timestamp": (BEGINNING, END_OF_TIME)}
"""The smallest and the largest value of each column type whose values expressions treat as whole numbers."""

_CALCULATED_AS = {"timestamp": "bigint", "int": "bigint", "float": "double"}
"""The types of values that expressions convert to another type first; the conversion loses nothing."""

Bounds = tuple[int, int]

Constant = str | int | bool | Decimal | timedelta


class Expression:
    """The base class of expressions.

    The operators `+`, `-`, `*` and `//` compute exact results. If an operand is a double, the result is the double that
    is closest to the exact result of the operation.
    """

    parts: tuple[str, ...] = ()
    """The names of the attributes that contain the operands of the expression."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the expression reads: by default, the columns of its operands.

        >>> (Col("price") * 2 + Col("item.fee")).columns
        ('price', 'item')
        """
        return tuple(dict.fromkeys(name for part in self.parts for name in getattr(self, part).columns))

    def type(self, types: Mapping[str, str]) -> str:
        """Return the column type of the expression, given the names and types of the columns."""
        raise NotImplementedError

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Return the value of the expression for a record; the value is null if it does not fit the expression's
        type.
        """
        raise NotImplementedError

    def missing(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Return True if the value is missing, that is, null because a column that the expression uses is null."""
        return o.some(*(getattr(self, part).missing(o, record, types) for part in self.parts))

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        """Return the smallest and the largest possible value of an expression whose type is bigint."""
        return _BIGINT

    def unfit(self, types: Mapping[str, str]) -> tuple[str, ...]:
        """Return, as text, the parts of the expression whose values may fail to fit their types.

        Of two nested parts whose values may fail to fit, only the outer part is returned. The result is empty if the
        column types guarantee that all values fit.

        >>> (Col("n") * Col("n") + 1).unfit({"n": "int"}), (Col("n") * Col("n") + 1).unfit({"n": "bigint"})
        ((), ('(n * n) + 1',))
        """
        return tuple(text for part in self.parts for text in getattr(self, part).unfit(types))

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the expression, given the names and types of the columns."""
        raise NotImplementedError

    def __add__(self, other: Expression | Constant) -> Expression:
        return Arithmetic(self, "+", _expression(other))

    def __sub__(self, other: Expression | Constant) -> Expression:
        return Arithmetic(self, "-", _expression(other))

    def __mul__(self, other: Expression | Constant) -> Expression:
        return Arithmetic(self, "*", _expression(other))

    def __radd__(self, other: Constant) -> Expression:
        return Arithmetic(_expression(other), "+", self)

    def __rsub__(self, other: Constant) -> Expression:
        return Arithmetic(_expression(other), "-", self)

    def __rmul__(self, other: Constant) -> Expression:
        return Arithmetic(_expression(other), "*", self)

    def __neg__(self) -> Expression:
        """Return the negated number.

        >>> str(-Col("n")), str(2 * Col("n")), str(1 - Col("n"))
        ('0 - n', '2 * n', '1 - n')
        """
        return Arithmetic(Value(0), "-", self)

    def __floordiv__(self, by: int | timedelta) -> Expression:
        return Whole(self, by)


@dataclass(frozen=True)
class Col(Expression):
    """The value of a column, or of a field in a column, whose path has dots: `Col("item.price")`.

    >>> from tailrace.model.base.algebra import Scalars
    >>> from tailrace.model.base.time import minutes
    >>> length = (Col("until") - Col("since")) // minutes(1)
    >>> types = {"since": "timestamp", "until": "timestamp"}
    >>> length.term(Scalars(), {"since": 0, "until": 150_000_000}, types), length.type(types)
    (2, 'bigint')
    """

    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (column_of(self.name),)

    def type(self, types: Mapping[str, str]) -> str:
        found = type_at(types, self.name) or "string"
        return _CALCULATED_AS.get(found, found)

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        value, found = term_at(o, record, self.name), type_at(types, self.name)
        if found == "timestamp":
            return o.micros(value)
        if found == "float":
            return o.real(value, found)
        return o.wide(value) if found == "int" else value

    def missing(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.missing(term_at(o, record, self.name))

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        return _BOUNDS.get(type_at(types, self.name) or "", _BIGINT)

    def at(self, place: str) -> Inside:
        """Look into the column's JSON text: `Col("extra").at("user.tier").as_type("string")`.

        `place` is a path of names, and `[0]` is an element of a list (`json_places`).
        """
        return Inside(self, place)

    def size(self) -> Expression:
        """Return the number of elements of the column's list, or of entries of its map.

        >>> str(Col("items").size())
        'items.size()'
        """
        return Size(self)

    def contains(self, value: str | int | bool | Decimal) -> Condition:
        """Return the condition that the column's list has this value, or that its map has this key."""
        return Contains(self.name, value)

    def __str__(self) -> str:
        return self.name

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if type_at(types, self.name) is None:
            yield unknown_column(path, self.name, types)


@dataclass(frozen=True)
class Size(Expression):
    """The number of elements of a list, or of entries of a map; it is missing if the list is missing.

    >>> from tailrace.model.base.algebra import Scalars
    >>> size, types = Col("items").size(), {"items": "array<string>"}
    >>> [size.term(Scalars(), {"items": items}, types) for items in (["a", "b"], [], None)]
    [2, 0, None]
    """

    of: Col

    @property
    def columns(self) -> tuple[str, ...]:
        return self.of.columns

    def type(self, types: Mapping[str, str]) -> str:
        return "bigint"

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.length(self.of.term(o, record, types))

    def missing(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return self.of.missing(o, record, types)

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        return (0, 2**31 - 1)

    def __str__(self) -> str:
        return f"{self.of}.size()"

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        faults = list(self.of.faults(f"{path}.of", types))
        yield from faults
        if not faults and element_type(self.of.type(types)) is None:
            found = f"{self.of}: {self.of.type(types)}"
            yield Fault(f"{path}.of", found, "a column with a list or a map", "take another column")


@dataclass(frozen=True)
class Inside(Expression):
    """A value inside a JSON text: the value at a place, as a value of the type `target` (`as_type`).

    It is missing if it is not there or null, if it does not fit the type, or if the text is not JSON. The type `json`
    returns any value as it is written.

    >>> from tailrace.model.base.algebra import Scalars
    >>> tier, types = Col("extra").at("user.tier").as_type("string"), {"extra": "string"}
    >>> [tier.term(Scalars(), {"extra": text}, types) for text in ('{"user": {"tier": "gold"}}', "{}", None)]
    ['gold', None, None]
    """

    of: Col
    place: str
    target: str | None = None

    parts = ("of",)

    def as_type(self, type: str) -> Inside:
        """Return the value as a value of a plain type, or as `json`: the text of any value, as it is written."""
        return replace(self, target=type)

    def type(self, types: Mapping[str, str]) -> str:
        found = stored_type(self.target or "json")
        return _CALCULATED_AS.get(found, found)

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        assert self.target is not None, "faults are found before"
        return o.inside(self.of.term(o, record, types), self.place, self.target, self.type(types))

    def missing(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.missing(self.term(o, record, types))

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        return _BOUNDS.get(self.target or "", _BIGINT)

    def __str__(self) -> str:
        return f"{self.of}.at({self.place!r}).as_type({self.target!r})"

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        faults = list(self.of.faults(f"{path}.of", types))
        yield from faults
        if not faults and (found := self.of.type(types)) != "string":
            expected = "a column of the type json, or of texts in JSON"
            remedy = f'write Col("{self.of}.name") for a field of a struct, or take another column'
            yield Fault(f"{path}.of", f"{self.of}: {found}", expected, remedy)
        if not isinstance(self.place, str) or steps_of(self.place) is None:
            remedy = "write a name with a dot, a bracket or another sign in backquotes: `a.b`.c"
            yield Fault(f"{path}.place", self.place, "a place such as user.tier or items[0].price", remedy)
        if self.target is None:
            mend = f'write for example .at({self.place!r}).as_type("string")'
            yield Fault(f"{path}.target", None, "the type of the value", mend)
        elif not is_target(self.target):
            types_ = "string, boolean, int, bigint, double, decimal(p,s), date, timestamp or json"
            yield Fault(f"{path}.target", self.target, "the name of a plain type, or json", f"use {types_}")


@dataclass(frozen=True)
class Value(Expression):
    """A constant: the same value for every record."""

    value: Constant

    def type(self, types: Mapping[str, str]) -> str:
        if isinstance(self.value, bool):
            return "boolean"
        if isinstance(self.value, Decimal):
            _, digits, exponent = self.value.as_tuple()
            scale, whole = max(0, -int(exponent)), len(digits) + max(0, int(exponent))
            return f"decimal({max(scale, whole)},{scale})"
        return "string" if isinstance(self.value, str) else "bigint"

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        value = duration(self.value) if isinstance(self.value, timedelta) else self.value
        return o.literal(value, self.type(types))

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        value = duration(self.value) if isinstance(self.value, timedelta) else self.value
        return (value, value) if isinstance(value, int) else _BIGINT

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else str(self.value)

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        value = self.value
        if not isinstance(value, Constant) or (isinstance(value, Decimal) and not value.is_finite()):
            expected = "a string, truth value, whole number, Decimal or duration"
            yield Fault(path, self.value, expected, 'write for example Col("price") * Decimal("1.19")')
        elif isinstance(value, int | timedelta) and not -_BIGINT[1] <= self.bounds(types)[0] <= _BIGINT[1]:
            yield Fault(path, self.value, "a whole number or duration that a bigint holds", "write a Decimal")
        elif isinstance(value, Decimal) and (decimal_parts(self.type(types)) or (0,))[0] > MAX_PRECISION:
            yield Fault(path, self.value, f"a number of at most {MAX_PRECISION} digits", "write one with fewer digits")


@dataclass(frozen=True)
class Arithmetic(Expression):
    """The sum, difference or product of two numbers.

    The result is missing if at least one of the numbers is missing. It is exact unless one of the numbers is a double:
    then both are converted to doubles, and the result is the double that is closest to the exact result.

    >>> from tailrace.model.base.algebra import Scalars
    >>> cost = Col("clicks") * Decimal("0.05")
    >>> cost.term(Scalars(), {"clicks": 3}, {"clicks": "int"}), cost.type({"clicks": "int"})
    (Decimal('0.15'), 'decimal(23,2)')
    >>> amount, types = Col("item.price") * Col("item.pieces"), {"item": "struct<price:double,pieces:int>"}
    >>> amount.term(Scalars(), {"item": {"price": 0.1, "pieces": 3}}, types), amount.type(types)
    (0.30000000000000004, 'double')
    """

    left: Expression
    operator: str
    right: Expression

    parts = ("left", "right")

    def type(self, types: Mapping[str, str]) -> str:
        left, right = self.left.type(types), self.right.type(types)
        if "double" in (left, right):
            return "double"
        if decimal_parts(left) is None and decimal_parts(right) is None:
            return "bigint"
        (p, s), (q, r) = (decimal_parts(one) or (_BIGINT_DIGITS, 0) for one in (left, right))
        if self.operator == "*":
            return f"decimal({p + q + 1},{s + r})"
        return f"decimal({max(p - s, q - r) + max(s, r) + 1},{max(s, r)})"

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        type = self.type(types)
        left, right = ((one.term(o, record, types), one.type(types)) for one in (self.left, self.right))
        if type == "bigint":
            return o.calculated(left[0], self.operator, right[0], type)
        if type == "double":
            return o.calculated(_converted(o, *left, type), self.operator, _converted(o, *right, type), type)
        # Convert both numbers to decimals, because an engine derives the number of digits of the result from the types
        # of the operands.
        own = [(term, f"decimal({_BIGINT_DIGITS},0)" if of == "bigint" else of) for term, of in (left, right)]
        return o.calculated(o.converted(*own[0]), self.operator, o.converted(*own[1]), type)

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        (least, most), (low, high) = self._range(types), _BIGINT
        return max(least, low), min(most, high)

    def unfit(self, types: Mapping[str, str]) -> tuple[str, ...]:
        if self.type(types) == "bigint" and self._range(types) != self.bounds(types):
            return (str(self),)
        return super().unfit(types)

    def _range(self, types: Mapping[str, str]) -> Bounds:
        """Return the smallest and the largest possible result; these two numbers may be outside the range of a
        bigint.
        """
        compute = {"+": add, "-": sub, "*": mul}[self.operator]
        ends = [compute(a, b) for a in self.left.bounds(types) for b in self.right.bounds(types)]
        return min(ends), max(ends)

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.operator} {_inner(self.right)}"

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        faulty = False
        for side, place in ((self.left, "left"), (self.right, "right")):
            for fault in side.faults(f"{path}.{place}", types):
                faulty = True
                yield fault
        if faulty:
            return
        for side, place in ((self.left, "left"), (self.right, "right")):
            if not _is_number(side.type(types)):
                faulty = True
                expected = "a whole number, a decimal, a double or an instant"
                yield Fault(f"{path}.{place}", f"{side!r}: {side.type(types)}", expected, "declare it as decimal(p,s)")
        digits = None if faulty else decimal_parts(self.type(types))
        if digits and digits[0] > MAX_PRECISION:
            expected = f"numbers whose result has at most {MAX_PRECISION} digits"
            yield Fault(path, f"{digits[0]} digits", expected, "declare the columns with fewer digits")


@dataclass(frozen=True)
class Whole(Expression):
    """The division of a whole number or an instant by a whole number or a duration; the result is rounded down.

    The result is missing if the dividend is missing.
    """

    of: Expression
    by: int | timedelta

    parts = ("of",)

    def type(self, types: Mapping[str, str]) -> str:
        return "bigint"

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.floored(self.of.term(o, record, types), self._by)

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        least, most = self.of.bounds(types)
        return least // self._by, most // self._by

    @property
    def _by(self) -> int:
        return duration(self.by) if isinstance(self.by, timedelta) else self.by

    def __str__(self) -> str:
        return f"{_inner(self.of)} // {self.by}"

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        by: object = self.by
        good = isinstance(by, timedelta | int) and not isinstance(by, bool)
        if not good or by <= (timedelta(0) if isinstance(by, timedelta) else 0):  # type: ignore[operator]
            yield Fault(f"{path}.by", by, "a whole number or duration of more than zero", "write // minutes(1)")
        elif self._by > _BIGINT[1]:
            yield Fault(f"{path}.by", by, "a whole number or duration that a bigint holds", "write a smaller one")
        faults = list(self.of.faults(f"{path}.of", types))
        yield from faults
        if not faults and self.of.type(types) != "bigint":
            expected = "a whole number or an instant"
            yield Fault(f"{path}.of", f"{self.of!r}: {self.of.type(types)}", expected, "take another column")


@dataclass(frozen=True)
class If(Expression):
    """A choice between two values of the same type; the choice depends on a condition on the record.

    If the two values are numbers of different types, the result type has enough digits for both, or is double. If
    `otherwise` is left out, the value is missing for records that do not meet the condition; a count or a sum of the
    value ignores such records.

    >>> from tailrace.model.base.algebra import Scalars
    >>> from tailrace.model.base.conditions import Match
    >>> size = If(Match("price", ">=", 100), "large", "small")
    >>> [size.term(Scalars(), {"price": price}, {"price": "bigint"}) for price in (7, 700, None)]
    ['small', 'large', 'small']
    >>> capped, types = If(Match("cost", ">", 2), Decimal("2.00"), Col("cost")), {"cost": "decimal(9,4)"}
    >>> [str(capped.term(Scalars(), {"cost": Decimal(cost)}, types)) for cost in ("3.5000", "1.2345")]
    ['2.0000', '1.2345']
    >>> cheap = If(Match("price", "<", 100), Col("price"))
    >>> [cheap.term(Scalars(), {"price": price}, {"price": "bigint"}) for price in (7, 700)]
    [7, None]
    """

    condition: Condition
    then: Expression | Constant
    otherwise: Expression | Constant | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", _expression(self.then))
        if self.otherwise is not None:
            object.__setattr__(self, "otherwise", _expression(self.otherwise))

    @property
    def columns(self) -> tuple[str, ...]:
        own = (name for one in self._branches for name in one.columns)
        return tuple(dict.fromkeys([*self.condition.columns, *own]))

    @property
    def _branches(self) -> tuple[Expression, ...]:
        return tuple(_expression(one) for one in (self.then, self.otherwise) if one is not None)

    def type(self, types: Mapping[str, str]) -> str:
        return reduce(_common, (one.type(types) for one in self._branches))

    def term(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        holds, type = self.condition.holds(o, record, types), self.type(types)
        terms = ((one.term(o, record, types), one.type(types)) for one in self._branches)
        then, *otherwise = (_converted(o, term, own, type) for term, own in terms)
        return o.choose(holds, then, otherwise[0] if otherwise else o.literal(None, type))

    def missing(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        then, *otherwise = (one.missing(o, record, types) for one in self._branches)
        holds = self.condition.holds(o, record, types)
        return o.choose(holds, then, otherwise[0] if otherwise else o.literal(True, "boolean"))

    def bounds(self, types: Mapping[str, str]) -> Bounds:
        least, most = zip(*(one.bounds(types) for one in self._branches), strict=True)
        return min(least), max(most)

    def unfit(self, types: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part for one in self._branches for part in one.unfit(types)))

    def __str__(self) -> str:
        return f"If({self.condition}, {', '.join(map(str, self._branches))})"

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        faults = list(condition_faults(f"{path}.condition", self.condition, types))
        for place, branch in zip(("then", "otherwise"), self._branches, strict=False):
            faults += branch.faults(f"{path}.{place}", types)
        yield from faults
        if faults:
            return
        kinds = [branch.type(types) for branch in self._branches]
        if len(set(kinds)) > 1 and not all(map(_is_number, kinds)):
            expected, mend = "two values of one type", "write both alike, for example 0 and 1"
            yield Fault(path, " and ".join(kinds), expected, mend)
        elif (digits := decimal_parts(self.type(types))) and digits[0] > MAX_PRECISION:
            expected = f"numbers that have at most {MAX_PRECISION} digits together"
            yield Fault(path, " and ".join(kinds), expected, "declare the columns with fewer digits")


def _common(first: str, second: str) -> str:
    """Return a type for the numbers of two types; if the types are not types of numbers, return `first`.

    The type has enough digits for exact numbers of both types. It is double if one of the types is.
    """
    if first == second or not (_is_number(first) and _is_number(second)):
        return first
    if "double" in (first, second):
        return "double"
    (p, s), (q, r) = (decimal_parts(type) or (_BIGINT_DIGITS, 0) for type in (first, second))
    return f"decimal({max(p - s, q - r) + max(s, r)},{max(s, r)})"


def _is_number(type: str) -> bool:
    return type == "double" or is_exact_number(type)


def _converted(o: Algebra, term: Term, own: str, type: str) -> Term:
    """Convert a number of the type `own` to another type of numbers."""
    if own == type:
        return term
    return o.real(term, own) if type == "double" else o.converted(term, type)


def _inner(part: Expression) -> str:
    """Return the text of an operand in an expression, in parentheses if the operand itself has an operator."""
    return f"({part})" if isinstance(part, Arithmetic | Whole) else str(part)


def _expression(value: Expression | Constant) -> Expression:
    return value if isinstance(value, Expression) else Value(value)


def expression_faults(path: str, value: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """Find the faults of an expression. A value that is not an `Expression` is itself a fault."""
    if isinstance(value, Expression):
        return value.faults(path, types)
    return [Fault(path, value, "an expression", 'write for example Col("price") * 2')]
