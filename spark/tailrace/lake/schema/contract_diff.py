"""The changes that bring a live table to its contract, and what each of them would break.

Every change is a commit of metadata: no row is read or written. A change is safe if all who read or write the table can
go on; it is destructive if somebody cannot, or finds something else; and it is refused where metadata alone cannot make
it, or where values that were billed by would be lost. Nothing is changed here (`change.migration` does that).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, IcebergType, ListType, NestedField, StructType

from tailrace.lake.schema.contracts import Column, Contract
from tailrace.lake.schema.layouts import partitioned_by, sorted_by, term
from tailrace.lake.schema.shapes import iceberg_type, type_text


class Effect(Enum):
    """The effect of a change on those who read or write the table."""

    SAFE = "safe"
    DESTRUCTIVE = "destructive"
    REFUSED = "refused"


class Kind(Enum):
    """The kind of a change."""

    MAKE = "make table"
    ADD = "add column"
    WIDEN = "widen"
    RETYPE = "change type"
    RENAME = "rename"
    REORDER = "reorder columns"
    DOCUMENT = "document"
    DROP = "drop column"
    REQUIRE = "make required"
    LOOSEN = "make optional"
    PARTITION = "partition by"
    UNPARTITION = "partition no more by"
    SORT = "sort by"
    SET = "set property"
    UPGRADE = "upgrade format"
    DOWNGRADE = "downgrade format"


COLUMNS = frozenset(
    {Kind.ADD, Kind.WIDEN, Kind.RETYPE, Kind.RENAME, Kind.REORDER, Kind.DROP, Kind.REQUIRE, Kind.LOOSEN}
)
"""The kinds of changes after which a column has another name, other values, or another place."""


@dataclass(frozen=True)
class ContractChange:
    """A change of a table. `path` is the column, the fields below it included, or the property.

    `breaks` says who is hurt and how, and for a refused change what to do in its place; for a safe change it is empty
    or a warning.
    """

    kind: Kind
    path: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    effect: Effect = Effect.SAFE
    breaks: str = ""

    @property
    def name(self) -> str:
        """The column or property, its path joined by dots."""
        return ".".join(self.path)

    def __str__(self) -> str:
        match self.kind:
            case Kind.ADD:
                return f"add column {self.name} ({self.after})"
            case Kind.DROP:
                return f"drop column {self.name} ({self.before})"
            case Kind.WIDEN | Kind.RETYPE:
                word = "widen" if self.kind is Kind.WIDEN else "change the type of"
                return f"{word} {self.name} from {self.before} to {self.after}"
            case Kind.RENAME:
                return f"rename column {self.before} to {self.after}"
            case Kind.DOCUMENT:
                return f"document {self.name or 'the table'}: {self.after!r}, it said {self.before!r}"
            case Kind.REQUIRE | Kind.LOOSEN:
                return f"{self.kind.value}: {self.name}"
            case Kind.UNPARTITION:
                return f"partition no more by {self.before}"
            case Kind.SORT:
                return f"sort by {self.after or 'nothing'}, it was by {self.before or 'nothing'}"
            case Kind.SET:
                return f"set property {self.name} to {self.after}, it was {self.before or 'not set'}"
            case Kind.UPGRADE | Kind.DOWNGRADE:
                return f"{self.kind.value} from version {self.before} to {self.after}"
            case _:
                return " ".join(filter(None, (self.kind.value, self.name, self.after)))


def stated(contract: Contract) -> dict[str, str]:
    """Return the properties of a contract's table: the contract's own, and its doc, owner, retention and key."""
    return {
        **contract.properties,
        "comment": contract.doc,
        "owner": contract.owner,
        RETENTION: contract.retention,
        KEY: ", ".join(contract.key),
    }


RETENTION = "tailrace.retention"
KEY = "tailrace.key"


def changes(contract: Contract, table: Table) -> list[ContractChange]:
    """List the changes that bring a loaded table to its contract, in the order in which they are made."""
    return [
        *_columns(contract, table),
        *_partitioning(contract, table),
        *_sorting(contract, table),
        *_properties(contract, table),
        *_format(contract, table),
    ]


def matched(contract: Contract, schema: Schema) -> dict[str, NestedField]:
    """Match each column of the contract with a live column: by its name, else by the latest of its former names."""
    live = {field.name: field for field in schema.fields}
    found = {name: live[name] for name in contract.columns if name in live}
    for name, column in contract.columns.items():
        former = next((one for one in reversed(column.was) if one in live and one not in contract.columns), None)
        if name not in live and former is not None and live[former] not in found.values():
            found[name] = live[former]
    return found


def _columns(contract: Contract, table: Table) -> Iterator[ContractChange]:
    schema = table.schema()
    there = matched(contract, schema)
    for name, column in contract.columns.items():
        agreed = iceberg_type(column.shape)
        field = there.get(name)
        if field is None:
            yield _added(name, column, agreed, table)
            continue
        if field.name != name:
            yield _renamed(field.name, name, table)
        yield from _retyped((name,), field.field_type, agreed, table)
        if column.required and not field.required:
            yield _required(name, field, table)
        elif field.required and not column.required:
            yield ContractChange(Kind.LOOSEN, (name,), breaks="readers may find a null where there was none")
        if (field.doc or "") != column.doc:
            yield ContractChange(Kind.DOCUMENT, (name,), field.doc or "", column.doc)
    ids = {field.field_id for field in there.values()}
    for field in schema.fields:
        if field.field_id not in ids:
            yield _dropped((field.name,), field.field_type)
    before = [field.field_id for field in schema.fields if field.field_id in ids]
    if before != [there[name].field_id for name in contract.columns if name in there]:
        yield ContractChange(
            Kind.REORDER, after=", ".join(contract.columns), breaks="who reads by position, not by name"
        )


def _added(name: str, column: Column, agreed: IcebergType, table: Table) -> ContractChange:
    change = ContractChange(Kind.ADD, (name,), after=type_text(agreed))
    if column.required and rows(table):
        return _but(change, Effect.REFUSED, "the rows that are there have no value of it: declare it optional")
    if column.required:
        return _but(change, Effect.DESTRUCTIVE, "a stream that was started before writes no value of it, and stops")
    return _free(change, name, table)


def _renamed(before: str, name: str, table: Table) -> ContractChange:
    warning = f"SQL that says {before}; streams, backfills and audits of a definition that says it go on"
    return _free(ContractChange(Kind.RENAME, (name,), before, name, breaks=warning), name, table)


def _free(change: ContractChange, name: str, table: Table) -> ContractChange:
    """Make a change that gives a column a name destructive where another column had that name before."""
    if any(field.name == name for schema in table.schemas().values() for field in schema.fields):
        return _but(
            change,
            Effect.DESTRUCTIVE,
            f"another column was called {name}: a stream or backfill that was started while it was would write to this "
            "one or read it; stop them first",
        )
    return change


def _retyped(path: tuple[str, ...], live: IcebergType, agreed: IcebergType, table: Table) -> Iterator[ContractChange]:
    if type_text(live) == type_text(agreed):
        return
    if isinstance(live, StructType) and isinstance(agreed, StructType):
        yield from _fields(path, live, agreed, table)
    elif isinstance(live, ListType) and isinstance(agreed, ListType):
        yield from _retyped((*path, "element"), live.element_type, agreed.element_type, table)
    else:
        change = ContractChange(Kind.WIDEN, path, type_text(live), type_text(agreed))
        if _promoted(live, agreed):
            yield change
            return
        change = ContractChange(Kind.RETYPE, path, type_text(live), type_text(agreed))
        if rows(table) or len(path) > 1:
            mend = f"declare the new column under another name, and keep {'.'.join(path)} as it is"
            yield _but(change, Effect.REFUSED, f"no value of it would be left in the table: {mend}")
        else:
            yield _but(change, Effect.DESTRUCTIVE, "whoever was started before writes values of the other type")


def _fields(path: tuple[str, ...], live: StructType, agreed: StructType, table: Table) -> Iterator[ContractChange]:
    there = {field.name: field for field in live.fields}
    for field in agreed.fields:
        if field.name in there:
            yield from _retyped((*path, field.name), there.pop(field.name).field_type, field.field_type, table)
        else:
            yield ContractChange(Kind.ADD, (*path, field.name), after=type_text(field.field_type))
    for name, field in there.items():
        yield _dropped((*path, name), field.field_type)


def _promoted(live: IcebergType, agreed: IcebergType) -> bool:
    """Tell whether Iceberg may widen `live` to `agreed`. pyiceberg's own `promote` lets a decimal's scale change."""
    if isinstance(live, DecimalType) and isinstance(agreed, DecimalType):
        return live.scale == agreed.scale and live.precision < agreed.precision
    return (type_text(live), type_text(agreed)) in _WIDER


_WIDER = {("int", "bigint"), ("float", "double")}


def _dropped(path: tuple[str, ...], live: IcebergType) -> ContractChange:
    change = ContractChange(Kind.DROP, path, type_text(live))
    return _but(change, Effect.DESTRUCTIVE, "its values are in snapshots from before alone, and go when those expire")


def _required(name: str, field: NestedField, table: Table) -> ContractChange:
    change = ContractChange(Kind.REQUIRE, (name,))
    empty = nulls(table, field.field_id)
    if empty is None:
        return _but(change, Effect.REFUSED, "its files do not say whether it has nulls: leave it optional")
    if empty:
        return _but(change, Effect.REFUSED, f"{empty} rows have no value of it: leave it optional")
    return _but(change, Effect.DESTRUCTIVE, "a stream or backfill that has no value of it cannot write any more")


def _partitioning(contract: Contract, table: Table) -> Iterator[ContractChange]:
    live = partitioned_by(table.spec(), table.schema())
    agreed = _terms(contract.partition_by, contract, table)
    for text, name in live.items():
        if text not in agreed:
            yield ContractChange(Kind.UNPARTITION, (name,), text, text)
    for text, to in agreed.items():
        if text not in live:
            yield ContractChange(Kind.PARTITION, (to,))


def _terms(texts: Iterable[str], contract: Contract, table: Table) -> dict[str, str]:
    """Map a contract's terms, with the former names of columns that are still to be renamed, to their own texts."""
    there = matched(contract, table.schema())
    terms = [term(text) for text in texts]
    return {str(replace(one, column=there[one.column].name) if one.column in there else one): str(one) for one in terms}


def _sorting(contract: Contract, table: Table) -> Iterator[ContractChange]:
    live, agreed = sorted_by(table.sort_order(), table.schema()), _terms(contract.sort_by, contract, table)
    if live != list(agreed):
        yield ContractChange(Kind.SORT, (), ", ".join(live), ", ".join(agreed.values()))


def _properties(contract: Contract, table: Table) -> Iterator[ContractChange]:
    for name, value in stated(contract).items():
        if (there := table.properties.get(name)) != value and (value or there):
            yield ContractChange(Kind.SET, (name,), there or "", value)


def _format(contract: Contract, table: Table) -> Iterator[ContractChange]:
    live, agreed = int(table.format_version), contract.format_version
    if live < agreed:
        breaks = f"readers that know no version {agreed}, and there is no way back"
        yield ContractChange(Kind.UPGRADE, (), str(live), str(agreed), Effect.DESTRUCTIVE, breaks)
    elif live > agreed:
        breaks = "a table cannot go back to an older format: say the version that it has in its contract"
        yield ContractChange(Kind.DOWNGRADE, (), str(live), str(agreed), Effect.REFUSED, breaks)


def rows(table: Table) -> int:
    """Count the rows at the branch or tag that has the most; rows that are deleted on reading count, too."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = [one for one in table.metadata.snapshots if one.snapshot_id in heads and one.summary is not None]
    totals = (one.summary.additional_properties.get("total-records", "1") for one in snapshots if one.summary)
    return max(map(int, totals), default=0)


def nulls(table: Table, column: int) -> int | None:
    """Count the rows with a null in a column, by the files' statistics; None where a file does not say."""
    found = 0
    for task in table.scan().plan_files():
        counts: Mapping[int, int] = task.file.null_value_counts or {}
        if column in counts:
            found += counts[column]
        elif task.file.record_count:
            return None
    return found


def _but(change: ContractChange, effect: Effect, breaks: str) -> ContractChange:
    return replace(change, effect=effect, breaks=breaks)
