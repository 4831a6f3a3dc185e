"""How the live tables differ from their contracts and definition, read from the catalog without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, StructType

from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import Contract, spark_type
from tailrace.lake.errors import OtherDefinitionError
from tailrace.model.chains import Definition

_WORDS = {"long": "bigint", "timestamptz": "timestamp"}
"""Iceberg's names of types that the contracts call otherwise."""


@dataclass(frozen=True)
class Drift:
    """One table: whether it is there, and how it differs from its contract."""

    contract: Contract
    made: bool
    differences: tuple[str, ...]

    @property
    def state(self) -> Literal["not made yet", "as agreed", "differs"]:
        """How it stands, in words."""
        if not self.made:
            return "not made yet"
        return "differs" if self.differences else "as agreed"


def drift(lake: Lake, contract: Contract) -> Drift:
    """How a contract's table differs from it. Raises `LakeError` where the catalog cannot be opened."""
    if not lake.has(contract.table):
        return Drift(contract, False, ())
    return Drift(contract, True, tuple(_differences(contract, lake.table(contract.table))))


def _differences(contract: Contract, table: Table) -> Iterator[str]:
    yield from _columns(contract, table.schema())
    spec = [f"{field.transform} of {field.name}" for field in table.spec().fields]
    agreed = [f"identity of {name}" for name in contract.partition_by]
    if spec != agreed:
        yield f"partitioned by {', '.join(spec) or 'nothing'}, agreed is {', '.join(agreed) or 'nothing'}"
    if table.metadata.format_version != contract.format_version:
        yield f"format version {table.metadata.format_version}, agreed is {contract.format_version}"
    for name, value in contract.properties.items():
        if table.properties.get(name) != value:
            yield f"property {name} is {table.properties.get(name, 'not set')}, agreed is {value}"


def _columns(contract: Contract, schema: Schema) -> Iterator[str]:
    live = {field.name: field for field in schema.fields}
    for name, column in contract.columns.items():
        agreed, field = _squeezed(spark_type(column.shape)), live.pop(name, None)
        if field is None:
            yield f"column {name} ({agreed}) is not there"
            continue
        if said(field.field_type) != agreed:
            yield f"column {name} is {said(field.field_type)}, agreed is {agreed}"
        if field.required != column.required:
            words = ("may be null", "is required")
            yield f"column {name} {words[field.required]}, agreed is that it {words[column.required]}"
        if (field.doc or "") != column.doc:
            yield f"column {name} has the doc {field.doc or ''!r}, agreed is {column.doc!r}"
    for name, field in live.items():
        yield f"column {name} ({said(field.field_type)}) is not in the contract"


def said(type: IcebergType) -> str:
    """An Iceberg type in the words of the contracts.

    >>> from pyiceberg.types import DecimalType, LongType
    >>> said(LongType()), said(DecimalType(10, 2))
    ('bigint', 'decimal(10,2)')
    """
    if isinstance(type, ListType):
        return f"array<{said(type.element_type)}>"
    if isinstance(type, StructType):
        return f"struct<{','.join(f'{field.name}:{said(field.field_type)}' for field in type.fields)}>"
    return _WORDS.get(str(type), _squeezed(str(type)))


def _squeezed(type: str) -> str:
    return re.sub(r"\s+", "", type)


def check_definition(lake: Lake, pipeline: Definition) -> None:
    """Raises `OtherDefinitionError` where the definition's ledger was made by a definition with another meaning.

    The meaning of a later stage holds that of the stages before it.
    """
    table = f"{pipeline.name}__ledger"
    if lake.has(table):
        found = lake.head(table).said.get("fingerprint")
        if found != pipeline.fingerprint:
            raise OtherDefinitionError(
                f"{table} holds the results of a definition with another meaning (fingerprint {found}, this one has "
                f"{pipeline.fingerprint}): see what the change means with `tailrace plan` and make it so with "
                "`tailrace apply`, give the changed definition another name, or undo the change"
            )
