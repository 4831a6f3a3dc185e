"""Convert texts and whole numbers to the types of columns, many values at a time.

The model's reader of JSON defines the meaning of a text or a number (`model.logs.json_records`). Arrow converts values
of the usual forms, and the model's reader converts all other values, each different value once.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import CLOCK, DAY, ZONE, column_type
from tailrace.ingest.plain_columns import Mask
from tailrace.model.base.json_scalars import Rounded, decimal_value
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_records import DAY_MICROS, JsonRecords, MisfitError, text_value
from tailrace.model.logs.log import UNITS
from tailrace.model.logs.shapes import Plain


class Fitted(NamedTuple):
    """Converted values, a mask of the misfits, and a mask of the values that were rounded."""

    values: pa.Array
    misfits: Mask
    rounded: Mask


class PlainValues:
    """Convert the values of a log's records; `records` is the model's reader of the log."""

    def __init__(self, records: JsonRecords) -> None:
        self.records = records

    def of_numbers(self, shape: Plain, values: pa.Array) -> tuple[pa.Array, Mask]:
        """Convert whole numbers in the unit of the shape's form to instants, dates or times of a day.

        Numbers are rounded down. Returns the values, and a mask of the numbers that do not fit. An instant that tables
        cannot store is returned, if it fits into 64 bits.
        """
        nothing = values.is_null().to_numpy(zero_copy_only=False)
        times, parts = UNITS[shape.form or ""]
        numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        bad: Mask = (numbers > (2**63 - 1) // times) | (numbers < -(2**63 // times))
        micros = np.where(bad, 0, numbers) * times // parts
        if shape.type == "date":
            days = (micros // DAY_MICROS).astype(np.int32)
            return pa.array(days, pa.int32(), mask=nothing).cast(pa.date32()), bad
        if shape.type == "time":
            bad |= (micros < 0) | (micros >= DAY_MICROS)
            of_day = pa.array(np.where(bad, 0, micros), pa.int64(), mask=nothing)
            return of_day.cast(pa.time64("us")).cast(pa.string()), bad
        return pa.array(micros, pa.int64(), mask=nothing).cast(column_type(shape.type).arrow), bad

    def of_local_times(self, shape: Plain, values: pa.Array) -> tuple[pa.Array, Mask]:
        """Convert whole numbers that represent times in the log's time zone to instants."""
        made, bad = self.of_numbers(shape, values)
        if self.records.in_utc or not len(made):
            return made, bad
        local = pc.fill_null(made.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        nothing = made.is_null().to_numpy(zero_copy_only=False)
        return pa.array(self._zoned(local), pa.int64(), mask=nothing).cast(made.type), bad

    def _zoned(self, local: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Convert local times to instants.

        On most days, the offset from UTC is the same at both ends. Only times of other days are converted one by one.
        """
        days, places = np.unique(local // DAY_MICROS, return_inverse=True)
        ends = [[day * DAY_MICROS, (day + 1) * DAY_MICROS] for day in days.tolist()]
        offsets = np.array([[at - self.records.of_local(at) for at in both] for both in ends], np.int64)
        made: npt.NDArray[np.int64] = local - offsets[places, 0]
        moved = (offsets[:, 0] != offsets[:, 1])[places]
        some, each = np.unique(local[moved], return_inverse=True)
        made[moved] = np.array([self.records.of_local(one) for one in some.tolist()], np.int64)[each]
        return made

    def rounded(self, shape: Plain, values: pa.Array) -> Fitted:
        """Round decimals of the type `unrounded_type`."""
        precision, scale = decimal_parts(shape.type) or (0, 0)
        end = pa.scalar(Decimal(10) ** (precision - scale))
        try:
            made = pc.round(values, ndigits=scale, round_mode=_MODES[shape.rounding or ""])
            bad = pc.fill_null(pc.greater_equal(pc.abs(made), end), False)
        except pa.ArrowInvalid:
            # The type is too narrow for a value that is rounded up, or for the comparison.
            return fitted_decimals(values, precision, scale, shape.rounding)
        kept = pc.if_else(bad, pa.scalar(None, made.type), made)
        lost = pc.fill_null(pc.not_equal(kept, values), False).to_numpy(zero_copy_only=False)
        return Fitted(kept.cast(pa.decimal128(precision, scale)), bad.to_numpy(zero_copy_only=False), lost)

    def within_precision(self, shape: Plain, values: pa.Array) -> tuple[pa.Array, Mask]:
        """Return decimals that Arrow parsed from numbers of JSON, and a mask of those with more digits than their type.

        Arrow 26 checks the digits that are written, without the zeros up to the type's scale.
        """
        precision, scale = decimal_parts(shape.type) or (0, 0)
        ends, limit = pc.min_max(values).as_py(), Decimal(10) ** (precision - scale)
        if ends["min"] is None or -limit < ends["min"] <= ends["max"] < limit:
            return values, np.zeros(len(values), np.bool_)
        return values, _reaches(values.cast(pa.decimal256(76, scale)), precision - scale)

    def of_texts(
        self, shape: Plain, values: pa.Array, convert: Callable[[str], Any] | None = None
    ) -> tuple[pa.Array, Mask]:
        """Convert texts to instants, dates, times, decimals or bytes; return the values, and a mask of the misfits.

        Texts of unusual forms are converted by `convert`, by default by the model's reader of texts in JSON.
        """
        type, none = column_type(shape.type).arrow, np.zeros(len(values), np.bool_)
        try:
            if decimal_parts(shape.type) is not None and has_short_decimals(values, type):
                return values.cast(type), none
            if shape.form is None and shape.type in ("timestamp", "date") and self.records.in_utc:
                pattern = f"^{DAY}[T ]{CLOCK}{ZONE}?$" if shape.type == "timestamp" else f"^{DAY}$"
                usual = pc.fill_null(pc.match_substring_regex(values, pattern), True)
                if pc.all(usual, min_count=0).as_py():
                    return (_instants(values) if shape.type == "timestamp" else values.cast(type)), none
        except pa.ArrowInvalid:
            # Some text is no decimal of the type, or has the form of a date but is no day of the calendar.
            pass
        return self.one_by_one(values, type, convert or partial(text_value, self.records, shape))

    def rounded_texts(self, shape: Plain, values: pa.Array) -> Fitted:
        """Convert texts to decimals, which are rounded."""
        lost = list[str]()

        def convert(text: str) -> Decimal:
            made: Decimal = text_value(self.records, shape, text)
            if isinstance(made, Rounded):
                lost.append(text)
            return made

        made, misfits = self.of_texts(shape, values, convert)
        rounded = pc.is_in(values, value_set=pa.array(lost, pa.string())).to_numpy(zero_copy_only=False)
        return Fitted(made, misfits, rounded)

    def one_by_one(self, values: pa.Array, type: pa.DataType, convert: Callable[[str], Any]) -> tuple[pa.Array, Mask]:
        """Convert each different text with a function; return the values, and a mask of the misfits."""
        coded = values.dictionary_encode()
        made, bad = list[Any](), list[bool]()
        for text in coded.dictionary.to_pylist():
            try:
                made.append(convert(text))
                bad.append(False)
            except (ValueError, ArithmeticError, MisfitError):
                made.append(None)
                bad.append(True)
        try:
            converted = pa.array(made, type)
        except (pa.ArrowInvalid, OverflowError):
            converted, bad = pa.nulls(len(made), type), [True] * len(made)
        misfits = pc.fill_null(pa.array(bad, pa.bool_()).take(coded.indices), False).to_numpy(zero_copy_only=False)
        return converted.take(coded.indices), misfits


def has_short_decimals(texts: pa.Array, type: pa.Decimal128Type) -> bool:
    """Return True if Arrow may cast texts to a decimal type.

    Arrow 26 gives a wrong number for a text whose digits, with zeros up to the type's scale, exceed 128 bits.
    """
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    exponents = pc.match_substring(texts, "e", ignore_case=True)
    return longest <= 38 - type.scale and not pc.any(exponents, min_count=0).as_py()


def unrounded_type(type: str) -> pa.DataType:
    """Return the type with which Arrow reads decimals that are rounded afterwards.

    It has as many digits after the point as fit, and one more digit before the point, for numbers that are rounded up.
    """
    precision, scale = decimal_parts(type) or (0, 0)
    return pa.decimal128(38, max(scale, 37 - (precision - scale)))


_MODES = {"half_even": "half_to_even", "half_up": "half_towards_infinity", "down": "towards_zero"}
"""Arrow's names for the ways to round decimals."""


def _instants(column: pa.Array) -> pa.Array:
    """Parse texts as instants; an instant without a time zone is taken as UTC."""
    zoned = pc.fill_null(pc.match_substring_regex(column, ZONE + "$"), True)
    if not pc.all(zoned, min_count=0).as_py():
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    return column.cast(pa.timestamp("us", "UTC"))


def shortest_decimals(values: pa.Array, precision: int, scale: int, rounding: str | None = None) -> Fitted:
    """Convert doubles or floats to decimals by their shortest texts, rounded as `Log.rounding` says.

    A decimal number of at most 15 digits is the shortest text of the double that is nearest to it; for a float, of at
    most 6 digits. So a double has such a text if it is the nearest double to a number of so few digits. Only other
    doubles have to be written as texts.
    """
    there: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    single = not pa.types.is_float64(values.type)
    given = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    wide = given.astype(np.float64)
    surely = min(precision, 6 if single else 15)
    with np.errstate(all="ignore"):
        units = np.rint(wide * 10.0**scale)
        short = np.abs(units) < 10.0**surely
        back = units / 10.0**scale
        exact = short & ((back.astype(given.dtype) if single else back) == given)
    if scale > 22 or (single and scale > 8):
        exact[:] = False
    whole = pa.array(np.where(exact, units, 0).astype(np.int64), pa.int64(), mask=~(exact & there))
    made = _unscaled(whole, precision, scale)
    misfits, rounded = ~exact & there, np.zeros(len(values), np.bool_)
    unsure = misfits if single or scale > 22 or rounding is not None else misfits & ~short
    if unsure.any():
        lost = list[float]()

        def convert(one: float) -> Decimal:
            made = decimal_value(shortest_text(one, values.type), precision, scale, rounding)
            if isinstance(made, Rounded):
                lost.append(one)
            return made

        others, wrong = each_different(values.filter(pa.array(unsure)), convert)
        rounded[unsure] = np.isin(wide[unsure], lost)
        made = pc.replace_with_mask(made, pa.array(unsure), others.cast(made.type))
        misfits[unsure] = wrong
    return Fitted(made, misfits, rounded)


def fitted_decimals(values: pa.Array, precision: int, scale: int, rounding: str | None = None) -> Fitted:
    """Convert decimals to a decimal type, rounded as `Log.rounding` says.

    A value does not fit if digits would be lost, or if it has more digits than its own type allows.
    """
    type, to, misfits = values.type, pa.decimal128(precision, scale), np.zeros(len(values), np.bool_)
    rounded = np.zeros(len(values), np.bool_)
    try:
        values.validate(full=True)
        return Fitted(values.cast(to), misfits, rounded)
    except pa.ArrowInvalid:
        wide = values.cast(pa.decimal256(76, type.scale))
    for whole in {precision - scale, type.precision - type.scale}:
        misfits |= _reaches(wide, whole)
    fitted = _without(wide, misfits)
    if type.scale > scale:
        if _reaches(fitted, 75 - type.scale).any():
            # Arrow gives a wrong number for a value that is rounded up to more digits than a type may have.
            def convert(one: Decimal) -> Decimal:
                return decimal_value(f"{one:f}", precision, scale, rounding)

            made, bad = each_different(fitted, convert)
            lost = each_different(fitted, lambda one: isinstance(convert(one), Rounded))[0].cast(pa.bool_())
            return Fitted(made.cast(to), misfits | bad, pc.fill_null(lost, False).to_numpy(zero_copy_only=False))
        cut = pc.round(fitted, ndigits=scale, round_mode=_MODES[rounding or "down"])
        if rounding is None:
            misfits |= pc.fill_null(pc.not_equal(cut, fitted), False).to_numpy(zero_copy_only=False)
        else:
            misfits |= _reaches(cut, precision - scale)
            rounded = pc.fill_null(pc.not_equal(cut, fitted), False).to_numpy(zero_copy_only=False) & ~misfits
        fitted = _without(cut, misfits)
    return Fitted(fitted.cast(to), misfits, rounded)


def _reaches(values: pa.Array, whole: int) -> Mask:
    """Return a mask of the decimals of 256 bits with more than `whole` digits before the point."""
    if whole + values.type.scale >= values.type.precision:
        return np.zeros(len(values), np.bool_)
    limit = pa.scalar(Decimal(10) ** whole, values.type)
    found: Mask = pc.fill_null(pc.greater_equal(pc.abs(values), limit), False).to_numpy(zero_copy_only=False)
    return found


def _without(values: pa.Array, misfits: Mask) -> pa.Array:
    return pc.if_else(pa.array(misfits), pa.scalar(None, values.type), values) if misfits.any() else values


def _unscaled(units: pa.Int64Array, precision: int, scale: int) -> pa.Array:
    """Return the decimals that are whole numbers of units of their last digit."""
    numbers = pc.fill_null(units, 0).to_numpy(zero_copy_only=False)
    # A decimal of 128 bits consists of two words; the upper word repeats the sign of the lower word.
    words = np.stack([numbers, numbers >> 63], axis=1)
    return pa.Array.from_buffers(
        pa.decimal128(precision, scale), len(units), [units.buffers()[0], pa.py_buffer(np.ascontiguousarray(words))]
    )


def shortest_text(number: float, type: pa.DataType) -> str:
    """Return the shortest text of a double or a float. Raises `ValueError` if the text is not a number."""
    text = repr(number) if pa.types.is_float64(type) else str(np.float32(number))
    if not np.isfinite(number):
        raise ValueError(text)
    return text


def each_different(values: pa.Array, call: Callable[[Any], Any]) -> tuple[pa.Array, Mask]:
    """Call a function on each different value; return the results, and a mask of the values for which it failed."""
    coded = values.dictionary_encode()
    made, bad = list[Any](), list[bool]()
    for value in coded.dictionary.to_pylist():
        try:
            made.append(call(value))
            bad.append(False)
        except (ValueError, ArithmeticError):
            made.append(None)
            bad.append(True)
    failed = pa.array(bad, pa.bool_()).take(coded.indices)
    return pa.array(made).take(coded.indices), pc.fill_null(failed, False).to_numpy(zero_copy_only=False)
