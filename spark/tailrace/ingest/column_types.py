"""The types that a log may declare for its columns, in one table: how each kind of source represents their values.

Each reader looks up a declared type in this table. To add a type, add a row to the table. Three modules contain the
code for single types that the table cannot express: `plain_values` converts texts and numbers, `arrow_values` the
values of Parquet, and `column_values` the values of Avro and Protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from tailrace.model.base.time import BEGINNING, END_OF_TIME, FIRST_DAY, LAST_DAY
from tailrace.model.base.types import decimal_parts, element_type, stored_type, struct_fields

WITHOUT_ZONE = "timestamp without a zone"
"""The name for the type of Parquet columns with local times."""

DAY = "[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
ZONE = "(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"
"""The patterns of dates (`DAY`), times of day (`CLOCK`) and time zones in ISO 8601."""


@dataclass(frozen=True)
class TimeScale:
    """The scale of a type for instants or dates: numbers since 1970, of the Arrow type `number`.

    `first` and `last` are the range that tables can store: the years 1 to 9999.
    """

    number: pa.DataType
    first: int
    last: int


@dataclass(frozen=True)
class ColumnType:
    """A type for columns, and the forms of its values in the sources.

    `arrow` is the Arrow type of the column after reading. `parquet` are the kinds of Parquet columns whose values the
    column can hold if they fit (`parquet_kind`). `kinds` are the names of the kinds of Avro and Protobuf values that
    the column can hold (`column_values`). Numbers that are instants, numbers for decimals, and values for JSON
    texts are not included. `times` is None unless the values are instants or dates. A list, a map or a struct has no
    other form than its Arrow type.
    """

    arrow: pa.DataType
    parquet: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    times: TimeScale | None = None

    @property
    def has_times(self) -> bool:
        """Whether the values are instants or dates, or have instants or dates inside."""
        return any(time_scale(type) is not None for type in _leaves(self.arrow))


@lru_cache(maxsize=256)
def column_type(name: str) -> ColumnType:
    """Look up a type that a log may declare, or a type that tables store.

    >>> str(column_type("array<struct<sku:string,price:decimal(4,2)>>").arrow)
    'list<item: struct<sku: string, price: decimal128(4, 2)>>'
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    name = stored_type(name)
    if (element := element_type(name)) is not None:
        return ColumnType(pa.list_(column_type(element).arrow))
    if (fields := struct_fields(name)) is not None:
        return ColumnType(pa.struct([pa.field(field, column_type(type).arrow) for field, type in fields.items()]))
    parts = decimal_parts(name)
    return _SIMPLE[name] if parts is None else ColumnType(pa.decimal128(*parts))


def parquet_type(type: pa.DataType) -> str:
    """Return the name of a Parquet column's type, given the Arrow type with which Arrow reads the column.

    The name is the declared type that the column has, if there is one, and a description otherwise.

    >>> parquet_type(pa.uint16()), parquet_type(pa.timestamp("ns", "UTC")), parquet_type(pa.float32())
    ('int', 'timestamp', 'float')
    """
    if pa.types.is_dictionary(type):
        return parquet_type(type.value_type)
    if pa.types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp" if type.tz else WITHOUT_ZONE
    return _NAMES.get(str(type), str(type))


def parquet_kind(type: pa.DataType) -> str:
    """Return the kind of a Parquet column: the name that all types have in common whose values are read in one way.

    >>> parquet_kind(pa.uint16()), parquet_kind(pa.float16()), parquet_kind(pa.timestamp("ns"))
    ('integer', 'float', 'timestamp without a zone')
    """
    name = parquet_type(type)
    if pa.types.is_integer(type):
        return "integer"
    if pa.types.is_floating(type):
        return "float"
    if pa.types.is_decimal(type) or pa.types.is_date(type) or pa.types.is_time(type):
        return next(kind for kind in ("decimal", "date", "time") if name.startswith(kind))
    return "binary" if pa.types.is_fixed_size_binary(type) else name


def parquet_kinds(declared: str, form: str | None) -> tuple[str, ...]:
    """Return the kinds of Parquet columns whose values a column of a type that is not nested can hold.

    `form` is the unit of instants that are numbers, or the format of instants that are texts, if the log declares it.

    >>> parquet_kinds("timestamp", None), parquet_kinds("date", "seconds")
    (('timestamp', 'timestamp without a zone', 'string'), ('date', 'integer', 'float'))
    """
    kinds = ("decimal", "integer", "float") if decimal_parts(declared) else _SIMPLE[declared].parquet
    if form is None or "%" in form:
        return kinds
    return (*(kind for kind in kinds if kind != "string"), "integer", "float")


_NAMES = {
    "bool": "boolean", "date32[day]": "date",
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int"),
    **dict.fromkeys(("int64", "uint32"), "bigint"),
    **dict.fromkeys(("large_string", "string_view"), "string"),
    **dict.fromkeys(("large_binary", "binary_view"), "binary"),
}  # fmt: skip
"""The names of Arrow types in messages to users, where they differ from Arrow's own names."""

INSTANTS = TimeScale(pa.int64(), BEGINNING, END_OF_TIME)
"""The scale of instants: microseconds since 1970."""

DAYS = TimeScale(pa.int32(), FIRST_DAY, LAST_DAY)
"""The scale of dates: days since 1970."""


def time_scale(type: pa.DataType) -> TimeScale | None:
    """Return the scale of the instants or dates of an Arrow type, or None for a type of other values."""
    return INSTANTS if pa.types.is_timestamp(type) else DAYS if pa.types.is_date32(type) else None


def _leaves(type: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the values inside values of a type that are neither lists nor structs."""
    if pa.types.is_struct(type) or pa.types.is_list(type):
        for number in range(type.num_fields):
            yield from _leaves(type.field(number).type)
    else:
        yield type


_WHOLE_KINDS = ("int", "long", "uint32", "uint64")
_SIMPLE = {
    "string": ColumnType(
        pa.string(), parquet=("string",),
        kinds=("string", "enum", "bytes", "uuid", "time-millis", "time-micros", "json"),
    ),
    "boolean": ColumnType(pa.bool_(), parquet=("boolean",), kinds=("boolean",)),
    "int": ColumnType(pa.int32(), kinds=("int",), parquet=("integer",)),
    "bigint": ColumnType(pa.int64(), kinds=("int", "long", "uint32", "uint64"), parquet=("integer",)),
    "float": ColumnType(pa.float32(), kinds=(*_WHOLE_KINDS, "float", "double"), parquet=("float", "integer")),
    "double": ColumnType(pa.float64(), kinds=(*_WHOLE_KINDS, "float", "double"), parquet=("float", "integer")),
    "date": ColumnType(pa.date32(), kinds=("date", "string"), parquet=("date", "string"), times=DAYS),
    "timestamp": ColumnType(
        pa.timestamp("us", "UTC"),
        kinds=(
            "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
            "local-timestamp-micros", "local-timestamp-nanos", "string",
        ),
        parquet=("timestamp", WITHOUT_ZONE, "string"), times=INSTANTS,
    ),
    "binary": ColumnType(pa.binary(), kinds=("bytes",), parquet=("binary",)),
    "time": ColumnType(
        pa.string(), kinds=("time-millis", "time-micros", "time-nanos", "string"), parquet=("time", "string")
    ),
    "json": ColumnType(pa.string()),
}  # fmt: skip
