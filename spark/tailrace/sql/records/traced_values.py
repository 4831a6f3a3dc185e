"""The values of a function that is compiled to SQL (`traced_steps`): each writes down what is done to it.

A value's text is null wherever SQL could differ from Python: if a column is null, if a number leaves the range in which
both compute alike, if a divisor is zero. Values are not known when the function is called, so whatever needs the value
itself raises an error; only the truth of a value is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

from tailrace.model.base.expressions import Value
from tailrace.model.base.types import decimal_parts, is_nested
from tailrace.model.base.values import of_value
from tailrace.sql.terms import Sql, quoted

CONSTANTS = (int, float, str, bool, Decimal)
"""The types of the constants that a function may use."""

LONGEST = 20_000
"""The largest length of a value's SQL."""

_NODES = 200
"""The largest number of values that one call of a function computes."""

_EXACT_DIGITS = 28
"""The number of digits of Python's own decimal context: a result of at most so many digits is exact."""

_EXACT_REAL = 2**53
"""Up to this absolute value, a double represents every whole number."""


class UntracedError(Exception):
    """Raised by what a function does that has no exact counterpart in SQL; its text continues "the function …"."""


class _Unknown:
    """A value that is known only when the SQL runs. Whatever needs the value itself raises an error (`_ASKING`)."""

    __slots__ = ()


_ASKING = (
    *("__str__", "__repr__", "__format__", "__bytes__", "__hash__", "__bool__", "__len__", "__iter__", "__contains__"),
    *("__int__", "__float__", "__index__", "__complex__", "__round__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
)


def _needed(*_: object) -> NoReturn:
    raise UntracedError("needs to know the values of columns")


for _name in _ASKING:
    setattr(_Unknown, _name, _needed)


class TracedRecord(_Unknown):
    """The record with which a function is traced."""

    __slots__ = ("call", "columns")

    def __init__(self, call: TracedCall, columns: Mapping[str, str]) -> None:
        self.call, self.columns = call, columns

    def __getitem__(self, name: str) -> TracedValue:
        return self.call.column(name, self.columns[name])

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.columns else default


class TracedValue(_Unknown):
    """A value with its SQL. `kind` is int, float, str, bool, Decimal or other.

    `parts` are the digits, and the digits after the point, of a Decimal.
    """

    __slots__ = ("call", "constant", "kind", "parts", "text", "type")

    def __init__(
        self, call: TracedCall, kind: str, text: str, type: str, parts: tuple[int, int] = (19, 0), constant: Any = None
    ) -> None:
        self.call, self.kind, self.text, self.type, self.parts, self.constant = call, kind, text, type, parts, constant
        if len(text) > LONGEST:
            raise UntracedError("computes a value whose SQL is too long")

    def __add__(self, other: Any) -> TracedValue:
        return self.call.calculated(self, "+", self.call.known(other))

    def __radd__(self, other: Any) -> TracedValue:
        return self.call.calculated(self.call.known(other), "+", self)

    def __sub__(self, other: Any) -> TracedValue:
        return self.call.calculated(self, "-", self.call.known(other))

    def __rsub__(self, other: Any) -> TracedValue:
        return self.call.calculated(self.call.known(other), "-", self)

    def __mul__(self, other: Any) -> TracedValue:
        return self.call.calculated(self, "*", self.call.known(other))

    def __rmul__(self, other: Any) -> TracedValue:
        return self.call.calculated(self.call.known(other), "*", self)

    def __truediv__(self, other: Any) -> TracedValue:
        return self.call.divided(self, self.call.known(other))

    def __rtruediv__(self, other: Any) -> TracedValue:
        return self.call.divided(self.call.known(other), self)

    def __floordiv__(self, other: Any) -> TracedValue:
        return self.call.floored(self, self.call.known(other), "DIV")

    def __rfloordiv__(self, other: Any) -> TracedValue:
        return self.call.floored(self.call.known(other), self, "DIV")

    def __mod__(self, other: Any) -> TracedValue:
        return self.call.floored(self, self.call.known(other), "%")

    def __rmod__(self, other: Any) -> TracedValue:
        return self.call.floored(self.call.known(other), self, "%")

    def __neg__(self) -> TracedValue:
        if self.kind == "float":
            return self.call.made("float", f"(-{self.text})", "double", self)
        return self.call.calculated(self.call.known(0), "-", self)

    def __and__(self, other: Any) -> TracedValue:
        return self.call.both(self, "AND", self.call.known(other))

    def __or__(self, other: Any) -> TracedValue:
        return self.call.both(self, "OR", self.call.known(other))

    __rand__, __ror__ = __and__, __or__

    def __eq__(self, other: Any) -> Any:
        return self.call.compared(self, "=", self.call.known(other))

    def __ne__(self, other: Any) -> Any:
        return self.call.compared(self, "<>", self.call.known(other))

    def __lt__(self, other: Any) -> Any:
        return self.call.compared(self, "<", self.call.known(other))

    def __le__(self, other: Any) -> Any:
        return self.call.compared(self, "<=", self.call.known(other))

    def __gt__(self, other: Any) -> Any:
        return self.call.compared(self, ">", self.call.known(other))

    def __ge__(self, other: Any) -> Any:
        return self.call.compared(self, ">=", self.call.known(other))

    def __bool__(self) -> bool:
        return self.call.decided(self)

    def upper(self) -> TracedValue:
        return self.call.cased(self, "UPPER")

    def lower(self) -> TracedValue:
        return self.call.cased(self, "LOWER")

    def startswith(self, prefix: Any) -> TracedValue:
        return self.call.affixed(self, "STARTSWITH", self.call.known(prefix))

    def endswith(self, suffix: Any) -> TracedValue:
        return self.call.affixed(self, "ENDSWITH", self.call.known(suffix))


@dataclass
class TracedCall:
    """One call of a function: the values that it computes, and the truth of the conditions that it asks for.

    `planned` is the truth of the first conditions; of all later ones, it is taken to be true.
    """

    planned: list[bool]
    decisions: list[tuple[str, bool]] = field(default_factory=list)
    nodes: dict[int, TracedValue] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def column(self, name: str, type: str) -> TracedValue:
        text = quoted(name)
        self.columns[name] = text
        parts = decimal_parts(type)
        if is_nested(type):
            raise UntracedError(f"reads {name}, a {type}")
        if parts is not None:
            return TracedValue(self, "Decimal", text, type, parts)
        kind, wide = _KINDS.get(type, ("other", type))
        return TracedValue(self, kind, text if wide == type else f"CAST({text} AS {wide})", type)

    def known(self, value: Any) -> TracedValue:
        """Return an operand; a constant becomes a value with a text."""
        if isinstance(value, TracedValue):
            return value
        kind = type(value)
        if kind not in CONSTANTS or (kind in (float, Decimal) and not isfinite(value)):
            raise UntracedError("has an operand that is no finite constant")
        if kind is float:
            return TracedValue(self, "float", f"CAST('{value!r}' AS double)", "double", constant=value)
        if kind is int and abs(value) >= 2**63:
            raise UntracedError(f"uses {value}, which does not fit a bigint")
        if kind is str and ("\0" in value or value.encode(errors="replace").decode() != value):
            raise UntracedError("uses a text that SQL may not write")
        own = Value(value).type({})
        digits = decimal_parts(own) or (len(str(abs(value))) if kind is int else 0, 0)
        if digits[0] > _EXACT_DIGITS:
            raise UntracedError(f"uses {value}, which has more than {_EXACT_DIGITS} digits")
        return TracedValue(self, kind.__name__, Sql().literal(value, own), own, digits, value)

    def made(self, kind: str, text: str, type: str, *of: TracedValue, parts: tuple[int, int] = (19, 0)) -> TracedValue:
        """Return the result of an operation. The text is null if an operand is null, or if SQL is not sure."""
        for one in of:
            self.nodes.pop(id(one), None)
        made = TracedValue(self, kind, text, type, parts)
        self.count += 1
        if self.count > _NODES:
            raise UntracedError(f"computes more than {_NODES} values")
        self.nodes[id(made)] = made
        return made

    def calculated(self, a: TracedValue, by: str, b: TracedValue) -> TracedValue:
        kinds = {a.kind, b.kind}
        if kinds == {"int"}:
            return self.made("int", Sql().calculated(a.text, by, b.text, "bigint"), "bigint", a, b)
        if kinds == {"str"} and by == "+":
            return self.made("str", f"({a.text} || {b.text})", "string", a, b)
        if "float" in kinds and kinds <= {"int", "float"}:
            return self.made("float", f"({_real(a)} {by} {_real(b)})", "double", a, b)
        if "Decimal" not in kinds or not kinds <= {"int", "Decimal"}:
            raise UntracedError(f"computes {a.kind} {by} {b.kind}")
        (p, s), (q, r) = (_DECIMAL_INT if one.kind == "int" and one.constant is None else one.parts for one in (a, b))
        parts = (p + q, s + r) if by == "*" else (max(p - s, q - r) + max(s, r) + 1, max(s, r))
        if parts[0] > _EXACT_DIGITS:
            raise UntracedError(f"computes decimals of more than {_EXACT_DIGITS} digits, which Python would round")
        type = f"decimal({parts[0]},{parts[1]})"
        # The casts of the operands let DuckDB's dialect give the result as many digits as it needs.
        own = [parts, parts] if by != "*" else [(p, s), (q, r)]
        terms = [f"CAST({_decimal(one)} AS decimal({n},{m}))" for one, (n, m) in zip((a, b), own, strict=True)]
        return self.made("Decimal", f"CAST(({terms[0]} {by} {terms[1]}) AS {type})", type, a, b, parts=parts)

    def divided(self, a: TracedValue, b: TracedValue) -> TracedValue:
        if not {a.kind, b.kind} <= {"int", "float"}:
            raise UntracedError(f"computes {a.kind} / {b.kind}")
        if b.constant is not None and not b.constant:
            raise UntracedError("divides by zero")
        # Python divides whole numbers exactly before it rounds, so both must be exact as doubles.
        over, by = (_exact_real(one) if a.kind == b.kind == "int" else _real(one) for one in (a, b))
        return self.made("float", f"({over} / NULLIF({by}, CAST(0 AS double)))", "double", a, b)

    def floored(self, a: TracedValue, b: TracedValue, by: str) -> TracedValue:
        if a.kind != "int" or b.kind != "int":
            raise UntracedError(f"computes {a.kind} {'//' if by == 'DIV' else by} {b.kind}")
        if b.constant is not None and b.constant <= 0:
            raise UntracedError(f"divides by {b.constant}")
        # DIV rounds towards zero, but Python down; for a positive divisor, the two differ by one at most.
        divisor = b.text if b.constant is not None else f"IF({b.text} > 0L, {b.text}, NULL)"
        rest = f"({a.text} % {divisor})"
        text = f"({a.text} DIV {divisor} - IF({rest} < 0L, 1L, 0L))"
        if by == "%":
            text = f"({rest} + IF({rest} < 0L, {divisor}, 0L))"
        return self.made("int", text, "bigint", a, b)

    def both(self, a: TracedValue, by: str, b: TracedValue) -> TracedValue:
        if a.kind != "bool" or b.kind != "bool":
            raise UntracedError(f"computes {a.kind} {'&' if by == 'AND' else '|'} {b.kind}")
        missing = f"({a.text} IS NULL OR {b.text} IS NULL)"
        return self.made("bool", f"IF({missing}, NULL, ({a.text} {by} {b.text}))", "boolean", a, b)

    def compared(self, a: TracedValue, by: str, b: TracedValue) -> TracedValue:
        kinds, texts = {a.kind, b.kind}, (a.text, b.text)
        if kinds == {"int", "Decimal"} or kinds == {"Decimal"}:
            scale = max(a.parts[1], b.parts[1])
            digits = max(a.parts[0] - a.parts[1], b.parts[0] - b.parts[1]) + scale
            if digits > 38:
                raise UntracedError("compares decimals of too many digits")
            texts = (f"CAST({a.text} AS decimal({digits},{scale}))", f"CAST({b.text} AS decimal({digits},{scale}))")
        elif "float" in kinds and kinds <= {"int", "float"}:
            # Python compares exactly, and a NaN with nothing; in SQL a NaN is the largest number.
            texts = (_comparable(a), _comparable(b))
        elif len(kinds) > 1 or "other" in kinds:
            raise UntracedError(f"compares {a.kind} with {b.kind}")
        return self.made("bool", f"({texts[0]} {by} {texts[1]})", "boolean", a, b)

    def cased(self, a: TracedValue, by: str) -> TracedValue:
        if a.kind != "str":
            raise UntracedError(f"uses .{by.lower()} of {a.kind}")
        # For other letters than those of ASCII, the engines and Python have different tables.
        return self.made(
            "str", f"IF(OCTET_LENGTH({a.text}) = CHAR_LENGTH({a.text}), {by}({a.text}), NULL)", "string", a
        )

    def affixed(self, a: TracedValue, by: str, b: TracedValue) -> TracedValue:
        if a.kind != "str" or b.kind != "str":
            raise UntracedError(f"uses .{by.lower()} of {a.kind}")
        return self.made("bool", f"{by}({a.text}, {b.text})", "boolean", a, b)

    def decided(self, a: TracedValue) -> bool:
        """Return the truth that this call takes a value to have."""
        empty = {"int": "0L", "float": "CAST(0 AS double)", "str": "''", "Decimal": "CAST(0 AS decimal(1,0))"}
        if a.kind == "other":
            raise UntracedError("asks for the truth of a date or instant")
        self.nodes.pop(id(a), None)
        text = a.text if a.kind == "bool" else f"({a.text} <> {empty[a.kind]})"
        at = len(self.decisions)
        self.decisions.append((text, self.planned[at] if at < len(self.planned) else True))
        return self.decisions[-1][1]

    def result(self, value: Any, type: str) -> str:
        """Return the text of a new column's value, converted as `Each` converts it."""
        if value is None:
            return "NULL"
        if not isinstance(value, TracedValue):
            try:
                return self._constant(of_value(value, type), type)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise UntracedError(f"gives a constant that is no {type}") from error
        if value.kind == "other" or (value.type == type and value.kind in ("str", "bool")):
            if value.type != type:
                raise UntracedError(f"gives a {value.type} for a {type}")
            return value.text
        text = _fitted(value, type)
        if text != value.text:
            self.made(value.kind, text, type, value)
        return text

    def _constant(self, value: Any, type: str) -> str:
        if type == "double" and isfinite(value):
            return f"CAST('{value!r}' AS double)"
        if type in ("string", "boolean", "int", "bigint") or decimal_parts(type):
            return f"CAST({Sql().literal(value, type)} AS {type})"
        raise UntracedError(f"gives a constant for a {type}")

    @property
    def reached(self) -> str:
        """The condition that Python takes this way for a record."""
        return str(Sql().every(*(text if truth else f"(NOT {text})" for text, truth in self.decisions)))


_KINDS = {
    "int": ("int", "bigint"),
    "bigint": ("int", "bigint"),
    "float": ("float", "double"),
    "double": ("float", "double"),
    "string": ("str", "string"),
    "boolean": ("bool", "boolean"),
}

_DECIMAL_INT = (12, 0)
"""The digits of a whole number that is computed with decimals; of a larger one, SQL is not sure."""


def _real(a: TracedValue) -> str:
    return a.text if a.kind == "float" else f"CAST({a.text} AS double)"


def _exact_real(a: TracedValue) -> str:
    return f"IF({a.text} BETWEEN -{_EXACT_REAL}L AND {_EXACT_REAL}L, CAST({a.text} AS double), NULL)"


def _comparable(a: TracedValue) -> str:
    return _exact_real(a) if a.kind == "int" else a.text if a.constant else f"IF(ISNAN({a.text}), NULL, {a.text})"


def _decimal(a: TracedValue) -> str:
    if a.kind == "Decimal":
        return a.text
    if a.constant is not None:
        return f"CAST({a.text} AS decimal({a.parts[0]},0))"
    most = 10 ** _DECIMAL_INT[0] - 1
    return f"IF({a.text} BETWEEN -{most}L AND {most}L, CAST({a.text} AS decimal({_DECIMAL_INT[0]},0)), NULL)"


def _fitted(value: TracedValue, type: str) -> str:
    """Return the text of a number as a value of a column type; it is null if the number does not fit."""
    text, target = value.text, decimal_parts(type)
    if (value.kind, type) in (("int", "bigint"), ("float", "double")):
        return text
    if value.kind == "int" and type == "int":
        return f"IF({text} BETWEEN {-(2**31)}L AND {2**31 - 1}L, CAST({text} AS int), NULL)"
    if value.kind == "int" and type == "double":
        return _exact_real(value)
    if value.kind in ("int", "Decimal") and target and target[1] >= value.parts[1]:
        whole, own = target[0] - target[1], value.parts[0] - value.parts[1]
        if own <= whole:
            return text if value.type == type else f"CAST({text} AS {type})"
        end = f"CAST({10**whole} AS decimal({own},0))" if value.kind == "Decimal" else f"{10**whole}L"
        return f"IF({text} < {end} AND {text} > -{end}, CAST({text} AS {type}), NULL)"
    raise UntracedError(f"gives a {value.type} for a {type}")
