"""Partitioning and sort order in the words of contracts: `kind`, `day(at)`, `bucket(16, who)`, `who desc`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import Transform, VoidTransform, parse_transform
from pyiceberg.types import IcebergType

from tailrace.lake.schema.contracts import PANE, Contract
from tailrace.lake.schema.shapes import iceberg_schema
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.base.errors import Fault

_TERM = re.compile(
    r"(?:(?P<time>year|month|day|hour)\((?P<of>\w+)\)"
    r"|(?P<sized>bucket|truncate)\((?P<size>[1-9]\d{0,8}), ?(?P<from>\w+)\)"
    r"|(?P<column>\w+))(?: (?P<direction>asc|desc))?"
)


SPANS = ("year", "month", "day", "hour")
"""The transforms of instants and dates that are spans of time."""

SMALL = ("__runs", "__commits", "__signals", "__complete")
"""The endings of the names of tables that are written without Spark, in a way that takes no partition transform."""


@dataclass(frozen=True)
class Term:
    """A column or a transform of one, by Iceberg's name of the transform; `direction` counts only in a sort order."""

    column: str
    transform: str = "identity"
    direction: SortDirection = SortDirection.ASC

    @property
    def name(self) -> str:
        """The name of a partition field of this term."""
        made = re.sub(r"[^a-z0-9]+", "_", self.transform).strip("_")
        return self.column if self.transform == "identity" else f"{self.column}_{made}"

    def __str__(self) -> str:
        return _term_text(self.column, self.transform) + (" desc" if self.direction is SortDirection.DESC else "")


def term(text: str) -> Term:
    """Parse a text as a term. Raises `ValueError` where the text is no term.

    >>> str(term("bucket(16, who) desc")), term("day(at)").name
    ('bucket(16, who) desc', 'at_day')
    """
    found = _TERM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no column, and no transform of one")
    way = SortDirection.DESC if found["direction"] == "desc" else SortDirection.ASC
    if found["column"]:
        return Term(found["column"], direction=way)
    if found["time"]:
        return Term(found["of"], found["time"], way)
    return Term(found["from"], f"{found['sized']}[{found['size']}]", way)


def partition_spec(contract: Contract, schema: Schema) -> PartitionSpec:
    """Build the partitioning that a contract says, over the columns of a schema."""
    fields = []
    for place, one in enumerate(map(term, contract.partition_by)):
        source = schema.find_field(one.column).field_id
        fields.append(
            PartitionField(source, PARTITION_FIELD_ID_START + place, parse_transform(one.transform), one.name)
        )
    return PartitionSpec(*fields)


def coarser(contract: Contract) -> Contract:
    """Return a contract without the spans of time that it partitions by: the layout of rows that lie in too many.

    >>> from tailrace.lake.schema.contracts import Column
    >>> coarser(Contract("t", "", {"at": Column("timestamp", "")}, ("who", "day(at)"))).partition_by
    ('who',)
    """
    return replace(contract, partition_by=tuple(one for one in contract.partition_by if not is_span(term(one))))


def is_span(one: Term) -> bool:
    """Tell whether a term is a span of time."""
    return one.transform in SPANS


def sort_order(contract: Contract, schema: Schema) -> SortOrder:
    """Build the sort order that a contract says, over the columns of a schema; nulls come last."""
    if not contract.sort_by:
        return UNSORTED_SORT_ORDER
    return SortOrder(*(sort_field(one, schema) for one in map(term, contract.sort_by)), order_id=1)


def sort_field(one: Term, schema: Schema) -> SortField:
    """Build the field of a sort order for a term."""
    source = schema.find_field(one.column).field_id
    return SortField(source, parse_transform(one.transform), one.direction, NullOrder.NULLS_LAST)


def partitioned_by(spec: PartitionSpec, schema: Schema) -> dict[str, str]:
    """Return the terms that a spec partitions by, in the words of contracts, with the names of its fields."""
    fields = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    return {
        _term_text(schema.find_column_name(field.source_id) or "?", str(field.transform)): field.name
        for field in fields
    }


def span_columns(spec: PartitionSpec, schema: Schema) -> list[str]:
    """List the columns by whose spans of time a spec partitions."""
    spans = [field for field in spec.fields if str(field.transform) in SPANS]
    return [name for field in spans if (name := schema.find_column_name(field.source_id))]


def sorted_by(order: SortOrder, schema: Schema) -> list[str]:
    """List the terms that a table is sorted by, in the words of contracts."""
    found = []
    for field in order.fields:
        text = _term_text(schema.find_column_name(field.source_id) or "?", str(field.transform))
        first = " nulls first" if field.null_order is NullOrder.NULLS_FIRST else ""
        found.append(text + (" desc" if field.direction is SortDirection.DESC else "") + first)
    return found


def _term_text(column: str, transform: str) -> str:
    """Write a transform of a column in the words of contracts.

    >>> _term_text("who", "bucket[16]"), _term_text("at", "day"), _term_text("kind", "identity")
    ('bucket(16, who)', 'day(at)', 'kind')
    """
    if transform == "identity":
        return column
    name, _, size = transform.removesuffix("]").partition("[")
    return f"{name}({size}, {column})" if size else f"{name}({column})"


def layout_faults(data: Mapping[str, Any], contract: Contract) -> Iterator[Fault]:
    """Find the faults of the partitioning and the sort order in a contract's file."""
    schema = iceberg_schema(contract)
    for name in ("partition_by", "sort_by"):
        terms = data.get(name, [])
        if not isinstance(terms, list) or not all(isinstance(one, str) for one in terms):
            yield Fault(name, terms, "a list of texts", 'write ["day(at)"]')
            continue
        yield from _term_faults(name, terms, schema)
        if terms and name == "partition_by" and contract.table.endswith(SMALL):
            yield Fault(name, terms, "nothing: it has few rows, and is written without Spark", "write []")
        read = contract.table.endswith(LEDGER) and name == "partition_by"
        if read and "kind" not in terms:
            yield Fault(name, terms, f"kind among them: {PANE}s and partials are read apart", 'write ["kind"]')


def _term_faults(name: str, terms: Iterable[str], schema: Schema) -> Iterator[Fault]:
    seen, timed = set[str](), set[str]()
    for place, text in enumerate(terms):
        path = f"{name}[{place}]"
        try:
            parsed = term(text)
        except ValueError:
            yield Fault(
                path, text, "a column, or year, month, day, hour, bucket(N, ...), truncate(N, ...) of one", "mend it"
            )
            continue
        if parsed.name in seen:
            yield Fault(path, text, "each term once", "take it out")
        seen.add(parsed.name)
        if name == "partition_by" and is_span(parsed):
            if parsed.column in timed:
                yield Fault(path, text, f"one span of {parsed.column}", "keep the shortest alone")
            timed.add(parsed.column)
        if name == "partition_by" and parsed.direction is SortDirection.DESC:
            yield Fault(path, text, "no direction", "leave desc out")
        type = _type_of(schema, parsed.column)
        if type is None:
            yield Fault(
                path, text, f"one of the columns {', '.join(schema.column_names)}", "name a column of the table"
            )
        elif not _transform(parsed).can_transform(type):
            yield Fault(path, text, f"a transform that takes a {type}", "take another transform or column")


def _type_of(schema: Schema, column: str) -> IcebergType | None:
    return next((field.field_type for field in schema.fields if field.name == column), None)


def _transform(one: Term) -> Transform[Any, Any]:
    return parse_transform(one.transform)
