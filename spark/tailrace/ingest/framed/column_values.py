"""Convert the values of a schema's fields to values of a log's columns, without losing information.

The *kind* of a field is the field's Avro or Protobuf type, together with how the field's values are to be interpreted
(for example, an integer as a timestamp). If a column can hold only some values of a kind, each value is checked. For
example, a `long` is converted to a `double` only if no digit is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import CLOCK, ZONE, column_type
from tailrace.model.base.types import decimal_parts

Misfits: TypeAlias = dict[int, str]
"""A mapping from the index of a record in its batch to the reason why the record does not fit."""

T = TypeVar("T")

TOGETHER, LARGEST = 20_000, 1 << 20
"""The maximum size of a batch that is converted to Python objects: in records, and in bytes.

A batch has at least one record, even if that record is larger. The limit on bytes is low, because each byte may become
an item of a list, and an item takes a hundred times as much memory as a byte.
"""


def without_head(values: pa.Array, start: int) -> pa.Array:
    """Return the values without their first `start` bytes."""
    # The end must be passed explicitly: otherwise, Arrow 26 computes a wrong end and fails for short values.
    return pc.binary_slice(values, start, 2**31 - 1)


def in_batches(values: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Yield the values in batches that are small enough to be converted to Python objects.

    Each batch is preceded by the index of its first value.
    """
    ends = np.cumsum(pc.binary_length(values).to_numpy(zero_copy_only=False), dtype=np.int64)
    start = 0
    while start < len(values):
        before = ends[start - 1] if start else 0
        full = int(np.searchsorted(ends, before + LARGEST, side="right"))
        end = min(start + TOGETHER, max(start + 1, full))
        yield start, values.slice(start, end - start)
        start = end


@dataclass(frozen=True)
class BulkReader(Generic[T]):
    """A reader that reads many values in one call of `read`, which raises one of `errors` if a value is unreadable.

    `nothing` is the result for an unreadable value. `reason` is called with an unreadable value and the error, and
    returns the reason why the value is a misfit.
    """

    read: Callable[[pa.Array], T]
    errors: tuple[type[Exception], ...]
    nothing: T
    reason: Callable[[Any, Exception], str]

    def read_in_batches(self, values: pa.Array) -> tuple[list[T], Misfits]:
        """Read values that `read` converts to Python objects, batch by batch; return the results and the misfits."""
        parts, misfits = list[T](), Misfits()
        for start, some in in_batches(values):
            parts += self.read_in_halves(some, misfits, start)
        return parts, misfits

    def read_in_halves(self, values: pa.Array, misfits: Misfits, start: int = 0) -> list[T]:
        """Read values; return the results, in order. If a value is unreadable, bisect the values until it is found.

        Each unreadable value is added to `misfits`. The first value has the index `start`.
        """
        try:
            return [self.read(values)]
        except self.errors as error:
            if len(values) == 1:
                misfits[start] = self.reason(values[0].as_py(), error)
                return [self.nothing]
        half = len(values) // 2
        first = self.read_in_halves(values.slice(0, half), misfits, start)
        return first + self.read_in_halves(values.slice(half), misfits, start + half)


def as_declared(values: pa.Array, kind: Kind, declared: str, type: pa.DataType, name: str) -> tuple[pa.Array, Misfits]:
    """Convert a field's raw values to a column of type `type`.

    Values that do not fit become null and are returned as misfits. `name` is the column's name and `declared` is its
    declared type; both occur in the reasons of the misfits.
    """
    if kind == NULL:
        return pa.nulls(len(values), type), {}
    reader = BulkReader(
        partial(kind.convert, kind=kind, type=type), (pa.ArrowInvalid, ValueError), pa.nulls(1, type),
        lambda value, error: f"{name} = {str(value)[:100]} is not a {declared}",
    )  # fmt: skip
    misfits = Misfits()
    return pa.concat_arrays([pa.array([], type), *reader.read_in_halves(values, misfits)]), misfits


def _cast(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type) and pa.types.is_integer(kind.raw):
        # Cast in two steps, because Arrow first requires a decimal type with enough digits for every value of the
        # integer type, even if all values are smaller.
        return values.cast(pa.decimal128(20, 0) if kind is UNSIGNED_LONG else pa.decimal128(19, 0)).cast(type)
    return values.cast(type)


def _micros(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    return pc.multiply_checked(values, 10**6 if kind is SECONDS else 1000).cast(type)


def _from_nanos(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    # Round nanoseconds down to microseconds, as everywhere in Tailrace. Arrow's own division would round towards zero.
    whole = values.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    return pa.array(whole, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False)).cast(type)


def _times(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    unit, day = ("ms", 86_400_000) if kind is TIME_MILLIS else ("us", 86_400_000_000)
    within = pc.and_(pc.greater_equal(values, 0), pc.less(values, day))
    if not pc.all(within, min_count=0).as_py():
        raise ValueError("a time of the day")
    of_day = pa.time32 if unit == "ms" else pa.time64
    return values.cast(of_day(unit)).cast(type)


def _uuids(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    filled = values.cast(pa.binary()).fill_null(bytes(16))
    digits = b"".join(filled.to_pylist()).hex()
    whole = pa.array([digits[start : start + 32] for start in range(0, len(digits), 32)], pa.string())
    cuts = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    text = pc.binary_join_element_wise(*(pc.utf8_slice_codeunits(whole, *cut) for cut in cuts), "-")
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def _decimals(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    """Convert unscaled values, which are bytes in big-endian two's complement, to 128-bit decimals."""
    assert kind.parts is not None
    precision, scale = kind.parts
    filled = values.fill_null(b"\0")
    lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths.max() > 16 or lengths.min() < 1):
        raise ValueError("more digits than a decimal has")
    data = np.frombuffer(b"".join(filled.to_pylist()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    wide = np.zeros((len(lengths), 16), np.uint8)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        digits = data[starts[rows][:, None] + np.arange(length)]
        wide[rows] = np.where(digits[:, :1] >= 128, 255, 0)
        wide[rows, 16 - length :] = digits
    little = np.ascontiguousarray(wide[:, ::-1])
    made = pa.Array.from_buffers(pa.decimal128(38, scale), len(values), [None, pa.py_buffer(little.tobytes())])
    # Refuse a value with more digits than the schema allows, even if it would fit the column.
    made.validate(full=True)
    made.cast(pa.decimal128(precision, scale))
    return pc.if_else(values.is_valid(), made, pa.scalar(None, made.type)).cast(type)


def _decimal_texts(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(type):
        return values.cast(type)
    _require(values, r"^-?[0-9]+(\.[0-9]+)?$")
    return values.cast(type)


def _instants_of_text(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    if pa.types.is_string(type):
        return values
    _require(values, f"^{_DAY}[T ]{CLOCK}{ZONE}?$")
    zoned = pc.match_substring_regex(values, f"{ZONE}$")
    return pc.if_else(zoned, values, pc.binary_join_element_wise(values, "Z", "")).cast(type)


def _dates_of_text(values: pa.Array, kind: Kind, type: pa.DataType) -> pa.Array:
    _require(values, f"^{_DAY}$")
    return values.cast(type)


def _require(values: pa.Array, pattern: str) -> None:
    """Raise `ValueError` if one of the texts does not match the pattern."""
    if not pc.all(pc.match_substring_regex(values, pattern), min_count=0).as_py():
        raise ValueError(pattern)


_DAY = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"


@dataclass(frozen=True)
class Kind:
    """The kind of a field's values: a readable name, and the Arrow type of raw values.

    `convert` converts raw values to a column's type. `parts` are the precision and the scale of a decimal. `spells` is
    true for a text field if the format has no decimals; the field's texts may then represent decimals. `digits` is the
    maximum number of decimal digits of a whole number.
    """

    name: str
    raw: pa.DataType
    convert: Callable[..., pa.Array] = _cast
    parts: tuple[int, int] | None = None
    spells: bool = False
    digits: int | None = None

    def __str__(self) -> str:
        return self.name if self.parts is None else f"{self.name}({self.parts[0]},{self.parts[1]})"


NULL = Kind("null", pa.null())
BOOLEAN = Kind("boolean", pa.bool_())
INT = Kind("int", pa.int32(), digits=10)
LONG = Kind("long", pa.int64(), digits=19)
UNSIGNED_INT = Kind("uint32", pa.uint32(), digits=10)
UNSIGNED_LONG = Kind("uint64", pa.uint64(), digits=20)
FLOAT = Kind("float", pa.float32())
DOUBLE = Kind("double", pa.float64())
STRING = Kind("string", pa.string())
BYTES = Kind("bytes", pa.binary())
UUID = Kind("uuid", pa.binary(16), _uuids)
DATE = Kind("date", pa.int32())
SECONDS = Kind("timestamp-seconds", pa.int64(), _micros)
MILLIS = Kind("timestamp-millis", pa.int64(), _micros)
MICROS = Kind("timestamp-micros", pa.int64())
NANOS = Kind("timestamp-nanos", pa.int64(), _from_nanos)
TIME_MILLIS = Kind("time-millis", pa.int32(), _times)
TIME_MICROS = Kind("time-micros", pa.int64(), _times)
TEXT = Kind("string", pa.string(), _decimal_texts, spells=True)
INSTANT_TEXT = Kind("text of an instant", pa.string(), _instants_of_text)
DATE_TEXT = Kind("text of a date", pa.string(), _dates_of_text)

INSTANTS: Mapping[str, Kind] = {
    "seconds": SECONDS, "milliseconds": MILLIS, "microseconds": MICROS, "nanoseconds": NANOS,
}  # fmt: skip
"""The kind of whole numbers that represent instants, for each unit that a log may declare (`instants=`)."""


def as_instants(kind: Kind, unit: str | None) -> Kind:
    """Return the kind for a timestamp column. Whole numbers are taken as instants in the unit that the log declares."""
    whole = kind in (INT, LONG, UNSIGNED_INT, UNSIGNED_LONG)
    return INSTANTS[unit] if whole and unit is not None else kind


def decimal_kind(precision: int, scale: int) -> Kind:
    """Return the kind of decimals whose unscaled value is stored as bytes, as in Avro."""
    return Kind("decimal", pa.binary(), _decimals, (precision, scale))


def can_hold(kind: Kind, declared: str) -> bool:
    """Return True if a column of the declared type can hold at least some values of this kind."""
    if kind == NULL or kind.name in column_type(declared).kinds:
        return True
    parts = decimal_parts(declared)
    if parts is None:
        return False
    whole = parts[0] - parts[1]
    if kind.parts is not None:
        return kind.parts[1] <= parts[1] and kind.parts[0] - kind.parts[1] <= whole
    return kind.spells or (kind.digits is not None and whole >= kind.digits)
