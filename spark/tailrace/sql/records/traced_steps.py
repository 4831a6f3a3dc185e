"""Compile a step's Python function to SQL, if the function is plain arithmetic on the columns of a record.

The function is called with a record whose values write down what is done to them (`traced_values`). The law: for each
record, SQL gives exactly what Python gives. So a traced value is null wherever SQL could differ from Python. A record
with such a null is not `sure`; the engines call the function for these records alone. So Python itself decides on all
rejections and their reasons.

Two rules keep the call from being misled. Only a function whose bytecode has nothing but operations that are known here
is traced (`_faults`), so it has no effects, loops or calls, and asks for no types or identities. And values that are
not known when the function is traced raise an error wherever Python itself would need to know them; only their truth is
allowed, for which the function is called again for each of the two outcomes.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.record_steps import Each
from tailrace.sql.records.selections import FAILED
from tailrace.sql.records.traced_values import CONSTANTS, LONGEST, TracedCall, TracedRecord, UntracedError
from tailrace.sql.terms import Query, Relation, Sql, null, quoted

_PATHS = 16
"""The largest number of ways through a function's conditions."""

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
    if max(map(len, (*made.values(), sure))) > LONGEST:
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
        *("RESUME", "NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL", "COPY_FREE_VARS", "POP_TOP"),
        *("COPY", "SWAP"),
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


def _faults(function: FunctionType) -> Iterator[str]:
    """Find what a function does that cannot be traced, from its bytecode alone."""
    code, defaults = function.__code__, function.__defaults__ or ()
    if code.co_argcount != 1 + len(defaults) or code.co_kwonlyargcount or code.co_flags & _OTHER_KINDS:
        yield "takes more than a record, or is a generator"
    if not all(type(one) in CONSTANTS for one in defaults):
        yield "has a default that is no constant"
    before: dis.Instruction | None = None
    for one in dis.get_instructions(function):
        if one.opname not in _KNOWN:
            yield f"does more than arithmetic and comparisons ({one.opname})"
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval not in _METHODS:
            yield f"uses .{one.argval}"
        elif one.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and type(_outer(function, one)) not in CONSTANTS:
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


_OTHER_KINDS = 0x3AC
"""The flags of code that takes any number of arguments, or is a generator or a coroutine."""


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
        call = TracedCall(waiting.pop())
        given = function(TracedRecord(call, columns))
        if given is not None and (type(given) is not dict or not set(given) <= set(gives)):
            raise UntracedError("gives other than None or one mapping with the new columns")
        values = {name: call.result((given or {}).get(name), of) for name, of in gives.items()}
        own = [one.text for one in call.nodes.values()] + [*(call.columns.values() if has_none else ())]
        yield _Way(call.reached, values, Sql().every(*(f"({text} IS NOT NULL)" for text in own)), given is not None)
        truths = [truth for _, truth in call.decisions]
        waiting += [[*truths[:at], False] for at in range(len(call.planned), len(truths))]
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
