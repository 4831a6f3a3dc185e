"""Implement the model's algebra for Spark SQL: a term of the algebra is the text of an SQL expression.

The queries are written once per definition. The queries do not contain the clock's values, but read these values from
columns. So all epochs have the same queries, and Spark finds the code that it generated for a query in its cache.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import NewType

from tailrace.model.base.algebra import OwnCode, Term
from tailrace.model.base.types import REAL, decimal_parts, element_type, holds_reals, is_nested, struct_fields
from tailrace.model.combiners.basic import Merge, Part
from tailrace.model.combiners.own import FAILED, OwnCall, OwnPart, OwnUse
from tailrace.sql import double_limbs, wide_numbers


class Reading(str):
    """A text in the common SQL. The names of the relations that the text reads can be extracted from the text."""

    @cached_property
    def reads(self) -> frozenset[Relation]:
        """The relations that the text reads, if their names were created by `new_relation`.

        >>> one = new_relation()
        >>> Query(f"SELECT * FROM ({all_of(one)}) JOIN rides").reads == {one}
        True
        """
        return frozenset(map(Relation, _NAMED.findall(self)))


class Query(Reading):
    """A complete query (`SELECT …`) in the common SQL. A query in an engine's own dialect is a plain `str`."""


class Relation(Reading):
    """The text that follows FROM in a query: the name of a table or view, or a query in brackets.

    If no text follows the relation in the query, the relation may also be a join, or may have a WHERE condition at its
    end.
    """


_NAME = "tailrace_r_"


def new_relation() -> Relation:
    """Return a new, unique name for a relation; `Reading.reads` finds such names in a text."""
    return Relation(f"{_NAME}{uuid.uuid4().hex[:12]}")


_NAMED = re.compile(rf"\b{_NAME}[0-9a-f]{{12}}\b")

Condition = NewType("Condition", str)
"""The text of a condition over the columns of one relation, or of several joined relations."""

ALWAYS = Condition("true")
"""The condition that every row meets."""


def bracketed(query: Query) -> Relation:
    """Put a query in brackets, so it can be used as a relation.

    >>> bracketed(Query("SELECT 1 AS n"))
    '(SELECT 1 AS n)'
    """
    return Relation(f"({query})")


def all_of(relation: Relation) -> Query:
    """Return the query for all rows and columns of a relation.

    >>> all_of(Relation("p"))
    'SELECT * FROM p'
    """
    return Query(f"SELECT * FROM {relation}")


def quoted(name: str) -> str:
    """Quote a column or table name as an SQL identifier.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def null(type: str) -> str:
    """Return the SQL expression for a null of a column type.

    >>> null("bigint")
    'CAST(NULL AS bigint)'
    """
    return f"CAST(NULL AS {type})"


INSIDE = "tailrace_inside"
"""The function of a JSON text, a place and a type, which each engine has by `engines.python.json_function`."""

AGGREGATES = {
    Merge.ADD: "SUM({})",
    Merge.LEAST: "MIN({})",
    Merge.GREATEST: "MAX({})",
    Merge.GATHER: "FLATTEN(COLLECT_LIST({}))",
    Merge.COUNT: "FLATTEN(COLLECT_LIST({}))",
    # COLLECT_SET keeps equal lists only once. This does not change the union of the values, and fewer values need to be
    # sorted.
    Merge.UNITE: "ARRAY_DISTINCT(FLATTEN(COLLECT_SET({})))",
    Merge.TOP: "FLATTEN(COLLECT_LIST({}))",
}


def total(part: Part, of: str) -> str:
    """Return the aggregate that merges, over all rows in a group, one part of the accumulators."""
    if part.merge is Merge.HIGHEST:
        return _highest(part, of)
    of = f"CAST({of} AS {part.type})" if part.nested else of
    made = AGGREGATES[part.merge].format(of)
    if part.merge is Merge.COUNT:
        made = sum_counts(made, part.type)
    elif part.merge is Merge.TOP:
        made = f"SLICE({sorted_list(made, part.type, down=True)}, 1, {part.most})"
    elif part.merge is Merge.UNITE:
        made = sorted_set(made, part.type)
    elif part.is_list:
        made = sorted_list(made, part.type)
    return f"CAST({made} AS {part.type})"


def count_total(part: Part, of: str) -> str:
    """Return the aggregate that counts a group's rows in which `of` is not null (`Tally`)."""
    return f"CAST(COUNT({of}) AS {part.type})"


def totals(
    parts: Mapping[str, Part],
    column: Callable[[str], str],
    *,
    lifted: Mapping[str, Term] | None = None,
    narrow: bool = False,
    where: str | None = None,
) -> dict[str, str]:
    """Return the aggregates that merge, over the rows in a group that meet `where`, each part of the accumulators.

    `column` maps a part's name to its SQL expression in a row. If each row is a record, `lifted` has what a record adds
    to each part. With `narrow`, its values may have a narrow type, and then need a sum with a wider type
    (`whole_total`).
    """
    found: dict[str, str] = {}
    for name, part in parts.items():
        if isinstance(part, OwnPart):
            own = [name, f"{name}{FAILED}"] if part.fails else [name]
            terms = own_total(part, [column(one) for one in own], lifted=lifted is not None, where=where)
            found |= zip(own, terms, strict=True)
        elif name not in found:  # The reason for a failure comes with the state.
            of = column(name) if where is None else f"IF({where}, {column(name)}, NULL)"
            if lifted is not None and isinstance(lifted[name], Tally):
                found[name] = count_total(part, of)
            else:
                found[name] = (whole_total if lifted is not None and narrow and part.lifted else total)(part, of)
    return found


def own_total(
    part: OwnPart, columns: Sequence[str], *, lifted: bool = False, where: str | None = None
) -> tuple[str, ...]:
    """Return the aggregates that merge, over the rows of a group that meet `where`, a custom combiner's accumulators.

    If `lifted` is True, each row is a record, and the first column has the record's value. What a combiner makes of
    doubles may depend on their order in the last digits, so doubles are sorted.
    """
    if lifted:
        values = f"COLLECT_LIST({columns[0]})"
        values = sorted_list(values, f"array<{part.reads}>") if part.reads in REAL else values
        return Sql().own(OwnCall(part, OwnUse.ADD), values)
    one = f"NAMED_STRUCT({', '.join(f'{name!r}, {own}' for name, own in zip(ACCUMULATOR, columns, strict=False))})"
    given = one if where is None else f"IF({where}, {one}, NULL)"
    return Sql().own(OwnCall(part, OwnUse.MERGE_ALL), f"COLLECT_LIST({given})")


ACCUMULATOR = ("value", "failed")
"""The fields of a custom combiner's accumulator in a list of accumulators; the second one is left out if it cannot
fail.
"""


def whole_total(part: Part, of: str) -> str:
    """Return the aggregate that sums a group's 64-bit numbers in a wider type, so that no number of rows overflows the
    sum.

    Spark computes sums of 64-bit numbers in 64 bits, so the upper and the lower halves of the numbers are summed
    separately. DuckDB computes sums in 128 bits, so its dialect needs only one sum (`engines.duckdb.database.dialect`).
    """
    upper = f"CAST(SUM(SHIFTRIGHT({of}, 32)) AS {part.type})"
    return f"CAST({upper} * 4294967296 + SUM({of} & 4294967295) AS {part.type})"


def _highest(part: Part, of: str) -> str:
    """Return the aggregate that selects the values with the maximum in the field `by` from all lists in a group."""
    most = f"MAX(TRY_ELEMENT_AT({of}, 1).{quoted(part.by)})"
    found = f"FILTER(FLATTEN(COLLECT_LIST({of})), _x -> _x.{quoted(part.by)} = {most})"
    return f"CAST({sorted_list(found, part.type)} AS {part.type})"


def sum_counts(values: str, type: str) -> str:
    """Return the SQL expression for a sorted list of distinct values with counts (`n`); the counts of equal values are
    summed.

    In a sorted list, equal values are neighbours. `_ends` are the positions of the last value of each run of equal
    values, and the counts of a run are summed. So each element of the list is read only a few times. Values with a
    total count of zero are left out.
    """
    after, own = (f"TRY_ELEMENT_AT(_s, CAST(_i + {place} AS int)).value" for place in (2, 1))
    ends = f"FILTER(TRANSFORM(_s, (_x, _i) -> _i), _i -> NOT ({own} <=> {after}))"
    before = "IF(_j = 0, -1, TRY_ELEMENT_AT(_ends, CAST(GREATEST(_j, 1) AS int)))"
    # The SQL expression does not slice the list, because DuckDB would copy the whole list for each run of equal values.
    equal = f"TRANSFORM(SEQUENCE({before} + 1, _e), _k -> TRY_ELEMENT_AT(_s, CAST(_k + 1 AS int)).n)"
    n = f"AGGREGATE({equal}, 0L, (_t, _x) -> _t + _x)"
    row = f"NAMED_STRUCT('value', TRY_ELEMENT_AT(_s, CAST(_e + 1 AS int)).value, 'n', {n})"
    rows = f"TRANSFORM(ARRAY({ends}), _ends -> TRANSFORM(_ends, (_e, _j) -> {row}))"
    summed = f"TRANSFORM(ARRAY({sorted_list(values, type)}), _s -> TRY_ELEMENT_AT({rows}, 1))"
    return f"FILTER(TRY_ELEMENT_AT({summed}, 1), _x -> _x.n <> 0L)"


def sorted_list(values: str, type: str, *, down: bool = False) -> str:
    """Return the SQL expression that sorts a list of the type `type`.

    A list of nested values is first cast to `type`, because some dialects need to know the fields by which to sort.
    """
    values = f"CAST({values} AS {type})" if is_nested(element_type(type)) else values
    return f"SORT_ARRAY({values}, false)" if down else f"SORT_ARRAY({values})"


def sorted_set(values: str, type: str) -> str:
    """Return the SQL expression that sorts a list of the type `type`, whose values are distinct except for NaN.

    DuckDB's functions for distinct values keep each NaN of a list of doubles, so only the first NaN is taken here. NaN
    is greater than every number.
    """
    if element_type(type) not in REAL:
        return sorted_list(values, type)
    numbers = sorted_list("FILTER(_s, _x -> NOT ISNAN(_x))", type)
    made = f"CONCAT({numbers}, SLICE(FILTER(_s, _x -> ISNAN(_x)), 1, 1))"
    return f"TRY_ELEMENT_AT(TRANSFORM(ARRAY({values}), _s -> {made}), 1)"


class Tally(str):
    """The expression for a number that is 1 or 0, so that its sum over rows is a number of rows.

    `counted` is an expression that is null in exactly the rows in which the number is 0. An engine counts these rows in
    less time than it adds up the numbers, which takes 128 bits in DuckDB and two sums in Spark (`whole_total`).
    """

    counted: str

    @classmethod
    def of(cls, text: str, counted: str) -> Tally:
        made = cls(text)
        made.counted = counted
        return made


class Sql:
    """The model's algebra as SQL texts. In the rows of the queries, no truth value is null.

    >>> Sql().at_least("fresh", Sql().literal(2, "bigint"))
    '(fresh >= 2L)'
    """

    def literal(self, value: bool | int | str | Decimal | None, type: str) -> Term:
        if value is None:
            return "NULL" if type == "null" else null(type)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            if value == 1 and type == "bigint":
                return Tally.of("1L", "true")
            return f"{value}L" if decimal_parts(type) is None else f"CAST({value} AS {type})"
        if isinstance(value, Decimal):
            return f"CAST('{value:f}' AS {type})"
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def add(self, a: Term, b: Term, type: str) -> Term:
        return self._number(f"({self._roomy(a, type)} + {self._roomy(b, type)})", type)

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        return self._number(f"({self._roomy(a, type)} - {self._roomy(b, type)})", type)

    def multiply(self, a: Term, b: Term, type: str) -> Term:
        return self._number(f"({a} * {b})", type)

    def calculated(self, a: Term, by: str, b: Term, type: str) -> Term:
        if type == "double":
            # The addition makes a negative zero positive.
            return f"(({a} {by} {b}) + CAST(0 AS double))"
        return f"{_TRIED[by]}({a}, {b})" if type == "bigint" else f"CAST(({a} {by} {b}) AS {type})"

    def floored(self, a: Term, by: int) -> Term:
        # DIV rounds towards zero, so 1 is subtracted from a quotient that was rounded up. Subtracting the remainder
        # before the division would overflow at the lower end of the range.
        return f"({a} DIV {by}L - IF({a} % {by}L < 0L, 1L, 0L))"

    def converted(self, a: Term, type: str) -> Term:
        return f"CAST({a} AS {type})"

    def size(self, a: Term) -> Term:
        return f"CAST(OCTET_LENGTH({a}) AS bigint)"

    def at_least(self, a: Term, b: Term) -> Term:
        return f"({a} >= {b})"

    def equal(self, a: Term, b: Term) -> Term:
        return f"({a} = {b})"

    def every(self, *terms: Term) -> Term:
        left = [term for term in dict.fromkeys(terms) if term != "true"]
        return "false" if "false" in left else _joined(left, " AND ", "true")

    def some(self, *terms: Term) -> Term:
        left = [term for term in dict.fromkeys(terms) if term != "false"]
        return "true" if "true" in left else _joined(left, " OR ", "false")

    def no(self, term: Term) -> Term:
        return {"true": "false", "false": "true"}.get(term, f"(NOT {term})")

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        if then == otherwise or condition == "true":
            return then
        if condition == "false":
            return otherwise
        text = f"IF({condition}, {then}, {otherwise})"
        if (then, otherwise) == ("1L", "0L"):
            return Tally.of(text, f"IF({condition}, true, NULL)")
        return Tally.of(text, f"IF({condition}, NULL, true)") if (then, otherwise) == ("0L", "1L") else text

    def missing(self, term: Term) -> Term:
        return f"({term} IS NULL)"

    def given(self, term: Term, holds: Callable[[Term], Term]) -> Term:
        # The condition needs no IF, because `false AND null` is false. Without IF, an engine can use file statistics to
        # skip files in which no row meets the condition.
        return self.every(self.no(self.missing(term)), holds(term))

    def least(self, a: Term, b: Term, type: str | None = None) -> Term:
        return f"LEAST({_typed(a, type)}, {_typed(b, type)})"

    def greatest(self, a: Term, b: Term, type: str | None = None) -> Term:
        return f"GREATEST({_typed(a, type)}, {_typed(b, type)})"

    def ratio(self, a: Term, b: Term) -> Term:
        return f"(CAST({a} AS double) / CAST({b} AS double))"

    def root(self, a: Term) -> Term:
        return f"SQRT({a})"

    def periods(self, at: Term, period: int, offset: int) -> Term:
        # The remainder is subtracted before the division. So the result is rounded down even for times before 1970,
        # where DIV alone would round towards zero.
        return f"(({at} - {offset}L - PMOD({at} - {offset}L, {period}L)) DIV {period}L)"

    def micros(self, a: Term) -> Term:
        return f"UNIX_MICROS({a})"

    def wide(self, a: Term) -> Term:
        return f"CAST({a} AS bigint)"

    real, real_of = staticmethod(wide_numbers.real), staticmethod(wide_numbers.real_of)
    remainder, quotient = staticmethod(wide_numbers.remainder), staticmethod(wide_numbers.quotient)
    joined, levelled = staticmethod(wide_numbers.joined), staticmethod(wide_numbers.levelled)

    def unsigned_zeros(self, a: Term, type: str) -> Term:
        return _unsigned(a, type, 0)

    limbs, real_of_limbs = staticmethod(double_limbs.limbs), staticmethod(double_limbs.real_of_limbs)
    square_limbs = staticmethod(double_limbs.square_limbs)
    spread_of_limbs = staticmethod(double_limbs.spread_of_limbs)
    narrow, beyond = staticmethod(wide_numbers.narrow), staticmethod(wide_numbers.beyond)
    centred = staticmethod(wide_numbers.centred)

    def text(self, *terms: Term) -> Term:
        return f"({' || '.join(f'CAST({term} AS string)' for term in terms)})"

    def listed(self, *terms: Term) -> Term:
        return terms[0] if len(terms) == 1 else f"NULLIF(CONCAT_WS('; ', {', '.join(terms)}), '')"

    def stamped(self, at: Term, a: Term) -> Term:
        return f"IF({a} IS NULL, NULL, NAMED_STRUCT('at', {at}, 'value', {a}))"

    def unstamped(self, a: Term) -> Term:
        return f"({a}).value"

    def no_values(self, type: str) -> Term:
        return f"CAST(ARRAY() AS {type})"

    def alone(self, a: Term, type: str) -> Term:
        return f"IF({a} IS NULL, {self.no_values(type)}, ARRAY({a}))"

    def gathered(self, a: Term, b: Term, type: str) -> Term:
        return _both(a, b, sorted_list(f"CONCAT({a}, {b})", type))

    def united(self, a: Term, b: Term, type: str) -> Term:
        return _both(a, b, sorted_set(f"ARRAY_UNION({a}, {b})", type))

    def largest(self, a: Term, b: Term, most: int, type: str) -> Term:
        return f"SLICE({sorted_list(f'CONCAT({a}, {b})', type, down=True)}, 1, {most})"

    def packed(self, fields: Mapping[str, Term]) -> Term:
        return f"NAMED_STRUCT({', '.join(f'{name!r}, {term}' for name, term in fields.items())})"

    def each_field(self, a: Term, name: str) -> Term:
        return f"TRANSFORM({a}, _x -> _x.{quoted(name)})"

    def field(self, a: Term, name: str) -> Term:
        return f"({a}).{quoted(name)}"

    def inside(self, a: Term, place: str, target: str, type: str) -> Term:
        text = f"{INSIDE}({a}, {self.literal(place, 'string')}, {self.literal(target, 'string')})"
        return text if type == "string" else f"CAST({text} AS {type})"

    def has(self, a: Term, value: Term, field: str | None) -> Term:
        values = a if field is None else self.each_field(a, field)
        # ARRAY_CONTAINS is null if the list has nulls but not the value.
        return f"COALESCE(ARRAY_CONTAINS({values}, {value}), false)"

    def highest(self, a: Term, by: str) -> Term:
        # The maximum is computed only once, rather than once per value of the list.
        most = f"ARRAY_MAX(TRANSFORM(_s, _x -> _x.{quoted(by)}))"
        found = f"TRY_ELEMENT_AT(TRANSFORM(ARRAY({most}), _m -> FILTER(_s, _x -> _x.{quoted(by)} = _m)), 1)"
        return f"TRY_ELEMENT_AT(TRANSFORM(ARRAY({a}), _s -> {found}), 1)"

    def once(self, a: Term, type: str) -> Term:
        return f"IF({a} IS NULL, {self.no_values(type)}, ARRAY(NAMED_STRUCT('value', {a}, 'n', 1L)))"

    def counted(self, a: Term, b: Term, type: str) -> Term:
        return _both(a, b, sum_counts(f"CONCAT({a}, {b})", type))

    def opposite(self, a: Term) -> Term:
        return f"TRANSFORM({a}, _x -> NAMED_STRUCT('value', _x.value, 'n', -_x.n))"

    def distinct(self, a: Term) -> Term:
        return f"TRANSFORM(FILTER({a}, _x -> _x.n > 0L), _x -> _x.value)"

    def spread(self, a: Term) -> Term:
        return f"FLATTEN(TRANSFORM(FILTER({a}, _x -> _x.n > 0L), _x -> ARRAY_REPEAT(_x.value, CAST(_x.n AS int))))"

    def end(self, a: Term, *, last: bool) -> Term:
        return f"TRY_ELEMENT_AT({self.distinct(a)}, {-1 if last else 1})"

    def own(self, code: OwnCode, *terms: Term) -> tuple[Term, ...]:
        # An engine computes a call only once, although each field of its result repeats the call.
        call = f"{code.name}({', '.join(terms)})"
        return tuple(f"({call}).{field}" for field in code.fields)

    def length(self, a: Term) -> Term:
        return f"CAST(SIZE({a}) AS bigint)"

    def ranked(self, a: Term, share: float) -> Term:
        return f"TRY_ELEMENT_AT(SORT_ARRAY({a}), {wide_numbers.rank(share, f'SIZE({a})')})"

    def _roomy(self, term: Term, type: str) -> Term:
        """Return an SQL expression that casts one number of a sum to a decimal type, such that Spark does not round the
        sum.

        Without the cast, Spark would round away the last decimal of the sum, to make room for a 39th digit.
        """
        roomy = wide_numbers.roomy_type(type)
        return term if roomy == type else f"CAST({term} AS {roomy})"

    def _number(self, text: str, type: str) -> str:
        return text if decimal_parts(type) is None else f"CAST({text} AS {type})"


_TRIED = {"+": "TRY_ADD", "-": "TRY_SUBTRACT", "*": "TRY_MULTIPLY"}
"""For each operator, the SQL function that returns null if the result does not fit the type."""


def _typed(term: Term, type: str | None) -> Term:
    """Cast a nested value to its own type, because some dialects need to know the fields by which to compare it."""
    return term if type is None else f"CAST({term} AS {type})"


def _unsigned(a: Term, type: str, depth: int) -> Term:
    """Return the SQL expression for `Algebra.unsigned_zeros`; `depth` is the number of lists around the value."""
    if not holds_reals(type):
        return a
    if (element := element_type(type)) is not None:
        one = f"_z{depth}"
        return f"TRANSFORM({a}, {one} -> {_unsigned(one, element, depth + 1)})"
    if (fields := struct_fields(type)) is not None:
        inside = (f"{name!r}, {_unsigned(f'({a}).{quoted(name)}', of, depth)}" for name, of in fields.items())
        return f"IF({a} IS NULL, NULL, NAMED_STRUCT({', '.join(inside)}))"
    # The addition makes a negative zero positive.
    return f"({a} + CAST(0 AS {type}))"


def _both(a: Term, b: Term, merged: Term) -> Term:
    """Return the SQL expression that merges two sorted lists.

    `merged` is the SQL expression for the case that both lists have values.

    Usually one list is empty, and the result is then the other list, unchanged.
    """
    return f"IF(SIZE({a}) = 0, {b}, IF(SIZE({b}) = 0, {a}, {merged}))"


def _joined(terms: list[str], word: str, empty: str) -> str:
    if not terms:
        return empty
    return terms[0] if len(terms) == 1 else "(" + word.join(terms) + ")"
