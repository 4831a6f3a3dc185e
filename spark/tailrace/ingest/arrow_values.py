"""Convert Arrow values of a source's types to a log's columns, many records at a time.

A value must fit the declared type without loss, as in JSON (`model.logs.json_records`): digits are rounded only in a
float or a double. A double becomes a decimal by its shortest text: 12.99 is 12.99. A value that does not fit is null in
the column and is marked, and the reason for rejecting its record names the value's place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import column_type
from tailrace.ingest.json_texts import json_texts, list_parts, list_sums
from tailrace.ingest.plain_columns import Mask
from tailrace.ingest.plain_values import (
    Fitted,
    PlainValues,
    each_different,
    fitted_decimals,
    shortest_decimals,
    shortest_text,
)
from tailrace.model.base.json_limits import beyond, too_deep
from tailrace.model.base.json_scalars import is_json
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_records import (
    Branch,
    JsonRecords,
    excerpt,
    key_twice,
    too_many,
    value_of_number,
)
from tailrace.model.logs.log import UNITS, Log
from tailrace.model.logs.shapes import Listed, Mapped, Plain, Shape, Struct, type_of

Reason: TypeAlias = Callable[[int, str], str]
"""A function that returns the reason why the value with this index does not fit, given the place of the value."""


@dataclass
class Converted:
    """Converted values, and a mask of the values that do not fit; the mask is None if all values fit.

    A value with parts does not fit if one of its parts does not. `reason` is called for values that do not fit.
    `rounded` is the number of decimals in each value that were rounded; it is None if none was.
    """

    values: pa.Array
    misfits: Mask | None = None
    reason: Reason = lambda row, path: path
    rounded: npt.NDArray[np.int64] | None = None


class ArrowValues:
    """The converter of a log's values."""

    def __init__(self, log: Log) -> None:
        self.log, self.records = log, JsonRecords(log)
        self._plain_values = PlainValues(self.records)

    def columns(self, branch: Branch, given: Mapping[str, pa.Array], rows: int, level: int = 1) -> dict[str, Converted]:
        """Convert the values of the fields in an object; a field that is not there is null.

        `level` is the number of levels around the values, with the object.
        """
        made = dict[str, Converted]()
        for name, child in branch.children.items():
            values = given.get(name)
            if isinstance(child, Branch):
                inner = self.columns(child, {} if values is None else fields_of(values), rows, level + 1)
                if values is not None and level >= self.log.depth:
                    inner = {column: self._too_deep(one.values.type, values) for column, one in inner.items()}
                made |= inner
            elif values is None:
                made[child.name] = Converted(pa.nulls(rows, column_type(type_of(child.shape)).arrow))
            else:
                made[child.name] = self.convert(child.shape, values, level)
        return made

    def convert(self, shape: Shape, values: pa.Array, level: int = 1) -> Converted:
        """Convert values to a shape. The type of the values must be one that the shape can hold."""
        if isinstance(values.type, pa.BaseExtensionType):
            return self.convert(shape, values.storage, level)
        if pa.types.is_null(values.type):
            return Converted(pa.nulls(len(values), column_type(type_of(shape)).arrow))
        if pa.types.is_dictionary(values.type):
            return self._coded(shape, values, level)
        if isinstance(shape, Plain):
            return self._plain(shape, values, level)
        if level >= self.log.depth:
            return self._too_deep(column_type(type_of(shape)).arrow, values)
        if isinstance(shape, Struct):
            return self._struct(shape, values, level + 1)
        if isinstance(shape, Mapped):
            return self._mapped(shape, values, level + 1)
        return self._listed(shape, values, level + 1)

    def of_texts(self, texts: pa.StringArray, around: int) -> Converted:
        """Check the levels of JSON texts; `around` is the number of levels around them."""
        most = self.log.depth
        brackets = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{"))
        rows = np.flatnonzero(pc.fill_null(brackets, 0).to_numpy(zero_copy_only=False) > most - around)
        deep = [row for row in rows if beyond(texts[row].as_py(), most, around) is not None]
        misfits = np.isin(np.arange(len(texts)), deep) if deep else None
        return Converted(texts, misfits, lambda row, path: f"{path} is {too_deep(most)}")

    def _too_deep(self, type: pa.DataType, values: pa.Array) -> Converted:
        """Return nulls for values that are nested too deeply, each of which does not fit."""
        most = self.log.depth
        return Converted(pa.nulls(len(values), type), _there(values), lambda row, path: f"{path} is {too_deep(most)}")

    def _coded(self, shape: Shape, values: pa.DictionaryArray, level: int) -> Converted:
        """Convert the different values, and then look up each value."""
        found, places = self.convert(shape, values.dictionary, level), pc.fill_null(values.indices, 0).to_numpy()
        misfits = None
        if found.misfits is not None:
            misfits = found.misfits[places] & _there(values)
        rounded = None if found.rounded is None else found.rounded[places] * _there(values)
        return Converted(
            found.values.take(values.indices), misfits, lambda row, path: found.reason(int(places[row]), path), rounded
        )

    def _struct(self, shape: Struct, values: pa.StructArray, level: int) -> Converted:
        found = self.columns(self.records.inside(shape), fields_of(values), len(values), level)
        fields = [found[one.name] for one in shape.fields]
        types = [pa.field(one.name, field.values.type) for one, field in zip(shape.fields, fields, strict=True)]
        made = pa.StructArray.from_arrays([one.values for one in fields], fields=types, mask=values.is_null())

        def reason(row: int, path: str) -> str:
            marked = ((one.name, found[one.name]) for one in shape.fields)
            name, first = next((name, one) for name, one in marked if one.misfits is not None and one.misfits[row])
            return first.reason(row, f"{path}.{name}")

        return Converted(made, _any([one.misfits for one in fields]), reason, total_rounded(fields))

    def _listed(self, shape: Listed, values: pa.Array, level: int) -> Converted:
        ends, elements = list_parts(values)
        inner, most = self.convert(shape.element, elements, level), self.log.elements
        many = np.diff(ends) > most
        made = pa.ListArray.from_arrays(pa.array(ends), inner.values, mask=values.is_null())

        def reason(row: int, path: str) -> str:
            first, end = int(ends[row]), int(ends[row + 1])
            if inner.misfits is not None and inner.misfits[first : min(end, first + most + 1)].any():
                place = int(inner.misfits[first:end].argmax())
                return inner.reason(first + place, f"{path}[{place}]")
            return too_many(path, most)

        misfits = _any([many if many.any() else None, _within(inner.misfits, ends)])
        return Converted(made, misfits, reason, _added_up(inner.rounded, ends))

    def _mapped(self, shape: Mapped, values: pa.Array, level: int) -> Converted:
        """Convert a map to the list of its entries, sorted by key."""
        ends, entries = list_parts(values)
        keys, inside = entries.flatten()
        key, value = self.convert(Plain("string"), keys), self.convert(shape.value, inside, level)
        most = self.log.elements
        rows = pa.array(np.repeat(np.arange(len(values)), np.diff(ends)), pa.int64())
        by_key = [("row", "ascending"), ("key", "ascending")]
        order = pc.sort_indices(pa.table({"row": rows, "key": key.values.cast(pa.binary())}), by_key)
        sorted_keys, sorted_values = key.values.take(order), value.values.take(order)
        type = column_type(type_of(shape)).arrow
        made = pa.ListArray.from_arrays(
            pa.array(ends), pa.StructArray.from_arrays([sorted_keys, sorted_values], fields=list(type.value_type)),
            mask=values.is_null(),
        )  # fmt: skip
        twice = np.zeros(len(values), np.bool_)
        if len(rows) > 1:
            ordered, places = sorted_keys, rows.to_numpy()
            again = pc.fill_null(pc.equal(ordered[1:], ordered[:-1]), False).to_numpy(zero_copy_only=False)
            twice[places[1:][again & (places[1:] == places[:-1])]] = True
        many = np.diff(ends) > most

        def reason(row: int, path: str) -> str:
            seen = set[str]()
            for place in range(int(ends[row]), int(ends[row + 1])):
                if key.misfits is not None and key.misfits[place]:
                    return key.reason(place, f"a key of {path}")
                name = key.values[place].as_py()
                if name in seen:
                    return key_twice(path, name)
                seen.add(name)
                if value.misfits is not None and value.misfits[place]:
                    return value.reason(place, f"{path}[{json.dumps(name, ensure_ascii=False)}]")
                if len(seen) > most:
                    break
            return too_many(path, most)

        found = [mask if mask is not None and mask.any() else None for mask in (twice, many)]
        misfits = _any([*found, _within(key.misfits, ends), _within(value.misfits, ends)])
        return Converted(made, misfits, reason, _added_up(value.rounded, ends))

    def _plain(self, shape: Plain, values: pa.Array, level: int) -> Converted:
        declared, type = shape.type, values.type
        if (parts := decimal_parts(declared)) is not None:
            made, misfits, rounded = _decimals(values, *parts, shape.rounding)
            counts = rounded.astype(np.int64) if rounded.any() else None
            return replace(self._checked(shape, values, made, misfits), rounded=counts)
        if declared == "string":
            return _strings(values)
        if declared in ("int", "bigint"):
            return self._checked(shape, values, *_whole(values, declared))
        if declared in ("double", "float"):
            return self._checked(shape, values, *_floats(values, declared))
        if declared == "json":
            return self._json(shape, values, level)
        if is_text(type):
            texts = _strings(values)
            made, misfits = self._plain_values.of_texts(shape, texts.values)
            return self._checked(shape, values, made, misfits if texts.misfits is None else misfits | texts.misfits)
        if declared in ("timestamp", "date", "time"):
            return self._times(shape, values)
        return Converted(values.cast(column_type(declared).arrow))

    def _checked(self, shape: Plain, given: pa.Array, made: pa.Array, misfits: Mask | None) -> Converted:
        """Return converted values, and the reason for rejecting each given value that does not fit."""

        def reason(row: int, path: str) -> str:
            return f"{path} = {excerpt(json_texts(given.slice(row, 1))[0].as_py())} is not a {shape.type}"

        return Converted(made, misfits if misfits is not None and misfits.any() else None, reason)

    def _json(self, shape: Plain, values: pa.Array, level: int) -> Converted:
        """Keep texts that are JSON as they are, and write other values as JSON."""
        if not is_text(values.type):
            return self.of_texts(json_texts(values), level)
        texts = _strings(values)
        wrong = each_different(texts.values, lambda text: None if is_json(text) else "")[0]
        bad = wrong.is_valid().to_numpy(zero_copy_only=False)
        if texts.misfits is not None:
            bad |= texts.misfits
        checked, deep = self._checked(shape, values, texts.values, bad), self.of_texts(texts.values, level)
        if (marked := deep.misfits) is None:
            return checked
        return Converted(
            texts.values, _any([marked, checked.misfits]),
            lambda row, path: (deep if marked[row] else checked).reason(row, path),
        )  # fmt: skip

    def _times(self, shape: Plain, values: pa.Array) -> Converted:
        """Convert instants, days, times of a day, and numbers, to instants, dates or times of a day, rounded down."""
        type = values.type
        if pa.types.is_floating(type):
            form = shape
            found, errors = each_different(values, lambda one: value_of_number(shortest_text(one, type), form))
            return self._checked(shape, values, found.cast(column_type(shape.type).arrow), errors)
        if pa.types.is_integer(type):
            numbers, outside = _whole(values, "bigint")
            made, misfits = self._plain_values.of_numbers(shape, numbers)
            return self._checked(shape, values, made, misfits if outside is None else misfits | outside)
        if pa.types.is_date(type):
            return Converted(values.cast(pa.date32(), safe=False))
        if pa.types.is_timestamp(type) and type.unit == "us" and type.tz:
            return Converted(values.cast(column_type(shape.type).arrow))
        unit = Plain(shape.type, _UNITS[type.unit])
        numbers = values.cast(pa.int32() if pa.types.is_time32(type) else pa.int64()).cast(pa.int64())
        if pa.types.is_time(type):
            return self._checked(shape, values, *self._plain_values.of_numbers(unit, numbers))
        # An instant that does not fit into 64 bits as microseconds is beyond the calendar in any case.
        most = (2**63 - 1) // UNITS[_UNITS[type.unit]][0]
        numbers = pc.max_element_wise(pc.min_element_wise(numbers, most, skip_nulls=False), -most, skip_nulls=False)
        convert = self._plain_values.of_numbers if type.tz else self._plain_values.of_local_times
        return Converted(convert(unit, numbers)[0])


def is_text(type: pa.DataType) -> bool:
    """Return True for the types of texts."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def fields_of(values: pa.Array) -> dict[str, pa.Array]:
    """Return the values of each field of structs, by the name of the field."""
    if isinstance(values.type, pa.BaseExtensionType):
        return fields_of(values.storage)
    if pa.types.is_null(values.type):
        return {}
    return dict(zip((field.name for field in values.type), values.flatten(), strict=True))


def _any(masks: list[Mask | None]) -> Mask | None:
    """Return the union of masks."""
    found = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(found) if found else None


def _within(mask: Mask | None, ends: npt.NDArray[np.int32]) -> Mask | None:
    """Return a mask of the lists in which an element is marked."""
    if mask is None or not mask.any():
        return None
    found: Mask = list_sums(mask, ends) > 0
    return found


def _outside(numbers: pa.Array, first: int, last: int) -> Mask | None:
    """Return a mask of the whole numbers that are not between two bounds, or None if there is no such number."""
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (first <= ends["min"] and ends["max"] <= last):
        return None
    given = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    below = given < first if ends["min"] < first else np.zeros(len(given), np.bool_)
    found: Mask = (below | (given > last) if ends["max"] > last else below) & _there(numbers)
    return found


def _without(values: pa.Array, misfits: Mask | None) -> pa.Array:
    """Replace values by null."""
    return values if misfits is None else pc.if_else(pa.array(misfits), pa.scalar(None, values.type), values)


def _whole(values: pa.Array, declared: str) -> tuple[pa.Array, Mask | None]:
    """Convert whole numbers to an integer type."""
    bits = 31 if declared == "int" else 63
    misfits = _outside(values, -(2**bits), 2**bits - 1)
    return _without(values, misfits).cast(column_type(declared).arrow), misfits


def _strings(values: pa.Array) -> Converted:
    texts = values.cast(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        given = texts.cast(pa.binary()).to_pylist()
        read = [None if one is None else _decoded(one) for one in given]
        misfits = np.array([text is None and one is not None for text, one in zip(read, given, strict=True)], np.bool_)
        return Converted(pa.array(read, pa.string()), misfits, lambda row, path: f"{path} is not UTF-8")
    return Converted(texts)


def _decoded(given: bytes) -> str | None:
    try:
        return given.decode()
    except UnicodeDecodeError:
        return None


def _floats(values: pa.Array, declared: str) -> tuple[pa.Array, Mask | None]:
    type = column_type(declared).arrow
    if pa.types.is_integer(values.type):
        misfits = _outside(values, -(2**53), 2**53)
        return _without(values, misfits).cast(pa.float64()).cast(type, safe=False), misfits
    made = values.cast(type, safe=False)
    if values.type.bit_width <= type.bit_width:
        return made, None
    return made, _infinite(made) & ~_infinite(values)


def _infinite(numbers: pa.Array) -> Mask:
    found: Mask = np.isinf(pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False))
    return found


def total_rounded(values: Iterable[Converted]) -> npt.NDArray[np.int64] | None:
    """Return how many decimals were rounded in each row of several columns; None if none was."""
    counts = [one.rounded for one in values if one.rounded is not None]
    return sum(counts[1:], counts[0]) if counts else None


def _added_up(counts: npt.NDArray[np.int64] | None, ends: npt.NDArray[np.int32]) -> npt.NDArray[np.int64] | None:
    """Add up the counts of the elements of each list."""
    return None if counts is None else list_sums(counts, ends)


def _decimals(values: pa.Array, precision: int, scale: int, rounding: str | None) -> Fitted:
    """Convert numbers to decimals."""
    type, to = values.type, pa.decimal128(precision, scale)
    if pa.types.is_floating(type):
        return shortest_decimals(values, precision, scale, rounding)
    if pa.types.is_integer(type):
        most = 10 ** (precision - scale) - 1
        misfits = _outside(values, -most, most)
        # Cast in two steps, because Arrow first requires a decimal type with enough digits for every integer.
        wide = pa.decimal128(20 if type == pa.uint64() else 19, 0)
        none = np.zeros(len(values), np.bool_)
        return Fitted(_without(values, misfits).cast(wide).cast(to), none if misfits is None else misfits, none)
    return fitted_decimals(values, precision, scale, rounding)


def _there(values: pa.Array) -> Mask:
    found: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return found


_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
"""The names of Arrow's units of time."""
