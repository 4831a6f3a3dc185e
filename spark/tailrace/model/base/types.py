"""The column types that a definition may use, identified by their Spark SQL names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache

from tailrace.model.base.errors import Fault

INTEGERS = ("int", "bigint")
SIMPLE = ("string", "boolean", *INTEGERS, "double", "date", "timestamp")
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


def is_type(name: object) -> bool:
    """Return True if `name` is the name of a column type: a name in `SIMPLE`, or `decimal(precision,scale)`.

    >>> is_type("decimal(10,2)"), is_type("decimal(40,2)"), is_type("number")
    (True, False, False)
    """
    if not isinstance(name, str):
        return False
    parts = decimal_parts(name)
    return name in SIMPLE or (parts is not None and 1 <= parts[0] <= MAX_PRECISION and parts[1] <= parts[0])


def type_faults(path: str, type: object) -> Iterator[Fault]:
    """Yield a fault if a value is not the name of a column type."""
    if not is_type(type):
        remedy = "use string, boolean, int, bigint, double, decimal(p,s), date or timestamp"
        yield Fault(path, type, "a column type", remedy)


@lru_cache(maxsize=256)
def element_type(name: str) -> str | None:
    """Return the element type of a list type, or None for any other type.

    >>> element_type("array<struct<n:bigint>>"), element_type("struct<n:bigint>")
    ('struct<n:bigint>', None)
    """
    return name[len("array<") : -1] if name.startswith("array<") and name.endswith(">") else None


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


def struct_type(fields: Mapping[str, str]) -> str:
    """Return the struct type that has these fields.

    >>> struct_type({"at": "timestamp", "price": "decimal(8,2)"})
    'struct<at:timestamp,price:decimal(8,2)>'
    """
    return f"struct<{','.join(f'{name}:{type}' for name, type in fields.items())}>"


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
