"""Keep the properties of logs' and ledgers' commits after the commits' snapshots have expired (rule X3).

The clock, watermarks, signals and offsets of an epoch are properties of its commit (`epoch_properties`). A replay, a
catch-up and an audit read the properties of all epochs. So before snapshots expire, their properties are archived as
rows of a separate table for each log or ledger; readers combine the archive and the remaining snapshots. Archiving a
snapshot again has no effect.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.snapshots import Operation, Snapshot

from tailrace.lake.catalog.lake import Lake, head_of, lineage, properties_of
from tailrace.lake.catalog.table_protocol import BEGINS
from tailrace.lake.digests.commit_digest import CHECKSUMS, DIGEST, CommitDigest
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import commits_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import instant, moment


@dataclass(frozen=True)
class ArchivedCommit:
    """A commit to a table's main branch: its properties, and the number of rows that it `added`.

    `sequence` is Iceberg's sequence number, and `at` is the commit's time in microseconds. A commit that only rewrote
    existing rows has added no rows. `proof` has the commit's digest and the entries of Iceberg's summary that are
    needed to check its origin (`PROOF`).
    """

    snapshot: int
    parent: int | None
    sequence: int
    at: int
    added: int
    properties: Mapping[str, str]
    proof: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> CommitDigest | None:
        """The commit's digest; None for a commit by Spark or another writer, or from before digests were introduced."""
        return CommitDigest.parse(self.proof.get(DIGEST, ""))

    @property
    def by_spark(self) -> bool:
        """Whether Spark made the commit."""
        return any(name in self.proof for name in _SPARK)

    def follows(self, earlier: ArchivedCommit) -> bool:
        """Return True if this commit may be the next commit after `earlier`."""
        if self.parent is not None:
            return self.parent == earlier.snapshot
        # In metadata that pyiceberg writes, a snapshot loses its reference to its parent when the parent is removed.
        digest = self.digest
        return digest is None or earlier.digest is None or digest.since == earlier.snapshot


_SPARK = ("app-id", "spark.app.id")

PROOF = ("operation", "added-records", "deleted-records", DIGEST, CHECKSUMS, *_SPARK)
"""The entries of a snapshot's summary that are archived for audits of the snapshot's origin.

Tailrace's properties are archived in any case.
"""

_KEPT = "iceberg:"
"""The prefix that the names in `PROOF` have among an archived commit's properties."""


@dataclass(frozen=True)
class Commits:
    """The commits of a table's main branch, the earliest first; `whole` means that no commit is missing."""

    all: tuple[ArchivedCommit, ...]
    whole: bool


def archive(lake: Lake, table: str, snapshots: Iterable[Snapshot]) -> None:
    """Archive the properties of the given snapshots of a log or a ledger."""
    commits = [_commit(snapshot) for snapshot in snapshots]
    if not commits:
        return
    name = lake.ensure(commits_contract(table)).name()[-1]
    while True:
        expected, archived = lake.rows(name)
        there = {row["snapshot"] for row in archived}
        rows = [_row(commit) for commit in commits if commit.snapshot not in there]
        if not rows:
            return
        # Another process may archive first, perhaps the same snapshots.
        with suppress(MovedError):
            lake.enter(name, rows, {}, expected)
            return


def commits(lake: Lake, table: str, until: int | None = None) -> Commits:
    """Read the commits of a table's main branch: the archived commits, followed by the commits of existing snapshots.

    `until` is the last snapshot to read, by default the current snapshot. All commits belong to one generation.
    """
    loaded = lake.table(table)
    # The archive is read after the snapshots, so that no commit is missed whose snapshot expires in between.
    live = [_commit(snapshot) for snapshot in lineage(loaded, head_of(loaded).snapshot if until is None else until)]
    name = archive_name(lake, table)
    archived = [] if name is None else [_archived(row) for row in lake.table(name).scan().to_arrow().to_pylist()]
    known = {commit.snapshot for commit in live}
    first = min((commit.sequence for commit in live), default=0)
    history = sorted(
        [*live, *(commit for commit in archived if commit.snapshot not in known and commit.sequence < first)],
        key=lambda commit: commit.sequence,
    )
    begins = max((place for place, commit in enumerate(history) if BEGINS in commit.properties), default=0)
    return Commits(tuple(history[begins:]), _whole(history[begins:]))


def archive_name(lake: Lake, table: str) -> str | None:
    """Return the name of the archive of a table's commits, or None if the table has no archive.

    Answers have no archive; only their ledger has an archive.
    """
    name = commits_contract(table).table
    return name if lake.has(name) and not lake.has(ledger_name(table)) else None


def _whole(found: list[ArchivedCommit]) -> bool:
    """Return True if each commit follows the previous commit, beginning with the table's first commit."""
    # A snapshot that has lost its parent looks like a first snapshot, so the sequence number decides.
    first = bool(found) and (found[0].sequence == 1 or BEGINS in found[0].properties)
    return first and all(later.follows(earlier) for earlier, later in itertools.pairwise(found))


def _commit(snapshot: Snapshot) -> ArchivedCommit:
    summary = snapshot.summary
    brought = summary is not None and summary.operation is Operation.APPEND
    added = summary.additional_properties.get("added-records", "0") if summary and brought else "0"
    return ArchivedCommit(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number or 0,
        snapshot.timestamp_ms * 1000,
        int(added),
        properties_of(snapshot),
        {} if summary is None else _proof({**summary.additional_properties, "operation": summary.operation.value}),
    )


def _proof(summary: Mapping[str, str]) -> dict[str, str]:
    return {name: str(summary[name]) for name in PROOF if name in summary}


def _row(commit: ArchivedCommit) -> dict[str, Any]:
    return {
        "snapshot": commit.snapshot,
        "parent": commit.parent,
        "sequence": commit.sequence,
        "at": moment(commit.at),
        "epoch": int(commit.properties["epoch"]) if "epoch" in commit.properties else None,
        "added": commit.added,
        "said": json.dumps(_said(commit), sort_keys=True),
    }


def _archived(row: Mapping[str, Any]) -> ArchivedCommit:
    numbers = (row["snapshot"], row["parent"], row["sequence"])
    said: dict[str, str] = json.loads(row["said"])
    proof = {name.removeprefix(_KEPT): said.pop(name) for name in [*said] if name.startswith(_KEPT)}
    return ArchivedCommit(*numbers, instant(row["at"]), row["added"], said, proof)


def _said(commit: ArchivedCommit) -> dict[str, str]:
    return {**commit.properties, **{_KEPT + name: value for name, value in commit.proof.items()}}
