"""The column types that a definition may use, identified by their Spark SQL names.

A declared type is written by a user: a plain type, or a list (`array<T>`), a map (`map<string,T>`) or a struct
(`struct<a:T,...>`) of other types, to any depth. A stored type is the type that tables and engines have for a declared
type: a time of day and a JSON text are strings, and a map is the list of its entries, sorted by key. So equal maps are
equal rows, and every engine can compare and sort all stored values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache

from tailrace.model.base.errors import Fault

INTEGERS = ("int", "bigint")
PLAIN = ("string", "boolean", *INTEGERS, "double", "date", "timestamp")
"""The names of the plain types, except decimals: every part of a definition can have values of these types."""

TEXTS = ("time", "json")
"""The names of the types whose values tables store as strings."""

SIMPLE = (*PLAIN, "float", "binary", *TEXTS)
"""The names of the types that are not nested, except decimals."""

_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")

MAX_PRECISION = 38

WHOLE = f"decimal({MAX_PRECISION},0)"
"""The type of a total of 64-bit whole numbers; it is large enough for any realistic number of values."""

ROOM = 10
"""How many more digits the type of a total has than the type of the values that are added up.

With ten more digits, the total of ten billion values fits.
"""


@lru_cache(maxsize=256)
def decimal_parts(name: str) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal type, or None for any other type.

    >>> decimal_parts("decimal(10,2)"), decimal_parts("bigint")
    ((10, 2), None)
    """
    match = _DECIMAL.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def is_plain(name: object) -> bool:
    """Return True if `name` is the name of a plain type: a name in `PLAIN`, or `decimal(precision,scale)`.

    >>> is_plain("decimal(10,2)"), is_plain("decimal(40,2)"), is_plain("array<int>")
    (True, False, False)
    """
    if not isinstance(name, str):
        return False
    parts = decimal_parts(name)
    return name in PLAIN or (parts is not None and 1 <= parts[0] <= MAX_PRECISION and parts[1] <= parts[0])


def is_single(name: object) -> bool:
    """Return True if `name` is the name of a plain type or of `float`: a type whose values are numbers, texts or
    instants, which have an order.

    >>> is_single("float"), is_single("binary")
    (True, False)
    """
    return name == "float" or is_plain(name)


def is_nested(name: str | None) -> bool:
    """Return True if `name` is the name of a list type or a struct type, as tables store them (`stored_type`).

    >>> is_nested("struct<n:bigint>"), is_nested("array<int>"), is_nested("binary"), is_nested(None)
    (True, True, False, False)
    """
    return name is not None and name.startswith(("array<", "struct<"))


def is_type(name: object) -> bool:
    """Return True if `name` is the name of a type that the columns of a log may have, nested or not.

    >>> is_type("array<struct<sku:string,price:double>>"), is_type("map<string,int>"), is_type("map<int,int>")
    (True, True, False)
    """
    if not isinstance(name, str) or is_plain(name) or name in SIMPLE:
        return isinstance(name, str)
    if (inner := element_type(name) or map_value(name)) is not None:
        return is_type(inner)
    fields = struct_fields(name)
    return bool(fields) and all(_FIELD.fullmatch(field) and is_type(type) for field, type in (fields or {}).items())


def stored_faults(path: str, type: object) -> Iterator[Fault]:
    """Yield a fault if a value is not the name of a type as tables store it (`stored_type`)."""
    if not is_type(type) or stored_type(str(type)) != str(type).replace(" ", ""):
        plain = "string, boolean, int, bigint, float, double, decimal(p,s), date, timestamp or binary"
        expected = f"use {plain}, or array<T>, struct<a:T,b:T> of these; a map is array<struct<key:string,value:T>>"
        yield Fault(path, type, "a column type", expected)


def type_faults(path: str, type: object) -> Iterator[Fault]:
    """Yield a fault if a value is not the name of a type that the columns of a log may have."""
    if not is_type(type):
        plain = "string, boolean, int, bigint, float, double, decimal(p,s), date, time, timestamp, binary or json"
        yield Fault(path, type, "a column type", f"use {plain}; or array<T>, map<string,T>, struct<a:T,b:T> of these")


def stored_type(name: str) -> str:
    """Return the type with which tables and engines store values of a declared type.

    >>> stored_type("struct<opens:time,tags:map<string,int>>")
    'struct<opens:string,tags:array<struct<key:string,value:int>>>'
    >>> stored_type("array< decimal(10, 2) >"), stored_type("json")
    ('array<decimal(10,2)>', 'string')
    """
    name = name.replace(" ", "")
    if (value := map_value(name)) is not None:
        return f"array<struct<key:string,value:{stored_type(value)}>>"
    if (element := element_type(name)) is not None:
        return f"array<{stored_type(element)}>"
    if (fields := struct_fields(name)) is not None:
        return struct_type({field: stored_type(type) for field, type in fields.items()})
    return "string" if name in TEXTS else name


_FIELD = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""The pattern of the names of fields; it is the same as the pattern of the names of columns."""


@lru_cache(maxsize=256)
def map_value(name: str) -> str | None:
    """Return the type of a map's values, or None for any other type; the keys of a map are strings.

    >>> map_value("map<string,array<int>>"), map_value("array<int>")
    ('array<int>', None)
    """
    return name[len("map<string,") : -1] if name.startswith("map<string,") and name.endswith(">") else None


@lru_cache(maxsize=256)
def element_type(name: str) -> str | None:
    """Return the element type of a list type, or None for any other type.

    >>> element_type("array<struct<n:bigint>>"), element_type("struct<n:bigint>")
    ('struct<n:bigint>', None)
    """
    return name[len("array<") : -1] if name.startswith("array<") and name.endswith(">") else None


def innermost_type(name: str) -> str:
    """Return the type of the innermost elements of a list or a map; any other type is returned unchanged.

    >>> innermost_type("array<map<string,int>>"), innermost_type("int")
    ('int', 'int')
    """
    while (inner := element_type(name) or map_value(name)) is not None:
        name = inner
    return name


def struct_fields(name: str) -> dict[str, str] | None:
    """Return the fields of a struct type with their types, or None for any other type.

    >>> struct_fields("struct<at:timestamp,price:decimal(8,2)>")
    {'at': 'timestamp', 'price': 'decimal(8,2)'}
    """
    if not name.startswith("struct<"):
        return None
    fields, depth = [""], 0
    for letter in name.removeprefix("struct<").removesuffix(">"):
        depth += letter in "<("
        depth -= letter in ">)"
        # Only a comma that is outside all brackets separates two fields of the struct.
        if letter == "," and depth == 0:
            fields.append("")
        else:
            fields[-1] += letter
    return {field: type for field, _, type in (one.partition(":") for one in fields)}


def widens(narrow: str, wide: str) -> bool:
    """Return True if a stored type is another one or is wider, so that tables keep their values when it is widened.

    These are the promotions of Iceberg: an int becomes a bigint, a float a double, a decimal gets more digits before
    the point. In lists and structs, the elements and fields may be wider.

    >>> widens("int", "bigint"), widens("bigint", "int"), widens("int", "double"), widens("date", "date")
    (True, False, False, True)
    >>> widens("array<struct<n:int,price:decimal(8,2)>>", "array<struct<n:bigint,price:decimal(10,2)>>")
    True
    >>> widens("decimal(8,2)", "decimal(10,4)"), widens("struct<n:int>", "struct<n:int,m:int>")
    (False, False)
    """
    if narrow == wide or (narrow, wide) in (("int", "bigint"), ("float", "double")):
        return True
    if (before := decimal_parts(narrow)) and (after := decimal_parts(wide)):
        return before[1] == after[1] and before[0] < after[0]
    if (element := element_type(narrow)) is not None:
        return (other := element_type(wide)) is not None and widens(element, other)
    fields, others = struct_fields(narrow), struct_fields(wide)
    if fields is None or others is None or [*fields] != [*others]:
        return False
    return all(widens(type, others[name]) for name, type in fields.items())


def column_of(path: str) -> str:
    """Return the column of a path such as `item.sku`, which leads to a field of a struct.

    >>> column_of("item.sku"), column_of("item")
    ('item', 'item')
    """
    return path.partition(".")[0]


def type_at(types: Mapping[str, str], path: str) -> str | None:
    """Return the type of a column, or of a field in a column, whose path has dots; None if there is no such column.

    >>> type_at({"item": "struct<sku:string,unit:struct<price:double>>"}, "item.unit.price")
    'double'
    """
    column, *fields = path.split(".")
    found = types.get(column)
    for name in fields:
        found = (struct_fields(found or "") or {}).get(name)
    return found


def struct_type(fields: Mapping[str, str]) -> str:
    """Return the struct type that has these fields.

    >>> struct_type({"at": "timestamp", "price": "decimal(8,2)"})
    'struct<at:timestamp,price:decimal(8,2)>'
    """
    return f"struct<{','.join(f'{name}:{type}' for name, type in fields.items())}>"


REAL = ("double", "float")
"""The names of the types that have two zeros, NaN and infinities."""


@lru_cache(maxsize=256)
def holds_reals(name: str | None) -> bool:
    """Return True if values of this type are doubles or floats, or may contain some at any depth.

    >>> holds_reals("array<struct<sku:string,price:double>>"), holds_reals("struct<double:int>"), holds_reals(None)
    (True, False, False)
    """
    if name is None:
        return False
    if (inner := element_type(name) or map_value(name)) is not None:
        return holds_reals(inner)
    return name in REAL or any(map(holds_reals, (struct_fields(name) or {}).values()))


def is_exact_number(name: str) -> bool:
    """Return True if `name` is an integer or decimal type.

    The total of values of such a type does not depend on the order of addition.
    """
    return name in INTEGERS or decimal_parts(name) is not None


def sum_type(name: str) -> str:
    """Return the type for the total of values of type `name`: a bigint, or a decimal with ten more digits (at most 38).

    >>> sum_type("int"), sum_type("decimal(10,2)"), sum_type("decimal(36,2)")
    ('bigint', 'decimal(20,2)', 'decimal(38,2)')
    """
    parts = decimal_parts(name)
    if parts is None:
        return "bigint"
    return f"decimal({min(MAX_PRECISION, parts[0] + ROOM)},{parts[1]})"


def may_outgrow(name: str) -> bool:
    """Return True if the total of only a few values of type `name` may already be too large for `sum_type(name)`.

    >>> may_outgrow("bigint"), may_outgrow("int"), may_outgrow("decimal(27,2)"), may_outgrow("decimal(28,2)")
    (True, False, False, True)
    """
    parts = decimal_parts(name)
    return name == "bigint" if parts is None else parts[0] + ROOM >= MAX_PRECISION


def unit_power(unit: int, type: str) -> Decimal:
    """Return ten to the power `unit`, multiplied by the smallest positive number of the decimal type `type`.

    >>> unit_power(3, "decimal(10,2)"), unit_power(1, "decimal(10,2)")
    (Decimal('1E+1'), Decimal('0.1'))
    """
    return Decimal(1).scaleb(unit - (decimal_parts(type) or (0, 0))[1])


def exact(share: float) -> Decimal:
    """Convert a share from a double to the decimal number that the definition's source text shows.

    >>> exact(0.28) * 25, 0.28 * 25
    (Decimal('7.00'), 7.000000000000001)
    """
    return Decimal(repr(share))
