"""Make a pyiceberg commit that fails, without a retry, if the table has changed since it was loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    update_table_metadata,
)
from pyiceberg.table.update.snapshot import (
    _ManifestMergeManager,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.typedef import EMPTY_DICT

from tailrace.lake.digests.commit_digest import digest_properties as made_digest
from tailrace.lake.schema.lake_errors import LakeError, MovedError


class _Looking(Transaction):
    """A transaction that builds the table's new metadata once for each change.

    pyiceberg's own transaction copies all metadata at every access, and one commit accesses the metadata eight times.
    If the table has hundreds of snapshots, one copy takes longer than the rest of the commit.
    """

    _made: tuple[object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        if not self._updates:
            return self._table.metadata
        if self._made is None or self._made[0] is not self._updates:
            self._made = self._updates, update_table_metadata(self._table.metadata, self._updates)
        return self._made[1]


@contextmanager
def open_transaction(loaded: Table) -> Iterator[Transaction]:
    """Open a transaction on a loaded table.

    Raises `MovedError` if anything was committed since the table was loaded.
    """
    # By default, if another commit was made first, pyiceberg repeats an append on top of the table's latest snapshot.
    # With no retries, the append fails instead.
    once = {**loaded.metadata.properties, "commit.retry.num-retries": "0"}
    loaded.metadata = loaded.metadata.model_copy(update={"properties": once})
    try:
        with _Looking(loaded) as transaction:
            yield transaction
    except CommitFailedException as error:
        raise MovedError(str(error)) from error
    except ValueError as error:
        # If another writer has committed to another branch of the table, pyiceberg raises a `ValueError` that mentions
        # the sequence number.
        if "sequence number" not in str(error):
            raise
        raise MovedError(str(error)) from error


class _AsWritten(_SnapshotProducer[Any]):
    """A commit that lists each file under the partitioning with which it was written, even if the table's partitioning
    has changed.
    """

    def _manifests(self) -> list[ManifestFile]:
        files, own = self._added_data_files, self._transaction.table_metadata.default_spec_id
        self._others = [file for file in files if file.spec_id != own]
        self._added_data_files = [file for file in files if file.spec_id == own]
        try:
            return super()._manifests()
        finally:
            self._added_data_files = files

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        written = []
        for spec in sorted({file.spec_id for file in self._others}):
            with self.new_manifest_writer(self.spec(spec)) as writer:
                for file in self._others:
                    if file.spec_id == spec:
                        added = ManifestEntryStatus.ADDED
                        writer.add(ManifestEntry.from_args(status=added, snapshot_id=self._snapshot_id, data_file=file))
            written.append(writer.to_manifest_file())
        return super()._process_manifests([*written, *manifests])

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        metadata, collected = self._transaction.table_metadata, SnapshotSummaryCollector()
        specs, schema = metadata.specs(), metadata.schema()
        for file in self._added_data_files:
            collected.add_file(file, schema, specs[file.spec_id])
        for file in self._deleted_data_files:
            collected.remove_file(file, schema, specs[file.spec_id])
        parent = None if self._parent_snapshot_id is None else metadata.snapshot_by_id(self._parent_snapshot_id)
        proof = made_digest(
            metadata, self._parent_snapshot_id, self._snapshot_id, snapshot_properties, self._io,
            self._added_data_files, self._deleted_data_files,
        )  # fmt: skip
        made = Summary(operation=self._operation, **collected.build(), **snapshot_properties, **proof)
        return update_snapshot_summaries(made, None if parent is None else parent.summary)


class Addition(_AsWritten, _MergeAppendFiles):
    """A commit that adds files. If the table has many manifests, the commit merges them into manifests of moderate
    size.
    """

    @classmethod
    def of(cls, transaction: Transaction, properties: Mapping[str, str], branch: str) -> Addition:
        """Prepare a commit to a branch, with these properties."""
        io = transaction._table.io
        made = cls(Operation.APPEND, transaction, io, snapshot_properties=dict(properties), branch=branch)
        made._target_size_bytes = _MANIFEST
        return made


class Exchange(_AsWritten, _OverwriteFiles):
    """A commit that replaces files and keeps the number of manifests small.

    pyiceberg's own overwrite leaves three manifests behind, including a manifest of removed files. Every scan and every
    later commit has to read all three manifests.
    """

    @classmethod
    def of(cls, transaction: Transaction, properties: Mapping[str, str], branch: str) -> Exchange:
        """Prepare a commit to a branch, with these properties."""
        io = transaction._table.io
        return cls(Operation.OVERWRITE, transaction, io, snapshot_properties=dict(properties), branch=branch)

    def _existing_manifests(self) -> list[ManifestFile]:
        return [one for one in super()._existing_manifests() if one.has_added_files() or one.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        manifests = super()._process_manifests(manifests)
        data = [one for one in manifests if one.content == ManifestContent.DATA]
        merging: _ManifestMergeManager[Any] = _ManifestMergeManager(_MANIFEST, MANIFESTS, True, self)
        return merging.merge_manifests(data) + [one for one in manifests if one.content != ManifestContent.DATA]


MANIFESTS = 8
"""The minimum number of a table's manifests at which an `Exchange` merges the manifests."""

_MANIFEST = 256 * 1024
"""The target size of merged manifests, in bytes: enough for some hundreds of files.

A manifest of this size is not merged again. A scan that needs only other days or hours can skip the manifest.
"""


def unchanged_refs(loaded: Table) -> tuple[TableRequirement, ...]:
    """Return the requirements that the table was not replaced, and that its branches and tags have not moved."""
    refs = loaded.metadata.refs.items()
    return (
        AssertTableUUID(uuid=loaded.metadata.table_uuid),
        *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs),
    )


def ref_update(name: str, snapshot: int, type: Literal["tag", "branch"]) -> SetSnapshotRefUpdate:
    """Return the change that sets a branch or tag to a snapshot, with the table's default retention settings."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=type,
        snapshot_id=snapshot,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def committed_snapshot(transaction: Transaction) -> int:
    """Return the id of the snapshot that a transaction is about to commit.

    The id has to be read before the commit, because afterwards other writers may have committed on top of this
    snapshot.
    """
    (made,) = (one.snapshot.snapshot_id for one in transaction._updates if isinstance(one, AddSnapshotUpdate))
    return made


def added_files(loaded: Table, staged: int) -> Iterator[DataFile]:
    """Yield the data files that a snapshot added, including files that were removed from the table later.

    Raises `LakeError` if the snapshot no longer exists.
    """
    snapshot = loaded.metadata.snapshot_by_id(staged)
    if snapshot is None:
        raise LakeError(f"snapshot {staged} of {loaded.name()} is gone: run what wrote it again")
    for manifest in snapshot.manifests(loaded.io):
        if manifest.added_snapshot_id == staged:
            for entry in manifest.fetch_manifest_entry(loaded.io):
                if entry.status == ManifestEntryStatus.ADDED:
                    yield entry.data_file
