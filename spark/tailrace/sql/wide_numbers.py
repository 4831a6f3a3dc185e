"""Represent a number that is too long for an SQL column by two numbers: its last digits, and all earlier digits.

If a number has more than 38 digits, the number is written out as text, and the text is cast to the result's type.
Writing a number as text is slow, so numbers are written as text only if necessary. Every engine casts a text to the
closest double. DuckDB's direct conversion of a decimal to a double is inexact if the decimal has more digits than a
double.
"""

from __future__ import annotations

from decimal import Decimal

from tailrace.model.base.types import MAX_PRECISION, WHOLE, decimal_parts, exact, unit_power

_LIMB = 18
"""The number of digits of a limb. Numbers are split into limbs before they are multiplied; 38 digits can hold the sum
of a few products of two limbs.
"""

_DIGITS = 76
"""The maximum number of digits of a number that is written out as text."""


def decimal(value: Decimal | int, type: str) -> str:
    """Return the SQL for a constant of a decimal type.

    >>> decimal(Decimal("1.5"), "decimal(4,2)")
    "CAST('1.5' AS decimal(4,2))"

    The constant is exact, because it is cast from a string.
    """
    return f"CAST('{Decimal(value):f}' AS {type})"


def real(a: str, type: str) -> str:
    """Return the SQL expression for the double that is closest to `a`, a bigint or a decimal of type `type`."""
    parts = decimal_parts(type)
    if parts is None:
        return f"CAST({a} AS double)"
    written = f"CAST(CAST({a} AS string) AS double)"
    if parts[0] - parts[1] == 0 or parts[1] > 22:
        return written
    # Up to this limit, a double exactly represents the number's digits, read as an integer. A double also exactly
    # represents the power of ten by which this integer is divided.
    last = min(Decimal(2**53), Decimal(10) ** parts[0] - 1).scaleb(-parts[1])
    return f"IF({_within(a, last, type)}, CAST({a} AS double), {written})"


def remainder(a: str, unit: int, type: str) -> str:
    """Return the SQL expression for the last `unit` digits of a decimal: the remainder of a division by a power of
    ten.
    """
    of = unit_power(unit, type)
    return f"IF({_within(a, of, type)}, {a}, CAST({a} % {decimal(of, type)} AS {type}))"


def quotient(a: str, unit: int, type: str) -> str:
    """Return the SQL expression for a decimal without its last `unit` digits: the quotient of the decimal and a power
    of ten.

    The quotient must fit a double exactly.
    """
    of = decimal(unit_power(unit, type), type)
    times = f"ROUND(CAST({a} - {a} % {of} AS double) / CAST({of} AS double))"
    few = _within(a, unit_power(unit, type), type)
    return f"IF({few}, {decimal(0, WHOLE)}, CAST({times} AS {WHOLE}))"


def _within(a: str, end: Decimal, type: str) -> str:
    """Return the condition that a decimal lies strictly between `-end` and `end`.

    The condition does not use ABS, because Spark would round the ABS of a decimal with more than 34 digits.
    """
    return f"({a} > {decimal(-end, type)} AND {a} < {decimal(end, type)})"


def roomy_type(type: str) -> str:
    """Return a type for the numbers that a sum adds, such that Spark does not round away the last decimal of the
    sum.
    """
    precision, scale = decimal_parts(type) or (0, 0)
    return f"decimal({precision - 1},{scale})" if precision == MAX_PRECISION and 0 < scale < precision else type


def joined(high: str, low: str, unit: int, type: str) -> str:
    """Return the SQL expression that combines the sums `high` and `low` into one number of the type `type`.

    `high` is the sum of the upper digits of some numbers, and `low` is the sum of their last `unit` digits.

    The expression is null if the combined number does not fit `type`.
    """
    _, scale = decimal_parts(type) or (0, 0)
    end = decimal(10 ** (MAX_PRECISION - unit), WHOLE)
    number = f"IF(ABS(_above) < {end}, CAST({_digits(unit, scale)} AS {type}), CAST(NULL AS {type}))"
    return f"IF({high} = {decimal(0, WHOLE)}, {low}, {_levelled(high, low, unit, type, number)})"


def levelled(high: str, low: str, unit: int, type: str) -> tuple[str, str]:
    """Return two SQL expressions: the upper and the lower part, in canonical form, of the number that `joined`
    computes.

    The arguments `high` and `low` are sums and need not be in this form.

    If the lower part can hold the whole number, the upper part is zero, and the lower part is the number. Otherwise,
    the two parts are the number's upper and lower digits.
    """
    none, number = decimal(0, WHOLE), joined(high, low, unit, type)
    above, below = (_levelled(high, low, unit, type, name) for name in ("_above", "_below"))
    apart = f"{high} <> {none} AND {number} IS NULL"
    return f"IF({apart}, {above}, {none})", f"IF({apart}, {below}, {number})"


def real_of(high: str, low: str, unit: int, type: str) -> str:
    """Return the SQL expression that combines two sums into one number, as the double closest to this number.

    `high` is the sum of the upper digits of some numbers, and `low` is the sum of their last `unit` digits.
    """
    _, scale = decimal_parts(type) or (0, 0)
    number = _levelled(high, low, unit, type, f"CAST({_digits(unit, scale)} AS double)")
    return f"IF({high} = {decimal(0, WHOLE)}, {real(low, type)}, {number})"


def _levelled(high: str, low: str, unit: int, type: str, text: str) -> str:
    """Return an SQL expression that computes `text`, in which `_above` and `_below` stand for the two parts of a
    number.

    The parts have the same sign, and `_below` is less than one unit.
    """
    roomy = roomy_type(type)
    of, none = decimal(unit_power(unit, type), roomy), decimal(0, WHOLE)
    apart = f"CASE WHEN _upper > {none} AND _lower < 0 THEN 1 WHEN _upper < {none} AND _lower > 0 THEN -1 ELSE 0 END"
    above = f"CAST(_upper - _over AS {WHOLE})"
    lower = f"CAST(_lower AS {roomy})"
    below = f"CAST(IF(_over = 0, {lower}, IF(_over = 1, {lower} + {of}, {lower} - {of})) AS {type})"
    upper = f"CAST({high} + {quotient(low, unit, type)} AS {WHOLE})"
    inner = let("_above", above, let("_below", below, text))
    return let("_upper", upper, let("_lower", remainder(low, unit, type), let("_over", apart, inner)))


def _digits(unit: int, scale: int) -> str:
    """Return the SQL expression that writes, as text, the number with the parts `_above` and `_below`.

    Both parts must have the same sign.
    """
    last = f"RIGHT(LPAD(REPLACE(CAST(ABS(_below) AS string), '.', ''), {_DIGITS}, '0'), {unit})"
    number = f"LPAD(CONCAT(CAST(ABS(_above) AS string), {last}), {_DIGITS}, '0')"
    if scale:
        cut = _DIGITS - scale
        number = f"CONCAT(SUBSTRING({number}, 1, {cut}), '.', SUBSTRING({number}, {cut + 1}, {scale}))"
    return f"CONCAT(IF(_above < 0 OR _below < 0, '-', ''), {number})"


def narrow(a: str) -> str:
    """Return the SQL expression that converts a whole number to a bigint, or to null if the number does not fit a
    bigint.

    The number has up to 38 digits.
    """
    return f"TRY_CAST({a} AS bigint)"


def beyond(a: str) -> str:
    """Return the SQL expression for a whole number if the number is outside the range of a bigint, and otherwise for
    null.

    The number has up to 38 digits.

    If the number fits a bigint, the expression of `narrow` has the number, and this expression is null. It is faster to
    compare the number with the bounds of a bigint than to try the conversion.
    """
    low, high = (decimal(end, WHOLE) for end in (-(2**63), 2**63 - 1))
    return f"IF({a} BETWEEN {low} AND {high}, CAST(NULL AS {WHOLE}), {a})"


def centred(n: str, total: str, squares: str, high: str, unit: int) -> str:
    """Return the SQL expression for the double closest to `n * s - total * total`, in which `s` is the sum of squares.

    The sum of squares is given in two parts: `squares` for the last `unit` digits, and `high` for the upper digits.
    """
    n, unit_ = f"CAST({n} AS {WHOLE})", decimal(10**unit, WHOLE)
    about = f"CAST({n} AS double) * (CAST({squares} AS double) + CAST({high} AS double) * CAST({unit_} AS double))"
    whole = f"CAST({squares} + CAST({high} * {unit_} AS {WHOLE}) AS {WHOLE})"
    exact = f"CAST(CAST({n} * {whole} AS {WHOLE}) - CAST({total} * {total} AS {WHOLE}) AS {WHOLE})"
    # The square of the total is at most n times the sum of squares. The larger product is therefore estimated as a
    # double. The estimate shows whether both products fit 38 digits.
    small = f"{about} < CAST('1e37' AS double)"
    return f"IF({small}, {real(exact, WHOLE)}, {_written_out(n, total, squares, high, unit)})"


def rank(share: float, count: str) -> str:
    """Return the SQL expression for the smallest rank such that at least `share` of all values are at or before the
    rank.

    Ranks are counted from 1. `share` is a fraction, such as 0.5 for the median, and `count` is the SQL expression for
    the number of values. The rank is 1 if there are no values.
    """
    scale = max(0, -int(exact(share).as_tuple().exponent))
    if scale > 27:
        # A share with more than 27 decimals is so small that this share of the longest possible list is less than one
        # value.
        return "1"
    part = decimal(exact(share), f"decimal({max(scale, 1)},{scale})")
    return f"GREATEST(1, CAST(CEIL({part} * CAST({count} AS decimal(10,0))) AS int))"


def _written_out(n: str, total: str, squares: str, high: str, unit: int) -> str:
    """Return the SQL expression that computes `centred` by long multiplication of limbs (groups of 18 digits).

    The expression computes the lowest limb first.
    """
    of = f"ABS({total})"
    highs = f"CAST({high} * {decimal(10 ** (unit - _LIMB), WHOLE)} + {_over(squares)} AS {WHOLE})"
    lowest = f"CAST({n} * {_rest(squares)} - {_rest(of)} * {_rest(of)} AS {WHOLE})"
    middle = f"CAST({n} * {_rest('_highs')} - 2 * {_over(of)} * {_rest(of)} + {_over('_lowest')} AS {WHOLE})"
    highest = f"CAST({n} * {_over('_highs')} - {_over(of)} * {_over(of)} + {_over('_middle')} AS {WHOLE})"
    lasts = (f"LPAD(CAST({_rest(limb)} AS string), {_LIMB}, '0')" for limb in ("_middle", "_lowest"))
    text = f"CAST(CONCAT(CAST({highest} AS string), {', '.join(lasts)}) AS double)"
    return let("_highs", highs, let("_lowest", lowest, let("_middle", middle, text)))


def _rest(a: str) -> str:
    """Return the SQL expression for the lowest limb of an integer: the remainder of the integer's division by 10**18.

    The limb is never negative, even if the integer is negative.
    """
    limb = decimal(10**_LIMB, "decimal(19,0)")
    return f"CAST(({a} % {limb} + {limb}) % {limb} AS {WHOLE})"


def _over(a: str) -> str:
    """Return the SQL expression for an integer without its lowest limb: the integer divided by 10**18 and rounded
    down.
    """
    return f"CAST(({a} - {_rest(a)}) * {decimal(Decimal(1).scaleb(-_LIMB), f'decimal({_LIMB},{_LIMB})')} AS {WHOLE})"


def let(name: str, value: str, text: str) -> str:
    """Return an SQL expression that computes `text`, in which `name` stands for `value`.

    An engine computes `value` only once.

    The name must not be the name of a column.
    """
    return f"TRY_ELEMENT_AT(TRANSFORM(ARRAY({value}), {name} -> {text}), 1)"
