"""Read and change the lake's Iceberg tables with pyiceberg, without a JVM. Spark accesses the same tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from tailrace.lake.catalog.backends import catalog_kind, open_catalog
from tailrace.lake.catalog.events import Notice, ignore_notice
from tailrace.lake.catalog.table_protocol import MAIN, MAINTAINED, Commit, FileChange, Head
from tailrace.lake.catalog.transactions import (
    Addition,
    Exchange,
    added_files,
    committed_snapshot,
    open_transaction,
    ref_update,
    unchanged_refs,
)
from tailrace.lake.digests.commit_digest import summary_of
from tailrace.lake.metadata.null_lists import correct_scans
from tailrace.lake.metadata.shared_parts import share_parts
from tailrace.lake.schema.column_names import conform_rows
from tailrace.lake.schema.contract_diff import table_properties
from tailrace.lake.schema.contract_files import apply_contract_file
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.formats import check_format, format_properties
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.lake_errors import CatalogError, LakeError, MovedError
from tailrace.lake.schema.layouts import partition_spec, sort_order, term, without_spans
from tailrace.lake.schema.table_names import ledger_name
from tailrace.settings import Settings

correct_scans()
share_parts()

__all__ = ["MAIN", "PREFIX", "Commit", "Head", "Lake", "head_of", "lineage", "no_rows", "properties_of"]

MANY = 16
"""The minimum number of files at which `gather` merges a small table's files."""

PREFIX = "tailrace."
"""The prefix of the names of Tailrace's snapshot properties."""

_TRIES = 20
"""The maximum number of attempts at a metadata commit, such as moving a branch, if other commits interfere."""


@dataclass(frozen=True)
class Lake:
    """The tables of one namespace of the catalog.

    `tell` is called with each notice of an event. If `looks` is set, the lake is only read, and no namespace is
    created.
    """

    settings: Settings
    tell: Callable[[Notice], None] = field(default=ignore_notice, compare=False, repr=False)
    looks: bool = field(default=False, compare=False, repr=False)

    @cached_property
    def catalog(self) -> Catalog:
        """The opened catalog. A missing namespace of the lake is created, unless the lake was opened only for
        reading.
        """
        there = catalog_kind(self.settings)
        try:
            catalog = open_catalog(self.settings, makes=not self.looks)
            if not self.looks and not catalog.namespace_exists(self.settings.namespace):
                catalog.create_namespace_if_not_exists(self.settings.namespace)
        except LakeError:
            raise
        except Exception as error:
            raise LakeError(
                f"the catalog {there.label} cannot be opened ({str(error).strip()}): check that it is one of Iceberg "
                "and that it may be used, or set TAILRACE_CATALOG_URI (for SQLite, TAILRACE_WAREHOUSE) to another"
            ) from error
        return catalog

    @property
    def exists(self) -> bool:
        """Whether the catalog exists; this property neither opens nor creates the catalog.

        For a catalog in a remote service, the value is always True, because only a request could show whether it
        exists.
        """
        return catalog_kind(self.settings).exists

    @property
    def tables(self) -> list[str]:
        """The sorted names of the namespace's tables. The list is empty if the lake does not exist yet."""
        if not self.exists:
            return []
        return sorted(name for _, name in self.catalog.list_tables(self.settings.namespace))

    def spark_name(self, table: str, branch: str | None = None) -> str:
        """Return the name that Spark SQL uses for a table, or for a branch of the table."""
        suffix = "" if branch is None else f".`branch_{branch}`"
        return f"`{self.settings.catalog}`.`{self.settings.namespace}`.`{table}`{suffix}"

    def identifier(self, table: str) -> str:
        """Return the table's name for Spark's readers and procedures, which expect the name without quotes."""
        return f"{self.settings.catalog}.{self.settings.namespace}.{table}"

    def has(self, table: str) -> bool:
        """Return True if the table exists."""
        return self.exists and self.catalog.table_exists((self.settings.namespace, table))

    def find(self, table: str) -> Table | None:
        """Load a table's current state; return None if the table does not exist.

        This method sends one request to the catalog; calling `has` and then `table` sends two requests. Raises
        `DamagedError` if the table's metadata is missing or unreadable, and `FormatError` if the table's format is
        newer than this version of Tailrace knows.
        """
        try:
            found = self.catalog.load_table((self.settings.namespace, table)) if self.exists else None
        except NoSuchTableError:
            return None
        if found is not None:
            check_format(table, found.properties)
        return found

    def table(self, table: str) -> Table:
        """Load a table's current state. Raises `LakeError` if the table does not exist."""
        if (found := self.find(table)) is not None:
            return found
        of = self.settings
        where = f"there is no table {of.namespace}.{table} in {of.warehouse}{of.unplaced}"
        if self.has(ledger_name(table)):
            raise LakeError(
                f"{where}: {table} is an earlier stage, which has its ledger alone; write answers=True in its "
                "definition, and the next stream of it makes the table"
            )
        raise LakeError(
            f"{where}: start a stream of its definition first, or set TAILRACE_WAREHOUSE to the lake that has it"
        )

    def ensure(self, contract: Contract, properties: Mapping[str, str] | None = None) -> Table:
        """Return a contract's table. A missing table is created, with `properties` in its first snapshot.

        The table and its empty first snapshot are created in one commit. So every table has a snapshot. A branch can
        start from this snapshot, and the next commit can require it as the current snapshot. No reader ever sees the
        table without `properties`.
        """
        if self.has(contract.table):
            return self.table(contract.table)
        contract = apply_contract_file(contract, self.settings.contracts)
        schema, first_layout = iceberg_schema(contract), without_spans(contract)
        first = {PREFIX + name: value for name, value in (properties or {}).items()}
        try:
            making = self.catalog.create_table_transaction(
                (self.settings.namespace, contract.table),
                schema,
                location=catalog_kind(self.settings).location(contract.table),
                partition_spec=partition_spec(first_layout, schema),
                sort_order=sort_order(contract, schema),
                properties={
                    **table_properties(contract),
                    **format_properties(),
                    "format-version": str(contract.format_version),
                },
            )
            if contract != first_layout:
                # If rows belong to very many days or hours, they are written under this first partitioning, which has
                # no time fields (`lake.catalog.data_files`).
                with making.update_spec() as spec:
                    for one in (one for one in map(term, contract.partition_by) if one.is_span):
                        spec.add_field(one.column, one.transform, one.name)
            with Addition.of(making, first, MAIN):
                pass
            making.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException):
            if not self.has(contract.table):
                raise
        return self.table(contract.table)

    def drop(self, table: str) -> None:
        """Remove a table and its files."""
        name, place = (self.settings.namespace, table), self.table(table).location()
        (self.catalog.purge_table if self.settings.on_s3 else self.catalog.drop_table)(name)
        if not self.settings.on_s3:
            # The folder is removed here because the catalog's purge operation would leave it, and would warn about each
            # file that has already expired.
            shutil.rmtree(place.removeprefix("file://"), ignore_errors=True)

    def head(self, table: str, branch: str = MAIN) -> Head:
        """Return the current head of a branch."""
        return head_of(self.table(table), branch)

    def refs(self, table: str) -> Mapping[str, int]:
        """Return a table's branches and tags as a mapping from the name to the snapshot's id."""
        return {name: ref.snapshot_id for name, ref in self.table(table).metadata.refs.items()}

    def commits(self, table: str) -> list[Commit]:
        """List the retained commits of the main branch, the latest first. Another program's commit has none of
        Tailrace's properties.
        """
        loaded = self.table(table)
        return [Commit(one.snapshot_id, properties_of(one)) for one in lineage(loaded, head_of(loaded).snapshot)]

    def move(self, table: str, branch: str, to: int, expected: int | None) -> None:
        """Move a branch from snapshot `expected` to snapshot `to`; if `expected` is None, create the branch.

        Does nothing if the branch is already at snapshot `to`. Raises `MovedError` if the branch is at another snapshot
        than `expected`, or exists although `expected` is None. If a commit to another branch interferes, the move is
        tried again. If the catalog's reply is lost, the branch is checked: the move has succeeded if the branch now
        contains snapshot `to`.
        """
        update = ref_update(branch, to, "branch")
        for _ in range(_TRIES):
            loaded = self.table(table)
            stands = ref_of(loaded, branch)
            if stands == to:
                return
            if stands != expected:
                break
            try:
                self.catalog.commit_table(loaded, (AssertRefSnapshotId(ref=branch, snapshot_id=expected),), (update,))
                return
            except CommitFailedException:
                continue
            except Exception:
                # The move may have succeeded despite the error, and other writers may have committed on top of the
                # snapshot.
                if not self._has_made(table, (to,), branch):
                    raise
                return
        raise MovedError(f"branch {branch} of {table} moved away from snapshot {expected}")

    def name(self, table: str, tag: str, snapshot: int) -> None:
        """Tag a snapshot to keep it from expiring. Raises `LakeError` if the snapshot has already expired."""

        def tagged(loaded: Table) -> tuple[TableUpdate, ...]:
            if loaded.metadata.snapshot_by_id(snapshot) is None:
                raise LakeError(
                    f"snapshot {snapshot} of {loaded.name()} has expired: start anew, from where the table is now"
                )
            return (ref_update(tag, snapshot, "tag"),)

        self._change(table, tagged)

    def unname(self, table: str, names: Collection[str]) -> None:
        """Remove branches and tags by name; names that do not exist are skipped."""
        self._change(
            table,
            lambda loaded: tuple(RemoveSnapshotRefUpdate(ref_name=one) for one in names if ref_of(loaded, one)),
        )

    def forget(self, table: str, snapshots: Collection[int]) -> None:
        """Remove from the table's metadata the given snapshots that have no branch or tag; their files remain."""

        def removed(loaded: Table) -> tuple[TableUpdate, ...]:
            named = {ref.snapshot_id for ref in loaded.metadata.refs.values()}
            there = {one.snapshot_id for one in loaded.metadata.snapshots}
            ids = sorted((there & {*snapshots}) - named)
            return (RemoveSnapshotsUpdate(snapshot_ids=ids),) if ids else ()

        self._change(table, removed, unchanged_refs)

    def _change(
        self,
        table: str,
        updates: Callable[[Table], tuple[TableUpdate, ...]],
        asserted: Callable[[Table], tuple[TableRequirement, ...]] = lambda loaded: (),
    ) -> None:
        """Commit metadata changes that do not depend on other commits; try again if other commits interfere."""
        for _ in range(_TRIES):
            loaded = self.table(table)
            made = updates(loaded)
            if not made:
                return
            # pyiceberg raises `ValueError` if another writer has made the same change meanwhile. The next attempt then
            # finds nothing to change.
            with suppress(CommitFailedException, ValueError):
                self.catalog.commit_table(loaded, asserted(loaded), made)
                return
        raise MovedError(f"{table} is committed to so often that its metadata could not be changed: try again")

    def mark(self, table: str, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit a snapshot that has these properties and changes no rows; return the snapshot's id.

        Raises `MovedError` if main is not at snapshot `expected`.
        """
        return self.enter(table, (), properties, expected)

    def write_files(self, table: str, rows: pa.Table) -> list[DataFile]:
        """Write rows to files that are not yet part of the table; return the files.

        A column that has a former name is written under its current name; a missing column is filled with nulls. Raises
        `LakeError` for a column that the table no longer has.
        """
        # The import is here, not at the top, because the module imports pandas, and most commands never write rows.
        from tailrace.lake.catalog.data_files import write_files

        if not rows.num_rows:
            return []
        loaded = self.table(table)
        return list(write_files(loaded, conform_rows(loaded, rows)))

    def change(self, table: str, change: FileChange, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit a change of files to main, with these properties; return the new snapshot's id.

        The files that the change adds must already be written. Raises `MovedError` if main is not at snapshot
        `expected`. If the catalog's reply is lost but the commit is found on main, the commit counts as successful.
        """
        return self._commit(self._expected(table, expected), change, properties)

    def _commit(self, loaded: Table, change: FileChange, properties: Mapping[str, str]) -> int:
        """Commit a change of files to main if main has not moved since the table was loaded.

        Returns the new snapshot's id. Raises `MovedError` if main has moved.
        """
        own = {PREFIX + name: value for name, value in properties.items()}
        made: list[int] = []
        try:
            with open_transaction(loaded) as transaction:
                with (Exchange if change.removed else Addition).of(transaction, own, MAIN) as producer:
                    for file in change.added:
                        producer.append_data_file(file)
                    for file in change.removed:
                        producer.delete_data_file(file)
                made.append(committed_snapshot(transaction))
        except Exception:
            if not self._has_made(loaded.name()[-1], made):
                raise
        return made[0]

    def _has_made(self, table: str, made: Collection[int], branch: str = MAIN) -> bool:
        """Return True if one of the snapshots is on a branch; False also if the catalog does not answer."""
        try:
            after = self.table(table)
        except CatalogError:
            # The error of the commit says more: whether the commit was made is unknown.
            return False
        return any(one.snapshot_id in made for one in lineage(after, ref_of(after, branch)))

    def graft(self, table: str, staged: int, properties: Mapping[str, str], expected: int | None) -> int:
        """Add to main the files that snapshot `staged` added to another branch; return the new snapshot's id.

        The files are not rewritten. Raises `MovedError` if main is not at snapshot `expected`, and `LakeError` if
        snapshot `staged` no longer exists.
        """
        loaded = self._expected(table, expected)
        return self._commit(loaded, FileChange(tuple(added_files(loaded, staged))), properties)

    def gather(self, table: str) -> None:
        """Merge a small table's files if there are at least `MANY` files; give up if another writer commits
        meanwhile.
        """
        loaded = self.table(table)
        head = head_of(loaded)
        if int(summary_of(loaded.current_snapshot()).get("total-data-files", 0)) < MANY:
            return
        old = tuple(task.file for task in loaded.scan().plan_files())
        files = self.write_files(table, loaded.scan().to_arrow())
        with suppress(MovedError):
            self.change(table, FileChange(tuple(files), old), {**head.properties, MAINTAINED: "true"}, head.snapshot)

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """Read all rows of a small table; return the id of the snapshot that was read, and the rows."""
        loaded = self.table(table)
        return head_of(loaded).snapshot, loaded.scan().to_arrow().to_pylist()

    def enter(
        self, table: str, rows: Sequence[Mapping[str, Any]], properties: Mapping[str, str], expected: int | None
    ) -> int:
        """Append rows to main if main is at snapshot `expected`; return the new snapshot's id.

        A missing column is filled with nulls. Raises `MovedError` if main is at another snapshot.
        """
        loaded = self._expected(table, expected)
        entered = pa.Table.from_pylist([dict(row) for row in rows], schema=loaded.schema().as_arrow())
        return self._commit(loaded, FileChange(tuple(self.write_files(table, entered))), properties)

    def _expected(self, table: str, expected: int | None) -> Table:
        loaded = self.table(table)
        if ref_of(loaded, MAIN) != expected:
            raise MovedError(f"{MAIN} of {table} moved away from snapshot {expected}")
        return loaded


def no_rows(schema: Schema) -> pa.Table:
    """Return an empty Arrow table with the schema's columns, for a commit that has only properties."""
    return schema.as_arrow().empty_table()


def ref_of(table: Table, name: str) -> int | None:
    """Return the snapshot id of a loaded table's branch or tag, or None if no branch or tag has this name."""
    ref = table.metadata.refs.get(name)
    return ref.snapshot_id if ref else None


def head_of(table: Table, branch: str = MAIN) -> Head:
    """Return the head of a branch of a loaded table."""
    ref = table.metadata.refs.get(branch)
    if ref is None:
        return Head(None, {})
    at = table.metadata.snapshot_by_id(ref.snapshot_id)
    held = summary_of(at).get("total-records")
    records = None if held is None else int(held)
    for snapshot in lineage(table, ref.snapshot_id):
        properties = properties_of(snapshot)
        if properties:
            return Head(ref.snapshot_id, properties, records)
    return Head(ref.snapshot_id, {}, records)


def lineage(table: Table, snapshot_id: int | None) -> list[Snapshot]:
    """List a snapshot and its retained ancestors, the latest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    found = []
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        found.append(snapshot)
        snapshot_id = snapshot.parent_snapshot_id
    return found


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the snapshot properties that Tailrace set, with the prefix removed from their names."""
    summary = summary_of(snapshot).items()
    return {name[len(PREFIX) :]: str(value) for name, value in summary if name.startswith(PREFIX)}
