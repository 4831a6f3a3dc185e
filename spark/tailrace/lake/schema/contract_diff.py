"""Find the changes that make a live table match its contract, and what each change would break.

Every change is a commit of metadata: no row is read or written. A change is safe if all readers and writers of the
table can continue. A change is destructive if a reader or writer cannot continue, or gets different data. A change is
refused if it cannot be made by changing metadata alone, or if values that were used for billing would be lost. This
module only finds changes; the module `change.migration` makes the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, NestedField, StructType

from tailrace.lake.schema.contracts import Column, Contract
from tailrace.lake.schema.iceberg_types import iceberg_type, type_name
from tailrace.lake.schema.layouts import partition_terms, sort_terms, term
from tailrace.model.base.types import widens


class Effect(Enum):
    """The effect of a change on the readers and writers of the table."""

    SAFE = "safe"
    DESTRUCTIVE = "destructive"
    REFUSED = "refused"


class Kind(Enum):
    """The kinds of changes to a live table that can make the table match its contract.

    `sentence` describes a change of the kind; the words in braces are attributes of the change.
    """

    sentence: str

    def __new__(cls, label: str, sentence: str) -> Kind:
        kind = object.__new__(cls)
        kind._value_, kind.sentence = label, sentence
        return kind

    ADD = "add column", "add column {name} ({after})"
    WIDEN = "widen", "widen {name} from {before} to {after}"
    RETYPE = "change type", "change the type of {name} from {before} to {after}"
    RENAME = "rename", "rename column {before} to {after}"
    REORDER = "reorder columns", "reorder columns {after}"
    DOCUMENT = "document", "document {name}: {after!r}, it said {before!r}"
    DROP = "drop column", "drop column {name} ({before})"
    REQUIRE = "make required", "make required: {name}"
    LOOSEN = "make optional", "make optional: {name}"
    PARTITION = "partition by", "partition by {name}"
    UNPARTITION = "partition no more by", "partition no more by {before}"
    SORT = "sort by", "sort by {after}, it was by {before}"
    SET = "set property", "set property {name} to {after}, it was {before}"
    UPGRADE = "upgrade format", "upgrade format from version {before} to {after}"
    DOWNGRADE = "downgrade format", "downgrade format from version {before} to {after}"


COLUMNS = frozenset(
    {Kind.ADD, Kind.WIDEN, Kind.RETYPE, Kind.RENAME, Kind.REORDER, Kind.DROP, Kind.REQUIRE, Kind.LOOSEN}
)
"""The kinds of changes that add or drop a column, or that change the name, values or position of a column."""

_EMPTY = {Kind.SORT: "nothing", Kind.SET: "not set"}
"""The words to show for an empty `before` or `after` of a change; the keys are the kinds of changes."""


@dataclass(frozen=True)
class ContractChange:
    """A change of a table. `path` names a column, a nested field with its enclosing columns, or a property.

    `breaks` states which readers or writers would be affected, and how. For a refused change, `breaks` also states what
    to do instead. For a safe change, `breaks` is empty or a warning.
    """

    kind: Kind
    path: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    effect: Effect = Effect.SAFE
    breaks: str = ""

    @property
    def name(self) -> str:
        """The dotted path of the column or property that changes."""
        return ".".join(self.path)

    def __str__(self) -> str:
        before, after = (text or _EMPTY.get(self.kind, "") for text in (self.before, self.after))
        return self.kind.sentence.format(name=self.name, before=before, after=after)

    def destructive(self, breaks: str) -> ContractChange:
        """Return this change, marked as destructive; `breaks` states what the change would break."""
        return replace(self, effect=Effect.DESTRUCTIVE, breaks=breaks)

    def refused(self, breaks: str) -> ContractChange:
        """Return this change, marked as refused; `breaks` states why."""
        return replace(self, effect=Effect.REFUSED, breaks=breaks)


def table_properties(contract: Contract) -> dict[str, str]:
    """Return all properties that a contract's table should have.

    The contract's doc, owner, retention and key are also stored as table properties.
    """
    return {
        **contract.properties,
        "comment": contract.doc,
        "owner": contract.owner,
        "tailrace.retention": contract.retention,
        "tailrace.key": ", ".join(contract.key),
    }


def contract_changes(contract: Contract, table: Table) -> list[ContractChange]:
    """List the changes that make a loaded table match its contract, in the order in which the changes must be made."""
    return [
        *_columns(contract, table),
        *_partitioning(contract, table),
        *_sorting(contract, table),
        *_properties(contract, table),
        *_format(contract, table),
    ]


def match_columns(contract: Contract, schema: Schema) -> dict[str, NestedField]:
    """Match each column of a contract with a column of the live table.

    A column is matched by its present name. If the table has no column of this name, the column is matched by the
    latest of its former names that the table has.
    """
    live = {field.name: field for field in schema.fields}
    found = {name: live[name] for name in contract.columns if name in live}
    for name, column in contract.columns.items():
        former = next((one for one in reversed(column.was) if one in live and one not in contract.columns), None)
        if name not in live and former is not None and live[former] not in found.values():
            found[name] = live[former]
    return found


def _columns(contract: Contract, table: Table) -> Iterator[ContractChange]:
    schema = table.schema()
    there = match_columns(contract, schema)
    for name, column in contract.columns.items():
        field = there.get(name)
        if field is None:
            yield _added(name, column, table)
            continue
        if field.name != name:
            yield _renamed(field.name, name, table)
        yield from _retyped((name,), field.field_type, iceberg_type(column.type), table)
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
        breaks = "readers by position, not by name"
        yield ContractChange(Kind.REORDER, after=", ".join(contract.columns), breaks=breaks)


def _added(name: str, column: Column, table: Table) -> ContractChange:
    change = ContractChange(Kind.ADD, (name,), after=column.type)
    if column.required and most_rows(table):
        return change.refused("the rows that are there have no value of it: declare it optional")
    if column.required:
        return change.destructive("a stream that was started before writes no value of it, and stops")
    return _free(change, name, table)


def _renamed(before: str, name: str, table: Table) -> ContractChange:
    warning = f"SQL that says {before}; streams, backfills and audits of a definition that says it go on"
    return _free(ContractChange(Kind.RENAME, (name,), before, name, breaks=warning), name, table)


def _free(change: ContractChange, name: str, table: Table) -> ContractChange:
    """Return `change`, which gives a column the name `name`.

    If another column had this name earlier, the returned change is marked as destructive.
    """
    if any(field.name == name for schema in table.schemas().values() for field in schema.fields):
        return change.destructive(
            f"another column was called {name}: a stream or backfill that was started while it was would write to this "
            "one or read it; stop them first"
        )
    return change


def _retyped(path: tuple[str, ...], live: IcebergType, agreed: IcebergType, table: Table) -> Iterator[ContractChange]:
    """Yield the changes that convert a live column's type, including nested fields, to the contract's type."""
    before, after = type_name(live), type_name(agreed)
    if before == after:
        return
    if isinstance(live, StructType) and isinstance(agreed, StructType):
        there = {field.name: field.field_type for field in live.fields}
        for field in agreed.fields:
            own = (*path, field.name)
            if field.name in there:
                yield from _retyped(own, there.pop(field.name), field.field_type, table)
            else:
                yield ContractChange(Kind.ADD, own, after=type_name(field.field_type))
        for name, type in there.items():
            yield _dropped((*path, name), type)
    elif isinstance(live, ListType) and isinstance(agreed, ListType):
        yield from _retyped((*path, "element"), live.element_type, agreed.element_type, table)
    # The function `promote` of pyiceberg is not used, because it would also allow a change of a decimal's scale.
    elif widens(before, after):
        yield ContractChange(Kind.WIDEN, path, before, after)
    else:
        change = ContractChange(Kind.RETYPE, path, before, after)
        if most_rows(table) or len(path) > 1:
            mend = f"declare the new column under another name, and keep {change.name} as it is"
            yield change.refused(f"no value of it would be left in the table: {mend}")
        else:
            yield change.destructive("whoever was started before writes values of the other type")


def _dropped(path: tuple[str, ...], live: IcebergType) -> ContractChange:
    change = ContractChange(Kind.DROP, path, type_name(live))
    return change.destructive("its values are in snapshots from before alone, and go when those expire")


def _required(name: str, field: NestedField, table: Table) -> ContractChange:
    change = ContractChange(Kind.REQUIRE, (name,))
    empty = null_count(table, field.field_id)
    if empty is None:
        return change.refused("its files do not say whether it has nulls: leave it optional")
    if empty:
        return change.refused(f"{empty} rows have no value of it: leave it optional")
    return change.destructive("a stream or backfill that has no value of it cannot write any more")


def _partitioning(contract: Contract, table: Table) -> Iterator[ContractChange]:
    live = partition_terms(table.spec(), table.schema())
    agreed = _terms(contract.partition_by, contract, table)
    for text, name in live.items():
        if text not in agreed:
            yield ContractChange(Kind.UNPARTITION, (name,), text, text)
    for text, to in agreed.items():
        if text not in live:
            yield ContractChange(Kind.PARTITION, (to,))


def _terms(texts: Iterable[str], contract: Contract, table: Table) -> dict[str, str]:
    """Return a dict with one item for each of a contract's partitioning or sorting terms.

    The key is the term written with the live table's column names. The value is the same term written with the
    contract's column names.
    """
    there = match_columns(contract, table.schema())
    terms = [term(text) for text in texts]
    return {str(replace(one, column=there[one.column].name) if one.column in there else one): str(one) for one in terms}


def _sorting(contract: Contract, table: Table) -> Iterator[ContractChange]:
    live, agreed = sort_terms(table.sort_order(), table.schema()), _terms(contract.sort_by, contract, table)
    if live != list(agreed):
        yield ContractChange(Kind.SORT, (), ", ".join(live), ", ".join(agreed.values()))


def _properties(contract: Contract, table: Table) -> Iterator[ContractChange]:
    for name, value in table_properties(contract).items():
        if (there := table.properties.get(name)) != value and (value or there):
            yield ContractChange(Kind.SET, (name,), there or "", value)


def _format(contract: Contract, table: Table) -> Iterator[ContractChange]:
    live, agreed = int(table.format_version), contract.format_version
    versions = (), str(live), str(agreed)
    if live < agreed:
        breaks = f"readers that know no version {agreed}, and there is no way back"
        yield ContractChange(Kind.UPGRADE, *versions).destructive(breaks)
    elif live > agreed:
        breaks = "a table cannot go back to an older format: say the version that it has in its contract"
        yield ContractChange(Kind.DOWNGRADE, *versions).refused(breaks)


def most_rows(table: Table) -> int:
    """Return the largest row count of any branch or tag of a table.

    Rows that are only marked as deleted are counted.
    """
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    summaries = (one.summary for one in table.metadata.snapshots if one.snapshot_id in heads)
    totals = (one.additional_properties.get("total-records", "1") for one in summaries if one is not None)
    return max(map(int, totals), default=0)


def null_count(table: Table, column: int) -> int | None:
    """Return the number of nulls in a column from the files' statistics, or None if a file has no such statistics."""
    found = 0
    for task in table.scan().plan_files():
        counts: Mapping[int, int] = task.file.null_value_counts or {}
        if column in counts:
            found += counts[column]
        elif task.file.record_count:
            return None
    return found
