"""Convert the shapes of contracts to Iceberg types, and Iceberg types to the words of contracts."""

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
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tailrace.lake.schema.contracts import Contract, Shape
from tailrace.model.base.types import decimal_parts

_SIMPLE: dict[str, IcebergType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "binary": BinaryType(),
}


def iceberg_schema(contract: Contract) -> Schema:
    """Build the schema of a contract's table, with field ids in column order and the docs of its columns."""
    ids = count(1)
    fields = [(next(ids), name, column) for name, column in contract.columns.items()]
    return Schema(
        *(
            NestedField(number, name, _type(column.shape, ids), required=column.required, doc=column.doc)
            for number, name, column in fields
        )
    )


def arrow_schema(columns: Mapping[str, Shape]) -> pa.Schema:
    """Build the Arrow schema of columns with these shapes."""
    ids = count(1)
    fields = (NestedField(next(ids), name, _type(shape, ids), required=False) for name, shape in columns.items())
    return Schema(*fields).as_arrow()


def iceberg_type(shape: Shape) -> IcebergType:
    """Convert a shape to an Iceberg type, its fields numbered from 1."""
    return _type(shape, count(1))


def type_text(type: IcebergType) -> str:
    """Write an Iceberg type in the words of the contracts.

    >>> from pyiceberg.types import DecimalType, LongType
    >>> type_text(LongType()), type_text(DecimalType(10, 2))
    ('bigint', 'decimal(10,2)')
    """
    if isinstance(type, ListType):
        return f"array<{type_text(type.element_type)}>"
    if isinstance(type, StructType):
        return f"struct<{','.join(f'{field.name}:{type_text(field.field_type)}' for field in type.fields)}>"
    return _WORDS.get(str(type), re.sub(r"\s+", "", str(type)))


_WORDS = {"long": "bigint", "timestamptz": "timestamp"}
"""The contracts' words for types that Iceberg calls otherwise, by Iceberg's names."""


def _type(shape: Shape, ids: Iterator[int]) -> IcebergType:
    if isinstance(shape, str):
        parts = decimal_parts(shape)
        return _SIMPLE[shape] if parts is None else DecimalType(*parts)
    if isinstance(shape, list):
        return ListType(next(ids), _type(shape[0], ids), element_required=False)
    return StructType(*(NestedField(next(ids), name, _type(inner, ids)) for name, inner in shape.items()))
