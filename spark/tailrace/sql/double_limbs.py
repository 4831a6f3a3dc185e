"""Write the exact sum of doubles in SQL: split each double into whole numbers, and round their sums to a double.

The whole numbers are called limbs (`Algebra.limbs`). Doubles are only multiplied by powers of two, and a double is only
reduced by the closest whole number. Both operations are exact, so all engines compute the same limbs.
"""

from __future__ import annotations

from tailrace.model.base.algebra import LIMB, LIMBS_END
from tailrace.model.base.types import WHOLE
from tailrace.sql.wide_numbers import decimal, let

_BITS = 62
"""The number of bits of a limb."""


def _double(value: float) -> str:
    """Return the SQL for a constant double. The text of a double in Python identifies the double."""
    return f"CAST('{value!r}' AS double)"


_LIMB, _SHARE = _double(LIMB), _double(1 / LIMB)
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
    resulting limbs fits a bigint and is at most slightly larger than 2^61, so the first limb that is not zero
    determines the number's sign and size.

    Then the first 55 to 62 bits of the number become a bigint: the first limb, multiplied by a power of two (`_power`),
    plus the upper bits of the second limb. A double has 53 bits. If lower bits are left, and the bigint is even, the
    bigint is moved by one towards these bits, so it is not mistaken for a tie. Then the cast to a double rounds it as
    the exact number has to be rounded.
    """
    sums = {"_l1": top, "_l2": whole, "_l3": small, "_l4": least}
    carried = {name: _carried(total) for name, total in sums.items()}
    limbs = {"_l0": carried["_l1"]}
    for (name, total), above in zip(sums.items(), ["_l2", "_l3", "_l4", None], strict=True):
        more = "" if above is None else f" + {carried[above]}"
        limbs[name] = f"{_kept(total, carried[name])}{more}"
    units = [2.0 ** (_BITS * place) for place in (2, 1, 0, -1, -2)]
    names, nothing = list(limbs), "0L"
    first = [f"{name} <> {nothing}" for name in names]
    following = [*names[1:], nothing]
    below = [
        f"(({' OR '.join(first[:place])}) AND {first[place + 1]}) THEN {names[place + 1]}" for place in range(1, 4)
    ]
    steps = {
        **limbs,
        "_first": _case(zip(first, names, strict=True), nothing),
        "_second": _case(zip(first, following, strict=True), nothing),
        "_below": f"CASE {' '.join(f'WHEN {one}' for one in below)} ELSE {nothing} END",
        "_unit": _case(zip(first, map(_double, units), strict=True), _double(1.0)),
        "_power": _power("_first"),
        "_bits": f"_first * _power + _second DIV ({2**_BITS}L DIV _power)",
        "_left": f"_second % ({2**_BITS}L DIV _power)",
    }
    moved = (
        "CASE WHEN _bits % 2L <> 0L THEN 0L WHEN _left > 0L THEN 1L WHEN _left < 0L THEN -1L "
        "WHEN _below > 0L THEN 1L WHEN _below < 0L THEN -1L ELSE 0L END"
    )
    number = f"CAST(_bits + {moved} AS double) * (_unit / CAST(_power AS double))"
    for name, value in reversed(steps.items()):
        number = let(name, value, number)
    endless = f"IF({up} <> 0L, IF({down} <> 0L, {_NAN}, {_INFINITY}), {_MINUS_INFINITY})"
    return f"IF({up} <> 0L OR {down} <> 0L, {endless}, {number})"


def _carried(total: str) -> str:
    """Return the SQL expression for the number of multiples of 2^62 that the sum of a limb passes on.

    The sum may be rounded here: the limb that is left then becomes slightly larger, but the number stays the same.
    """
    return f"CAST(RINT(CAST({total} AS double) * {_SHARE}) AS bigint)"


def _kept(total: str, carried: str) -> str:
    """Return the SQL expression for what is left of the sum of a limb."""
    passed = f"CAST(CAST({carried} AS {WHOLE}) * {decimal(2**_BITS, WHOLE)} AS {WHOLE})"
    return f"CAST(CAST({total} - {passed} AS {WHOLE}) AS bigint)"


def _case(cases: object, otherwise: str) -> str:
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)  # type: ignore[attr-defined]
    return f"CASE {whens} ELSE {otherwise} END"


def _power(a: str) -> str:
    """Return the SQL expression for a power of two such that its product with a bigint has 57 to 62 bits.

    The bigint must not be zero, and must be smaller than 2^62.
    """
    cases = [(f"ABS({a}) < {2 ** (_BITS - bits)}L", f"{2**bits}L") for bits in range(56, 1, -6)]
    return _case(cases, "1L")
