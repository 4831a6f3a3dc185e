"""Write the exact sum of doubles in SQL: split each double into whole numbers, and round their sums to a double.

The whole numbers are called limbs (`Algebra.limbs`). Doubles are only multiplied by powers of two, and a double is only
reduced by the closest whole number. Both operations are exact, so all engines compute the same limbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.model.base.algebra import LIMB, LIMBS_END, SPLIT, SQUARE_UNITS, SQUARES_END
from tailrace.model.base.types import WHOLE
from tailrace.sql.wide_numbers import decimal, let

_BITS = 62
"""The number of bits of a limb."""


def _double(value: float) -> str:
    """Return the SQL for a constant double. The text of a double in Python identifies the double."""
    return f"CAST('{value!r}' AS double)"


_LIMB, _SHARE = _double(LIMB), _double(1 / LIMB)
_SQUARES_END = f"{int(SQUARES_END)}D"
_INFINITY, _MINUS_INFINITY, _NAN = (f"CAST('{name}' AS double)" for name in ("Infinity", "-Infinity", "NaN"))


def limbs(a: str) -> tuple[str, ...]:
    """Return the SQL expressions for the limbs of a double and for the three marks of an unusual double.

    `Algebra.limbs` describes the seven numbers. Engines compute an expression that occurs several times only once.
    """
    # Engines order NaN after infinity, and a comparison with null chooses the second value. So the limbs are computed
    # only from numbers that fit a bigint.
    value = f"IF(ABS({a}) < {_double(LIMBS_END)}, {a}, {_double(0.0)})"
    top = f"RINT({value} * {_SHARE})"
    of_whole = f"({value} - {top} * {_LIMB})"
    of_small = _rest(of_whole)
    of_least = _rest(of_small)
    split = (top, *(f"RINT({left})" for left in (of_whole, of_small, of_least)))
    large = f"ABS({a}) >= {_double(LIMBS_END)} AND ABS({a}) < {_INFINITY}"
    return (
        *(f"CAST({limb} AS bigint)" for limb in split),
        f"IF({a} >= {_INFINITY}, 1L, 0L)",
        f"IF({a} > {_INFINITY} OR {a} <= {_MINUS_INFINITY}, 1L, 0L)",
        # DuckDB computes an expression again that occurs within IF.
        f"(CAST({_rest(of_least)} <> {_double(0.0)} AS bigint) + IF({large}, 1L, 0L))",
    )


def _rest(a: str) -> str:
    """Return the SQL expression for what remains of a double without its closest whole number, in units of the next
    limb.
    """
    return f"(({a} - RINT({a})) * {_LIMB})"


def real_of_limbs(top: str, whole: str, small: str, least: str, up: str, down: str) -> str:
    """Return the SQL expression for the double closest to the number whose limbs have these sums
    (`Algebra.real_of_limbs`).

    The sums are decimals. First, each sum passes its multiples of 2^62 on to the next higher limb. Each of the five
    resulting limbs fits a bigint and is at most slightly larger than 2^61.
    """
    sums = [top, whole, small, least]
    carries = [_carried(total) for total in sums]
    kept = [_kept(total, carry) for total, carry in zip(sums, carries, strict=True)]
    more = [*(f" + {carry}" for carry in carries[1:]), ""]
    limbs = [carries[0], *(f"{total}{carry}" for total, carry in zip(kept, more, strict=True))]
    units = [2.0 ** (_BITS * place) for place in (2, 1, 0, -1, -2)]
    names = [_at("_limbs", place) for place in range(1, 6)]
    number = let("_limbs", f"ARRAY({', '.join(limbs)})", _closest(names, units))
    endless = f"IF({up} <> 0L, IF({down} <> 0L, {_NAN}, {_INFINITY}), {_MINUS_INFINITY})"
    zero = decimal(0, WHOLE)
    usual = f"{top} = {zero} AND {least} = {zero} AND {_is_usual(whole, small)}"
    return _case([(f"{up} <> 0L OR {down} <> 0L", endless), (usual, _usual(whole, small, carries[2]))], number)


def _is_usual(whole: str, small: str) -> str:
    """Return the SQL condition for sums of limbs that `_usual` rounds: the number is at least 4 and less than 2^52."""
    fraction = f"CAST({small} AS double) * {_SHARE}"
    number = f"ABS(CAST({whole} AS double) + {fraction})"
    return f"ABS({fraction}) < {_double(2.0**38)} AND {number} >= {_double(4.0)} AND {number} < {_double(2.0**52)}"


def _usual(whole: str, small: str, carried: str) -> str:
    """Return the SQL expression for the double closest to a number of usual size, given the sums of its middle limbs.

    The result is the sum of two doubles, which the processor rounds once: a whole number, and a fraction in units of
    2^-53. If the fraction has lower bits, it is moved to the odd one of its two neighbours. The number is at least 2,
    so its double has units of 2^-51 or more, and the odd neighbour is on the same side of each tie as the fraction
    (S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd,
    2008, section 3).
    """
    lower = 2 ** (_BITS - 53)
    moved = (
        f"CASE WHEN _fraction % {lower}L = 0L OR (_fraction DIV {lower}L) % 2L <> 0L THEN 0L "
        f"WHEN _fraction % {lower}L > 0L THEN 1L ELSE -1L END"
    )
    fraction = f"CAST(_fraction DIV {lower}L + {moved} AS double) * {_double(2.0**-53)}"
    number = f"CAST(CAST({whole} AS bigint) + {carried} AS double) + {fraction}"
    return let("_fraction", _kept(small, carried), number)


def square_limbs(a: str) -> tuple[str, ...]:
    """Return the SQL expressions for the limbs of a double's square (`Algebra.square_limbs`)."""
    value = f"IF(ABS({a}) < {_SQUARES_END}, {a}, 0D)"
    times = f"({SPLIT!r}D * {value})"
    high = f"({times} - ({times} - {value}))"
    low = f"({value} - {high})"
    square = f"({value} * {value})"
    left = f"((({high} * {high} - {square}) + 2D * ({high} * {low})) + {low} * {low})"
    made, above = list[str](), ["", *(f" % {_double(unit)}" for unit in SQUARE_UNITS)]
    for place, unit in enumerate(SQUARE_UNITS):
        parts = (
            f"CAST((({of}{above[place]}) - ({of}{above[place + 1]})) * {_double(1 / unit)} AS bigint)"
            for of in (square, left)
        )
        made.append(f"({' + '.join(parts)})")
    return (*made, f"IF(ABS({a}) >= {_SQUARES_END} AND ABS({a}) < {_INFINITY}, 1L, 0L)")


def spread_of_limbs(n: str, limbs: Sequence[str], squares: Sequence[str], endless: Sequence[str]) -> str:
    """Return the SQL expression for the double closest to `n` times the sum of squares, minus the square of the total
    (`Algebra.spread_of_limbs`).

    The sums of limbs are decimals. After a pass of carries, the limbs of both sums have at most slightly more than 61
    bits, so each place of the difference is a sum of a few products, which has at most 38 digits. A pass of carries
    leaves limbs of up to 72 bits there, because a carry is computed as a double, and a second pass leaves limbs that
    fit a bigint.
    """
    totals, held = [_at("_total", place) for place in range(1, 6)], [_at("_squares", place) for place in range(1, 8)]
    count, places = f"CAST({n} AS {WHOLE})", list[str]()
    for place in range(9):
        terms = [f"{count} * {held[place - 2]}"] if place >= 2 else [decimal(0, WHOLE)]
        for first in range(max(0, place - 4), place // 2 + 1):
            last = place - first
            twice = "" if first == last else "2 * "
            terms.append(_whole(f"{twice}{_whole(f'{totals[first]} * {totals[last]}')}"))
        places.append(_whole(f"{_whole(terms[0])}{''.join(f' - {term}' for term in terms[1:])}"))
    # Each array is computed within the value of the next one. So an engine does not carry it along any further.
    difference = f"ARRAY({', '.join(places)})"
    for name, sums in (("_squares", squares), ("_total", limbs)):
        difference = let(name, _passed(f"ARRAY({', '.join(map(_whole, sums))})", len(sums)), difference)
    passed = _passed(_passed(difference, 9, widens=False), 9, widens=False)
    bigints = [f"CAST({_at('_limbs', place)} AS bigint)" for place in range(1, 10)]
    number = let("_limbs", passed, _closest(bigints, [2.0 ** (_BITS * (4 - place)) for place in range(9)]))
    return f"IF({' OR '.join(f'{one} <> 0L' for one in endless)}, {_NAN}, {number})"


def _passed(limbs: str, count: int, *, widens: bool = True) -> str:
    """Return the SQL expression for an array of limbs after a pass of carries, given the array before the pass.

    The highest limb is the first one. If `widens`, the result has one more limb.
    """
    carries = [_whole(_at("_carries", place)) for place in range(1, count + 1)]
    made = [
        _whole(
            f"{_at('_sums', place)} - {_whole(f'{carry} * {decimal(2**_BITS, WHOLE)}')}{f' + {more}' if more else ''}"
        )
        for place, (carry, more) in enumerate(zip(carries, [*carries[1:], ""], strict=True), 1)
    ]
    if widens:
        made.insert(0, carries[0])
    passed = f"ARRAY({', '.join(_carried(_at('_sums', place)) for place in range(1, count + 1))})"
    return let("_sums", limbs, let("_carries", passed, f"ARRAY({', '.join(made)})"))


def _at(name: str, place: int) -> str:
    return f"TRY_ELEMENT_AT({name}, {place})"


def _whole(a: str) -> str:
    return f"CAST({a} AS {WHOLE})"


def _closest(names: Sequence[str], units: Sequence[float]) -> str:
    """Return the SQL expression for the double closest to a number, given its limbs and the units of the limbs.

    The limbs are bigints, the highest one first; each is at most slightly larger than 2^61, so the first limb that is
    not zero determines the number's sign and size. The first 55 to 62 bits of the number become a bigint: the first
    limb, multiplied by a power of two (`_power`), plus the upper bits of the second limb. A double has 53 bits. If
    lower bits are left, and the bigint is even, the bigint is moved by one towards these bits, so it is not mistaken
    for a tie. Then the cast to a double rounds it as the exact number has to be rounded.

    DuckDB plans each lambda again for each lambda around it, so intermediate values share a few arrays.
    """
    parts = []
    for place, name in enumerate(names):
        upper, *lower = [*names[place + 1 :], "0L"]
        rest = _case(((f"{one} <> 0L", one) for one in lower), "0L")
        parts.append((f"{name} <> 0L", f"ARRAY({name}, {upper}, {rest}, {place}L)"))
    first, second, below, found = (_at("_parts", at) for at in range(1, 5))
    unit = _case(((f"{found} = {at}L", _double(one)) for at, one in enumerate(units)), _double(1.0))
    bits, left = (_at("_halves", at) for at in (1, 2))
    moved = (
        f"CASE WHEN {bits} % 2L <> 0L THEN 0L WHEN {left} > 0L THEN 1L WHEN {left} < 0L THEN -1L "
        f"WHEN {below} > 0L THEN 1L WHEN {below} < 0L THEN -1L ELSE 0L END"
    )
    number = f"CAST({bits} + {moved} AS double) * ({unit} / CAST(_power AS double))"
    of = f"({2**_BITS}L DIV _power)"
    halves = f"ARRAY({first} * _power + {second} DIV {of}, {second} % {of})"
    number = let("_power", _power(first), let("_halves", halves, number))
    return let("_parts", _case(parts, f"ARRAY(0L, 0L, 0L, {len(names)}L)"), number)


def _carried(total: str) -> str:
    """Return the SQL expression for the number of multiples of 2^62 that the sum of a limb passes on.

    The sum may be rounded here: the limb that is left then becomes slightly larger, but the number stays the same.
    """
    return f"CAST(RINT(CAST({total} AS double) * {_SHARE}) AS bigint)"


def _kept(total: str, carried: str) -> str:
    """Return the SQL expression for what is left of the sum of a limb."""
    passed = f"CAST(CAST({carried} AS {WHOLE}) * {decimal(2**_BITS, WHOLE)} AS {WHOLE})"
    return f"CAST(CAST({total} - {passed} AS {WHOLE}) AS bigint)"


def _case(cases: Iterable[tuple[str, object]], otherwise: str) -> str:
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    return f"CASE {whens} ELSE {otherwise} END" if whens else otherwise


def _power(a: str) -> str:
    """Return the SQL expression for a power of two such that its product with a bigint has 57 to 62 bits.

    The bigint must not be zero, and must be smaller than 2^62.
    """
    cases = [(f"ABS({a}) < {2 ** (_BITS - bits)}L", f"{2**bits}L") for bits in range(56, 1, -6)]
    return _case(cases, "1L")
