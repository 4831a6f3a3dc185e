"""Convert texts and whole numbers to the types of columns, many values at a time.

The model's reader of JSON defines the meaning of a text or a number (`model.logs.json_records`). Arrow converts values
of the usual forms, and the model's reader converts all other values, each different value once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import CLOCK, DAY, ZONE, column_type
from tailrace.ingest.plain_columns import Mask
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_records import DAY_MICROS, JsonRecords, MisfitError, text_value
from tailrace.model.logs.log import UNITS
from tailrace.model.logs.shapes import Plain


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
        if self.records.log.zone == "UTC":
            return made, bad
        coded = made.cast(pa.int64()).dictionary_encode()
        zoned = [self.records.of_local(micros) for micros in coded.dictionary.to_pylist()]
        return pa.array(zoned, pa.int64()).take(coded.indices).cast(made.type), bad

    def of_texts(
        self, shape: Plain, values: pa.Array, convert: Callable[[str], Any] | None = None
    ) -> tuple[pa.Array, Mask]:
        """Convert texts to instants, dates, times, decimals or bytes; return the values, and a mask of the misfits.

        Texts of unusual forms are converted by `convert`, by default by the model's reader of texts in JSON.
        """
        type, none = column_type(shape.type).arrow, np.zeros(len(values), np.bool_)
        try:
            if decimal_parts(shape.type) is not None:
                return values.cast(type), none
            if shape.form is None and shape.type in ("timestamp", "date") and self.records.log.zone == "UTC":
                pattern = f"^{DAY}[T ]{CLOCK}{ZONE}?$" if shape.type == "timestamp" else f"^{DAY}$"
                usual = pc.fill_null(pc.match_substring_regex(values, pattern), True)
                if pc.all(usual, min_count=0).as_py():
                    return (_instants(values) if shape.type == "timestamp" else values.cast(type)), none
        except pa.ArrowInvalid:
            # Some text is no decimal of the type, or has the form of a date but is no day of the calendar.
            pass
        return self.one_by_one(values, type, convert or partial(text_value, self.records, shape))

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


def _instants(column: pa.Array) -> pa.Array:
    """Parse texts as instants; an instant without a time zone is taken as UTC."""
    zoned = pc.fill_null(pc.match_substring_regex(column, ZONE + "$"), True)
    if not pc.all(zoned, min_count=0).as_py():
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    return column.cast(pa.timestamp("us", "UTC"))
