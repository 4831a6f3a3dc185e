"""Write numbers of more digits than a column of SQL has as two numbers: the last digits, and the others.

A number of more than 38 digits is written out as text, and the text is cast to the result's type. That is slow, so it
is done only for such numbers. A text becomes the closest double in every engine, whereas DuckDB's own conversion of
decimals with more digits than a double is inexact.
"""

from __future__ import annotations

from decimal import Decimal

from tailrace.model.base.types import MAX_PRECISION, WHOLE, decimal_parts, exact, unit_power

_LIMB = 18
"""The digits of a limb, a part of a number that is multiplied: 38 digits hold a sum of a few products of two limbs."""

_DIGITS = 76
"""The maximum number of digits of a number that is written out."""


def decimal(value: Decimal | int, type: str) -> str:
    """Return the SQL for a constant of a decimal type.

    >>> decimal(Decimal("1.5"), "decimal(4,2)")
    "CAST('1.5' AS decimal(4,2))"

    The text is exact, because the constant is cast from a string.
    """
    return f"CAST('{Decimal(value):f}' AS {type})"


def real(a: str, type: str) -> str:
    """Write the closest double to a bigint or a decimal of `type`."""
    parts = decimal_parts(type)
    if parts is None:
        return f"CAST({a} AS double)"
    written = f"CAST(CAST({a} AS string) AS double)"
    if parts[0] - parts[1] == 0 or parts[1] > 22:
        return written
    # Up to this number, a double holds both the number and the power of ten by which it is divided.
    last = min(Decimal(2**53), Decimal(10) ** parts[0] - 1).scaleb(-parts[1])
    return f"IF({_within(a, last, type)}, CAST({a} AS double), {written})"


def remainder(a: str, unit: int, type: str) -> str:
    """Write the remainder of a decimal by a power of ten: its last digits."""
    of = unit_power(unit, type)
    return f"IF({_within(a, of, type)}, {a}, CAST({a} % {decimal(of, type)} AS {type}))"


def quotient(a: str, unit: int, type: str) -> str:
    """Write the quotient of a decimal and a power of ten, which is so small that a double holds it."""
    of = decimal(unit_power(unit, type), type)
    times = f"ROUND(CAST({a} - {a} % {of} AS double) / CAST({of} AS double))"
    few = _within(a, unit_power(unit, type), type)
    return f"IF({few}, {decimal(0, WHOLE)}, CAST({times} AS {WHOLE}))"


def _within(a: str, end: Decimal, type: str) -> str:
    """Write the condition that a decimal is within `end` of zero. Spark would round ABS of more than 34 digits."""
    return f"({a} > {decimal(-end, type)} AND {a} < {decimal(end, type)})"


def roomy_type(type: str) -> str:
    """Return a type for the terms of a sum with which Spark does not round the last decimal of the sum away."""
    precision, scale = decimal_parts(type) or (0, 0)
    return f"decimal({precision - 1},{scale})" if precision == MAX_PRECISION and 0 < scale < precision else type


def joined(high: str, low: str, unit: int, type: str) -> str:
    """Write the number, of a type, whose digits are two sums; null where the type cannot hold it."""
    _, scale = decimal_parts(type) or (0, 0)
    end = decimal(10 ** (MAX_PRECISION - unit), WHOLE)
    number = f"IF(ABS(_above) < {end}, CAST({_digits(unit, scale)} AS {type}), CAST(NULL AS {type}))"
    return f"IF({high} = {decimal(0, WHOLE)}, {low}, {_levelled(high, low, unit, type, number)})"


def levelled(high: str, low: str, unit: int, type: str) -> tuple[str, str]:
    """Write the canonical form of two sums of digits: zero and the number, or its upper and its lower digits."""
    none, number = decimal(0, WHOLE), joined(high, low, unit, type)
    above, below = (_levelled(high, low, unit, type, name) for name in ("_above", "_below"))
    apart = f"{high} <> {none} AND {number} IS NULL"
    return f"IF({apart}, {above}, {none})", f"IF({apart}, {below}, {number})"


def real_of(high: str, low: str, unit: int, type: str) -> str:
    """Write the closest double to the number whose digits are two sums."""
    _, scale = decimal_parts(type) or (0, 0)
    number = _levelled(high, low, unit, type, f"CAST({_digits(unit, scale)} AS double)")
    return f"IF({high} = {decimal(0, WHOLE)}, {real(low, type)}, {number})"


def _levelled(high: str, low: str, unit: int, type: str, text: str) -> str:
    """Write a text in which `_above` and `_below` are a number's parts, of one sign and with `_below` less than a
    unit."""
    roomy = roomy_type(type)
    of, none = decimal(unit_power(unit, type), roomy), decimal(0, WHOLE)
    apart = f"CASE WHEN _upper > {none} AND _lower < 0 THEN 1 WHEN _upper < {none} AND _lower > 0 THEN -1 ELSE 0 END"
    above = f"CAST(_upper - _over AS {WHOLE})"
    lower = f"CAST(_lower AS {roomy})"
    below = f"CAST(IF(_over = 0, {lower}, IF(_over = 1, {lower} + {of}, {lower} - {of})) AS {type})"
    upper = f"CAST({high} + {quotient(low, unit, type)} AS {WHOLE})"
    inner = _let("_above", above, _let("_below", below, text))
    return _let("_upper", upper, _let("_lower", remainder(low, unit, type), _let("_over", apart, inner)))


def _digits(unit: int, scale: int) -> str:
    """Write the text of the number with the parts `_above` and `_below`, which have the same sign."""
    last = f"RIGHT(LPAD(REPLACE(CAST(ABS(_below) AS string), '.', ''), {_DIGITS}, '0'), {unit})"
    number = f"LPAD(CONCAT(CAST(ABS(_above) AS string), {last}), {_DIGITS}, '0')"
    if scale:
        cut = _DIGITS - scale
        number = f"CONCAT(SUBSTRING({number}, 1, {cut}), '.', SUBSTRING({number}, {cut + 1}, {scale}))"
    return f"CONCAT(IF(_above < 0 OR _below < 0, '-', ''), {number})"


def narrow(a: str) -> str:
    """Write a whole number of 38 digits as a bigint; null where it does not fit."""
    return f"TRY_CAST({a} AS bigint)"


def beyond(a: str) -> str:
    """Write a whole number of 38 digits that is too large for a bigint; null for others.

    This is faster than a conversion.
    """
    low, high = (decimal(end, WHOLE) for end in (-(2**63), 2**63 - 1))
    return f"IF({a} BETWEEN {low} AND {high}, CAST(NULL AS {WHOLE}), {a})"


def centred(n: str, total: str, squares: str, high: str, unit: int) -> str:
    """Write the closest double to n times the sum of squares, given in two parts, minus the square of the total."""
    n, unit_ = f"CAST({n} AS {WHOLE})", decimal(10**unit, WHOLE)
    about = f"CAST({n} AS double) * (CAST({squares} AS double) + CAST({high} AS double) * CAST({unit_} AS double))"
    whole = f"CAST({squares} + CAST({high} * {unit_} AS {WHOLE}) AS {WHOLE})"
    exact = f"CAST(CAST({n} * {whole} AS {WHOLE}) - CAST({total} * {total} AS {WHOLE}) AS {WHOLE})"
    # The square of the total is not greater than the other product, whose size a double gives.
    small = f"{about} < CAST('1e37' AS double)"
    return f"IF({small}, {real(exact, WHOLE)}, {_written_out(n, total, squares, high, unit)})"


def rank(share: float, count: str) -> str:
    """Write the rank, from 1, of the value that a share of all values does not exceed; 1 for no values."""
    scale = max(0, -int(exact(share).as_tuple().exponent))
    if scale > 27:
        # This share of the longest list is less than one value.
        return "1"
    part = decimal(exact(share), f"decimal({max(scale, 1)},{scale})")
    return f"GREATEST(1, CAST(CEIL({part} * CAST({count} AS decimal(10,0))) AS int))"


def _written_out(n: str, total: str, squares: str, high: str, unit: int) -> str:
    """Write `centred` by long multiplication: the products of the lowest, of the mixed and of the highest limbs."""
    of = f"ABS({total})"
    highs = f"CAST({high} * {decimal(10 ** (unit - _LIMB), WHOLE)} + {_over(squares)} AS {WHOLE})"
    lowest = f"CAST({n} * {_rest(squares)} - {_rest(of)} * {_rest(of)} AS {WHOLE})"
    middle = f"CAST({n} * {_rest('_highs')} - 2 * {_over(of)} * {_rest(of)} + {_over('_lowest')} AS {WHOLE})"
    highest = f"CAST({n} * {_over('_highs')} - {_over(of)} * {_over(of)} + {_over('_middle')} AS {WHOLE})"
    lasts = (f"LPAD(CAST({_rest(limb)} AS string), {_LIMB}, '0')" for limb in ("_middle", "_lowest"))
    text = f"CAST(CONCAT(CAST({highest} AS string), {', '.join(lasts)}) AS double)"
    return _let("_highs", highs, _let("_lowest", lowest, _let("_middle", middle, text)))


def _rest(a: str) -> str:
    """Write the lowest limb of a whole number; it is not negative, even if the number is."""
    limb = decimal(10**_LIMB, "decimal(19,0)")
    return f"CAST(({a} % {limb} + {limb}) % {limb} AS {WHOLE})"


def _over(a: str) -> str:
    """Write the limbs of a whole number above the lowest one, as one number."""
    return f"CAST(({a} - {_rest(a)}) * {decimal(Decimal(1).scaleb(-_LIMB), f'decimal({_LIMB},{_LIMB})')} AS {WHOLE})"


def _let(name: str, value: str, text: str) -> str:
    """Write a text in which a name stands for a value, which is computed once. The name must not be a column's."""
    return f"TRY_ELEMENT_AT(TRANSFORM(ARRAY({value}), {name} -> {text}), 1)"
