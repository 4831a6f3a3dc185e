"""Convert between Iceberg layouts and a contract's partitioning and sorting terms, such as `day(at)` or `who desc`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import VoidTransform, parse_transform

from tailrace.lake.schema.contracts import PANE, Contract
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.base.errors import Fault

_TERM = re.compile(
    r"(?:(?P<time>year|month|day|hour)\((?P<of>\w+)\)"
    r"|(?P<sized>bucket|truncate)\((?P<size>[1-9]\d{0,8}), ?(?P<from>\w+)\)"
    r"|(?P<column>\w+))(?: (?P<direction>asc|desc))?"
)

SPANS = ("year", "month", "day", "hour")
"""The partition transforms that map a timestamp or a date to a span of time."""

SMALL = ("__runs", "__commits", "__signals", "__complete")
"""The name suffixes of the tables that are written without Spark and cannot have partition transforms."""


@dataclass(frozen=True)
class Term:
    """A column, or a transform of a column; `transform` is Iceberg's name of the transform.

    `direction` matters only in a sort order.

    >>> str(Term("who", "bucket[16]", SortDirection.DESC)), str(Term("at", "day")), str(Term("kind"))
    ('bucket(16, who) desc', 'day(at)', 'kind')
    """

    column: str
    transform: str = "identity"
    direction: SortDirection = SortDirection.ASC

    @property
    def name(self) -> str:
        """The name of the partition field for this term."""
        made = re.sub(r"[^a-z0-9]+", "_", self.transform).strip("_")
        return self.column if self.transform == "identity" else f"{self.column}_{made}"

    @property
    def is_span(self) -> bool:
        """Whether the term's transform maps instants to spans of time."""
        return self.transform in SPANS

    def __str__(self) -> str:
        name, _, size = self.transform.removesuffix("]").partition("[")
        inside = f"{size}, {self.column}" if size else self.column
        text = self.column if self.transform == "identity" else f"{name}({inside})"
        return f"{text} desc" if self.direction is SortDirection.DESC else text


def term(text: str) -> Term:
    """Parse a contract's term for partitioning or sorting. Raises `ValueError` if the text is not a term.

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
    """Build the Iceberg partition spec of a contract; the column ids are taken from `schema`."""
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(one.column).field_id, place, parse_transform(one.transform), one.name)
            for place, one in enumerate(map(term, contract.partition_by), PARTITION_FIELD_ID_START)
        )
    )


def without_spans(contract: Contract) -> Contract:
    """Return a copy of a contract that is not partitioned by spans of time.

    The copy is used for rows that lie in too many spans of time.

    >>> from tailrace.lake.schema.contracts import Column
    >>> without_spans(Contract("t", "", {"at": Column("timestamp", "")}, ("who", "day(at)"))).partition_by
    ('who',)
    """
    return replace(contract, partition_by=tuple(one for one in contract.partition_by if not term(one).is_span))


def sort_order(contract: Contract, schema: Schema) -> SortOrder:
    """Build the Iceberg sort order of a contract, with nulls last; the column ids are taken from `schema`."""
    if not contract.sort_by:
        return UNSORTED_SORT_ORDER
    fields = (
        SortField(
            schema.find_field(one.column).field_id, parse_transform(one.transform), one.direction, NullOrder.NULLS_LAST
        )
        for one in map(term, contract.sort_by)
    )
    return SortOrder(*fields, order_id=1)


def partition_terms(spec: PartitionSpec, schema: Schema) -> dict[str, str]:
    """Map each partitioning term, in the notation of contracts, to the name of its partition field."""
    fields = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    return {
        str(Term(schema.find_column_name(field.source_id) or "?", str(field.transform))): field.name for field in fields
    }


def span_columns(spec: PartitionSpec, schema: Schema) -> list[str]:
    """List the columns that a partitioning divides into spans of time."""
    spans = [field for field in spec.fields if str(field.transform) in SPANS]
    return [name for field in spans if (name := schema.find_column_name(field.source_id))]


def in_one_span(spec: PartitionSpec, schema: Schema, first: int, last: int) -> bool:
    """Return True if a partitioning puts two instants, and all between them, into the same spans of time."""
    spans = [field for field in spec.fields if str(field.transform) in SPANS]
    at = [field.transform.transform(schema.find_type(field.source_id)) for field in spans]
    return all(span(first) == span(last) for span in at)


def sort_terms(order: SortOrder, schema: Schema) -> list[str]:
    """List the terms of an Iceberg sort order, in the notation of contracts."""
    found = []
    for field in order.fields:
        own = Term(schema.find_column_name(field.source_id) or "?", str(field.transform), field.direction)
        found.append(f"{own} nulls first" if field.null_order is NullOrder.NULLS_FIRST else str(own))
    return found


def layout_faults(data: Mapping[str, Any], contract: Contract) -> Iterator[Fault]:
    """Yield the faults in the partitioning and the sort order of a contract's file."""
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
    types = {field.name: field.field_type for field in schema.fields}
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
        if name == "partition_by" and parsed.is_span:
            if parsed.column in timed:
                yield Fault(path, text, f"one span of {parsed.column}", "keep the shortest alone")
            timed.add(parsed.column)
        if name == "partition_by" and parsed.direction is SortDirection.DESC:
            yield Fault(path, text, "no direction", "leave desc out")
        type = types.get(parsed.column)
        if type is None:
            yield Fault(path, text, f"one of the columns {', '.join(types)}", "name a column of the table")
        elif not parse_transform(parsed.transform).can_transform(type):
            yield Fault(path, text, f"a transform that takes a {type}", "take another transform or column")
