"""Compile a step's Python function to SQL, if the function is plain arithmetic on the columns of a record.

The function is called with a record whose values write down what is done to them (`_Term`). The law: for each record,
SQL gives exactly what Python gives. So a traced value is null wherever SQL could differ from Python: if a column is
null, if a number leaves the range in which both compute alike, if a divisor is zero. A record with such a null is not
`sure`; the engines call the function for these records alone. So Python itself decides on all rejections and their
reasons.

Two rules keep the call from being misled. Only a function whose bytecode has nothing but operations that are known here
is traced (`_faults`), so it has no effects, loops or calls, and asks for no types or identities. And values that are
not known when the function is traced raise an error wherever Python itself would need to know them; only their truth is
allowed, for which the function is called again for each of the two outcomes.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from types import FunctionType
from typing import Any, NoReturn

from tailrace.model.base.expressions import Value
from tailrace.model.base.types import decimal_parts, is_nested
from tailrace.model.base.values import of_value
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.record_steps import Each
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation, Sql, null, quoted

_PATHS = 16
"""The largest number of ways through a function's conditions."""

_NODES = 200
"""The largest number of values that one call of a function computes."""

_TEXT = 20_000
"""The largest length of a value's SQL."""

_EXACT_DIGITS = 28
"""The number of digits of Python's own decimal context: a result of at most so many digits is exact."""

_EXACT_REAL = 2**53
"""Up to this absolute value, a double represents every whole number."""

SURE = "_sure"
"""The column that is true for the records whose values SQL has computed exactly as Python would."""


@dataclass(frozen=True)
class Traced:
    """A step's function as SQL: the text of each new column, and of the conditions that a record is sure and kept.

    `kept` is false for a record that the function drops. The two conditions are never null.
    """

    values: Mapping[str, str]
    sure: str
    kept: str


class UntracedError(Exception):
    """Raised by what a function does that has no exact counterpart in SQL; its text continues "the function …"."""


def traced(step: Each, types: Mapping[str, str]) -> Traced | None:
    """Return a step's function as SQL, or None if it must be called for each record."""
    found = tracing_of(step, types)
    return found if isinstance(found, Traced) else None


def tracing_of(step: Each, types: Mapping[str, str]) -> Traced | str:
    """Return a step's function as SQL, or the reason why it has no such text.

    >>> types = {"a": "bigint", "word": "string"}
    >>> tracing_of(Each(lambda r: {"n": r["a"] * 2}, {"n": "bigint"}), types).values
    {'n': 'TRY_MULTIPLY(`a`, 2L)'}
    >>> tracing_of(Each(lambda r: {"n": len(r["word"])}, {"n": "bigint"}), types)
    'uses len, which is no constant'
    """
    function: Any = step.function
    if type(step) is not Each:
        return "is a function of batches"
    if not isinstance(function, FunctionType):
        return "is no plain function"
    for fault in _faults(function):
        return fault
    columns = {name: types[name] for name in step.read_columns(types) if name in types}
    has_none = any(map(_asks_for_none, dis.get_instructions(function)))
    try:
        paths = list(_paths(function, columns, step.gives, has_none=has_none))
    except UntracedError as error:
        return str(error)
    except Exception as error:  # The function fails for unknown values: it is called, and may fail for known ones.
        return f"needs to know values: {type(error).__name__}: {error}"
    made = {name: _chosen([(one.reached, one.values[name]) for one in paths], "NULL") for name in step.gives}
    sure = _chosen([(one.reached, one.sure) for one in paths], "false")
    kept = _chosen([(one.reached, "true" if one.kept else "false") for one in paths], "false")
    if max(map(len, (*made.values(), sure))) > _TEXT:
        return "computes a value whose SQL is too long"
    return Traced(made, sure, kept)


def called_because(definition: Ranged) -> str | None:
    """Say why a function of a definition is called for records, or return None if all are traced.

    For a function that is called for each record, the text says how a function is written that is not called.
    """
    types, batches = definition.log.columns, False
    for place, step in enumerate(definition.each):
        if type(step) is Each and isinstance(found := tracing_of(step, types), str):
            called = "a function of one's own is called for every record, in Arrow batches"
            return f"{called}: that of each[{place}] {found}; arithmetic and comparisons of columns are compiled to SQL"
        batches = batches or (isinstance(step, Each) and type(step) is not Each)
        types = step.columns(types)
    return "a function of one's own is called for batches of records" if batches else None


def sure_records(
    found: Traced, source: Relation, columns: Iterable[str], gives: Mapping[str, str], *, failing: bool
) -> Query:
    """Return the query for the records after a traced step, without the records of which SQL is not sure.

    Records that an earlier step has rejected are passed on. The columns are `columns`, those of `gives`, and `FAILED`.
    """
    own = [quoted(name) for name in columns if name != FAILED]
    made = [*own, *map(quoted, gives)]
    values = {name: f"IF({FAILED} IS NULL, {text}, NULL)" if failing else text for name, text in found.values.items()}
    items = [*own, *(f"CAST({values[name]} AS {type}) AS {quoted(name)}" for name, type in gives.items())]
    items.append(FAILED if failing else f"{null('string')} AS {FAILED}")
    kept = found.sure if found.kept == "true" else f"{found.sure} AND {found.kept}"
    passed = f"{FAILED} IS NOT NULL OR ({kept})" if failing else kept
    inner = f"SELECT {', '.join(items)}, ({passed}) AS {SURE} FROM {source}"
    return Query(f"SELECT {', '.join(made)}, {FAILED} FROM ({inner}) WHERE {SURE}")


def unsure_records(found: Traced, source: Relation, columns: Iterable[str], *, failing: bool) -> Query:
    """Return the query for the records for which a traced step's function must be called."""
    unsure = f"{FAILED} IS NULL AND NOT ({found.sure})" if failing else f"NOT ({found.sure})"
    return Query(f"SELECT {', '.join(map(quoted, columns))} FROM {source} WHERE {unsure}")


_KNOWN = frozenset(
    {
        *(
            "RESUME",
            "NOP",
            "CACHE",
            "EXTENDED_ARG",
            "PRECALL",
            "PUSH_NULL",
            "COPY_FREE_VARS",
            "POP_TOP",
            "COPY",
            "SWAP",
        ),
        *("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"),
        *("LOAD_FAST_CHECK", "STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"),
        *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "CALL"),
        *("BINARY_SUBSCR", "BINARY_OP", "COMPARE_OP", "IS_OP", "TO_BOOL", "UNARY_NEGATIVE", "UNARY_NOT"),
        *("BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_TUPLE", "RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD"),
        *("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE"),
        *("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"),
        *("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE"),
    }
)
"""The bytecode operations of a function that is traced; none of them has an effect, or goes back to make a loop."""

_METHODS = {"get", "upper", "lower", "startswith", "endswith"}

_CONSTANTS = (int, float, str, bool, Decimal)


def _faults(function: FunctionType) -> Iterator[str]:
    """Find what a function does that cannot be traced, from its bytecode alone."""
    code, defaults = function.__code__, function.__defaults__ or ()
    if code.co_argcount != 1 + len(defaults) or code.co_kwonlyargcount or code.co_flags & _OTHER_KINDS:
        yield "takes more than a record, or is a generator"
    if not all(type(one) in _CONSTANTS for one in defaults):
        yield "has a default that is no constant"
    before: dis.Instruction | None = None
    for one in dis.get_instructions(function):
        if one.opname not in _KNOWN:
            yield f"does more than arithmetic and comparisons ({one.opname})"
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval not in _METHODS:
            yield f"uses .{one.argval}"
        elif one.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and type(_outer(function, one)) not in _CONSTANTS:
            yield f"uses {one.argval}, which is no constant"
        elif one.opname == "IS_OP" and not (before and before.opname == "LOAD_CONST" and before.argval is None):
            yield "compares identities"
        before = before if one.opname == "CACHE" else one


def _outer(function: FunctionType, one: dis.Instruction) -> Any:
    """Return the value of a name outside of a function, or None if there is none."""
    name = one.argval
    if one.opname == "LOAD_DEREF":
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        try:
            return cells[name].cell_contents
        except (KeyError, ValueError):
            return None
    return function.__globals__.get(name)


def _asks_for_none(one: dis.Instruction) -> bool:
    return one.opname == "IS_OP" or "NONE" in one.opname


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


class _Record(_Unknown):
    """The record with which a function is traced."""

    __slots__ = ("columns", "path")

    def __init__(self, path: _Path, columns: Mapping[str, str]) -> None:
        self.path, self.columns = path, columns

    def __getitem__(self, name: str) -> _Term:
        return self.path.column(name, self.columns[name])

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.columns else default


class _Term(_Unknown):
    """A value with its SQL. `kind` is int, float, str, bool, Decimal or other.

    `parts` are the digits, and the digits after the point, of a Decimal.
    """

    __slots__ = ("constant", "kind", "parts", "path", "text", "type")

    def __init__(
        self, path: _Path, kind: str, text: str, type: str, parts: tuple[int, int] = (19, 0), constant: Any = None
    ) -> None:
        self.path, self.kind, self.text, self.type, self.parts, self.constant = path, kind, text, type, parts, constant
        if len(text) > _TEXT:
            raise UntracedError("computes a value whose SQL is too long")

    def __add__(self, other: Any) -> _Term:
        return self.path.calculated(self, "+", self.path.known(other))

    def __radd__(self, other: Any) -> _Term:
        return self.path.calculated(self.path.known(other), "+", self)

    def __sub__(self, other: Any) -> _Term:
        return self.path.calculated(self, "-", self.path.known(other))

    def __rsub__(self, other: Any) -> _Term:
        return self.path.calculated(self.path.known(other), "-", self)

    def __mul__(self, other: Any) -> _Term:
        return self.path.calculated(self, "*", self.path.known(other))

    def __rmul__(self, other: Any) -> _Term:
        return self.path.calculated(self.path.known(other), "*", self)

    def __truediv__(self, other: Any) -> _Term:
        return self.path.divided(self, self.path.known(other))

    def __rtruediv__(self, other: Any) -> _Term:
        return self.path.divided(self.path.known(other), self)

    def __floordiv__(self, other: Any) -> _Term:
        return self.path.floored(self, self.path.known(other), "DIV")

    def __rfloordiv__(self, other: Any) -> _Term:
        return self.path.floored(self.path.known(other), self, "DIV")

    def __mod__(self, other: Any) -> _Term:
        return self.path.floored(self, self.path.known(other), "%")

    def __rmod__(self, other: Any) -> _Term:
        return self.path.floored(self.path.known(other), self, "%")

    def __neg__(self) -> _Term:
        if self.kind == "float":
            return self.path.made("float", f"(-{self.text})", "double", self)
        return self.path.calculated(self.path.known(0), "-", self)

    def __and__(self, other: Any) -> _Term:
        return self.path.both(self, "AND", self.path.known(other))

    def __or__(self, other: Any) -> _Term:
        return self.path.both(self, "OR", self.path.known(other))

    __rand__, __ror__ = __and__, __or__

    def __eq__(self, other: Any) -> Any:
        return self.path.compared(self, "=", self.path.known(other))

    def __ne__(self, other: Any) -> Any:
        return self.path.compared(self, "<>", self.path.known(other))

    def __lt__(self, other: Any) -> Any:
        return self.path.compared(self, "<", self.path.known(other))

    def __le__(self, other: Any) -> Any:
        return self.path.compared(self, "<=", self.path.known(other))

    def __gt__(self, other: Any) -> Any:
        return self.path.compared(self, ">", self.path.known(other))

    def __ge__(self, other: Any) -> Any:
        return self.path.compared(self, ">=", self.path.known(other))

    def __bool__(self) -> bool:
        return self.path.decided(self)

    def upper(self) -> _Term:
        return self.path.cased(self, "UPPER")

    def lower(self) -> _Term:
        return self.path.cased(self, "LOWER")

    def startswith(self, prefix: Any) -> _Term:
        return self.path.affixed(self, "STARTSWITH", self.path.known(prefix))

    def endswith(self, suffix: Any) -> _Term:
        return self.path.affixed(self, "ENDSWITH", self.path.known(suffix))


@dataclass
class _Path:
    """One call of a function: the values that it computes, and the truth of the conditions that it asks for.

    `planned` is the truth of the first conditions; of all later ones, it is taken to be true.
    """

    planned: list[bool]
    decisions: list[tuple[str, bool]] = field(default_factory=list)
    nodes: dict[int, _Term] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def column(self, name: str, type: str) -> _Term:
        text = quoted(name)
        self.columns[name] = text
        parts = decimal_parts(type)
        if is_nested(type):
            raise UntracedError(f"reads {name}, a {type}")
        if parts is not None:
            return _Term(self, "Decimal", text, type, parts)
        kind, wide = _KINDS.get(type, ("other", type))
        return _Term(self, kind, text if wide == type else f"CAST({text} AS {wide})", type)

    def known(self, value: Any) -> _Term:
        """Return an operand; a constant becomes a value with a text."""
        if isinstance(value, _Term):
            return value
        kind = type(value)
        if kind not in _CONSTANTS or (kind in (float, Decimal) and not isfinite(value)):
            raise UntracedError("has an operand that is no finite constant")
        if kind is float:
            return _Term(self, "float", f"CAST('{value!r}' AS double)", "double", constant=value)
        if kind is int and abs(value) >= 2**63:
            raise UntracedError(f"uses {value}, which does not fit a bigint")
        if kind is str and ("\0" in value or value.encode(errors="replace").decode() != value):
            raise UntracedError("uses a text that SQL may not write")
        own = Value(value).type({})
        digits = decimal_parts(own) or (len(str(abs(value))) if kind is int else 0, 0)
        if digits[0] > _EXACT_DIGITS:
            raise UntracedError(f"uses {value}, which has more than {_EXACT_DIGITS} digits")
        return _Term(self, kind.__name__, Sql().literal(value, own), own, digits, value)

    def made(self, kind: str, text: str, type: str, *of: _Term, parts: tuple[int, int] = (19, 0)) -> _Term:
        """Return the result of an operation. The text is null if an operand is null, or if SQL is not sure."""
        for one in of:
            self.nodes.pop(id(one), None)
        made = _Term(self, kind, text, type, parts)
        self.count += 1
        if self.count > _NODES:
            raise UntracedError(f"computes more than {_NODES} values")
        self.nodes[id(made)] = made
        return made

    def calculated(self, a: _Term, by: str, b: _Term) -> _Term:
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

    def divided(self, a: _Term, b: _Term) -> _Term:
        if not {a.kind, b.kind} <= {"int", "float"}:
            raise UntracedError(f"computes {a.kind} / {b.kind}")
        if b.constant is not None and not b.constant:
            raise UntracedError("divides by zero")
        # Python divides whole numbers exactly before it rounds, so both must be exact as doubles.
        over, by = (_exact_real(one) if a.kind == b.kind == "int" else _real(one) for one in (a, b))
        return self.made("float", f"({over} / NULLIF({by}, CAST(0 AS double)))", "double", a, b)

    def floored(self, a: _Term, b: _Term, by: str) -> _Term:
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

    def both(self, a: _Term, by: str, b: _Term) -> _Term:
        if a.kind != "bool" or b.kind != "bool":
            raise UntracedError(f"computes {a.kind} {'&' if by == 'AND' else '|'} {b.kind}")
        missing = f"({a.text} IS NULL OR {b.text} IS NULL)"
        return self.made("bool", f"IF({missing}, NULL, ({a.text} {by} {b.text}))", "boolean", a, b)

    def compared(self, a: _Term, by: str, b: _Term) -> _Term:
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

    def cased(self, a: _Term, by: str) -> _Term:
        if a.kind != "str":
            raise UntracedError(f"uses .{by.lower()} of {a.kind}")
        # For other letters than those of ASCII, the engines and Python have different tables.
        return self.made(
            "str", f"IF(OCTET_LENGTH({a.text}) = CHAR_LENGTH({a.text}), {by}({a.text}), NULL)", "string", a
        )

    def affixed(self, a: _Term, by: str, b: _Term) -> _Term:
        if a.kind != "str" or b.kind != "str":
            raise UntracedError(f"uses .{by.lower()} of {a.kind}")
        return self.made("bool", f"{by}({a.text}, {b.text})", "boolean", a, b)

    def decided(self, a: _Term) -> bool:
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
        if not isinstance(value, _Term):
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

_OTHER_KINDS = 0x3AC
"""The flags of code that takes any number of arguments, or is a generator or a coroutine."""


def _real(a: _Term) -> str:
    return a.text if a.kind == "float" else f"CAST({a.text} AS double)"


def _exact_real(a: _Term) -> str:
    return f"IF({a.text} BETWEEN -{_EXACT_REAL}L AND {_EXACT_REAL}L, CAST({a.text} AS double), NULL)"


def _comparable(a: _Term) -> str:
    return _exact_real(a) if a.kind == "int" else a.text if a.constant else f"IF(ISNAN({a.text}), NULL, {a.text})"


def _decimal(a: _Term) -> str:
    if a.kind == "Decimal":
        return a.text
    if a.constant is not None:
        return f"CAST({a.text} AS decimal({a.parts[0]},0))"
    most = 10 ** _DECIMAL_INT[0] - 1
    return f"IF({a.text} BETWEEN -{most}L AND {most}L, CAST({a.text} AS decimal({_DECIMAL_INT[0]},0)), NULL)"


def _fitted(value: _Term, type: str) -> str:
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


@dataclass(frozen=True)
class _Way:
    """What a function gives on one of its ways: the condition to take it, the new columns, and whether all is sure."""

    reached: str
    values: Mapping[str, str]
    sure: str
    kept: bool


def _paths(
    function: Callable[[Any], Any], columns: Mapping[str, str], gives: Mapping[str, str], *, has_none: bool
) -> Iterator[_Way]:
    """Call a function once for each of its ways."""
    waiting: list[list[bool]] = [[]]
    for _ in range(_PATHS):
        path = _Path(waiting.pop())
        given = function(_Record(path, columns))
        if given is not None and (type(given) is not dict or not set(given) <= set(gives)):
            raise UntracedError("gives other than None or one mapping with the new columns")
        values = {name: path.result((given or {}).get(name), of) for name, of in gives.items()}
        own = [one.text for one in path.nodes.values()] + [*(path.columns.values() if has_none else ())]
        yield _Way(path.reached, values, Sql().every(*(f"({text} IS NOT NULL)" for text in own)), given is not None)
        truths = [truth for _, truth in path.decisions]
        waiting += [[*truths[:at], False] for at in range(len(path.planned), len(truths))]
        if not waiting:
            return
    raise UntracedError(f"has more than {_PATHS} ways through its conditions")


def _chosen(cases: list[tuple[str, str]], otherwise: str) -> str:
    """Return the text that is the value of the case whose condition holds."""
    if len(cases) == 1 and cases[0][0] == "true":
        return cases[0][1]
    if len({text for _, text in cases}) == 1 and cases[0][1] == otherwise:
        return otherwise
    return f"CASE {' '.join(f'WHEN {condition} THEN {text}' for condition, text in cases)} ELSE {otherwise} END"
