"""Convert column types between three forms: Spark SQL type names (used in contracts), Iceberg types, and Arrow
types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tailrace.lake.schema.contracts import Contract
from tailrace.model.base.types import decimal_parts, element_type, struct_fields, struct_type

_SIMPLE: dict[str, IcebergType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "binary": BinaryType(),
}

_NAMES = {"long": "bigint", "timestamptz": "timestamp"}
"""A mapping from Iceberg type names to Spark SQL type names, for the types whose two names differ."""


def iceberg_schema(contract: Contract) -> Schema:
    """Build the Iceberg schema of a contract's table.

    The columns get the field ids from 1 on, in order; nested fields get the following field ids.
    """
    ids = count(1)
    fields = [(next(ids), name, column) for name, column in contract.columns.items()]
    return Schema(
        *(
            NestedField(number, name, _iceberg_type(column.type, ids), required=column.required, doc=column.doc)
            for number, name, column in fields
        )
    )


def arrow_schema(types: Mapping[str, str]) -> pa.Schema:
    """Build an Arrow schema from a mapping of column names to types."""
    return Schema(*_nullable_fields(types, count(1))).as_arrow()


def iceberg_type(name: str) -> IcebergType:
    """Convert a type's name in Spark SQL to an Iceberg type; the ids of nested fields start at 1."""
    return _iceberg_type(name, count(1))


def type_name(type: IcebergType) -> str:
    """Return the name in Spark SQL of an Iceberg type.

    >>> type_name(LongType()), type_name(DecimalType(10, 2)), type_name(iceberg_type("array<struct<at:timestamp>>"))
    ('bigint', 'decimal(10,2)', 'array<struct<at:timestamp>>')
    """
    if isinstance(type, ListType):
        return f"array<{type_name(type.element_type)}>"
    if isinstance(type, StructType):
        return struct_type({field.name: type_name(field.field_type) for field in type.fields})
    return _NAMES.get(str(type), re.sub(r"\s+", "", str(type)))


def _iceberg_type(name: str, ids: Iterator[int]) -> IcebergType:
    if (element := element_type(name)) is not None:
        return ListType(next(ids), _iceberg_type(element, ids), element_required=False)
    if (fields := struct_fields(name)) is not None:
        return StructType(*_nullable_fields(fields, ids))
    parts = decimal_parts(name)
    return _SIMPLE[name] if parts is None else DecimalType(*parts)


def _nullable_fields(types: Mapping[str, str], ids: Iterator[int]) -> list[NestedField]:
    return [NestedField(next(ids), name, _iceberg_type(type, ids), required=False) for name, type in types.items()]
