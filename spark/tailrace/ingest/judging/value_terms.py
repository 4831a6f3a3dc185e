"""Write the SQL of the value that a text has as a declared type, and of what is said of one that has none."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.model.base.types import decimal_parts
from tailrace.sql.terms import Sql


def of_text(type: str, text: str) -> str:
    """Write the SQL of the value that a text has as a type, null where it has none."""
    parts = decimal_parts(type)
    if parts:
        # A cast would round what has too many decimals.
        exact = rf"^\s*[-+]?(?=\.?[0-9])[0-9]*(\.[0-9]{{0,{parts[1]}}}0*)?\s*$"
        return f"IF({text} RLIKE {literal(exact)}, TRY_CAST({text} AS {type}), NULL)"
    if type in ("timestamp", "date"):
        # A cast would also take a time of the day, as of today, a year alone, and for a date the date of an instant.
        whole = f"SUBSTRING({text}, 5, 1) = '-' AND OCTET_LENGTH({text}) {'= 10' if type == 'date' else '>= 8'}"
        return f"IF({whole}, TRY_CAST({text} AS {type}), NULL)"
    if type == "boolean":
        return f"CASE LOWER({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if type == "double":
        number = f"TRY_CAST({text} AS double)"
        return f"IF({text} RLIKE '[0-9.]\\\\s*$' AND NOT {lost(number, text)}, {finite(number)}, NULL)"
    return text if type == "string" else f"TRY_CAST({text} AS {type})"


def finite(number: str) -> str:
    """Write the SQL of a double, null for a number too large to be one, and for NaN."""
    return f"IF(ABS({number}) < CAST('Infinity' AS double), {number}, NULL)"


def lost(number: str, text: str, before: str = "^", behind: str = "$") -> str:
    """Write the SQL that tells whether a double is not the number that was written, though the nearest to it.

    That is a whole number beyond 2^53, where not every one has a double, and one so small that only zero is near: no
    number of fewer than 16 digits is the first, and none without an exponent of three digits, or 200 zeros, the second.
    `before` and `behind` are patterns of what is around the number in the text, which is looked at in these cases
    alone.
    """
    whole = rf"{before}\s*[-+]?(?!0*{WHOLE}\s*{behind})0*[1-9][0-9]{{15,}}\s*{behind}"
    tiny = f"CONTAINS({text}, 'e-') OR CONTAINS({text}, 'E-') OR OCTET_LENGTH({text}) > 300"
    small = rf"{before}\s*[-+]?([0-9.]*[1-9][0-9.]*[eE]-0*[1-9][0-9]{{2}}|0*\.0{{200}}[0-9]*[1-9])"
    return (
        f"CASE WHEN ABS({number}) >= {WHOLE}D THEN {text} RLIKE {literal(whole)} "
        f"WHEN {number} = 0D AND ({tiny}) THEN {text} RLIKE {literal(small)} ELSE false END"
    )


WHOLE = 2**53
"""The largest of the whole numbers that all have a double."""


def is_no(name: str, type: str, excerpt: str) -> str:
    """Write the SQL of what is said of a column whose value is not of its type."""
    return f"CONCAT({literal(f'{name} = ')}, LEFT({excerpt}, 100), {literal(f' is not a {type}')})"


def joined(says: Sequence[str]) -> str:
    """Write the SQL that puts together what is said of several columns, null where nothing is."""
    return f"NULLIF(CONCAT_WS('; ', {', '.join(says)}), '')"


def literal(value: str) -> str:
    """Write a text as a literal of SQL."""
    return str(Sql().literal(value, "string"))
