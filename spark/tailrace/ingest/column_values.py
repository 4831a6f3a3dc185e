"""Convert plain values of a schema's fields to the types of a log's columns, without losing information.

The *kind* of a field is the field's Avro or Protobuf type, together with how the field's values are to be interpreted
(for example, an integer as a timestamp). If a column can hold only some values of a kind, each value is checked. For
example, a `long` is converted to a `double` only if no digit is lost. Texts and numbers that represent instants have
the same meaning as in JSON (`ingest.plain_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import column_type
from tailrace.ingest.plain_columns import Mask
from tailrace.ingest.plain_values import Fitted, PlainValues, fitted_decimals, shortest_decimals
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.log import UNITS
from tailrace.model.logs.shapes import AS_TEXT, Plain

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


@dataclass(frozen=True)
class Kind:
    """The kind of plain values: a readable name, and the Arrow type of raw values.

    `unit` is the unit of instants and times of a day. `parts` are the precision and the scale of a decimal. `digits` is
    the maximum number of decimal digits of a whole number. `symbols` are the names of an enum's values.
    """

    name: str
    raw: pa.DataType
    unit: str | None = None
    parts: tuple[int, int] | None = None
    digits: int | None = None

    def __str__(self) -> str:
        return self.name if self.parts is None else f"{self.name}({self.parts[0]},{self.parts[1]})"


@dataclass(frozen=True)
class Unreadable:
    """The kind of values that no column can hold, with a description for users."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ListKind:
    """The kind of lists."""

    element: AnyKind

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True)
class MapKind:
    """The kind of maps. A raw map is the list of its entries, and `key` is the kind of the keys."""

    key: Kind
    value: AnyKind

    def __str__(self) -> str:
        return "a map"


@dataclass(frozen=True)
class RecordKind:
    """The kind of records: the full name of the type, and the kinds of the fields, by name.

    If `sparse` is True, a null field is a field that the record does not have.
    """

    name: str
    fields: Mapping[str, AnyKind]
    sparse: bool = False

    def __str__(self) -> str:
        return "a record"


@dataclass(frozen=True)
class UnionKind:
    """The kind of values that have one of several types.

    A raw value is a struct with the fields `v0`, `v1` and so on, of which only the value's own type has a value.
    """

    branches: tuple[AnyKind, ...]

    def __str__(self) -> str:
        return "a union of several types"


AnyKind: TypeAlias = "Kind | Unreadable | ListKind | MapKind | RecordKind | UnionKind"

NULL = Kind("null", pa.null())
BOOLEAN = Kind("boolean", pa.bool_())
INT = Kind("int", pa.int32(), digits=10)
LONG = Kind("long", pa.int64(), digits=19)
UNSIGNED_INT = Kind("uint32", pa.uint32(), digits=10)
UNSIGNED_LONG = Kind("uint64", pa.uint64(), digits=20)
FLOAT = Kind("float", pa.float32())
DOUBLE = Kind("double", pa.float64())
STRING = Kind("string", pa.string())
UTF8 = replace(STRING, raw=pa.binary())
"""The kind of texts of which it is not known whether they are valid UTF-8."""

ENUM = Kind("enum", pa.string())
BYTES = Kind("bytes", pa.binary())
UUID = Kind("uuid", pa.binary(16))
DATE = Kind("date", pa.int32(), unit="days")
MILLIS = Kind("timestamp-millis", pa.int64(), unit="milliseconds")
MICROS = Kind("timestamp-micros", pa.int64(), unit="microseconds")
NANOS = Kind("timestamp-nanos", pa.int64(), unit="nanoseconds")
TIME_MILLIS = Kind("time-millis", pa.int32(), unit="milliseconds")
TIME_MICROS = Kind("time-micros", pa.int64(), unit="microseconds")
TIME_NANOS = Kind("time-nanos", pa.int64(), unit="nanoseconds")
LOCAL: Mapping[str, Kind] = MappingProxyType(
    {one.name: replace(one, name=f"local-{one.name}") for one in (MILLIS, MICROS, NANOS)}
)
"""The kinds of times without a time zone; they are times in the time zone of the log."""

JSON = Kind("json", pa.string())
"""The kind of texts that are JSON themselves."""

_WHOLE = (INT, LONG, UNSIGNED_INT, UNSIGNED_LONG)


def decimal_kind(precision: int, scale: int) -> Kind:
    """Return the kind of decimals whose unscaled value is stored as bytes, as in Avro."""
    return Kind("decimal", pa.binary(), parts=(precision, scale))


def can_hold(kind: Kind, shape: Plain) -> bool:
    """Return True if a column can hold at least some values of this kind."""
    if kind == NULL:
        return True
    times = shape.type in ("timestamp", "date", "time")
    if times and kind.name == "string":
        return shape.form not in UNITS
    if times and kind in _WHOLE:
        return shape.form in UNITS
    if kind.name in column_type(shape.type).kinds:
        return True
    if decimal_parts(shape.type) is None:
        return False
    return kind.name in ("decimal", "string", "float", "double") or kind in _WHOLE


def plain_values(plain: PlainValues, values: pa.Array, kind: Kind, shape: Plain) -> Fitted:
    """Convert raw values of a kind that the column can hold.

    The value of a misfit is of no meaning. An instant or a date may be outside the range that tables can store.
    """
    if shape.rounding is not None and kind.name in ("float", "double"):
        parts = decimal_parts(shape.type)
        assert parts is not None, "only decimals are rounded"
        return shortest_decimals(values, *parts, shape.rounding)
    if shape.rounding is not None and kind.name in ("string", "enum", "bytes"):
        texts, bad = as_texts(values)
        made, odd, rounded = plain.rounded_texts(replace(shape, form=AS_TEXT), texts)
        return Fitted(made, bad | odd, rounded)
    if kind.name == "decimal":
        return _decimals(values, kind, shape)
    return Fitted(*_exact_values(plain, values, kind, shape), np.zeros(len(values), np.bool_))


def _exact_values(plain: PlainValues, values: pa.Array, kind: Kind, shape: Plain) -> tuple[pa.Array, Mask]:
    """Convert raw values that are not rounded; return the values, and a mask of the misfits."""
    type, fits = column_type(shape.type).arrow, np.zeros(len(values), np.bool_)
    match kind.name:
        case "null":
            return pa.nulls(len(values), type), fits
        case "int" | "long" | "uint32" | "uint64":
            return _whole(plain, values, kind, shape)
        case "float" | "double":
            return _floating(values, shape)
        case "uuid":
            return _uuids(values), fits
        case "date" | "timestamp-millis" | "timestamp-micros" | "timestamp-nanos":
            return plain.of_numbers(replace(shape, form=kind.unit), values)
        case "local-timestamp-millis" | "local-timestamp-micros" | "local-timestamp-nanos":
            return plain.of_local_times(replace(shape, form=kind.unit), values)
        case "time-millis" | "time-micros" | "time-nanos":
            return _times(plain, values, kind, shape)
        case "string" | "enum" | "bytes" | "json" if shape.type != "binary":
            texts, bad = as_texts(values)
            if shape.type == "string":
                return texts, bad
            made, odd = plain.of_texts(
                replace(shape, form=shape.form or AS_TEXT) if decimal_parts(shape.type) else shape, texts
            )
            return made, bad | odd
    return values.cast(type), fits


def as_texts(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Convert bytes to texts; return the texts, and a mask of the values that are not UTF-8."""
    bad = np.zeros(len(values), np.bool_)
    try:
        return values.cast(pa.string()), bad
    except pa.ArrowInvalid:
        texts = list[str | None]()
        for place, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                texts.append(None)
                bad[place] = True
        return pa.array(texts, pa.string()), bad


def _whole(plain: PlainValues, values: pa.Array, kind: Kind, shape: Plain) -> tuple[pa.Array, Mask]:
    """Convert whole numbers to numbers, or to instants in the unit that the log declares."""
    type, bad = column_type(shape.type).arrow, np.zeros(len(values), np.bool_)
    if kind is UNSIGNED_LONG and not pa.types.is_floating(type) and not pa.types.is_decimal(type):
        bad = pc.fill_null(pc.greater(values, pa.scalar(2**63 - 1, values.type)), False).to_numpy(zero_copy_only=False)
        values = _without(values, bad).cast(pa.int64())
    if shape.form in UNITS:
        made, odd = plain.of_numbers(shape, values)
        return made, bad | odd
    if pa.types.is_floating(type):
        most = pa.scalar(2**53, values.type) if values.type.bit_width == 64 else None
        if most is not None:
            outside = pc.greater(values, most)
            if pa.types.is_signed_integer(values.type):
                outside = pc.or_(outside, pc.less(values, pa.scalar(-(2**53), values.type)))
            bad = pc.fill_null(outside, False).to_numpy(zero_copy_only=False)
        return values.cast(pa.float64(), safe=False).cast(type, safe=False), bad
    if pa.types.is_decimal(type):
        # Cast in two steps, because Arrow first requires a decimal type with enough digits for every value of the
        # integer type, even if all values are smaller.
        wide = values.cast(pa.decimal128(20, 0) if kind is UNSIGNED_LONG else pa.decimal128(19, 0))
        return fitted_decimals(wide, type.precision, type.scale)[:2]
    return values.cast(type), bad


def _floating(values: pa.Array, shape: Plain) -> tuple[pa.Array, Mask]:
    type = column_type(shape.type).arrow
    if pa.types.is_decimal(type):
        return shortest_decimals(values, type.precision, type.scale)[:2]
    made = values.cast(type, safe=False)
    lost = pc.and_(pc.is_inf(made), pc.is_finite(values))
    return made, pc.fill_null(lost, False).to_numpy(zero_copy_only=False)


def _times(plain: PlainValues, values: pa.Array, kind: Kind, shape: Plain) -> tuple[pa.Array, Mask]:
    made, bad = plain.of_numbers(Plain("time", kind.unit), values)
    if shape.type == "string" and kind is TIME_MILLIS:
        made = pc.utf8_slice_codeunits(made, 0, len("00:00:00.000"))
    return made, bad


def _uuids(values: pa.Array) -> pa.Array:
    filled = values.cast(pa.binary()).fill_null(bytes(16))
    digits = b"".join(filled.to_pylist()).hex()
    whole = pa.array([digits[start : start + 32] for start in range(0, len(digits), 32)], pa.string())
    cuts = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    text = pc.binary_join_element_wise(*(pc.utf8_slice_codeunits(whole, *cut) for cut in cuts), "-")
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def _decimals(values: pa.Array, kind: Kind, shape: Plain) -> Fitted:
    """Convert unscaled values, which are bytes in big-endian two's complement, to decimals of a column."""
    assert kind.parts is not None
    (precision, scale), to = kind.parts, column_type(shape.type).arrow
    lengths = pc.fill_null(pc.binary_length(values), 1).to_numpy(zero_copy_only=False)
    bad = (lengths > 16) | (lengths < 1)
    filled = _without(values, bad).fill_null(b"\0")
    lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False)
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
    most = pa.scalar(Decimal((0, (9,) * precision, -scale)), made.type)
    outside = pc.or_(pc.greater(made, most), pc.less(made, pc.negate(most)))
    bad |= outside.to_numpy(zero_copy_only=False)
    there = pa.array(~bad & values.is_valid().to_numpy(zero_copy_only=False))
    own = pc.if_else(there, made, pa.scalar(None, made.type))
    fitted, unlike, rounded = fitted_decimals(own, to.precision, to.scale, shape.rounding)
    return Fitted(fitted, bad | unlike, rounded)


def _without(values: pa.Array, bad: Mask) -> pa.Array:
    """Replace some values by null."""
    return pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type)) if bad.any() else values
